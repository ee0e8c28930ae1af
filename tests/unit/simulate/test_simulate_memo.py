"""What a simulation remembers across machines must change neither what is refused nor what comes out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from nacl.signing import SigningKey

from smpc_dp import Session, simulate
from smpc_dp.encoding import Encoding
from smpc_dp.engine.result import Outcome, Result
from smpc_dp.errors import SmpcError, VerificationError
from smpc_dp.identity.keys import verify
from smpc_dp.privacy.secagg_plan import check_plan
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory import one_process
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR, RememberingVerifier, Signer
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, encode_envelope
from smpc_dp_lab.bench.roles import sum_roles

PARTIES = 12


class Tap(MemoryNetwork):
    """Keeps the bytes of everything that is sent."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.sent: list[bytes] = []

    def send(self, envelope: Envelope) -> None:
        self.sent.append(encode_envelope(envelope))
        super().send(envelope)


def run(remember: bool) -> tuple[list[bytes], list[Outcome]]:
    parameters = SecAggParameters(
        encoding=Encoding.plan(length=5, lower=-1.0, upper=1.0, precision=1e-3, parties=PARTIES),
        # Sparse, so that neighbours differ from party to party.
        plan=check_plan(PARTIES, 7, 5, dropout=0.2, corrupt=0.1, security=20),
    )
    vectors = np.random.default_rng(3).uniform(-1, 1, (PARTIES, 5))
    new_run, _ = sum_roles(parameters, list(vectors), seed_for_simulation=3, remember=remember)
    killed = new_run.context.names[4]
    network = Tap(Faults(kill={killed: 6}))
    assert drive(new_run.machines, network, AGGREGATOR) == {}
    outcomes = [party.result for party in new_run.parties if party.name != killed]
    return network.sent, [new_run.aggregator.result, *outcomes]


def test_a_run_that_remembers_sends_and_gives_the_same_bytes() -> None:
    remembered, plain = run(remember=True), run(remember=False)
    assert remembered[0] == plain[0]
    for ours, theirs in zip(remembered[1], plain[1], strict=True):
        np.testing.assert_array_equal(ours.total, theirs.total)
        for field in dataclasses.fields(Outcome):
            if field.name != "total":
                assert getattr(ours, field.name) == getattr(theirs, field.name)
        assert len(ours.survivors) == PARTIES - 1


ROBUST: dict[str, Any] = {
    "length": 1,
    "lower": 0.0,
    "upper": 8.0,
    "precision": 0.25,
    "dropout": 0.3,
    "corrupt": 0.2,
}


async def average(session: Session) -> Result:
    return await session.average([3.0])


def test_sessions_that_remember_have_the_same_result_and_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> tuple[list[int], object]:
        ended = simulate.run(average, 5, ROBUST, kill={"party-00002": 3}, seed_for_simulation=seed)
        return ended.result().fixed_point.tolist(), ended.result().evidence

    remembered = run(1)
    seen: list[Context] = []

    def unchanged(context: Context, **_: object) -> Context:
        seen.append(context)
        return context

    monkeypatch.setattr(one_process, "replace", unchanged)
    assert run(1) == remembered != run(2)
    assert {(context.verify, context.memo is None) for context in seen} == {(verify, True)}


def test_a_member_of_a_session_that_signs_with_another_key_is_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sign, forger = Signer.sign, "party-00002"

    def forge(self: Signer, message: bytes) -> bytes:
        if self.name != forger:
            return sign(self, message)
        return SigningKey(bytes(32)).sign(message).signature

    monkeypatch.setattr(Signer, "sign", forge)
    ended = simulate.run(average, 5, ROBUST)
    assert ended.result().absent == (forger,)
    assert any(forger in fault for fault in ended.served[0].faults), ended.served[0].faults
    assert isinstance(ended.results[forger], SmpcError)


@pytest.mark.parametrize("part", ["key", "message", "signature"])
def test_a_remembered_signature_vouches_for_nothing_else(part: str) -> None:
    verifier = RememberingVerifier()
    signer = Signer("a", SigningKey(bytes(32)), verifier)
    message = bytes(range(32))
    good = {"key": bytes(signer.key.verify_key), "message": message, "signature": signer.sign(message)}
    verifier(good["key"], good["message"], good["signature"])
    bad = dict(good)
    bad[part] = bytes([bad[part][0] ^ 1]) + bad[part][1:]
    for _ in range(2):
        with pytest.raises(VerificationError):
            verifier(bad["key"], bad["message"], bad["signature"])
