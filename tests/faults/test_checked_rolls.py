"""An aggregator that lies about the root of commitments, copies commitments, or invents a party."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from unittest import mock

import msgspec
import pytest
from nacl.signing import SigningKey

from smpc_dp.engine.collector import Item
from smpc_dp.engine.phases import checked_total, key_graph, keys, masked_sum
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.key_graph import CollectAdvertise
from smpc_dp.engine.phases.recovery import Recovery
from smpc_dp.engine.registry import make_aggregator, make_party
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Code
from smpc_dp.privacy.secagg_plan import check_plan
from smpc_dp.secagg import states
from smpc_dp.secagg.states import AGGREGATOR as ROLE
from smpc_dp.secagg.states import Aggregator
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.wire.abort import Abort
from smpc_dp.wire.envelope import Envelope
from tests.faults.checked_totals import CheckedRun, assert_no_total, wide
from tests.faults.simulated import AGGREGATOR, only

VICTIM, INVENTED = "p1", "p32"


def with_leaves(simulated: CheckedRun, envelope: Envelope, leaves: dict[int, bytes]) -> Envelope:
    """Return the receiver's roll with other leaves under the root of values."""
    tree = simulated.values_tree(leaves)
    proof = tree.prove([simulated.number(envelope.receiver)])
    return simulated.change(envelope, values_root=tree.root, values_proof=proof)


@pytest.mark.parametrize("leaf", ["another", "copied"])
@pytest.mark.parametrize("everyone", [True, False])
def test_the_own_leaf_is_another(leaf: str, everyone: bool) -> None:
    """A party whose own hash is not in its place sends nothing that depends on its vector."""
    simulated = CheckedRun(4)

    def forge(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step != m.MERKLE_COMMITMENT or not (everyone or envelope.receiver == VICTIM):
            return (envelope,)
        false = bytes(range(32)) if leaf == "another" else simulated.leaves()[2]
        return (with_leaves(simulated, envelope, {1: false}),)

    simulated.execute(forge)
    simulated.assert_blames(VICTIM, AGGREGATOR, f"roll does not have the commitment of {VICTIM}")
    assert m.REVEAL not in simulated.steps_of(VICTIM)
    if everyone:
        # The others are shown another roll than the one whose digest the aggregator goes on with.
        simulated.assert_no_value()
    else:
        simulated.assert_sum(VICTIM)


def test_a_root_of_nothing_known() -> None:
    simulated = CheckedRun(4)
    simulated.execute(
        only(
            m.MERKLE_COMMITMENT,
            VICTIM,
            lambda envelope: (simulated.change(envelope, values_root=bytes(32)),),
        )
    )
    simulated.assert_blames(VICTIM, AGGREGATOR, f"roll does not have the commitment of {VICTIM}")
    assert m.REVEAL not in simulated.steps_of(VICTIM)
    simulated.assert_sum(VICTIM)


def test_two_rolls_get_no_certificate() -> None:
    """A party that is shown another root of values attests another digest, and never shows its commitment."""
    simulated = CheckedRun(4)
    simulated.execute(
        only(
            m.MERKLE_COMMITMENT,
            VICTIM,
            lambda envelope: (with_leaves(simulated, envelope, {4: bytes(32)}),),
        )
    )
    assert m.ATTEST_PARTICIPANTS in simulated.steps_of(VICTIM)
    assert m.MASKED not in simulated.steps_of(VICTIM)
    assert simulated.reported(VICTIM) == Abort(Code.FAULT, VICTIM)
    # On the aggregator's word alone, as its error says.
    assert getattr(simulated.errors[VICTIM], "accuser", "") == AGGREGATOR
    simulated.assert_sum(VICTIM)


def test_the_certificate_of_the_other_roll_is_refused() -> None:
    """Attestations of those who saw one root of values do not certify the other."""
    simulated = CheckedRun(4)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.receiver) == (m.MERKLE_COMMITMENT, VICTIM):
            return (with_leaves(simulated, envelope, {4: bytes(32)}),)
        if (envelope.step, envelope.sender) == (m.ATTEST_PARTICIPANTS, VICTIM):
            # The aggregator takes it for an attestation of the roll that the others saw.
            digest = simulated.aggregator.state.attesting.digest
            return (simulated.change(envelope, set_digest=digest),)
        return (envelope,)

    simulated.execute(tamper)
    simulated.assert_blames(VICTIM, AGGREGATOR, "certificate of 'attest-participants' has a signature of")
    assert m.MASKED not in simulated.steps_of(VICTIM)


def test_a_leaf_is_exchanged_for_all_others() -> None:
    """p4 sees its own leaf, the others one of the aggregator's making: p4 is out, without a vector."""
    simulated = CheckedRun(4)
    made = simulated.commit([1, 2, 3], wide(5))

    def finish(aggregator: Aggregator, state: CollectAdvertise) -> Transition:
        item = state.inbox.items[4]
        leaf = keys.value_commitment(aggregator.context, state.run_id, "p4", made)
        message = msgspec.structs.replace(item.message, value_commitment=leaf)
        state.inbox.items[4] = Item(message, item.body, item.signature)
        return key_graph.finish_advertise(aggregator, state)

    simulated.aggregator.role = ROLE.with_row(CollectAdvertise, finish=finish)
    simulated.execute(
        only(m.MERKLE_COMMITMENT, "p4", lambda envelope: (with_leaves(simulated, envelope, {}),))
    )
    # p4 attests the digest of its own roll, and so is never asked for its vector.
    assert m.MASKED not in simulated.steps_of("p4")
    simulated.assert_sum("p4")


def test_a_copied_leaf_opens_nothing() -> None:
    """A corrupt p3 advertises the hash of p2: it has the name of p2, so no point of p3 opens it."""
    simulated = CheckedRun(4)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.sender) == (m.ADVERTISE, "p3"):
            copied = simulated.leaves()[2]
            return (simulated.advertise_leaf(envelope, copied),)
        if (envelope.step, envelope.sender) == (m.MASKED, "p3"):
            return (simulated.change(envelope, point=simulated.committed["p2"].point),)
        return (envelope,)

    simulated.execute(tamper)
    simulated.assert_out("p3", "sent another commitment than it had advertised")
    simulated.assert_sum("p3")


@pytest.mark.parametrize("request_of", [1, 2])
def test_a_copied_commitment_has_no_opening(request_of: int) -> None:
    """A corrupt p3 commits to what p2 showed in an earlier request or run, under a hash of its own.

    With the aggregator's help it is listed; whoever knows neither p2's vector nor its blinding of that time
    finds no total: not that of what p3 masks, and not that without p3.
    """
    earlier = CheckedRun(4).execute().body_of(m.MASKED, "p2").point
    simulated = CheckedRun(4, request=request_of, run=2)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.sender != "p3":
            return (envelope,)
        if envelope.step == m.ADVERTISE:
            leaf = keys.value_commitment(simulated.context, envelope.run_id, "p3", earlier)
            return (simulated.advertise_leaf(envelope, leaf),)
        if envelope.step == m.MASKED:
            digest = simulated.aggregator.state.agreed.participation.certificate.set_digest
            opening = simulated.sign_opening("p3", envelope.run_id, digest, earlier)
            return (simulated.change(envelope, point=opening[:32], signature=opening[32:]),)
        return (envelope,)

    simulated.execute(tamper)
    assert_no_total(simulated)


# A party that the aggregator invents


def with_invented_party() -> CheckedRun:
    """Play a sparse run in which the last party is the aggregator's invention, keys and all.

    The aggregator's view of that party's public key is another than everyone's. Only parties that share masks
    with the invention are shown a signature of it before the result. It goes on without its holders, which
    have refused, and the aggregator knows its secrets.
    """
    simulated = CheckedRun(32, plan=check_plan(32, 3, 2, dropout=0.45, corrupt=0.0), run=2)
    signer = Signer(INVENTED, SigningKey(bytes(range(32))))
    simulated.signers[INVENTED] = signer
    known = dict(simulated.context.keys) | {INVENTED: bytes(signer.key.verify_key)}
    context = dataclasses.replace(simulated.context, keys=known)
    simulated.aggregator = make_aggregator(context, simulated.parameters, simulated.signers[AGGREGATOR])
    ring_vector, _ = simulated.encoding.encode(simulated.vectors[-1], party=INVENTED)
    invention = make_party(context, simulated.parameters, signer, ring_vector, simulated.randomness[INVENTED])
    simulated.parties[INVENTED] = invention
    seeds: list[bytes] = []

    def go_on(member: states.Party, state: states.AwaitDelivery, body: bytes) -> Transition:
        seeds.append(state.self_seed)
        with mock.patch.object(masked_sum, "check_holders"):
            return states.on_deliver(member, state, body)

    def finish(aggregator: states.Aggregator, state: states.CollectUnmask) -> Transition:
        recover = Recovery._recover

        def known_or_recovered(recovery: Recovery, party: int) -> bytes:
            return seeds[0] if party == 32 else recover(recovery, party)

        with mock.patch.object(Recovery, "_recover", known_or_recovered):
            return states.finish_unmask(aggregator, state)

    invention.role = states.PARTY.with_row(states.AwaitDelivery, go_on)
    simulated.aggregator.role = states.AGGREGATOR.with_row(states.CollectUnmask, finish=finish)
    return simulated.execute()


def test_an_invented_party() -> None:
    """Those that share masks with it refuse early; the others see its false signature with the total."""
    simulated = with_invented_party()
    reached = [name for name in simulated.names[:-1] if m.UNMASK in simulated.steps_of(name)]
    early = [name for name in simulated.names[:-1] if m.DEAL not in simulated.steps_of(name)]
    assert (len(early) > 0, len(reached) >= simulated.plan.quorum) == (True, True)
    assert INVENTED in simulated.aggregator.result.survivors
    simulated.assert_no_value(INVENTED)
    for name in early:
        simulated.assert_blames(name, AGGREGATOR, f"message of step 'advertise' that {INVENTED} did not sign")
    for name in reached:
        simulated.assert_blames(name, AGGREGATOR, f"shows a commitment that {INVENTED} did not sign")


def test_without_signatures_of_openings_an_invented_party_would_be_a_survivor() -> None:
    """A weakened copy: the same run in which nobody checks who has signed a commitment."""
    with mock.patch.object(checked_total, "_check_signed"):
        simulated = with_invented_party()
    fooled = [name for name in simulated.names[:-1] if name not in simulated.errors]
    assert len(fooled) >= simulated.plan.quorum
    for name in fooled:
        assert INVENTED in simulated.parties[name].result.survivors
