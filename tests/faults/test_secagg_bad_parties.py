"""Named attacks of malicious parties: each is named and excluded, and the others' sum stays exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from smpc_dp.crypto import agree
from smpc_dp.engine.events import Start
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Code, PeerFault, TimeoutFault, VerificationError
from smpc_dp.wire.abort import LEAVE, TEXTS, Abort, abort_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list
from smpc_dp.wire.signing import Context, Signer, decode, decode_envelope, encode_envelope
from tests.faults.simulated import AGGREGATOR, KINDS, SimulatedRun, by, masking_with

BAD, HOLDER = "p3", "p2"


def misbehaving(
    step: str, change: Callable[[SimulatedRun, Envelope, Any], Iterable[Envelope]]
) -> SimulatedRun:
    """Run a session of four in which one party changes what it sends in one step."""
    simulated = SimulatedRun(4)

    def hand(envelope: Envelope) -> Iterable[Envelope]:
        return change(simulated, envelope, decode(envelope.body, KINDS[step], BAD))

    return simulated.execute(by(step, BAD, hand))


def assert_excluded(simulated: SimulatedRun, reason: str) -> None:
    simulated.assert_out(BAD, reason)
    simulated.assert_sum(BAD)


def assert_stops_run(simulated: SimulatedRun, culprit: str, reason: str) -> None:
    simulated.assert_blames(AGGREGATOR, culprit, reason)
    for name in simulated.names:
        error = simulated.errors[name]
        if name != BAD:
            assert isinstance(error, PeerFault)
            assert error.culprit == culprit


# X25519 points whose agreement is always zero [RFC 7748, section 6.1].
SMALL_ORDER = (
    "00" * 32,
    "01" + "00" * 31,
    "ec" + "ff" * 30 + "7f",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
)


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_small_order_points(point: str) -> None:
    key = bytes.fromhex(point)
    with pytest.raises(VerificationError, match="small order"):
        agree.agree(bytes(range(32)), key, salt=b"", info=b"")
    simulated = misbehaving(
        m.ADVERTISE, lambda simulated, envelope, _: (simulated.change(envelope, seal_key=key),)
    )
    assert_excluded(simulated, "small order")
    simulated = SimulatedRun(4)
    simulated.execute(masking_with(simulated, BAD, key))
    assert_excluded(simulated, "small order")


def test_equivocating_reveal() -> None:
    """The party opens another list than the one that it committed to."""
    simulated = misbehaving(
        m.REVEAL, lambda simulated, envelope, _: (simulated.change(envelope, neighbours=pack_list((1, 2))),)
    )
    assert_excluded(simulated, "had not committed to")


@pytest.mark.parametrize("drawn", [(1, 2), (1, 2, 3), (), (1, 2, 4, 5), (2, 1, 4), (1, 1, 4)])
def test_wrong_degree(drawn: tuple[int, ...]) -> None:
    """The party commits to a list that no honest party draws: too short, with itself, with a stranger, ..."""
    simulated, blinder = SimulatedRun(4), bytes(32)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.sender != BAD or envelope.step not in (m.ADVERTISE, m.REVEAL):
            return (envelope,)
        listed = pack_list(drawn)
        if envelope.step == m.REVEAL:
            return (simulated.change(envelope, neighbours=listed, blinder=blinder),)
        commitment = keys.neighbour_commitment(simulated.context, envelope.run_id, BAD, listed, blinder)
        return (simulated.advertise(envelope, draw_commitment=commitment),)

    simulated.execute(tamper)
    # It is out at its reveal, before any share of anybody reaches it.
    assert not [e for e in simulated.sent if e.receiver == BAD and e.step == m.DELIVER]
    assert_excluded(
        simulated, "ascending" if drawn in ((1, 2, 4, 5), (2, 1, 4), (1, 1, 4)) else "must draw 3"
    )


def test_masked_vector_with_a_flipped_bit() -> None:
    def flip(_: SimulatedRun, envelope: Envelope, __: m.Masked) -> Iterable[Envelope]:
        body = bytearray(envelope.body)
        body[4] ^= 0x10
        return (msgspec.structs.replace(envelope, body=bytes(body)),)

    assert_excluded(misbehaving(m.MASKED, flip), "invalid signature")


def test_masked_vector_of_an_outsider() -> None:
    """A vector under a name that is not in the roster changes nothing, whoever signed it."""

    def add(simulated: SimulatedRun, envelope: Envelope, message: m.Masked) -> Iterable[Envelope]:
        return simulated.write(envelope, message, receiver=AGGREGATOR), msgspec.structs.replace(
            envelope, sender="mallory"
        )

    simulated = misbehaving(m.MASKED, add)
    simulated.assert_sum()
    with pytest.raises(PeerFault, match="mallory: is not in the roster"):
        simulated.context.check(Envelope(b"", m.MASKED, "mallory", AGGREGATOR, b"", bytes(64)))


@pytest.mark.parametrize("step", [m.HELLO, m.MASKED])
def test_in_anothers_name(step: str) -> None:
    """What comes over the channel to one party in the name of another is the channel's party's fault."""
    [envelope] = [e for e in SimulatedRun(4).execute().sent if (e.step, e.sender) == (step, HOLDER)]
    with pytest.raises(PeerFault, match=f"{BAD}: sent a message in the name of '{HOLDER}'") as raised:
        decode_envelope(encode_envelope(envelope), BAD)
    assert raised.value.culprit == BAD


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"session_digest": bytes(32)}, "differing session file"),
        ({"request": 2}, "asks for request 2"),
        ({"quorum": 1}, "plans (degree, threshold, quorum) = (3, 2, 1)"),
    ],
)
def test_hello_that_does_not_fit(change: dict[str, object], reason: str) -> None:
    simulated = misbehaving(m.HELLO, lambda simulated, envelope, _: (simulated.change(envelope, **change),))
    assert_excluded(simulated, reason)


def test_hello_twice() -> None:
    """Two hellos with two nonces: the party is out before there is a run."""
    simulated = misbehaving(
        m.HELLO, lambda simulated, envelope, _: (envelope, simulated.change(envelope, nonce=bytes(32)))
    )
    assert_excluded(simulated, "two different messages for step 'hello'")


@pytest.mark.parametrize("step", [m.REVEAL, m.ATTEST_PARTICIPANTS])
def test_restarted_process_is_out(step: str) -> None:
    """A process that starts again in the middle of a run has a new nonce; it is told and stays out."""
    simulated = SimulatedRun(4)
    again = simulated.machine(BAD)

    def restart(envelope: Envelope) -> Iterable[Envelope]:
        return again.handle(Start())

    simulated.execute(by(step, BAD, restart))
    assert_excluded(simulated, "two different messages for step 'hello'")


def test_two_different_masked_vectors() -> None:
    """The first is in the sum, the second brings evidence: both signatures, good for both bodies."""
    simulated = misbehaving(
        m.MASKED,
        lambda simulated, envelope, masked: (
            envelope,
            simulated.change(envelope, vector=bytes(len(masked.vector))),
        ),
    )
    simulated.assert_out(BAD, "two different messages for step 'masked'")
    simulated.assert_sum()
    fault = simulated.aggregator.state.inbox.excluded[3]
    assert isinstance(fault, PeerFault)
    assert fault.evidence["first signature"] != fault.evidence["second signature"]
    for which in ("first", "second"):
        context, evidence = simulated.context, fault.evidence
        statement = context.statement(evidence[f"{which} run id"], m.MASKED, BAD, AGGREGATOR, evidence[which])
        context.verify(context.keys[BAD], statement, evidence[f"{which} signature"])


def spoil(sealed: bytes) -> bytes:
    return sealed[:-1] + bytes([sealed[-1] ^ 1])


def test_share_that_does_not_open_at_one_holder() -> None:
    """One complaint does not spoil the run, whoever lies: enough other shares are there."""
    simulated = misbehaving(
        m.DEAL,
        lambda simulated, envelope, deal: (
            simulated.change(envelope, sealed=[spoil(deal.sealed[0]), *deal.sealed[1:]]),
        ),
    )
    assert simulated.body_of(m.MASKED, "p1").bad_dealers == pack_list((3,))
    simulated.assert_sum()


def test_shares_that_open_nowhere() -> None:
    simulated = misbehaving(
        m.DEAL,
        lambda simulated, envelope, deal: (
            simulated.change(envelope, sealed=[spoil(s) for s in deal.sealed]),
        ),
    )
    assert_stops_run(simulated, BAD, "dealt shares that 3 of its holders could not open")


def test_shares_signed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that open but are not signed by their dealer do not count: nobody could be blamed for them."""
    simulated, sign_share = SimulatedRun(4), keys.sign_share

    def forge(context: Context, run_id: bytes, dealer: Signer, *rest: Any) -> bytes:
        signature = sign_share(context, run_id, dealer, *rest)
        return simulated.signers[HOLDER].sign(signature) if dealer.name == BAD else signature

    monkeypatch.setattr(keys, "sign_share", forge)
    assert_stops_run(simulated.execute(), BAD, "dealt shares that 3 of its holders could not open")


def test_shares_inconsistent_with_the_commitment() -> None:
    simulated = misbehaving(
        m.DEAL, lambda simulated, envelope, _: (simulated.change(envelope, self_commitment=bytes(32)),)
    )
    assert_stops_run(simulated, BAD, "signed shares that do not give the secret it committed to")


def test_shares_inconsistent_with_the_masking_key() -> None:
    """A dropout whose shares give another key than the one that it committed to."""
    simulated = SimulatedRun(4)
    other = masking_with(simulated, BAD, agree.public_key(bytes(range(32))))

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        return () if (envelope.step, envelope.sender) == (m.MASKED, BAD) else other(envelope)

    assert_stops_run(
        simulated.execute(tamper), BAD, "signed shares that do not give the secret it committed to"
    )


def revealing(simulated: SimulatedRun, *liars: str) -> SimulatedRun:
    """Play with holders that flip a bit of the share of p1 (the first in each list)."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step != m.UNMASK or envelope.sender not in liars:
            return (envelope,)
        unmask = decode(envelope.body, m.Unmask, envelope.sender)
        return (simulated.change(envelope, shares=bytes([unmask.shares[0] ^ 1]) + unmask.shares[1:]),)

    return simulated.execute(tamper)


def test_flipped_share_is_named_and_left_out() -> None:
    simulated = revealing(SimulatedRun(4), HOLDER)
    simulated.assert_sum()
    assert simulated.aggregator.result.faults == (f"{HOLDER}: revealed a share that p1 did not sign",)


def test_too_many_flipped_shares_stop_the_run() -> None:
    simulated = revealing(SimulatedRun(4), HOLDER, BAD)
    error = simulated.errors[AGGREGATOR]
    assert isinstance(error, TimeoutFault)
    assert error.missing == {HOLDER, BAD}
    assert "1 shares of p1 are there, 2 are needed" in str(error)


def test_share_of_another_dealer_is_no_share() -> None:
    """A holder shows its share of p4 as that of p1: signed by p4, so it is not p1's."""

    def swap(envelope: Envelope) -> Iterable[Envelope]:
        unmask = decode(envelope.body, m.Unmask, HOLDER)
        shuffled = {
            field: getattr(unmask, field)[-size:] + getattr(unmask, field)[size:]
            for field, size in (("shares", 32), ("others", 32), ("signatures", 64))
        }
        return (simulated.change(envelope, **shuffled),)

    simulated = SimulatedRun(4)
    simulated.execute(by(m.UNMASK, HOLDER, swap)).assert_sum()
    assert simulated.aggregator.result.faults == (f"{HOLDER}: revealed a share that p1 did not sign",)


def test_false_complaint_is_refused_or_harmless() -> None:
    simulated = misbehaving(
        m.MASKED, lambda simulated, envelope, _: (simulated.change(envelope, bad_dealers=pack_list((3,))),)
    )
    assert_excluded(simulated, "complains about parties that dealt nothing to it")


def complaining(simulated: SimulatedRun, *liars: str, silent: tuple[str, ...] = ()) -> SimulatedRun:
    """Play with holders that say of p1 what is not so; the silent ones send no shares."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step == m.UNMASK and envelope.sender in silent:
            return ()
        if envelope.sender not in liars or envelope.step not in (m.MASKED, m.UNMASK):
            return (envelope,)
        if envelope.step == m.MASKED:
            return (simulated.change(envelope, bad_dealers=pack_list((1,))),)
        unmask = decode(envelope.body, m.Unmask, envelope.sender)
        cut = {"dealers": 2, "shares": 32, "others": 32, "signatures": 64}
        return (
            simulated.change(
                envelope, **{field: getattr(unmask, field)[size:] for field, size in cut.items()}
            ),
        )

    return simulated.execute(tamper)


@pytest.mark.parametrize(
    ("parties", "liars", "silent"),
    [(4, ("p2",), ("p3",)), (4, ("p2", "p3"), ()), (9, ("p2", "p3", "p4", "p5"), ("p6",))],
)
def test_false_complaints_convict_nobody_where_no_corrupt_holder_is_planned_for(
    parties: int, liars: tuple[str, ...], silent: tuple[str, ...]
) -> None:
    simulated = SimulatedRun(parties, dropout=0.25)
    assert simulated.plan.corrupt_holders == 0
    complaining(simulated, *liars, silent=silent)
    error = simulated.errors[AGGREGATOR]
    assert isinstance(error, TimeoutFault), error
    assert error.missing == {"p1", *liars, *silent}
    assert f"({', '.join(liars)}) each says that its share of p1 did not open" in str(error)
    for name in set(simulated.names) - set(silent):
        reported = simulated.errors[name]
        assert isinstance(reported, TimeoutFault)
        assert reported.missing == error.missing


def test_more_complaints_than_corrupt_holders_convict_a_dealer_and_fewer_do_not() -> None:
    few = complaining(SimulatedRun(12, corrupt=0.2, dropout=0.3), "p2", "p3")
    assert few.plan.corrupt_holders == 2
    few.assert_sum()
    bad = SimulatedRun(12, corrupt=0.2, dropout=0.3)

    def spoilt(envelope: Envelope) -> Iterable[Envelope]:
        deal = decode(envelope.body, m.Deal, envelope.sender)
        return (bad.change(envelope, sealed=[spoil(sealed) for sealed in deal.sealed]),)

    bad.execute(by(m.DEAL, BAD, spoilt))
    assert_stops_run(bad, BAD, "of its holders could not open")


def test_leave_that_names_an_outsider() -> None:
    abort = Abort(Code.FAULT, "mallory")
    simulated = misbehaving(
        m.MASKED, lambda simulated, envelope, _: (simulated.write(envelope, abort, step=LEAVE),)
    )
    assert_excluded(simulated, "somebody who is not in the roster")


def test_leave_with_a_text_is_malformed() -> None:
    """It cannot write to the terminal, as an earlier form of the message could."""
    body = msgspec.msgpack.encode(("local", "", [], "\x1b[2Jgone"))
    simulated = misbehaving(
        m.MASKED,
        lambda simulated, envelope, _: (simulated.write(envelope, msgspec.Raw(body), step=LEAVE),),  # type: ignore[arg-type]
    )
    assert_excluded(simulated, "malformed Abort")


def test_a_party_that_leaves_is_named_with_its_code() -> None:
    abort = Abort(Code.OWN)
    simulated = misbehaving(
        m.MASKED, lambda simulated, envelope, _: (simulated.write(envelope, abort, step=LEAVE),)
    )
    simulated.assert_sum(BAD)
    assert f"left: {TEXTS[Code.OWN]}" in simulated.aggregator.result.faults[0]
    assert simulated.reported(BAD) == Abort(Code.LEFT, "", [(BAD, Code.OWN)], m.MASKED)


def test_vector_that_is_no_encoding_is_a_lie_not_an_overflow() -> None:
    """A party adds to its masked vector: within bounds nobody can tell, beyond them the sum is refused."""

    def add(simulated: SimulatedRun, envelope: Envelope, masked: m.Masked) -> Iterable[Envelope]:
        ring_vector = simulated.encoding.unpack(masked.vector).copy()
        ring_vector -= ring_vector.dtype.type(1 << simulated.encoding.modulus_bits - 1)
        return (simulated.change(envelope, vector=simulated.encoding.pack(ring_vector)),)

    simulated = misbehaving(m.MASKED, add)
    assert isinstance(simulated.errors[AGGREGATOR], VerificationError)
    assert abort_of(simulated.errors[AGGREGATOR]) == Abort(Code.EVIDENCE)
