"""GOPA without an aggregator under attack: lying coordinators, cheating parties, vanishing processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pytest

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.direct_keys import run_identifier
from smpc_dp.capabilities.gopa.direct_params import check_parameters
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.engine.events import Cancellation, Message
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Code, ConfigCheck, ConfigError, PrivacyError, TimeoutFault
from smpc_dp.wire.abort import TEXTS
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import encode
from tests.faults.gopa_direct_simulated import LENGTH, DirectRow, by, parameters_for, silent

COORDINATOR, VICTIM, CHEAT = "p1", "p2", "p3"
EVERYBODY = tuple(f"p{number}" for number in range(1, 9))
# What parties send once x_hat is out: nothing of it depends on a secret.
AFTER = {d.HELD, d.PUBLISHED, d.FORWARD, d.ATTEST_TOTAL, d.WITNESS, "leave", "abort"}


def without(*gone: str) -> tuple[str, ...]:
    return tuple(name for name in EVERYBODY if name not in gone)


def test_everyone_adds_up_the_same() -> None:
    simulated = DirectRow().execute()
    simulated.assert_published(*EVERYBODY)
    assert all(outcome.faults == () for outcome in simulated.outcomes().values())
    assert all(
        outcome.noise and outcome.noise.residual_pairs == 0 for outcome in simulated.outcomes().values()
    )


def test_pairwise_noise_cancels_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(parameters_for(8)), "add_noise", lambda *_: None)
    simulated = DirectRow().execute()
    total = sum((simulated.grid(name) for name in EVERYBODY), np.zeros(LENGTH, np.int64))
    np.testing.assert_array_equal(simulated.outcomes()[VICTIM].total, total)


# The attack of 4.1.2 of the thesis, by a coordinator, and its late variant


def test_isolation_a_coordinator_keeps_a_value_and_declares_its_user_gone() -> None:
    """As printed, neighbours of a lost party reveal what they share with it; x + eta is left. Not here."""
    simulated = DirectRow()

    def hide(envelope: Envelope) -> Iterable[Envelope]:
        proposed = simulated.read(envelope)
        members = PartySet.unpack(proposed.published, 8, COORDINATOR)
        index = members.index(simulated.number(VICTIM))
        hashes, signatures = proposed.hashes, proposed.signatures
        retained = simulated.change(
            envelope,
            published=pack_set([party for party in members if party != simulated.number(VICTIM)], 8),
            hashes=hashes[: 32 * index] + hashes[32 * index + 32 :],
            signatures=signatures[: 64 * index] + signatures[64 * index + 64 :],
        )
        return (retained,)

    simulated.execute(by(d.PUBLISHED, COORDINATOR, hide))
    simulated.assert_blames(VICTIM, COORDINATOR, f"left {VICTIM} out of the total")
    # The coordinator signed another total than the one that its proposal gives.
    results = simulated.outcomes()
    assert set(results) == set(without(COORDINATOR, VICTIM))
    outcome = results[CHEAT]
    assert outcome.absent == (VICTIM,)
    assert outcome.noise is not None
    assert outcome.noise.residual_pairs == 7
    assert f"{VICTIM}: left out by {COORDINATOR}; its '{g.PUBLISH}' came here" in outcome.faults
    published = next(index for index, e in enumerate(simulated.sent) if e.step == d.PUBLISHED)
    assert {envelope.step for envelope in simulated.sent[published:]} <= AFTER


def test_isolation_the_late_variant_a_publication_is_withheld() -> None:
    """After the certificate: nobody has anything to reveal, and what the victim shared stays in."""
    simulated = DirectRow().execute(silent(VICTIM, g.PUBLISH))
    simulated.assert_missing(VICTIM, VICTIM)
    survivors = without(VICTIM)
    simulated.assert_published(*survivors)
    outcome = simulated.outcomes()[COORDINATOR]
    assert outcome.noise is not None
    assert outcome.noise.residual_pairs == 7
    assert any(fault.startswith(f"{VICTIM}: is not in the total") for fault in outcome.faults)
    certified = next(index for index, e in enumerate(simulated.sent) if e.step == g.PUBLISH)
    later = {e.step for e in simulated.sent[certified:] if e.step != g.PUBLISH}
    assert later <= AFTER


@pytest.mark.parametrize("step", [d.PARTICIPANTS, d.MERKLE_COMMITMENT])
def test_isolation_a_victim_is_shown_a_smaller_set(step: str) -> None:
    """It would leave the noise out that it shares with the others: it never sees a quorum for that set."""
    simulated = DirectRow()

    def shrink(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.receiver != VICTIM:
            return (envelope,)
        message = simulated.read(envelope)
        retained = [1, 2, 5, 6, 7, 8]
        own = {
            d.PARTICIPANTS: ("participants", "reveals"),
            d.MERKLE_COMMITMENT: ("advertised", "advertisements"),
        }[step]
        bodies = getattr(message, own[1])
        fields: dict[str, object] = {
            own[0]: pack_set(retained, 8),
            own[1]: [bodies[party - 1] for party in retained],
            "signatures": b"".join(message.signatures[64 * (p - 1) : 64 * p] for p in retained),
        }
        return (simulated.change(envelope, **fields),)

    simulated.execute(by(step, COORDINATOR, shrink))
    assert g.PUBLISH not in simulated.steps_of(VICTIM)
    if step == d.PARTICIPANTS:
        fault = simulated.assert_blames(VICTIM, COORDINATOR, "two different messages for step 'participants'")
        simulated.assert_proves(fault)
    else:
        simulated.assert_blames(VICTIM, COORDINATOR, "participants has parties that were out before")
    assert VICTIM not in simulated.outcomes()


# A coordinator that tells different parties different things


def test_split_sets_never_both_have_a_quorum() -> None:
    simulated = DirectRow(corrupt=0.13)

    def split(envelope: Envelope) -> Iterable[Envelope]:
        message = simulated.read(envelope)
        gone = 4 if simulated.number(envelope.receiver) % 2 else 3
        retained = [party for party in range(1, 9) if party != gone]
        return (
            simulated.change(
                envelope,
                participants=pack_set(retained, 8),
                reveals=[message.reveals[party - 1] for party in retained],
                signatures=b"".join(message.signatures[64 * (p - 1) : 64 * p] for p in retained),
            ),
        )

    simulated.execute(by(d.PARTICIPANTS, COORDINATOR, split))
    assert not any(envelope.step == g.PUBLISH for envelope in simulated.sent)
    assert not simulated.outcomes()
    proven = [name for name in without(COORDINATOR) if name in simulated.errors and name not in ("p3", "p4")]
    for name in proven:
        fault = simulated.assert_blames(name, COORDINATOR, "two different messages for step 'participants'")
        simulated.assert_proves(fault)


def test_two_starts_are_two_runs_and_convict_the_coordinator() -> None:
    """The second start leaves p8 out: who gets it is in another run, with a nonce of its own in both."""
    simulated = DirectRow()

    def other(envelope: Envelope) -> Iterable[Envelope]:
        if simulated.number(envelope.receiver) % 2:
            return (envelope,)
        start = simulated.read(envelope)
        fields = {
            "present": pack_set(range(1, 8), 8),
            "nonces": start.nonces[: 32 * 7],
            "signatures": start.signatures[: 64 * 7],
        }
        changed = simulated.change(envelope, **fields)
        run_id = run_identifier(
            simulated.context, simulated.context.operation, fields["present"], fields["nonces"]
        )
        moved = Envelope(run_id, changed.step, changed.sender, changed.receiver, changed.body, b"")
        return (simulated.sign(moved),)

    simulated.execute(by(d.START, COORDINATOR, other))
    assert not any(envelope.step == g.PUBLISH for envelope in simulated.sent)
    for name in ("p2", "p3", "p4", "p5", "p6", "p7"):
        fault = simulated.assert_blames(name, COORDINATOR, "two different messages for step 'start'")
        simulated.assert_proves(fault)


def test_two_lists_of_the_published_do_not_both_end_in_a_result() -> None:
    simulated = DirectRow()

    def split(envelope: Envelope) -> Iterable[Envelope]:
        proposed = simulated.read(envelope)
        if simulated.number(envelope.receiver) <= 4:
            return (envelope,)
        retained = [party for party in range(1, 9) if party != simulated.number(VICTIM)]
        changed = simulated.change(
            envelope,
            published=pack_set(retained, 8),
            hashes=b"".join(proposed.hashes[32 * (party - 1) : 32 * party] for party in retained),
            signatures=b"".join(proposed.signatures[64 * (party - 1) : 64 * party] for party in retained),
        )
        return (changed,)

    simulated.execute(by(d.PUBLISHED, COORDINATOR, split))
    assert not simulated.outcomes()
    for name in without(COORDINATOR):
        fault = simulated.assert_blames(name, COORDINATOR, "two different messages for step 'published'")
        simulated.assert_proves(fault)


def test_an_old_start_convicts_nobody() -> None:
    """Whoever shows a start of an earlier process of the same request has proven nothing: nonces differ."""
    before = DirectRow(run=7)
    before.execute()
    old = next(e for e in before.sent if e.step == d.START and e.receiver == VICTIM)
    simulated = DirectRow(run=1)

    def show(envelope: Envelope) -> Iterable[Envelope]:
        body_hash = hashlib.sha256(old.body).digest()
        witness = d.Witness(d.START, old.run_id, body_hash, old.signature, old.body)
        shown = simulated.sign(
            Envelope(
                envelope.run_id,
                d.WITNESS,
                CHEAT,
                envelope.receiver,
                encode(witness),
                b"",
            )
        )
        return envelope, shown

    simulated.execute(by(m.REVEAL, CHEAT, show))
    simulated.assert_published(*EVERYBODY)


def test_a_witness_that_the_coordinator_did_not_sign_is_its_bearers_fault() -> None:
    simulated = DirectRow()

    def show(envelope: Envelope) -> Iterable[Envelope]:
        witness = d.Witness(d.MERKLE_COMMITMENT, envelope.run_id, bytes(32), bytes(64), b"")
        body = encode(witness)
        return envelope, simulated.sign(
            Envelope(envelope.run_id, d.WITNESS, CHEAT, envelope.receiver, body, b"")
        )

    simulated.execute(by(m.REVEAL, CHEAT, show))
    simulated.assert_published(*EVERYBODY)
    assert any("did not sign" in fault for fault in simulated.outcomes()[VICTIM].faults)


@pytest.mark.parametrize(
    ("step", "field", "reason"),
    [
        (d.START, "signatures", "did not sign"),
        (d.START, "nonces", "does not have the nonce"),
        (d.MERKLE_COMMITMENT, "signatures", "did not sign"),
        (d.PARTICIPANTS, "signatures", "did not sign"),
        (d.PUBLISHED, "signatures", "did not sign"),
        (d.PUBLISHED, "hashes", "did not sign"),
    ],
)
def test_forged_proposals_are_refused_and_named(step: str, field: str, reason: str) -> None:
    simulated = DirectRow()

    def forge(envelope: Envelope) -> Iterable[Envelope]:
        content = bytearray(getattr(simulated.read(envelope), field))
        index = 32 * 1 if field == "nonces" else -1
        content[index] ^= 1
        return (simulated.change(envelope, **{field: bytes(content)}),)

    hand = by(step, COORDINATOR, forge)
    answered = {
        d.START: m.HELLO,
        d.MERKLE_COMMITMENT: m.ADVERTISE,
        d.PARTICIPANTS: m.REVEAL,
        d.PUBLISHED: g.PUBLISH,
    }[step]

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        # Who has a message itself needs no signature of it from the coordinator.
        unseen = (envelope.step, envelope.sender, envelope.receiver) == (answered, "p8", VICTIM)
        return () if unseen else hand(envelope)

    simulated.execute(tamper)
    simulated.assert_blames(VICTIM, COORDINATOR, reason)


def test_a_coordinator_that_leaves_somebody_out_is_named_by_it() -> None:
    simulated = DirectRow()

    def shrink(envelope: Envelope) -> Iterable[Envelope]:
        merkle_commitment = simulated.read(envelope)
        fields = {
            "advertised": pack_set([1, 3, 4, 5, 6, 7, 8], 8),
            "advertisements": [
                body for index, body in enumerate(merkle_commitment.advertisements) if index != 1
            ],
            "signatures": merkle_commitment.signatures[:64] + merkle_commitment.signatures[128:],
        }
        return (simulated.change(envelope, **fields),)

    simulated.execute(by(d.MERKLE_COMMITMENT, COORDINATOR, shrink))
    simulated.assert_blames(VICTIM, COORDINATOR, f"left {VICTIM} out of the roll")


# Parties that cheat


def test_a_user_that_publishes_two_values_is_left_out_and_named() -> None:
    simulated = DirectRow()

    def twice(envelope: Envelope) -> Iterable[Envelope]:
        x_hat = bytearray(simulated.read(envelope).x_hat)
        x_hat[0] ^= 1
        changed = simulated.change(envelope, x_hat=bytes(x_hat))
        return (changed if simulated.number(envelope.receiver) > 5 else envelope,)

    simulated.execute(by(g.PUBLISH, CHEAT, twice))
    survivors = without(CHEAT)
    simulated.assert_published(*survivors)
    for outcome in simulated.outcomes().values():
        assert f"{CHEAT}: sent two different messages for step 'publish'" in outcome.faults
        assert outcome.noise is not None
        assert outcome.noise.residual_pairs == 7


def test_a_second_value_to_the_same_user_convicts_too() -> None:
    simulated = DirectRow()

    def twice(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.receiver != VICTIM:
            return (envelope,)
        return envelope, simulated.change(envelope, x_hat=bytes(8 * LENGTH))

    simulated.execute(by(g.PUBLISH, CHEAT, twice))
    simulated.assert_published(*without(CHEAT))


def test_two_values_and_a_coordinator_that_looks_away_stop_the_run() -> None:
    """p8 holds what the coordinator denies: it has the proof, and leaves with it."""
    simulated = DirectRow()

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.sender) == (d.HELD, "p8"):
            return ()
        if (envelope.step, envelope.sender, envelope.receiver) == (g.PUBLISH, CHEAT, "p8"):
            return (simulated.change(envelope, x_hat=bytes(8 * LENGTH)),)
        return (envelope,)

    simulated.execute(tamper)
    fault = simulated.assert_blames("p8", CHEAT, "sent two different messages for step 'publish'")
    simulated.assert_proves(fault)


def test_a_value_sent_to_some_reaches_the_others_through_the_coordinator() -> None:
    simulated = DirectRow()

    def some(envelope: Envelope) -> Iterable[Envelope]:
        return () if simulated.number(envelope.receiver) > 5 else (envelope,)

    simulated.execute(by(g.PUBLISH, CHEAT, some))
    simulated.assert_published(*EVERYBODY)
    assert {e.receiver for e in simulated.sent if e.step == d.FORWARD} == {"p6", "p7", "p8"}


def test_a_value_withheld_from_the_coordinator_is_not_counted() -> None:
    simulated = DirectRow()

    def hide(envelope: Envelope) -> Iterable[Envelope]:
        return () if envelope.receiver == COORDINATOR else (envelope,)

    simulated.execute(by(g.PUBLISH, CHEAT, hide))
    outcome = simulated.outcomes()[VICTIM]
    assert outcome.absent == (CHEAT,)


@pytest.mark.parametrize("x_hat", [b"short", b""])
def test_a_malformed_value_is_left_out(x_hat: bytes) -> None:
    simulated = DirectRow()

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.sender) == (d.HELD, CHEAT):
            return ()
        wrong = (envelope.step, envelope.sender) == (g.PUBLISH, CHEAT)
        return (simulated.change(envelope, x_hat=x_hat) if wrong else envelope,)

    simulated.execute(tamper)
    simulated.assert_published(*without(CHEAT))
    assert any("malformed Published" in fault for fault in simulated.outcomes()[COORDINATOR].faults)


def test_a_user_that_advertises_twice_is_left_out_with_the_proof() -> None:
    simulated = DirectRow()

    def twice(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.receiver != "p8":
            return (envelope,)
        return (simulated.change(envelope, key_commitment=bytes(32)),)

    simulated.execute(by(m.ADVERTISE, CHEAT, twice))
    assert CHEAT in simulated.errors
    simulated.assert_published(*without(CHEAT))
    for outcome in simulated.outcomes().values():
        assert any(fault.startswith(f"{CHEAT}: sent two different") for fault in outcome.faults)


def test_an_accusation_without_a_proof_excludes_the_accuser() -> None:
    simulated = DirectRow()

    def accuse(envelope: Envelope) -> Iterable[Envelope]:
        proof = d.Proof(2, bytes(32), bytes(64), b"\1" * 32, bytes(64))
        return (simulated.change(envelope, proofs=[proof]),)

    simulated.execute(by(m.REVEAL, CHEAT, accuse))
    simulated.assert_published(*without(CHEAT))
    assert any("without a proof" in fault for fault in simulated.outcomes()[COORDINATOR].faults)


def test_wrong_openings_and_wrong_draws_are_left_out() -> None:
    simulated = DirectRow()
    simulated.execute(by(m.REVEAL, CHEAT, lambda e: (simulated.change(e, blinder=bytes(32)),)))
    simulated.assert_published(*without(CHEAT))
    assert any("had not committed to" in fault for fault in simulated.outcomes()[COORDINATOR].faults)


@pytest.mark.parametrize("step", [m.ADVERTISE, m.REVEAL, m.ATTEST_PARTICIPANTS, g.PUBLISH, d.ATTEST_TOTAL])
def test_forged_signatures_are_ignored_and_named(step: str) -> None:
    simulated = DirectRow()

    def forge(envelope: Envelope) -> Iterable[Envelope]:
        bad = bytes([envelope.signature[0] ^ 1]) + envelope.signature[1:]
        return (Envelope(*[*(getattr(envelope, f) for f in envelope.__struct_fields__[:-1]), bad]),)

    simulated.execute(by(step, CHEAT, forge))
    outcome = simulated.outcomes()[VICTIM]
    assert any(f"{CHEAT}: " in fault for fault in outcome.faults) or step == d.ATTEST_TOTAL


def retained_bytes(simulated: DirectRow, name: str) -> int:
    """Return how many bytes of letters a party keeps."""
    letters = simulated.parties[name].state.inbox.letters
    return sum(len(letter.body) for of_step in letters.values() for letter in of_step.values())


@pytest.mark.parametrize("step", [m.HELLO, m.ADVERTISE, m.REVEAL, m.ATTEST_PARTICIPANTS, g.PUBLISH])
def test_nobody_keeps_a_message_that_is_larger_than_its_step_needs(step: str) -> None:
    simulated = DirectRow()
    for name in without(CHEAT):
        for expected, size in ((step, 1 << 16), (d.HELD, 10), (d.WITNESS, 1 << 16)):
            retained = retained_bytes(simulated, name)
            large = Envelope(b"", expected, CHEAT, name, bytes(size), b"")
            if expected != d.HELD or name != COORDINATOR:
                simulated.parties[name].handle(Message(simulated.sign(large)))
            assert retained_bytes(simulated, name) == retained
    simulated.execute()
    simulated.assert_published(*EVERYBODY)
    assert all(
        any(f"{CHEAT}: sent 65536 bytes in step '{step}'" in fault for fault in outcome.faults)
        for name, outcome in simulated.outcomes().items()
        if name != CHEAT
    )


def test_messages_of_another_run_count_for_nothing() -> None:
    """Yesterday's run of the same file, party and request: nothing of it is of use today."""
    before = DirectRow(run=7).execute()
    replay = {(e.step, e.receiver): e for e in before.sent if e.sender == CHEAT}
    simulated = DirectRow(run=1)

    def old(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.sender != CHEAT or envelope.step in (m.HELLO, "leave"):
            return (envelope,)
        return (replay.get((envelope.step, envelope.receiver), envelope),)

    simulated.execute(old)
    simulated.assert_published(*without(CHEAT))


def test_another_plan_is_told_before_anything_is_sent() -> None:
    simulated = DirectRow()
    simulated.execute(by(m.HELLO, CHEAT, lambda e: (simulated.change(e, operation="1f/2e"),)))
    simulated.assert_published(*without(CHEAT))
    simulated.assert_blames(CHEAT, CHEAT, TEXTS[Code.OPERATION])
    assert any(
        fault.startswith(f"{CHEAT}: asks '1f/2e'") for fault in simulated.outcomes()[COORDINATOR].faults
    )


def test_a_user_whose_plan_does_not_hold_in_its_place_never_publishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the certified graph a party counts its own draws that take part, and who drew it."""
    indices: dict[str, tuple[int, int]] = {}

    def check(_parameters: GopaParameters, party: str, own: int, drawn_by: int) -> None:
        indices[party] = own, drawn_by
        if party == CHEAT:
            raise PrivacyError("its plan does not hold")

    monkeypatch.setattr(GopaParameters, "check_neighbourhood", check)
    simulated = DirectRow().execute(silent("p8", m.REVEAL))
    assert g.PUBLISH not in simulated.steps_of(CHEAT)
    assert isinstance(simulated.errors[CHEAT], PrivacyError)
    assert set(indices.values()) == {(6, 6)}, "everyone drew everyone, and p8 does not take part"
    # It takes part, since others had signed that it does: what they share with it stays in.
    outcome = simulated.outcomes()[COORDINATOR]
    assert outcome.absent == (CHEAT, "p8")
    assert outcome.noise is not None
    assert outcome.noise.residual_pairs == 6


# Processes that vanish

EVERY_PARTY_STEPS = [m.HELLO, m.ADVERTISE, m.REVEAL, m.ATTEST_PARTICIPANTS, g.PUBLISH, d.HELD, d.ATTEST_TOTAL]


@pytest.mark.parametrize("step", EVERY_PARTY_STEPS)
def test_a_user_gone_at_each_step(step: str) -> None:
    simulated = DirectRow().execute(silent(CHEAT, step))
    outcome = simulated.outcomes()[COORDINATOR]
    in_total = step in (d.HELD, d.ATTEST_TOTAL)
    assert outcome.absent == (() if in_total else (CHEAT,))
    assert outcome.noise is not None
    certified = step in (m.ATTEST_PARTICIPANTS, g.PUBLISH)
    assert outcome.noise.residual_pairs == (7 if certified else 0)
    assert set(simulated.outcomes()) >= set(without(CHEAT))
    assert in_total or any(CHEAT in fault for fault in outcome.faults)


@pytest.mark.parametrize("step", [d.START, d.MERKLE_COMMITMENT, d.PARTICIPANTS, d.PUBLISHED])
def test_a_coordinator_gone_at_each_step_is_named_and_the_next_request_works(step: str) -> None:
    simulated = DirectRow().execute(silent(COORDINATOR, step))
    for name in without(COORDINATOR):
        simulated.assert_missing(name, COORDINATOR)
    simulated.begin(2)
    simulated.execute(out=[COORDINATOR])
    simulated.assert_published(*without(COORDINATOR))


def test_a_coordinator_that_is_not_there_is_named_at_once() -> None:
    simulated = DirectRow().execute(out=[COORDINATOR])
    for name in without(COORDINATOR):
        simulated.assert_missing(name, COORDINATOR)
    assert {envelope.step for envelope in simulated.sent} == {m.HELLO, "leave"}


def test_too_few_users_stop_the_run_before_anything_is_published() -> None:
    simulated = DirectRow().execute(out=["p6", "p7", "p8"])
    error = simulated.errors[COORDINATOR]
    assert isinstance(error, TimeoutFault)
    assert error.missing == {"p6", "p7", "p8"}
    assert not any(envelope.step == g.PUBLISH for envelope in simulated.sent)


def test_an_input_that_is_refused_stops_nobody_but_its_owner() -> None:
    simulated = DirectRow()
    machine = simulated.parties[CHEAT]
    hellos = machine.handle(Cancellation(ConfigError("no input", ConfigCheck.MISSING)))
    queued = {e.receiver: e for e in hellos}

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.sender == COORDINATOR and envelope.step == m.HELLO and envelope.receiver in queued:
            return envelope, queued.pop(envelope.receiver)
        return (envelope,)

    queue = [queued.pop(COORDINATOR)]
    simulated.parties[COORDINATOR].handle(Message(queue[0]))
    simulated.execute(tamper, out=[CHEAT])
    simulated.assert_published(*without(CHEAT))


# What is refused before a session begins


def test_a_lone_coordinator_cannot_be_what_two_quorums_share() -> None:
    """2q > n + 1 even where nobody is planned to be corrupt: who proposes a set also signs."""
    planned = 0
    for parties in range(3, 13):
        for dropout in (0.0, 0.1, 0.25, 0.34, 0.45, 0.499):
            given: dict[str, object] = {
                "length": 1,
                "lower": 0.0,
                "upper": 1.0,
                "epsilon": 1.0,
                "delta": 1e-6,
            }
            given |= {"dropout": dropout, "corrupt": 0.0, "topology": "direct"}
            parameters, _ = check_parameters(given, parties)
            if parameters is not None:
                planned += 1
                assert 2 * parameters.plan.quorum > parties + 1
                assert parameters.plan.quorum <= parameters.plan.min_survivors
    assert planned > 30


@pytest.mark.parametrize(
    ("more", "parties", "where"),
    [
        ({"on_dropout": "roll-back"}, 8, "on_dropout"),
        ({"topology": "ring"}, 8, "topology"),
        ({}, 257, "roster"),
        ({"length": 1 << 24}, 8, "length"),
    ],
)
def test_what_the_direct_topology_refuses(more: dict[str, object], parties: int, where: str) -> None:
    given: dict[str, object] = {"length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
    given |= {"dropout": 0.1, "corrupt": 0.0, "topology": "direct"} | more
    parameters, faults = check_parameters(given, parties)
    assert parameters is None
    assert where in {fault.where for fault in faults}


def test_claim_speaks_of_no_aggregator() -> None:
    privacy = parameters_for(8).privacy(8)
    assert "the aggregator" not in str(privacy.to_json())
    assert "coordinator" in privacy.claim
