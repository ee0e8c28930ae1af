"""A host that shows parties different logs is caught at every head, before anybody relies on it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import nacl.bindings
import pytest
from msgspec.structs import replace
from nacl.signing import SigningKey

from smpc_dp.capabilities.gopa.verifiable import collecting, counting
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.collecting import CollectCoins, CollectCommitments
from smpc_dp.capabilities.gopa.verifiable.counting import CollectExclusions, CollectTally
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR
from smpc_dp.engine.collector import CollectorRole, Item
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.messages import Begun
from smpc_dp.engine.state import Transition
from smpc_dp.errors import PeerFault, TimeoutFault, VerificationError
from smpc_dp.logs.followed import Followed
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, encode
from smpc_dp_lab.vectors.verifiable_runs import PARTIES, RELAY, Host, RecordedRun, execute, honest
from tests.faults.gopa_hosts import Lie, censoring, liar
from tests.faults.test_gopa_verifiable import audited

VICTIM = "ann"


def _take(_relay: VerifiableAggregator, _state: Any, _party: int, envelope: Envelope) -> Item:
    """Take every attestation."""
    attested = decode(envelope.body, m.Attestation, envelope.sender).set_digest
    return Item(attested, b"", envelope.signature)


def _certify(finish: Callable[[Any, Any], Transition]) -> Callable[[Any, Any], Transition]:
    """Certify with those attestations that can be used."""

    def certify(relay: VerifiableAggregator, state: Any) -> Transition:
        items, expected = state.inbox.items, state.attesting.digest
        for party in [party for party, item in items.items() if item.message != expected]:
            del items[party]
        return finish(relay, state)

    return certify


def _accepting() -> CollectorRole:
    """Return the role of an aggregator that takes every attestation that it can use."""
    role = AGGREGATOR
    for state, finish in (
        (CollectCommitments, collecting.finish_commitments),
        (CollectCoins, collecting.finish_coins),
        (CollectExclusions, counting.finish_exclusions),
        (CollectTally, counting.finish_tally),
    ):
        role = role.with_row(state, accept=_take, finish=_certify(finish))
    return role


def equivocating(step: str, lie: Lie, lied_to: tuple[str, ...]) -> Host:
    """Return an aggregator that tells some parties something else in one step."""
    return Host(liar(step, lie, lied_to), _accepting())


def shown_otherwise(step: str, lie: Lie, lied_to: tuple[str, ...] = (VICTIM,)) -> RecordedRun:
    return execute(relay=equivocating(step, lie, lied_to))


def last_digest_changed(digests: bytes) -> bytes:
    return digests[:-32] + bytes(32)


def other_head(_relay: Any, _run_id: bytes, message: Begun) -> Begun:
    """Another header: another session, request or set of parties."""
    return replace(message, head=bytes(32))


def coins_signed_again(relay: Any, run_id: bytes, message: v.Coins) -> v.Coins:
    """A colluding party has signed its coin a second time: another entry, the same coin."""
    name, body = PARTIES[-1], encode(v.Coin(message.coins[-32:]))
    statement = relay.context.statement(run_id, v.COIN, name, RELAY, hashlib.sha256(body).digest())
    again = signed_with_another_nonce(SeededRandomnessForSimulation(0, f"key {name}").bytes(32), statement)
    return replace(message, signatures=message.signatures[:-64] + again)


def signed_with_another_nonce(seed: bytes, statement: bytes) -> bytes:
    """Return a right Ed25519 signature that is not the usual one [RFC 8032, 5.1.6, but for the nonce]."""
    secret = bytearray(hashlib.sha512(seed).digest()[:32])
    secret[0] &= 248
    secret[31] = secret[31] & 127 | 64
    nonce = nacl.bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(b"other" + seed).digest())
    point = nacl.bindings.crypto_scalarmult_ed25519_base_noclamp(nonce)
    public = bytes(SigningKey(seed).verify_key)
    challenge = nacl.bindings.crypto_core_ed25519_scalar_reduce(
        hashlib.sha512(point + public + statement).digest()
    )
    product = nacl.bindings.crypto_core_ed25519_scalar_mul(challenge, bytes(secret))
    return point + nacl.bindings.crypto_core_ed25519_scalar_add(nonce, product)


def another_publication(_relay: Any, _run_id: bytes, message: v.Publications) -> v.Publications:
    return replace(message, digests=last_digest_changed(message.digests))


def another_tally(relay: Any, run_id: bytes, message: v.Tallied) -> v.Tallied:
    """A second tally, rightly signed by the aggregator, with another total."""
    tally = decode(message.tally, v.Tally, "")
    first = (int.from_bytes(tally.total[:8], "little") + 1) % 2**64
    total = first.to_bytes(8, "little") + tally.total[8:]
    body = encode(replace(tally, total=total))
    envelope = relay.write_own(run_id, v.TALLY, replace(tally, total=total))
    assert envelope.body == body
    return replace(message, tally=body, signature=envelope.signature)


POINTS = [
    ("before-coins-open", m.BEGUN, other_head, v.ATTEST_COMMITMENTS, {v.COIN, v.PUBLISH}),
    ("before-publication", v.COINS, coins_signed_again, v.ATTEST_COINS, {v.PUBLISH}),
    ("before-the-end-publications", v.PUBLICATIONS, another_publication, "is another", set()),
    ("before-the-end-tally", v.TALLIED, another_tally, "the total is not the sum", set()),
]


@pytest.mark.parametrize(
    ("step", "lie", "reason", "never"), [p[1:] for p in POINTS], ids=[p[0] for p in POINTS]
)
def test_a_user_that_was_shown_another_log_goes_no_further(
    step: str, lie: Any, reason: str, never: set[str]
) -> None:
    """The others are a quorum; their certificate is of a head that the victim has not signed.

    In the end the victim adds up the total, and does not come as far.
    """
    ran = shown_otherwise(step, lie)
    error = ran.errors[VICTIM]
    assert isinstance(error, PeerFault), error
    assert error.culprit == RELAY
    assert reason in error.reason
    # What comes after that head, the victim has not said.
    claimed = {entry.kind for entry in ran.entries if entry.party == VICTIM}
    assert not claimed & never


@pytest.mark.parametrize(
    ("step", "lie", "never"), [(p[1], p[2], p[4]) for p in POINTS], ids=[p[0] for p in POINTS]
)
def test_two_halves_with_two_logs_have_no_quorum(step: str, lie: Any, never: set[str]) -> None:
    ran = shown_otherwise(step, lie, lied_to=("ann", "ben"))
    assert isinstance(ran.errors[RELAY], TimeoutFault)
    assert not {entry.kind for entry in ran.entries} & {*never, v.CERTIFY_TALLY}
    assert all(name in ran.errors for name in PARTIES)


def test_a_followed_log_holds_every_line() -> None:
    ran = honest()
    log = ran.parties[VICTIM].state.followed
    assert log is not None
    assert len(log) == len(ran.lines) - 1
    for number, line in enumerate(ran.lines):
        log.check(number, line)
    # A line in another place; a payload that its party has signed a second time; what is no line.
    with pytest.raises(VerificationError, match="entry 3 is not that"):
        log.check(3, ran.lines[4])
    entries = ran.entries
    entries[2] = ran.sign(entries[2], entries[3].payload)
    with pytest.raises(VerificationError, match="entry 3 is not that"):
        log.check(3, ran.log(entries)[3])
    # Heads that do not fit, of an entry that does.
    other = Followed(bytes(32)).after(b"".join(entry.digest() for entry in ran.entries))
    with pytest.raises(VerificationError, match="entry 3 is not that"):
        other.check(3, ran.lines[3])
    with pytest.raises(VerificationError, match="the header is not that"):
        other.check(0, ran.lines[0])
    for number in (-1, len(ran.lines)):
        with pytest.raises(VerificationError, match="no entry"):
            log.check(number, ran.lines[-1])


# A host that censors.


def silenced(step: str, name: str) -> RecordedRun:
    """Run with a host that loses what one party says from one step on."""

    return execute(relay=censoring(name, step))


@pytest.mark.parametrize("step", [v.COMMIT, v.ATTEST_COMMITMENTS, v.COIN, v.ATTEST_COINS, v.PUBLISH, v.OPEN])
def test_a_host_that_censors_excludes_nobody(step: str) -> None:
    """Nobody opens an edge of the party that the host has silenced, and no log says that it is excluded."""
    ran = silenced(step, VICTIM)
    assert not any(entry.kind == v.OPEN for entry in ran.entries)
    report = audited(ran)
    assert report.excluded == ()
    if report.verdict is not None and step in (v.ATTEST_COINS, v.PUBLISH):
        # The large pairwise noise stays over what the silenced party had: nothing of it is stripped.
        assert report.verdict.silent == (VICTIM,)
        assert report.verdict.residual_pairs == 4
        assert report.code == 1
