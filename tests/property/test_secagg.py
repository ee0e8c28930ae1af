"""Properties of the encoding, of the graph's draws and sets, and of whole runs."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.engine.phases.draws import draw_neighbours
from smpc_dp.engine.phases.messages import PARTY_STEPS
from smpc_dp.errors import ConfigError, PeerFault
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.sets import PartySet, pack_list, pack_set, unpack_list
from smpc_dp_lab.bench.roles import sum_roles
from tests.examples import examples

BOUND = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def encodings(draw: Any) -> Encoding:
    """Any session's encoding that there can be, with up to 3,000 parties."""
    low, high = sorted((draw(BOUND), draw(BOUND)))
    integer = draw(st.booleans())
    declared: dict[str, Any] = {
        "length": 3,
        "lower": int(low) if integer else low,
        "upper": int(high) + 1 if integer else high + 1.0,
        "precision": None if integer else draw(st.floats(1e-9, 0.5)),
        "parties": draw(st.integers(1, 3000)),
        "max_weight": draw(st.sampled_from((0, 1, 7, 100_000))),
    }
    try:
        return Encoding.plan(**declared)
    except ConfigError:
        # The one thing that may be wrong with these parameters: the sum does not fit. This one does.
        return Encoding.plan(**declared | {"max_weight": 0, "parties": 3})


def values_of(draw: st.DataObject, encoding: Encoding) -> Any:
    if encoding.integer:
        bounds = (int(encoding.lower), int(encoding.upper))
        one: st.SearchStrategy[Any] = st.one_of(st.sampled_from(bounds), st.integers(*bounds))
    else:
        one = st.one_of(
            st.sampled_from((encoding.lower, encoding.upper)), st.floats(encoding.lower, encoding.upper)
        )
    return np.array(draw.draw(st.lists(one, min_size=3, max_size=3)))


@given(encodings(), st.data())
@settings(max_examples=examples(200))
def test_round_trip_is_the_nearest_grid_point(encoding: Encoding, data: st.DataObject) -> None:
    vector = values_of(data, encoding)
    weight = data.draw(st.integers(0, encoding.max_weight)) if encoding.max_weight else None
    ring_vector, clipped = encoding.encode(vector, party="ann", weight=weight)
    assert clipped == 0
    assert ring_vector.max() < 1 << encoding.modulus_bits
    grid, total_weight = encoding.decode(encoding.unpack(encoding.pack(ring_vector)), 1)
    assert total_weight == (1 if weight is None else weight)
    for value, point in zip(vector.tolist(), grid.tolist(), strict=True):
        exact = Fraction(value) * Fraction(2) ** encoding.fractional_bits
        assert point == total_weight * round(exact)
        assert abs(point - total_weight * exact) <= Fraction(total_weight, 2)


@given(encodings(), st.booleans())
@settings(max_examples=examples(200))
def test_no_overflow_at_the_corners(encoding: Encoding, upper: bool) -> None:
    """Every party at one bound with the largest weight: the largest and smallest sums that there can be."""
    bound = encoding.upper if upper else encoding.lower
    vector = np.full(3, bound, dtype=np.int64 if encoding.integer else np.float64)
    weight = encoding.max_weight or None
    ring_vector, _ = encoding.encode(vector, party="ann", weight=weight)
    total = np.zeros_like(ring_vector)
    with np.errstate(over="raise"):
        for _ in range(encoding.parties):
            total += ring_vector
    assert [int(element) for element in total] == [encoding.parties * int(element) for element in ring_vector]
    grid, total_weight = encoding.decode(encoding.unpack(encoding.pack(total)), encoding.parties)
    edge = encoding.highest if upper else encoding.lowest
    assert grid.tolist() == [encoding.parties * (weight or 1) * edge] * 3
    assert total_weight == encoding.parties * (weight or 1)
    # And no byte more than that needs.
    assert encoding.parties * (weight or 1) * max(encoding.highest - encoding.lowest, 1) >= 256 ** (
        encoding.element_bytes - 1
    )


@given(st.integers(0, 2**32), st.integers(4, 9), st.booleans(), st.data())
@settings(max_examples=examples(60))
def test_total_is_the_fixed_point_sum(seed: int, parties: int, weighted: bool, data: st.DataObject) -> None:
    """Random vectors, weights and dropouts at every step: the survivors' exact sum, at everyone who ends."""
    plan = plan_secagg(parties, dropout=0.25, corrupt=0.0)
    names = [f"party-{number:05d}" for number in range(1, parties + 1)]
    victims = data.draw(st.lists(st.sampled_from(names), max_size=plan.max_dropouts, unique=True))
    kill = {name: data.draw(st.integers(1, len(PARTY_STEPS))) for name in victims}
    encoding = Encoding.plan(
        length=5, lower=-3.0, upper=7.0, precision=1e-4, parties=parties, max_weight=50 * weighted
    )
    chooser = np.random.default_rng(seed)
    vectors = chooser.uniform(-3, 7, (parties, 5))
    weights = chooser.integers(0, 51, parties).tolist() if weighted else None
    new_run, _ = sum_roles(
        SecAggParameters(encoding, plan), list(vectors), weights=weights, seed_for_simulation=seed
    )
    errors = drive(new_run.machines, MemoryNetwork(Faults(kill=kill)), AGGREGATOR)
    assert AGGREGATOR not in errors, errors
    outcome = new_run.aggregator.result
    masked = PARTY_STEPS.index("masked") + 1
    # Who died before its masked vector is out; who died later is in.
    assert outcome.absent == tuple(name for name in names if kill.get(name, 99) <= masked)
    expected = np.zeros(5, dtype=np.int64)
    for name in outcome.survivors:
        index = names.index(name)
        factor = weights[index] if weights is not None else 1
        expected += factor * fixed_point_sum(encoding, [vectors[index]])
    weight = sum(weights[names.index(name)] if weights else 1 for name in outcome.survivors)
    for result in (outcome, *(party.result for party in new_run.parties if party.name not in kill)):
        np.testing.assert_array_equal(result.total, expected)
        assert result.weight == weight


SETS = st.integers(1, 70).flatmap(
    lambda n: st.tuples(st.just(n), st.frozensets(st.integers(1, n)), st.frozensets(st.integers(1, n)))
)


@given(SETS)
def test_party_sets(case: tuple[int, frozenset[int], frozenset[int]]) -> None:
    n, first, second = case
    packed = pack_set(first, n)
    one, two = PartySet.unpack(packed, n, "ann"), PartySet.unpack(pack_set(second, n), n, "ann")
    assert list(one) == sorted(first)
    assert len(one) == len(first)
    assert (one <= two) is (first <= second)
    for party in range(-1, n + 3):
        assert (party in one) is (party in first)
    for party in range(1, n + 1):
        assert one.index(party) == sum(member < party for member in first)
    assert "1" not in one


@given(st.integers(1, 200), st.sampled_from([b"\0", b"\1", b""]), st.binary(max_size=26))
def test_sets_have_one_encoding(n: int, form: bytes, content: bytes) -> None:
    """Whatever unpacks is what its members pack to: no set has two encodings."""
    try:
        members = PartySet.unpack(form + content, n, "ann")
    except PeerFault:
        return
    assert pack_set(members, n) == form + content == members.packed


@given(SETS)
def test_the_other_form_of_a_set_is_refused(case: tuple[int, frozenset[int], frozenset[int]]) -> None:
    n, members, _ = case
    others = pack_list(sorted(set(range(1, n + 1)) - members))
    bits = sum(1 << (-n % 8 + n - member) for member in members).to_bytes((n + 7) // 8, "big")
    packed = pack_set(members, n)
    assert packed == min(b"\0" + bits, b"\1" + others, key=len)
    other = b"\0" + bits if packed[:1] == b"\1" else b"\1" + others
    with pytest.raises(PeerFault, match="ann: a set of"):
        PartySet.unpack(other, n, "ann")


@given(st.integers(1, 70), st.lists(st.integers(0, 75), max_size=6))
def test_lists_have_one_encoding(n: int, members: list[int]) -> None:
    good = sorted(set(members)) == members and all(1 <= member <= n for member in members)
    if good:
        assert unpack_list(pack_list(members), n, "ann") == tuple(members)
    else:
        with pytest.raises(PeerFault, match="ann: a list of parties"):
            unpack_list(pack_list(members), n, "ann")
    with pytest.raises(PeerFault, match="odd number"):
        unpack_list(pack_list(members) + b"\0", n, "ann")


@given(st.integers(2, 200), st.data())
def test_draws(parties: int, data: st.DataObject) -> None:
    index, degree = data.draw(st.integers(1, parties)), data.draw(st.integers(1, parties - 1))
    source = SeededRandomnessForSimulation(data.draw(st.integers(0, 1000)), "draws")
    drawn = draw_neighbours(index, parties, degree, source)
    assert list(drawn) == sorted(set(drawn))
    assert len(drawn) == degree
    assert index not in drawn
    assert set(drawn) <= set(range(1, parties + 1))


def test_draws_are_uniform() -> None:
    """Chi-square over all 20 sets of 3 of 6 others; a uniform draw fails with probability 10^-6.

    Critical value of 19 degrees of freedom at 10^-6: 62.16. The seed is fixed, so it fails always or never.
    """
    source, counts = (
        SeededRandomnessForSimulation(1, "uniformity"),
        dict.fromkeys(combinations((1, 2, 3, 5, 6, 7), 3), 0),
    )
    draws = 20_000
    for _ in range(draws):
        counts[draw_neighbours(4, 7, 3, source)] += 1  # type: ignore[index]
    expected = draws / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < 62.16
    # The test can see a bias of a modulus: drawing by `word % bound` of one byte would not be noticed by eye.
    biased = random.Random(1)
    for chosen in counts:
        counts[chosen] = 0
    for _ in range(draws):
        pool = [1, 2, 3, 5, 6, 7]
        picked = sorted(pool.pop(biased.randrange(16) % len(pool)) for _ in range(3))
        counts[tuple(picked)] += 1  # type: ignore[index]
    assert sum((count - expected) ** 2 / expected for count in counts.values()) > 62.16
