"""Parties that lie at random, the coordinator among them: honest ones agree, and never accuse each other."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.wire.envelope import Envelope
from tests.faults.gopa_direct_simulated import KINDS, DirectRow
from tests.faults.test_schedules import batches

RUNS, BATCH = 60, 15
PARTIES = 10
LIARS = ("p1", "p4")
CERTIFIED = (m.ATTEST_PARTICIPANTS, d.ATTEST_TOTAL)


class Liars:
    """Changes what the liars send, each message to each receiver in its own way, under right signatures."""

    def __init__(self, simulated: DirectRow, seed: int) -> None:
        self.simulated = simulated
        self.chooser = random.Random(seed)
        self.chance = self.chooser.choice([0.01, 0.05, 0.2])
        self.steps = self.chooser.sample(sorted(KINDS), self.chooser.randint(1, 4))
        self.old: list[Envelope] = []

    def __call__(self, envelope: Envelope) -> Iterable[Envelope]:
        if envelope.sender not in LIARS or envelope.step not in self.steps:
            return (envelope,)
        self.old.append(envelope)
        if self.chooser.random() > self.chance:
            return (envelope,)
        return self.chooser.choice([self.drop, self.flip, self.shrink, self.twice, self.again])(envelope)

    def drop(self, _envelope: Envelope) -> Sequence[Envelope]:
        return ()

    def flip(self, envelope: Envelope) -> Sequence[Envelope]:
        """Change a bit of the body, and sign that."""
        body = bytearray(envelope.body)
        bit = self.chooser.randrange(8 * len(body))
        body[bit // 8] ^= 1 << bit % 8
        return (self.simulated.sign(msgspec.structs.replace(envelope, body=bytes(body))),)

    def shrink(self, envelope: Envelope) -> Sequence[Envelope]:
        """Leave one of the parts out, or empty a field."""
        message = self.simulated.read(envelope)
        field = self.chooser.choice(message.__struct_fields__)
        value = getattr(message, field)
        if not isinstance(value, bytes | list):
            return (envelope,)
        cut = value[:-64] if isinstance(value, bytes) else value[:-1]
        changed = msgspec.structs.replace(message, **{field: cut})
        body = msgspec.msgpack.encode(changed)
        return (self.simulated.sign(msgspec.structs.replace(envelope, body=body)),)

    def twice(self, envelope: Envelope) -> Sequence[Envelope]:
        return envelope, *self.flip(envelope)

    def again(self, envelope: Envelope) -> Sequence[Envelope]:
        """Send what was sent to somebody else, or before."""
        return (msgspec.structs.replace(self.chooser.choice(self.old), receiver=envelope.receiver),)


@pytest.mark.parametrize("first", batches(RUNS, BATCH, ran=1))
def test_honest_users_agree_and_accuse_liars_only(first: int) -> None:
    ended = proven = 0
    for seed in range(first, first + BATCH):
        simulated = DirectRow(PARTIES, corrupt=0.2, dropout=0.2)
        simulated.execute(Liars(simulated, seed))
        honest = [name for name in simulated.names if name not in LIARS]
        results = {name: simulated.parties[name].result for name in honest if name not in simulated.errors}
        ended += len(results) > 0
        assert len({outcome.total.tobytes() for outcome in results.values()}) <= 1
        assert len({outcome.survivors for outcome in results.values()}) <= 1
        for outcome in results.values():
            assert len(outcome.survivors) >= simulated.parameters.plan.min_survivors
            # Whoever is honest and was left out knows it: it has an error.
            assert not set(outcome.survivors) & {n for n in honest if g.PUBLISH not in simulated.steps_of(n)}
        for name in honest:
            error = simulated.errors.get(name)
            assert error is None or isinstance(error, PeerFault | TimeoutFault), (seed, name, error)
            if isinstance(error, PeerFault) and not error.accuser:
                proven += 1
                assert error.culprit in LIARS, (seed, name, error)
                if error.evidence and "second signature" in error.evidence and "hello" not in error.reason:
                    simulated.assert_proves(error)
        # One set of each kind at most has been signed by a quorum, whatever the liars did.
        for step in CERTIFIED:
            signed: dict[bytes, set[str]] = {}
            for envelope in simulated.sent:
                if envelope.step == step:
                    signed.setdefault(envelope.body, set()).add(envelope.sender)
            quorums = [
                body for body, names in signed.items() if len(names) >= simulated.parameters.plan.quorum
            ]
            assert len(quorums) <= 1
    assert ended > BATCH // 10
    assert proven > 0
