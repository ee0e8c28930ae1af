"""Named attacks of a malicious aggregator: the victim refuses each, names it and reveals nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from smpc_dp.crypto import agree
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Code, PeerFault, VerificationError
from smpc_dp.identity.keys import verify
from smpc_dp.privacy.secagg_plan import check_plan
from smpc_dp.wire.abort import ABORT, LEAVE, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list, pack_set, unpack_list
from smpc_dp.wire.signing import decode, encode
from tests.faults.simulated import AGGREGATOR, KINDS, SimulatedRun, Tamper, by, only

VICTIM, OTHER = "p1", "p2"
FOUR = frozenset({1, 2, 3, 4})


def attacked(step: str, change: Callable[[SimulatedRun, Envelope, Any], Iterable[Envelope]]) -> SimulatedRun:
    """Run a session of four in which the aggregator changes what it sends to the victim in one step."""
    simulated = SimulatedRun(4)

    def hand(envelope: Envelope) -> Iterable[Envelope]:
        return change(simulated, envelope, decode(envelope.body, KINDS[envelope.step], AGGREGATOR))

    return simulated.execute(only(step, VICTIM, hand))


def assert_refused(simulated: SimulatedRun, reason: str, culprit: str = AGGREGATOR) -> None:
    """The victim named the culprit and showed no share; the others finish without it, exactly."""
    simulated.assert_blames(VICTIM, culprit, reason)
    assert m.UNMASK not in simulated.steps_of(VICTIM)
    assert simulated.steps_of(VICTIM)[-1] == LEAVE


@pytest.mark.parametrize("field", ["key_commitment", "seal_key"])
@pytest.mark.parametrize("signer", [OTHER, AGGREGATOR])
def test_swapped_keys(field: str, signer: str) -> None:
    """The aggregator puts its own key in a neighbour's advertisement, under the old signature or its own."""

    def swap(simulated: SimulatedRun, envelope: Envelope, message: m.Neighbours) -> Iterable[Envelope]:
        first = message.advertisements[0]
        forged = msgspec.structs.replace(
            decode(first.body, m.Advertise, OTHER), **{field: b"\x09" + bytes(31)}
        )
        body, signature = msgspec.msgpack.encode(forged), first.signature
        if signer == AGGREGATOR:
            [own] = simulated.context.write(
                simulated.signers[AGGREGATOR], envelope.run_id, m.ADVERTISE, (AGGREGATOR,), forged
            )
            signature = own.signature
        swapped = m.Advertisement(first.party, body, signature)
        return (simulated.change(envelope, advertisements=[swapped, *message.advertisements[1:]]),)

    simulated = attacked(m.NEIGHBOURS, swap)
    assert_refused(simulated, f"'advertise' that {OTHER} did not sign")
    assert m.DEAL not in simulated.steps_of(VICTIM), "nothing was sealed for the false key"
    simulated.assert_sum(VICTIM)


def test_forged_opening_is_the_aggregators_fault() -> None:
    """A forwarded opening that its signer did not sign does not incriminate that signer."""

    def forge(simulated: SimulatedRun, envelope: Envelope, message: m.Neighbours) -> Iterable[Envelope]:
        first = msgspec.structs.replace(message.openings[0], signature=bytes(64))
        return (simulated.change(envelope, openings=[first, *message.openings[1:]]),)

    assert_refused(attacked(m.NEIGHBOURS, forge), f"'reveal' that {OTHER} did not sign")


@pytest.mark.parametrize("proof", ["of the roll", "of the false roll"])
def test_false_roll_is_the_aggregators_fault(proof: str) -> None:
    """A roll that has another advertisement of a neighbour does not make that neighbour a liar."""
    simulated = SimulatedRun(4)

    def forge(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.receiver != VICTIM or envelope.step not in (m.MERKLE_COMMITMENT, m.NEIGHBOURS):
            return (envelope,)
        if envelope.step == m.NEIGHBOURS and proof == "of the roll":
            return (envelope,)
        return (simulated.enroll(envelope, simulated.merkle_commitment({2: b"another"})),)

    assert_refused(
        simulated.execute(forge), "roll does not have the advertisement of p2, p3, p4: what is shown"
    )
    assert m.DEAL not in simulated.steps_of(VICTIM)


def test_a_root_of_nothing_known() -> None:
    """A victim that could be led to reveal under a root of the aggregator's choice would stop there."""

    def forge(simulated: SimulatedRun, envelope: Envelope, message: m.MerkleCommitment) -> Iterable[Envelope]:
        return (simulated.change(envelope, root=bytes(32)),)

    simulated = attacked(m.MERKLE_COMMITMENT, forge)
    assert_refused(simulated, f"roll does not have the advertisement of {VICTIM}")
    assert m.REVEAL not in simulated.steps_of(VICTIM)


def split_merkle_commitment(
    victim: str, tamper: Callable[[SimulatedRun, Envelope], Envelope]
) -> SimulatedRun:
    """Play a sparse session in which the victim's roll has another advertisement of somebody far from it."""
    plan = check_plan(6, 2, 2, dropout=0.34)
    simulated = SimulatedRun(6, plan=plan).execute()
    number = simulated.number(victim)
    drawn = {n: unpack_list(simulated.body_of(m.REVEAL, n).neighbours, 6, n) for n in simulated.names}
    near = {number, *drawn[victim], *(simulated.number(n) for n in simulated.names if number in drawn[n])}
    stranger = min(set(range(1, 7)) - near)
    simulated = SimulatedRun(6, plan=plan)

    def forge(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.receiver == victim and envelope.step in (m.MERKLE_COMMITMENT, m.NEIGHBOURS):
            return (simulated.enroll(envelope, simulated.merkle_commitment({stranger: b"another"})),)
        return (tamper(simulated, envelope),)

    return simulated.execute(forge)


def test_split_roll_gets_no_certificate() -> None:
    """Parties that saw differing Merkle commitments cannot attest one set: they sign its root."""
    simulated = split_merkle_commitment(VICTIM, lambda _, envelope: envelope)
    # The victim cannot know, and signs. The honest part of this aggregator leaves it out.
    assert m.ATTEST_PARTICIPANTS in simulated.steps_of(VICTIM)
    assert m.MASKED not in simulated.steps_of(VICTIM)
    assert simulated.reported(VICTIM) == Abort(Code.FAULT, VICTIM)
    assert simulated.fault_of(VICTIM) == f"{VICTIM}: attests another set than the one that was sent"


def test_the_certificate_of_another_roll_is_refused() -> None:
    """Nor does the certificate of those who saw the one roll serve whoever saw the other."""

    def cover(simulated: SimulatedRun, envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.sender) != (m.ATTEST_PARTICIPANTS, "p6"):
            return envelope
        return simulated.write(envelope, simulated.body_of(m.ATTEST_PARTICIPANTS, VICTIM))

    simulated = split_merkle_commitment("p6", cover)
    simulated.assert_blames("p6", AGGREGATOR, "certificate of 'attest-participants' has a signature of p1")
    assert m.MASKED not in simulated.steps_of("p6")


def test_withheld_shares() -> None:
    def withhold(simulated: SimulatedRun, envelope: Envelope, message: m.Deliver) -> Iterable[Envelope]:
        return (simulated.change(envelope, dealers=message.dealers[2:], sealed=message.sealed[1:]),)

    simulated = attacked(m.DELIVER, withhold)
    assert_refused(simulated, f"withheld the shares of {OTHER}")
    assert m.MASKED not in simulated.steps_of(VICTIM)


def test_shares_under_another_dealers_number() -> None:
    """As many shares as are due, but p4's is passed off as the victim's own."""

    def rename(simulated: SimulatedRun, envelope: Envelope, message: m.Deliver) -> Iterable[Envelope]:
        return (simulated.change(envelope, dealers=pack_list((1, 2, 3))),)

    assert_refused(attacked(m.DELIVER, rename), "withheld the shares of p4")


@pytest.mark.parametrize("drawn", [(1, 3, 4), (1, 3)])
def test_aggregator_covers_for_a_neighbour(drawn: tuple[int, ...]) -> None:
    """A party opens to the victim what it did not commit to, or commits to too few; the aggregator helps."""
    simulated, blinder = SimulatedRun(4), bytes(32)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.receiver != VICTIM or envelope.step not in (m.MERKLE_COMMITMENT, m.NEIGHBOURS):
            return (envelope,)
        own, advertise = simulated.context, simulated.body_of(m.ADVERTISE, OTHER)
        mask_key = agree.public_key(bytes(range(32)))
        reveal, equivocates = m.Reveal(pack_list(drawn), blinder, mask_key), len(drawn) == 3
        if not equivocates:
            advertise = m.Advertise(
                advertise.seal_key,
                keys.neighbour_commitment(own, envelope.run_id, OTHER, reveal.neighbours, blinder),
                keys.key_commitment(own, envelope.run_id, OTHER, mask_key),
            )
        tree = simulated.merkle_commitment({2: encode(advertise)})
        if envelope.step == m.MERKLE_COMMITMENT:
            return (envelope if equivocates else simulated.enroll(envelope, tree),)
        message = decode(envelope.body, m.Neighbours, AGGREGATOR)
        [key], [opening] = (
            own.write(simulated.signers[OTHER], envelope.run_id, step, (AGGREGATOR,), signed)
            for step, signed in ((m.ADVERTISE, advertise), (m.REVEAL, reveal))
        )
        return (
            simulated.change(
                envelope,
                advertisements=[m.Advertisement(2, key.body, key.signature), *message.advertisements[1:]],
                openings=[m.Opening(2, opening.body, opening.signature), *message.openings[1:]],
                mask_keys=message.mask_keys if equivocates else mask_key + message.mask_keys[32:],
                proof=message.proof if equivocates else tree.prove((2, 3, 4)),
            ),
        )

    simulated.execute(tamper)
    reason = (
        "revealed neighbours that it had not committed to" if len(drawn) == 3 else "must draw 3 neighbours"
    )
    assert_refused(simulated, reason, culprit=OTHER)
    assert m.DEAL not in simulated.steps_of(VICTIM)


def sparse_edge() -> tuple[SimulatedRun, str, str]:
    """Return a sparse session and (dealer, holder) of which the dealer alone drew the other."""
    simulated = SimulatedRun(6, plan=check_plan(6, 3, 2, dropout=0.34)).execute()
    drawn = {n: unpack_list(simulated.body_of(m.REVEAL, n).neighbours, 6, n) for n in simulated.names}
    dealer, holder = next(
        (u, v)
        for u in simulated.names
        for v in simulated.names
        if simulated.number(v) in drawn[u] and simulated.number(u) not in drawn[v]
    )
    return SimulatedRun(6, plan=check_plan(6, 3, 2, dropout=0.34)), dealer, holder


def hide_opening(simulated: SimulatedRun, dealer: str, holder: str, *, hide_shares: bool) -> Tamper:
    hidden = simulated.number(dealer)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.receiver != holder:
            return (envelope,)
        if envelope.step == m.NEIGHBOURS:
            return (simulated.without(envelope, {hidden}),)
        if envelope.step == m.DELIVER and hide_shares:
            deliver = decode(envelope.body, m.Deliver, AGGREGATOR)
            dealers = unpack_list(deliver.dealers, 6, AGGREGATOR)
            retained = [(d, s) for d, s in zip(dealers, deliver.sealed, strict=True) if d != hidden]
            return (
                simulated.change(
                    envelope, dealers=pack_list(d for d, _ in retained), sealed=[s for _, s in retained]
                ),
            )
        return (envelope,)

    return tamper


def test_hidden_opening_then_shares() -> None:
    """A holder that was not told who drew it takes no shares of that party."""
    simulated, dealer, holder = sparse_edge()
    simulated.execute(hide_opening(simulated, dealer, holder, hide_shares=False))
    simulated.assert_blames(holder, AGGREGATOR, "delivered shares of parties that did not draw this one")
    assert m.UNMASK not in simulated.steps_of(holder)


def test_hidden_opening_hides_more() -> None:
    """If the shares are hidden too, the dealer's mask stays on for ever and the holder has no share of it."""
    simulated, dealer, holder = sparse_edge()
    simulated.execute(hide_opening(simulated, dealer, holder, hide_shares=True))
    revealed = unpack_list(simulated.body_of(m.UNMASK, holder).dealers, 6, holder)
    assert simulated.number(dealer) not in revealed
    assert isinstance(simulated.errors[AGGREGATOR], VerificationError), "what is left is no sum"
    assert "lie" in str(simulated.errors[AGGREGATOR])


@pytest.mark.parametrize(
    ("step", "field"),
    [
        (m.START, "present"),
        (m.MERKLE_COMMITMENT, "advertised"),
        (m.NEIGHBOURS, "revealed"),
        (m.DELIVER, "participants"),
        (m.SURVIVORS, "survivors"),
    ],
)
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (FOUR - {1}, f"left {VICTIM} out of the"),
        (frozenset({1, 2}), "has 2 parties, at least 3 due"),
    ],
)
def test_sets_without_the_victim_or_too_small(
    step: str, field: str, members: frozenset[int], reason: str
) -> None:
    simulated = attacked(
        step, lambda simulated, envelope, _: (simulated.change(envelope, **{field: pack_set(members, 4)}),)
    )
    assert_refused(simulated, reason)


def test_two_different_messages_for_one_step() -> None:
    """Both signatures are evidence that anyone can check."""
    simulated = SimulatedRun(4)

    def second(envelope: Envelope) -> Iterable[Envelope]:
        advertised = pack_set(FOUR - {4}, 4)
        return envelope, simulated.change(envelope, advertised=advertised)

    simulated.execute(only(m.MERKLE_COMMITMENT, VICTIM, second))
    assert_refused(simulated, "sent two different messages for step 'roll'")
    error = simulated.errors[VICTIM]
    assert isinstance(error, PeerFault)
    assert error.evidence["first"] != error.evidence["second"]
    for which in ("first", "second"):
        statement = simulated.context.statement(
            error.evidence[f"{which} run id"], m.MERKLE_COMMITMENT, AGGREGATOR, VICTIM, error.evidence[which]
        )
        verify(simulated.context.keys[AGGREGATOR], statement, error.evidence[f"{which} signature"])


def shown_of(simulated: SimulatedRun, holder: str) -> dict[int, str]:
    """Return which kind of share a holder revealed of each dealer, checked against the dealer's signature."""
    unmask = simulated.body_of(m.UNMASK, holder)
    kinds: dict[int, str] = {}
    for index, dealer in enumerate(unpack_list(unmask.dealers, 4, holder)):
        name = simulated.names[dealer - 1]
        share, other = (getattr(unmask, f)[32 * index : 32 * index + 32] for f in ("shares", "others"))
        for kind in (keys.SELF_MASK, keys.MASKING_KEY):
            run_id = simulated.parties[holder].run_id
            shown = keys.share_digest(simulated.context, run_id, name, holder, kind, share)
            mask, own = (other, shown) if kind == keys.SELF_MASK else (shown, other)
            signature = unmask.signatures[64 * index : 64 * index + 64]
            try:
                keys.check_share(simulated.context, run_id, name, holder, mask, own, signature)
            except VerificationError:
                continue
            kinds[dealer] = kind.decode()
    return kinds


def test_one_kind_of_share_of_each_dealer() -> None:
    simulated = SimulatedRun(4).execute(by(m.MASKED, "p4", lambda _: ()))
    simulated.assert_sum("p4")
    for number, holder in enumerate(simulated.names[:3], 1):
        expected = {other: "self-mask" for other in (1, 2, 3) if other != number} | {4: "masking-key"}
        assert shown_of(simulated, holder) == expected


@pytest.mark.parametrize("step", [m.SURVIVORS, m.SURVIVORS_CERTIFICATE])
def test_second_survivor_set_after_the_first(step: str) -> None:
    """After everyone has revealed, the aggregator wants the other kind of share too: overlapping sets."""
    simulated = SimulatedRun(4)

    def again(envelope: Envelope) -> Iterable[Envelope]:
        message: msgspec.Struct = m.Survivors(pack_set(FOUR - {4}, 4))
        if step == m.SURVIVORS_CERTIFICATE:
            message = m.Certificate(pack_set(FOUR - {4}, 4), bytes(192))
        return (simulated.write(envelope, message, step=step),)

    simulated.execute(only(m.RESULT, None, again))
    for name in simulated.names:
        simulated.assert_blames(name, AGGREGATOR, f"two different messages for step '{step}'")
        assert simulated.steps_of(name).count(m.UNMASK) == 1
        assert set(shown_of(simulated, name).values()) == {"self-mask"}


@pytest.mark.parametrize("step", [m.PARTICIPANTS, m.SURVIVORS_CERTIFICATE])
@pytest.mark.parametrize("fault", ["below quorum", "repeated", "outsider", "other run", "other step"])
def test_bad_certificates(step: str, fault: str) -> None:
    attest = {m.PARTICIPANTS: m.ATTEST_PARTICIPANTS, m.SURVIVORS_CERTIFICATE: m.ATTEST_SURVIVORS}
    other_run = SimulatedRun(4, run=2).execute()
    simulated = SimulatedRun(4)

    def signatures(of: SimulatedRun, at: str) -> list[bytes]:
        return [e.signature for name in simulated.names for e in of.sent if (e.step, e.sender) == (at, name)]

    def forge(envelope: Envelope) -> Iterable[Envelope]:
        own, signers = signatures(simulated, attest[step]), {1, 2, 3}
        shown = {
            "below quorum": own[:2],
            "repeated": [own[0], own[0], own[2]],
            "outsider": own[:3],
            "other run": signatures(other_run, attest[step])[:3],
            # Of participants, the parties have signed nothing else yet: their reveals have to serve.
            "other step": signatures(
                simulated, m.REVEAL if step == m.PARTICIPANTS else m.ATTEST_PARTICIPANTS
            )[:3],
        }[fault]
        signers = {1, 2} if fault == "below quorum" else {1, 2, 4} if fault == "outsider" else signers
        return (simulated.change(envelope, signers=pack_set(signers, 4), signatures=b"".join(shown)),)

    # p4 is no survivor, and in the run without it no participant.
    silent = m.DEAL if step == m.PARTICIPANTS else m.MASKED
    outsider = by(silent, "p4", lambda _: ())

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if fault == "outsider" and envelope.sender == "p4":
            return outsider(envelope)
        return only(step, VICTIM, forge)(envelope)

    simulated.execute(tamper)
    reasons = {
        "below quorum": "has 2 signatures, 3 are due",
        "outsider": "signed by parties outside of the set",
    }
    assert_refused(simulated, reasons.get(fault, "that is not over this digest"))
    if step == m.PARTICIPANTS:
        assert m.MASKED not in simulated.steps_of(VICTIM), "the vector left without a certificate"


@pytest.mark.parametrize(
    ("total", "error"), [(b"", PeerFault), (bytes(5), PeerFault), (b"\xff" * 9, VerificationError)]
)
def test_false_result(total: bytes, error: type[Exception]) -> None:
    simulated = attacked(m.RESULT, lambda simulated, envelope, _: (simulated.change(envelope, total=total),))
    assert len(total) in (0, 5, simulated.encoding.ring_length * simulated.encoding.element_bytes)
    assert type(simulated.errors[VICTIM]) is error
    with pytest.raises(Exception, match="has no result"):
        _ = simulated.parties[VICTIM].result


@pytest.mark.parametrize(("culprit", "missing"), [("mallory", []), ("", ["mallory"])])
def test_abort_that_names_an_outsider(culprit: str, missing: list[str]) -> None:
    code = Code.FAULT if culprit else Code.LATE
    abort = Abort(code, culprit, [(name, code) for name in missing])
    simulated = attacked(
        m.MERKLE_COMMITMENT, lambda simulated, envelope, _: (simulated.write(envelope, abort, step=ABORT),)
    )
    assert_refused(simulated, "malformed abort")


@pytest.mark.parametrize(
    "fields",
    [
        ("\x1b[2Jgone\n", "", [], "", 0),
        ("late", "", [(VICTIM, "gone")], "", 0),
        ("late", "", [], "\x1b[2J", 0),
        ("late", "", [], "roll\n", 0),
        ("few", "", [], "", -1),
        ("late", "", [VICTIM], "", 0),
        ("own", "", [], ""),
        ("local", "", [], "a reason in free text"),
    ],
)
def test_abort_of_no_known_form_is_malformed(fields: tuple[object, ...]) -> None:
    """There is no code beside those of the list, and no room for a text."""
    body = msgspec.msgpack.encode(fields)

    def write(simulated: SimulatedRun, envelope: Envelope, _: Any) -> Iterable[Envelope]:
        return (simulated.write(envelope, msgspec.Raw(body), step=ABORT),)  # type: ignore[arg-type]

    assert_refused(attacked(m.MERKLE_COMMITMENT, write), "malformed Abort")


@pytest.mark.parametrize(
    "abort",
    [
        Abort(Code.FAULT),
        Abort(Code.OWN, VICTIM),
        Abort(Code.LATE, VICTIM),
        Abort(Code.OWN, step="roll"),
        Abort(Code.EVIDENCE, number=3),
        Abort(Code.OWN, missing=[(VICTIM, Code.OWN)]),
    ],
)
def test_abort_with_fields_that_its_code_has_not_is_malformed(abort: Abort) -> None:
    simulated = attacked(
        m.MERKLE_COMMITMENT, lambda simulated, envelope, _: (simulated.write(envelope, abort, step=ABORT),)
    )
    assert_refused(simulated, "malformed abort")


@pytest.mark.parametrize("step", m.AGGREGATOR_STEPS)
def test_replayed_rounds(step: str) -> None:
    """Each message of an earlier run of the same session file is refused in the next one."""
    earlier = SimulatedRun(4, run=2).execute()
    [old] = [e for e in earlier.sent if (e.step, e.receiver) == (step, VICTIM)]
    simulated = attacked(step, lambda *_: (old,))
    assert_replay_refused(simulated, step)


def assert_replay_refused(simulated: SimulatedRun, step: str) -> None:
    reason = f"start does not have the nonce of {VICTIM}" if step == m.START else f"'{step}' of another run"
    simulated.assert_blames(VICTIM, AGGREGATOR, reason)
    # All that a party sends before the last step is an answer to this run.
    assert (m.UNMASK in simulated.steps_of(VICTIM)) is (step == m.RESULT)
