"""Keys that a party chooses after it has seen others', and keys with which every agreement is known.

Aggregators check keys when they come. Some here do not, as those that work with a key's owner: what stops a
party is its own check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa import direct_agreement, direct_coordinator
from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.crypto import agree
from smpc_dp.engine.peers import Letter
from smpc_dp.engine.phases import key_graph, keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.session.exchange import messages as e
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import unpack_list
from smpc_dp.wire.signing import Context, decode, encode
from smpc_dp_lab.vectors.verifiable_runs import execute
from tests.audits import ONE
from tests.faults import gopa_direct_simulated
from tests.faults.checked_totals import CheckedRun
from tests.faults.gopa_direct_simulated import DirectRow
from tests.faults.simulated import AGGREGATOR, SimulatedRun, by, masking_with, only
from tests.faults.test_exchange import Change, Run, on, parameters, refused, start_of
from tests.faults.test_gopa import row_of
from tests.faults.test_pairs_evaluation import fault_of, public_key_but, roles
from tests.faults.test_relayed_pairs import ends

Kind = Literal["exact", "keep", "roll-back"]
BAD, VICTIM = "p3", "p1"
# Of a coordinator, which is p1.
MEMBER = "p2"
# Any secret agrees with it on zero [RFC 7748, section 6.1].
WEAK = bytes(32)
OTHER = agree.public_key(bytes(range(32)))


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let aggregators take every key."""
    monkeypatch.setattr(agree, "check_public_key", lambda _: None)


def sum_of(kind: Kind) -> SimulatedRun:
    """Return a run of four parties by default settings: an exact sum, or an average of GOPA."""
    if kind == "keep":
        return row_of(kind, 4)
    return CheckedRun(4) if kind == "exact" else CheckedRun(4, parameters=row_of(kind, 4).parameters)


def assert_refused(error: object, culprit: str) -> None:
    """The error names the key's owner, who has signed it."""
    assert isinstance(error, PeerFault), error
    assert (error.culprit, error.check) == (culprit, Check.WEAK_KEY), error


# Points of small order


@pytest.mark.parametrize(
    ("kind", "field", "released"),
    [
        ("exact", "seal_key", m.MASKED),
        ("exact", "mask_key", m.MASKED),
        ("roll-back", "mask_key", m.MASKED),
        ("keep", "mask_key", g.PUBLISH),
    ],
)
@pytest.mark.usefixtures("careless")
def test_no_party_of_a_sum_agrees_with_a_point_of_small_order(kind: Kind, field: str, released: str) -> None:
    simulated = sum_of(kind)
    hand = masking_with(simulated, BAD, WEAK)
    if field == "seal_key":
        hand = by(m.ADVERTISE, BAD, lambda sent: (simulated.advertise(sent, seal_key=WEAK),))
    simulated.execute(hand)
    assert_refused(simulated.errors[VICTIM], BAD)
    for name in simulated.names:
        assert name == BAD or released not in simulated.steps_of(name)


@pytest.mark.parametrize("kind", ["exact", "keep", "roll-back"])
def test_an_aggregator_excludes_the_owner_of_a_point_of_small_order(kind: Kind) -> None:
    simulated = sum_of(kind)
    simulated.execute(masking_with(simulated, BAD, WEAK))
    simulated.assert_out(BAD, "public key is a point of small order")
    assert simulated.aggregator.result.absent == (BAD,)


def take(
    context: Context, _degree: int, _run_id: bytes, _party: int, reveal: m.Reveal, **_: bytes
) -> key_graph.Revealed:
    """Return what a party reveals, unchecked."""
    return key_graph.Revealed(unpack_list(reveal.neighbours, len(context.names), ""), reveal.mask_key)


def commit_to_key(monkeypatch: pytest.MonkeyPatch, name: str, key: bytes) -> None:
    """Let a party of a verifiable run commit to another masking key than its own, and reveal that."""
    drawing, opening = key_graph.draw, key_graph.open_draw

    def draw(member: Any, run_id: bytes, *given: Any) -> tuple[key_graph.Drawn, m.Advertise]:
        drawn, message = drawing(member, run_id, *given)
        if member.name == name:
            message = replace(message, key_commitment=keys.key_commitment(member.context, run_id, name, key))
            drawn = replace(drawn, advertisement=sha256(encode(message)).digest())
        return drawn, message

    def open_draw(member: Any, *given: Any) -> tuple[key_graph.Advertised, m.Reveal]:
        advertised, message = opening(member, *given)
        return advertised, replace(message, mask_key=key) if member.name == name else message

    monkeypatch.setattr(key_graph, "draw", draw)
    monkeypatch.setattr(key_graph, "open_draw", open_draw)


@pytest.mark.usefixtures("careless")
def test_no_party_of_a_verifiable_run_agrees_with_a_point_of_small_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit_to_key(monkeypatch, "cyd", WEAK)
    ran = execute(setting=ONE)
    assert_refused(ran.errors["ann"], "cyd")
    assert not {entry.party for entry in ran.entries if entry.kind == v.COMMIT} - {"cyd"}


def direct_masking_with(simulated: DirectRow, name: str, key: bytes) -> Callable[..., Iterable[Envelope]]:
    """Return a hand of a party that commits to a masking key which is not its own, and reveals it."""

    def tamper(sent: Envelope) -> Iterable[Envelope]:
        if sent.sender != name or sent.step not in (m.ADVERTISE, m.REVEAL):
            return (sent,)
        fields = {"mask_key": key}
        if sent.step == m.ADVERTISE:
            fields = {"key_commitment": keys.key_commitment(simulated.context, sent.run_id, name, key)}
        changed = simulated.change(sent, **fields)
        # Its machine goes on as if it had sent that.
        letter = Letter(changed.run_id, changed.body, sha256(changed.body).digest(), changed.signature)
        simulated.parties[name].state.inbox.letters[sent.step][simulated.number(name)] = letter
        return (changed,)

    return tamper


def test_a_coordinator_leaves_out_the_owner_of_a_point_of_small_order() -> None:
    simulated = DirectRow()
    outcomes = simulated.execute(direct_masking_with(simulated, BAD, WEAK)).outcomes()
    assert {BAD in outcome.survivors for outcome in outcomes.values()} == {False}
    assert any(BAD in fault and "small order" in fault for fault in outcomes["p1"].faults)


def test_without_an_aggregator_a_roll_with_another_message_of_ones_own_is_refused() -> None:
    """A coordinator shows a party another commitment of its own on the roll, as if it had signed that."""
    simulated, place = DirectRow(), 1
    others: list[Envelope] = []

    def tamper(sent: Envelope) -> Iterable[Envelope]:
        if (sent.step, sent.sender) == (m.ADVERTISE, MEMBER):
            others.append(simulated.change(sent, key_commitment=OTHER))
        if (sent.step, sent.receiver) != (d.MERKLE_COMMITMENT, MEMBER):
            return (sent,)
        roll = simulated.read(sent)
        bodies, signatures = list(roll.advertisements), bytearray(roll.signatures)
        bodies[place], signatures[64 * place : 64 * place + 64] = others[0].body, others[0].signature
        return (simulated.change(sent, advertisements=bodies, signatures=bytes(signatures)),)

    simulated.execute(tamper)
    simulated.assert_blames(MEMBER, "p1", f"roll does not have the message of {MEMBER}")
    assert not simulated.steps_of(MEMBER) & {m.REVEAL, g.PUBLISH}


@pytest.mark.parametrize(
    ("key", "committed", "reason"),
    [
        (WEAK, True, "public key is a point of small order take part"),
        (OTHER, False, "revealed a masking key that it had not committed to take part"),
    ],
    ids=["small-order", "not-committed"],
)
def test_without_an_aggregator_every_party_checks_the_keys_of_all(
    monkeypatch: pytest.MonkeyPatch, key: bytes, committed: bool, reason: str
) -> None:
    """A coordinator that lets a party take part with such a key is at fault."""
    simulated, reading = DirectRow(), direct_agreement.read_reveal
    late = gopa_direct_simulated.by(m.REVEAL, BAD, lambda sent: (simulated.change(sent, mask_key=key),))

    def read_reveal(peer: Any, *given: Any) -> Any:
        with monkeypatch.context() as patched:
            if peer.name == "p1":
                patched.setattr(direct_agreement, "check_openings", take)
            return reading(peer, *given)

    for module in (direct_agreement, direct_coordinator):
        monkeypatch.setattr(module, "read_reveal", read_reveal)
    simulated.execute(direct_masking_with(simulated, BAD, key) if committed else late)
    simulated.assert_blames(MEMBER, "p1", f"let {BAD}: {reason}")
    assert not simulated.steps_of(MEMBER) & {m.ATTEST_PARTICIPANTS, g.PUBLISH}


def exchange_in_which(key: bytes) -> tuple[Run, Change]:
    """Return an exchange in which the first party is shown another hello of the third, with this key."""
    run = Run(parameters())
    context, signers = run.simulated.context, run.simulated.signers

    def change(body: bytes) -> e.Start:
        start = start_of(body)
        *others, (number, content, _) = start.hellos
        name = context.names[number - 1]
        other = replace(decode(content, e.Hello, name), key=key)
        [sent] = context.write(signers[name], context.session_digest, e.HELLO, (context.aggregator,), other)
        return replace(start, hellos=[*others, (number, sent.body, sent.signature)])

    return run, on(run, e.START, 0, change)


def test_no_box_of_an_exchange_is_sealed_with_a_point_of_small_order() -> None:
    run, change = exchange_in_which(WEAK)
    assert_refused(refused(run, change), run.simulated.context.names[2])


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_no_output_is_sealed_with_a_point_of_small_order(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    taking = roles("aggregator")
    monkeypatch.setattr(
        "smpc_dp.capabilities.pairs.garbled.participant.public_key", public_key_but(taking["hub"])
    )
    assert_refused(fault_of(evaluate_in_memory(taking), name), "hub")


def test_no_frame_of_a_pair_is_sealed_with_a_point_of_small_order() -> None:
    one, other = ends()
    other._public = WEAK
    with pytest.raises(VerificationError, match=r"frame 0 of 'bert'.*small order"):
        one.meet(other.first())


# Keys that are chosen late


@pytest.mark.parametrize("kind", ["exact", "keep", "roll-back"])
def test_a_party_that_chooses_its_key_after_the_roll_is_excluded(kind: Kind) -> None:
    """A key that it had not committed to before it saw another's is refused by the aggregator."""
    simulated = sum_of(kind)
    simulated.execute(by(m.REVEAL, BAD, lambda sent: (simulated.change(sent, mask_key=OTHER),)))
    simulated.assert_out(BAD, "revealed a masking key that it had not committed to")
    assert simulated.aggregator.result.absent == (BAD,)
    for sent in simulated.sent:
        assert sent.step != m.NEIGHBOURS or OTHER not in decode(sent.body, m.Neighbours, AGGREGATOR).mask_keys


@pytest.mark.parametrize("checks", [True, False])
def test_the_key_of_another_party_is_refused(monkeypatch: pytest.MonkeyPatch, checks: bool) -> None:
    """A party copies another's commitment, and reveals its key: the commitment has the name of the other.

    The aggregator excludes it. One that does not check is refused by the parties.
    """
    simulated, owner = SimulatedRun(4), "p2"

    def copy(sent: Envelope) -> Iterable[Envelope]:
        if (sent.step, sent.sender) == (m.ADVERTISE, BAD):
            copied = simulated.body_of(m.ADVERTISE, owner).key_commitment
            return (simulated.advertise(sent, key_commitment=copied),)
        if (sent.step, sent.sender) == (m.REVEAL, BAD):
            return (simulated.change(sent, mask_key=simulated.body_of(m.REVEAL, owner).mask_key),)
        return (sent,)

    if not checks:
        monkeypatch.setattr(key_graph, "check_openings", take)
    simulated.execute(copy)
    if checks:
        simulated.assert_out(BAD, "revealed a masking key that it had not committed to")
        simulated.assert_sum(BAD)
    else:
        simulated.assert_blames(VICTIM, AGGREGATOR, f"forwarded a key that {BAD} had not committed to")
        assert m.DEAL not in simulated.steps_of(VICTIM)


def test_a_party_of_a_verifiable_run_that_chooses_its_key_after_the_roll_is_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opening = key_graph.open_draw

    def open_draw(member: Any, *given: Any) -> tuple[key_graph.Advertised, m.Reveal]:
        advertised, message = opening(member, *given)
        return advertised, replace(message, mask_key=OTHER) if member.name == "cyd" else message

    monkeypatch.setattr(key_graph, "open_draw", open_draw)
    ran = execute(setting=ONE)
    assert ran.relay.result.absent == ("cyd",)
    assert "cyd: revealed a masking key that it had not committed to" in ran.relay.result.faults


def test_without_an_aggregator_a_key_that_is_chosen_after_the_roll_is_left_out() -> None:
    simulated = DirectRow()
    hand = gopa_direct_simulated.by(m.REVEAL, BAD, lambda sent: (simulated.change(sent, mask_key=OTHER),))
    outcomes = simulated.execute(hand).outcomes()
    assert {BAD in outcome.survivors for outcome in outcomes.values()} == {False}
    assert any(BAD in fault and "had not committed to" in fault for fault in outcomes["p1"].faults)


@pytest.mark.parametrize("kind", ["exact", "keep", "roll-back"])
def test_an_aggregator_that_forwards_another_key_is_refused(kind: Kind) -> None:
    """Also where it works with the key's owner: the owner's commitment is on the roll."""
    simulated = sum_of(kind)

    def swap(sent: Envelope) -> Iterable[Envelope]:
        message, number = decode(sent.body, m.Neighbours, AGGREGATOR), simulated.number(BAD)
        place = 32 * [item.party for item in message.advertisements].index(number)
        packed = message.mask_keys[:place] + OTHER + message.mask_keys[place + 32 :]
        openings = [
            other_opening(simulated, opening, OTHER) if opening.party == number else opening
            for opening in message.openings
        ]
        return (simulated.change(sent, mask_keys=packed, openings=openings),)

    simulated.execute(only(m.NEIGHBOURS, VICTIM, swap))
    simulated.assert_blames(VICTIM, AGGREGATOR, f"forwarded a key that {BAD} had not committed to")
    assert not {m.DEAL, m.ATTEST_PARTICIPANTS} & {*simulated.steps_of(VICTIM)}


@pytest.mark.parametrize("change", [lambda packed: packed[32:], lambda packed: packed + OTHER])
def test_one_masking_key_of_each_neighbour_is_due(change: Callable[[bytes], bytes]) -> None:
    simulated = SimulatedRun(4)

    def tamper(sent: Envelope) -> Iterable[Envelope]:
        packed = decode(sent.body, m.Neighbours, AGGREGATOR).mask_keys
        return (simulated.change(sent, mask_keys=change(packed)),)

    simulated.execute(only(m.NEIGHBOURS, VICTIM, tamper))
    simulated.assert_blames(VICTIM, AGGREGATOR, "forwarded other than one masking key of each neighbour")


def test_an_opening_with_another_key_is_its_owners_fault() -> None:
    """The party that drew the victim signs another key for it than it committed to."""
    simulated = SimulatedRun(4)

    def swap(sent: Envelope) -> Iterable[Envelope]:
        openings = list(decode(sent.body, m.Neighbours, AGGREGATOR).openings)
        place = [opening.party for opening in openings].index(simulated.number(BAD))
        openings[place] = other_opening(simulated, openings[place], OTHER)
        return (simulated.change(sent, openings=openings),)

    simulated.execute(only(m.NEIGHBOURS, VICTIM, swap))
    simulated.assert_blames(VICTIM, BAD, "revealed a masking key that it had not committed to")
    assert m.DEAL not in simulated.steps_of(VICTIM)


def other_opening(simulated: SimulatedRun, opening: m.Opening, key: bytes) -> m.Opening:
    """Return an opening with another masking key, signed by its owner."""
    [revealed] = [
        sent
        for sent in simulated.sent
        if sent.step == m.REVEAL and simulated.number(sent.sender) == opening.party
    ]
    other = simulated.change(revealed, mask_key=key)
    return m.Opening(opening.party, other.body, other.signature)


def second_advertisement(simulated: SimulatedRun, key: bytes) -> Envelope:
    """Return another advertisement that commits to another key, signed by its owner."""
    [advertised] = [sent for sent in simulated.sent if (sent.step, sent.sender) == (m.ADVERTISE, BAD)]
    commitment = keys.key_commitment(simulated.context, advertised.run_id, BAD, key)
    return simulated.change(advertised, key_commitment=commitment)


def shown_late(simulated: SimulatedRun, sent: Envelope) -> Envelope:
    """Return `neighbours` with another key, advertisement and opening of a party, all signed by it."""
    message, number = decode(sent.body, m.Neighbours, AGGREGATOR), simulated.number(BAD)
    other, items = second_advertisement(simulated, OTHER), list(message.advertisements)
    place = [item.party for item in items].index(number)
    items[place] = m.Advertisement(number, other.body, other.signature)
    packed = message.mask_keys[: 32 * place] + OTHER + message.mask_keys[32 * place + 32 :]
    openings = [
        other_opening(simulated, opening, OTHER) if opening.party == number else opening
        for opening in message.openings
    ]
    return simulated.change(sent, advertisements=items, mask_keys=packed, openings=openings)


def test_the_roll_binds_draws_and_masking_keys() -> None:
    """An advertisement that is not under the root is refused, although its owner has signed it."""
    simulated = SimulatedRun(4)
    simulated.execute(only(m.NEIGHBOURS, VICTIM, lambda sent: (shown_late(simulated, sent),)))
    simulated.assert_blames(VICTIM, AGGREGATOR, "roll does not have the advertisement of")
    assert m.DEAL not in simulated.steps_of(VICTIM)


@pytest.mark.parametrize("kind", ["exact", "keep", "roll-back"])
def test_a_party_with_two_keys_on_two_rolls_gets_no_certificate(kind: Kind) -> None:
    """Under a root of its own the victim takes the second key, and attests another set than the others."""
    simulated = sum_of(kind)

    def split(sent: Envelope) -> Iterable[Envelope]:
        if sent.receiver != VICTIM or sent.step not in (m.MERKLE_COMMITMENT, m.NEIGHBOURS):
            return (sent,)
        tree = simulated.merkle_commitment(
            {simulated.number(BAD): second_advertisement(simulated, OTHER).body}
        )
        shown = sent if sent.step == m.MERKLE_COMMITMENT else shown_late(simulated, sent)
        return (simulated.enroll(shown, tree),)

    simulated.execute(split)
    assert m.ATTEST_PARTICIPANTS in simulated.steps_of(VICTIM)
    assert not {m.MASKED, g.PUBLISH} & {*simulated.steps_of(VICTIM)}
    assert simulated.fault_of(VICTIM) == f"{VICTIM}: attests another set than the one that was sent"


def test_the_run_of_an_exchange_binds_nonces_and_no_keys() -> None:
    """Who signs another key for one receiver keeps nothing from anybody but itself."""
    run, change = exchange_in_which(OTHER)
    error = refused(run, change)
    assert isinstance(error, PeerFault)
    assert error.culprit in run.simulated.context.names[::2], "the box between the two does not open"


def test_a_party_that_advertises_anothers_key_learns_and_repeats_no_term() -> None:
    """The seed of a pair holds both names: the same key under another name gives another seed."""
    simulated = SimulatedRun(3)
    secret, run_id = bytes(range(32)), bytes(32)
    seeds = {
        (me, peer): keys.pair_mask_seed(simulated.context, run_id, secret, me, peer, OTHER)
        for me, peer in (("p1", "p2"), ("p1", "p3"), ("p2", "p3"))
    }
    assert len(set(seeds.values())) == 3
