"""Ten thousand seeded schedules of an aggregator that lies about a checked total, and of lost parties.

Honest parties have the exact sum over the survivors that they certified, or none, and blame nobody but the
aggregator. `make test` plays the first hundred; `pytest --all` plays all.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from unittest import mock

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.engine.collector import CollectorRole, Item
from smpc_dp.engine.phases import checked_total, key_graph, keys, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.checked_total import Opened
from smpc_dp.engine.phases.key_graph import CollectAdvertise
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment
from smpc_dp.engine.state import Transition
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg import states
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_lab.bench.roles import Roles, sum_roles
from tests.faults.checked_totals import assert_names_the_aggregator, commit_to, pieces, plus, wide

SCHEDULES, BATCH, ORDINARY = 10_000, 100, 1
# Number of the message `masked` among those of a party.
BEFORE_MASKED = 6

Chooser = random.Random
Lie = Callable[[Chooser, CollectorRole], CollectorRole]
Change = Callable[[Chooser, states.Aggregator, m.CheckedResult], m.CheckedResult]


# Lies in the result


def off_by(chooser: Chooser, aggregator: states.Aggregator, result: m.CheckedResult) -> m.CheckedResult:
    encoding = aggregator.parameters.encoding
    lanes = encoding.unpack(result.total).copy()
    lanes[chooser.randrange(len(lanes))] += chooser.choice([1, 2, 1 << 8, (1 << 24) - 1])
    return replaced(result, total=encoding.pack(lanes))


def other_blinding(
    chooser: Chooser, _aggregator: states.Aggregator, result: m.CheckedResult
) -> m.CheckedResult:
    return replaced(result, blinding=plus(result.blinding, chooser.randrange(1, 9)))


def two_swapped(chooser: Chooser, _aggregator: states.Aggregator, result: m.CheckedResult) -> m.CheckedResult:
    shown = pieces(result.openings)
    first, second = chooser.sample(range(len(shown)), 2)
    shown[first], shown[second] = shown[second], shown[first]
    return replaced(result, openings=b"".join(shown))


def one_twice(chooser: Chooser, _aggregator: states.Aggregator, result: m.CheckedResult) -> m.CheckedResult:
    shown = pieces(result.openings)
    first, second = chooser.sample(range(len(shown)), 2)
    shown[first] = shown[second]
    return replaced(result, openings=b"".join(shown))


def one_less(chooser: Chooser, _aggregator: states.Aggregator, result: m.CheckedResult) -> m.CheckedResult:
    shown = pieces(result.openings)
    del shown[chooser.randrange(len(shown))]
    return replaced(result, openings=b"".join(shown))


def one_bit(chooser: Chooser, _aggregator: states.Aggregator, result: m.CheckedResult) -> m.CheckedResult:
    """Flip a bit of what is shown: of a commitment, a signature, a hash or R."""
    field = chooser.choice([name for name in ("openings", "hidden", "blinding") if getattr(result, name)])
    changed = bytearray(getattr(result, field))
    changed[chooser.randrange(len(changed))] ^= 1 << chooser.randrange(8)
    return replaced(result, **{field: bytes(changed)})


def replaced(result: m.CheckedResult, **fields: object) -> m.CheckedResult:
    return msgspec.structs.replace(result, **fields)


CHANGES: Sequence[Change] = (off_by, other_blinding, two_swapped, one_twice, one_less, one_bit)


def finish_unchecked(aggregator: states.Aggregator, state: states.CollectUnmask) -> Transition:
    """Finish without the aggregator's own checks: whatever comes out is sent."""
    with (
        mock.patch.object(checked_total, "check_total"),
        mock.patch.object(outcomes, "outcome", return_value=None),
    ):
        return states.finish_unmask(aggregator, state)


def false_result(chooser: Chooser, role: CollectorRole, *, some: bool) -> CollectorRole:
    """Change the result that all parties, or some, are sent; or give each of them another one."""

    def finish(aggregator: states.Aggregator, state: states.CollectUnmask) -> Transition:
        after = finish_unchecked(aggregator, state)
        sent: list[Envelope] = []
        for envelope in after.messages:
            # What is sent to somebody else than a party is no result.
            lied_to = envelope.step == m.RESULT and not (some and chooser.random() < 0.5)
            if not lied_to:
                sent.append(envelope)
                continue
            honest = decode(envelope.body, m.CheckedResult, AGGREGATOR)
            false = chooser.choice(CHANGES)(chooser, aggregator, honest)
            number = aggregator.context.number(envelope.receiver)
            sent += aggregator.write(envelope.run_id, m.RESULT, (number,), false)
        return Transition(after.state, sent)

    return role.with_row(states.CollectUnmask, finish=finish)


# Lies on the way


def dropped_vector(chooser: Chooser, role: CollectorRole) -> CollectorRole:
    """List a party, and do not add its vector."""
    number = chooser.randint(1, 5)

    def accept(
        aggregator: states.Aggregator, state: states.CollectMasked, party: int, envelope: Envelope
    ) -> Item:
        before = state.added.total.copy()
        item = states.accept_masked(aggregator, state, party, envelope)
        if party == number:
            state.added.total[:] = before
        return item

    return role.with_row(states.CollectMasked, accept=accept).with_row(
        states.CollectUnmask, finish=finish_unchecked
    )


def listed_without_vector(_chooser: Chooser, role: CollectorRole) -> CollectorRole:
    """List a participant that was lost before it masked, with a commitment of the aggregator's making."""

    def finish(aggregator: states.Aggregator, state: states.CollectMasked) -> Transition:
        for party in state.agreed.participation.participants:
            if party not in state.added.complaints:
                made = commit_to(aggregator.parameters, aggregator.parameters.encoding.zeros(), wide(1))
                state.added.complaints[party] = ()
                state.added.opened[party] = Opened(made + bytes(64), wide(1))
        return states.finish_masked(aggregator, state)

    return role.with_row(states.CollectMasked, finish=finish).with_row(
        states.CollectUnmask, finish=finish_unchecked
    )


def other_leaf(chooser: Chooser, role: CollectorRole, *, some: bool) -> CollectorRole:
    """Put a leaf of the aggregator's under the root of values for one party; show it to all, or to some."""
    number = chooser.randint(1, 5)

    def finish(aggregator: states.Aggregator, state: CollectAdvertise) -> Transition:
        items = state.inbox.items
        honest = {party: item.message.value_commitment for party, item in items.items()}
        if number in items:
            made = commit_to(aggregator.parameters, aggregator.parameters.encoding.zeros(), wide(1))
            name = aggregator.name_of(number)
            leaf = keys.value_commitment(aggregator.context, state.run_id, name, made)
            item = items[number]
            message = msgspec.structs.replace(item.message, value_commitment=leaf)
            items[number] = Item(message, item.body, item.signature)
        after = key_graph.finish_advertise(aggregator, state)
        tree = MerkleCommitment(aggregator.context, Label.VALUES, honest)
        sent: list[Envelope] = []
        for envelope in after.messages:
            receiver = aggregator.context.number(envelope.receiver)
            told = envelope.step == m.MERKLE_COMMITMENT and (receiver == number or chooser.random() < 0.3)
            if not some or not told:
                sent.append(envelope)
                continue
            shown = decode(envelope.body, m.CheckedMerkleCommitment, AGGREGATOR)
            proof = tree.prove((receiver,))
            shown = msgspec.structs.replace(shown, values_root=tree.root, values_proof=proof)
            sent += aggregator.write(envelope.run_id, m.MERKLE_COMMITMENT, (receiver,), shown)
        return Transition(after.state, sent)

    return role.with_row(CollectAdvertise, finish=finish).with_row(
        states.CollectUnmask, finish=finish_unchecked
    )


LIES: dict[str, Lie] = {
    "a false result for all": partial(false_result, some=False),
    "two results": partial(false_result, some=True),
    "a dropped vector": dropped_vector,
    "a party without a vector": listed_without_vector,
    "another leaf": partial(other_leaf, some=False),
    "two rolls": partial(other_leaf, some=True),
    "none": lambda _, role: role,
}


class Watched(MemoryNetwork):
    """A network that remembers which root of commitments each party was sent, and who masked its vector."""

    def __init__(self, faults: Faults, seed: int) -> None:
        super().__init__(faults, seed)
        self.roots: dict[str, bytes] = {}
        self.masked: set[str] = set()

    def send(self, envelope: Envelope) -> None:
        """Look at a message, and put it under way."""
        if envelope.step == m.MERKLE_COMMITMENT:
            shown = decode(envelope.body, m.CheckedMerkleCommitment, AGGREGATOR)
            self.roots[envelope.receiver] = shown.values_root
        elif envelope.step == m.MASKED:
            self.masked.add(envelope.sender)
        super().send(envelope)


def play(seed: int) -> tuple[str, Roles, NDArray[np.float64], dict[str, SmpcError], Watched]:
    """Play one schedule: return the lie, the roles, what became of them, and their network."""
    chooser = random.Random(seed)
    parties, length = chooser.randint(5, 8), chooser.randint(1, 3)
    vectors = np.random.default_rng(seed).uniform(-5, 5, (parties, length))
    encoding = Encoding.plan(length=length, lower=-5.0, upper=5.0, precision=1e-3, parties=parties)
    plan = plan_secagg(parties, dropout=0.35, corrupt=0.0)
    roles, _ = sum_roles(
        SecAggParameters(encoding, plan, total="checked"), list(vectors), seed_for_simulation=seed
    )
    lie = chooser.choice(list(LIES))
    roles.aggregator.role = LIES[lie](chooser, states.AGGREGATOR)
    victims = chooser.sample(roles.context.names, chooser.choice([0, 0, 1, 1, 2]))
    faults = Faults(
        drop=chooser.choice([0.0, 0.0, 0.01]),
        delay=chooser.choice([0.0, 0.02]),
        duplicate=chooser.choice([0.0, 0.02]),
        reorder=chooser.random() < 0.5,
        kill={name: chooser.choice([*range(1, 9), 6, 6]) for name in victims},
    )
    if lie == "a party without a vector":
        # There is none unless a participant is lost before it masks.
        faults = dataclasses.replace(faults, kill={chooser.choice(roles.context.names): BEFORE_MASKED})
    network = Watched(faults, seed)
    errors = drive(roles.machines, network, AGGREGATOR)
    return lie, roles, vectors, errors, network


def check(
    roles: Roles, vectors: NDArray[np.float64], errors: dict[str, SmpcError], killed: Sequence[str]
) -> int:
    """Check what every honest party has; return how many have a value."""
    values = 0
    for party in roles.parties:
        if party.name in errors:
            assert_honest_error(errors[party.name])
        elif party.name not in killed:
            outcome = party.result
            rows = [vectors[roles.context.names.index(name)] for name in outcome.survivors]
            np.testing.assert_array_equal(outcome.total, fixed_point_sum(outcome.encoding, rows))
            values += 1
    return values


def assert_honest_error(error: SmpcError) -> None:
    """An honest party blames nobody but the aggregator; who is missing is no culprit."""
    if not isinstance(error, TimeoutFault):
        assert_names_the_aggregator(error, AGGREGATOR)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.long] if first >= ORDINARY * BATCH else [])
        for first in range(0, SCHEDULES, BATCH)
    ],
)
def test_no_false_total_is_accepted_and_no_honest_party_is_blamed(first: int) -> None:
    values, refused, two_roots = Counter[str](), Counter[str](), 0
    for seed in range(first, first + BATCH):
        lie, roles, vectors, errors, network = play(seed)
        values[lie] += check(roles, vectors, errors, network.killed)
        # All that mask were shown one root: nobody shows its commitment for another.
        assert len({network.roots[name] for name in network.masked}) <= 1
        two_roots += len({*network.roots.values()}) > 1
        blamed = [e for name, e in errors.items() if name != AGGREGATOR and isinstance(e, PeerFault)]
        refused[lie] += sum(error.culprit == AGGREGATOR for error in blamed)
    assert not values["a false result for all"]
    # Neither "everything fails" nor "nothing fails" would be a test.
    assert values["none"] > 0
    assert refused["none"] == 0
    assert two_roots > 0
    for lie in (
        "a false result for all",
        "two results",
        "a dropped vector",
        "a party without a vector",
        "another leaf",
    ):
        assert refused[lie] > 0, lie
