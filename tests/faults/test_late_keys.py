"""Keys that a party chooses after it has seen others', and keys with which every agreement is known.

Aggregators check keys when they come. Here they do not, as those that work with a key's owner: what stops a
party is its own check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.crypto import agree
from smpc_dp.engine.phases import key_graph, keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.session.exchange import messages as e
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.verifiable_runs import execute
from tests.audits import ONE
from tests.faults import gopa_direct_simulated
from tests.faults.gopa_direct_simulated import DirectRow
from tests.faults.simulated import AGGREGATOR, SimulatedRun, by, only
from tests.faults.test_exchange import Change, Run, on, parameters, refused, start_of
from tests.faults.test_gopa import row_of
from tests.faults.test_pairs_evaluation import fault_of, public_key_but, roles
from tests.faults.test_relayed_pairs import ends

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


def assert_refused(error: object, culprit: str) -> None:
    """The error names the key's owner, who has signed it."""
    assert isinstance(error, PeerFault), error
    assert (error.culprit, error.check) == (culprit, Check.WEAK_KEY), error


# Points of small order, at parties


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
def test_no_party_of_a_sum_agrees_with_a_point_of_small_order(
    kind: Literal["exact", "keep", "roll-back"], field: str, released: str
) -> None:
    simulated = SimulatedRun(4) if kind == "exact" else row_of(kind, 4)
    simulated.execute(by(m.ADVERTISE, BAD, lambda sent: (simulated.change(sent, **{field: WEAK}),)))
    assert_refused(simulated.errors[VICTIM], BAD)
    for name in simulated.names:
        assert name == BAD or released not in simulated.steps_of(name)


@pytest.mark.usefixtures("careless")
def test_no_party_of_a_verifiable_run_agrees_with_a_point_of_small_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawing = key_graph.draw

    def draw(member: Any, *given: Any) -> tuple[bytes, key_graph.Drawn, m.Advertise]:
        run_id, drawn, message = drawing(member, *given)
        return run_id, drawn, replace(message, mask_key=WEAK) if member.name == "cyd" else message

    monkeypatch.setattr(key_graph, "draw", draw)
    ran = execute(setting=ONE)
    assert_refused(ran.errors["ann"], "cyd")
    assert not {entry.party for entry in ran.entries if entry.kind == v.COMMIT} - {"cyd"}


def shown_roll(name: str, key: bytes) -> DirectRow:
    """Run with a coordinator that shows one member a roll with another key of a party, signed by it."""
    simulated, others = DirectRow(), []

    def tamper(sent: Envelope) -> Iterable[Envelope]:
        if (sent.step, sent.sender) == (m.ADVERTISE, name):
            others.append(simulated.change(sent, mask_key=key))
        if (sent.step, sent.receiver) != (d.MERKLE_COMMITMENT, MEMBER):
            return (sent,)
        roll, place = simulated.read(sent), simulated.number(name) - 1
        bodies, signatures = list(roll.advertisements), bytearray(roll.signatures)
        bodies[place], signatures[64 * place : 64 * place + 64] = others[0].body, others[0].signature
        return (simulated.change(sent, advertisements=bodies, signatures=bytes(signatures)),)

    return simulated.execute(tamper)


@pytest.mark.parametrize(
    ("name", "key", "reason"),
    [
        (BAD, WEAK, f"let {BAD}: public key is a point of small order onto the roll"),
        (MEMBER, OTHER, f"roll does not have the message of {MEMBER}"),
    ],
    ids=["small-order", "its-own"],
)
def test_without_an_aggregator_every_party_checks_the_keys_on_the_roll(
    name: str, key: bytes, reason: str
) -> None:
    """A coordinator that lets a point of small order onto it is at fault."""
    simulated = shown_roll(name, key)
    simulated.assert_blames(MEMBER, "p1", reason)
    assert not simulated.steps_of(MEMBER) & {m.REVEAL, g.PUBLISH}


def test_a_coordinator_leaves_out_who_advertises_a_point_of_small_order() -> None:
    simulated = DirectRow()
    hand = gopa_direct_simulated.by(m.ADVERTISE, BAD, lambda sent: (simulated.change(sent, mask_key=WEAK),))
    outcomes = simulated.execute(hand).outcomes()
    assert {BAD in outcome.survivors for outcome in outcomes.values()} == {False}
    assert any(BAD in fault and "small order" in fault for fault in outcomes["p1"].faults)


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


def test_the_roll_binds_draws_and_no_keys() -> None:
    """A party may sign an advertisement for each neighbour, with other keys; not with another commitment."""

    def shown(**fields: bytes) -> SimulatedRun:
        simulated = SimulatedRun(4)

        def change(sent: Envelope) -> Iterable[Envelope]:
            items = list(decode(sent.body, m.Neighbours, AGGREGATOR).advertisements)
            [advertised] = [e for e in simulated.sent if (e.step, e.sender) == (m.ADVERTISE, BAD)]
            other = simulated.change(advertised, **fields)
            number = simulated.number(BAD)
            place = [item.party for item in items].index(number)
            items[place] = m.Advertisement(number, other.body, other.signature)
            return (simulated.change(sent, advertisements=items),)

        return simulated.execute(only(m.NEIGHBOURS, VICTIM, change))

    assert m.MASKED in shown(mask_key=OTHER).steps_of(VICTIM)
    refusing = shown(commitment=WEAK)
    refusing.assert_blames(VICTIM, AGGREGATOR, "roll does not have the commitment of")
    assert m.DEAL not in refusing.steps_of(VICTIM)


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
