"""A stage for attacks on checked totals: a session whose aggregator or parties lie about commitments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from smpc_dp.crypto import commit
from smpc_dp.crypto.labels import Label
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.checked_total import Committed, commitment_to
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.errors import Code, PeerFault, SmpcError, VerificationError
from smpc_dp.privacy.secagg_plan import SecAggPlan, plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from tests.faults.simulated import AGGREGATOR, KINDS, LENGTH, SimulatedRun, Tamper

# The order of ristretto255 [RFC 9496].
ORDER = (1 << 252) + 27742317777372353535851937790883648493
CHECKED: Mapping[str, type[msgspec.Struct]] = {
    **KINDS,
    m.ADVERTISE: m.CheckedAdvertise,
    m.MERKLE_COMMITMENT: m.CheckedMerkleCommitment,
    m.MASKED: m.CheckedMasked,
    m.RESULT: m.CheckedResult,
}
# A change of a result under way: (the run, its receiver, the honest result) -> what is sent.
ResultLie = Callable[["CheckedRun", str, m.CheckedResult], m.CheckedResult]


class CheckedRun(SimulatedRun):
    """A run with checked totals that remembers each party's vector and commitment, as no attacker could."""

    def __init__(self, parties: int, *, plan: SecAggPlan | None = None, **more: Any) -> None:
        encoding = Encoding.plan(length=LENGTH, lower=-9.0, upper=9.0, precision=1e-3, parties=parties)
        plan = plan or plan_secagg(parties, dropout=0.25, corrupt=0.0)
        given: dict[str, Any] = {"parameters": SecAggParameters(encoding, plan, total="checked")}
        super().__init__(parties, **given | more)
        self.committed: dict[str, Committed] = {}
        self.lanes: dict[str, RingVector] = {}

    def execute(self, tamper: Tamper = lambda envelope: (envelope,)) -> CheckedRun:
        """Run to the end."""

        def remember(envelope: Envelope) -> Iterable[Envelope]:
            if envelope.step == m.ADVERTISE:
                state = self.parties[envelope.sender].state
                self.committed[envelope.sender] = state.committed
                self.lanes[envelope.sender] = state.vector
            return tamper(envelope)

        super().execute(remember)
        return self

    def change(self, envelope: Envelope, **fields: Any) -> Envelope:
        """Return the message with other content, signed by its sender."""
        message = decode(envelope.body, CHECKED[envelope.step], envelope.sender)
        return self.write(envelope, msgspec.structs.replace(message, **fields))

    def body_of(self, step: str, name: str) -> Any:
        """Return what a party sent in a step."""
        [envelope] = [e for e in self.sent if (e.step, e.sender) == (step, name)]
        return decode(envelope.body, CHECKED[step], name)

    def lie_in_result(self, lie: ResultLie) -> CheckedRun:
        """Run with an honest aggregator but for its last message, which says what `lie` returns."""

        def tamper(envelope: Envelope) -> Iterable[Envelope]:
            if envelope.step != m.RESULT:
                return (envelope,)
            honest = decode(envelope.body, m.CheckedResult, AGGREGATOR)
            return (self.write(envelope, lie(self, envelope.receiver, honest)),)

        return self.execute(tamper)

    # What an attacker makes

    def pack(self, total: Sequence[int] | RingVector) -> bytes:
        """Return integers, reduced to ring elements, as they travel."""
        modulus = 1 << 8 * self.encoding.element_bytes
        reduced = [int(element) % modulus for element in total]
        return self.encoding.pack(np.array(reduced, dtype=self.encoding.dtype))

    def total_of(self, result: m.CheckedResult) -> list[int]:
        """Return the ring elements of a total."""
        return [int(element) for element in self.encoding.unpack(result.total)]

    def commit(self, elements: Sequence[int] | RingVector, blinding: bytes) -> bytes:
        """Return the commitment to ring elements."""
        return commit_to(self.parameters, elements, blinding)

    def sign_opening(self, signer: str, run_id: bytes, digest: bytes, point: bytes, name: str = "") -> bytes:
        """Return a commitment with the signature of it, as it is of `name`, by `signer`."""
        statement = keys.value_opening(self.context, run_id, digest, name or signer, point)
        return point + self.signers[signer].sign(statement)

    def values_tree(self, leaves: dict[int, bytes]) -> MerkleCommitment:
        """Return the tree over what was advertised, with other leaves for some."""
        return MerkleCommitment(self.context, Label.VALUES, self.leaves() | leaves)

    def leaves(self) -> dict[int, bytes]:
        """Return the leaf of each party that advertised."""
        sent = [e for e in self.sent if e.step == m.ADVERTISE]
        return {
            self.number(e.sender): decode(e.body, m.CheckedAdvertise, e.sender).value_commitment for e in sent
        }

    def advertise_leaf(self, envelope: Envelope, leaf: bytes) -> Envelope:
        """Return an advertisement with another leaf; the party's machine goes on as if it had made it."""
        changed, machine = self.advertise(envelope, value_commitment=leaf), self.parties[envelope.sender]
        drawn = msgspec.structs.replace(machine.state.drawn, value_commitment=leaf)
        machine._state = msgspec.structs.replace(machine.state, drawn=drawn)
        return changed

    # What tests assert

    def assert_no_value(self, *corrupt: str) -> None:
        """No honest party has a value, and each error names the aggregator or nobody."""
        for name in self.names:
            if name not in corrupt:
                assert name in self.errors, f"{name} has a value"
                assert_names_the_aggregator(self.errors[name])

    def assert_all_refuse(self, reason: str, *corrupt: str) -> None:
        """Each honest party blames the aggregator for this reason."""
        self.assert_no_value(*corrupt)
        for name in self.names:
            if name not in corrupt:
                self.assert_blames(name, AGGREGATOR, reason)


def assert_no_total(simulated: CheckedRun) -> None:
    """The aggregator has found a wrong total: it sends none, and the error of each names nobody."""
    assert m.RESULT not in {envelope.step for envelope in simulated.sent}
    for name in (AGGREGATOR, *simulated.names):
        error = simulated.errors[name]
        assert isinstance(error, VerificationError), error
        assert error.code == Code.TOTAL
        said = "at least one party masked another" if name == AGGREGATOR else "the aggregator or at least one"
        assert said in str(error)
        assert not any(party in str(error) for party in simulated.names)


def commit_to(parameters: SumParameters, elements: Sequence[int] | RingVector, blinding: bytes) -> bytes:
    """Return the commitment to ring elements, as a party with these parameters makes it."""
    ring_vector: RingVector = np.asarray(elements, dtype=parameters.encoding.dtype)
    return commitment_to(parameters, ring_vector, blinding)


def assert_names_the_aggregator(error: SmpcError, aggregator: str = AGGREGATOR) -> None:
    """An error blames the aggregator, or nobody but on the aggregator's own word."""
    if isinstance(error, PeerFault):
        assert aggregator in (error.culprit, error.accuser), error


def pieces(packed: bytes, size: int = m.OPENING_BYTES) -> list[bytes]:
    """Return the pieces of this size."""
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def wide(number: int) -> bytes:
    """Return 32 bytes of a number, little-endian."""
    return number.to_bytes(32, "little")


def plus(blinding: bytes, number: int) -> bytes:
    """Return a blinding plus a number, modulo the order."""
    return wide((int.from_bytes(blinding, "little") + number) % ORDER)


def minus_all(point: bytes, others: Iterable[bytes]) -> bytes:
    """Return a commitment minus others."""
    return commit.combine([point], list(others))
