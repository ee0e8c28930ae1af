"""Clocks draw what they should, and rounds keep everybody's order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from smpc_dp.capabilities.learn import topology
from smpc_dp.capabilities.learn.schedule import EdgeClock, PoissonClock, PublicDraws, rounds
from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.many_clocks import ManyClocks


def test_the_stream_never_changes() -> None:
    """Processes with other versions of numpy must draw the same."""
    draws = PublicDraws(7, 3)
    raw = np.random.PCG64(np.random.SeedSequence([7, 3])).random_raw(3)
    np.testing.assert_array_equal(draws.uniform(3), [(int(word) >> 11) / 2**53 for word in raw])
    assert PublicDraws(7, 3).below(1000, 4).tolist() == [975, 884, 231, 731]


def test_edges_are_uniform() -> None:
    """False-alarm rate 1e-6."""
    clock = EdgeClock(topology.watts_strogatz(20, 4, 0.3, 1), 5)
    pairs = clock.draw(40_000)
    keys = pairs[:, 0] * 20 + pairs[:, 1]
    counts = [np.count_nonzero(keys == u * 20 + v) for u, v in clock.topology.edges]
    assert sum(counts) == 40_000
    assert stats.chisquare(counts).pvalue > 1e-6
    assert clock.chances.sum() == pytest.approx(2)


def test_poisson_clocks_tick_at_rate_one_and_call_neighbours() -> None:
    """False-alarm rate 3e-6."""
    graph = topology.random_k_out(15, 2, 4)
    graph.require_connected()
    clock = PoissonClock(graph, 5)
    times, pairs = (
        np.concatenate(parts) for parts in zip(*(clock.draw_timed(10_000) for _ in range(4)), strict=True)
    )
    assert np.all(np.diff(times) > 0)
    assert clock.now == times[-1]
    assert stats.kstest(np.diff(times), stats.expon(scale=1 / 15).cdf).pvalue > 1e-6
    linked = graph.adjacency.toarray()
    assert np.all(linked[pairs[:, 0], pairs[:, 1]] == 1)
    want = 40_000 * linked / graph.degrees[:, None] / 15
    got = np.bincount(pairs[:, 0] * 15 + pairs[:, 1], minlength=225).reshape(15, 15)
    assert stats.chisquare(got[linked > 0], want[linked > 0]).pvalue > 1e-6
    assert clock.chances.sum() == pytest.approx(2)
    touched = np.bincount(pairs.ravel(), minlength=15) / 40_000
    spread = np.sqrt(clock.chances * (1 - clock.chances) / 40_000)
    assert np.all(abs(touched - clock.chances) < spread * stats.norm.isf(1e-6 / 30))


@pytest.mark.parametrize("kind", [EdgeClock, PoissonClock])
def test_ticks_do_not_depend_on_how_many_are_drawn_at_once(kind: type[EdgeClock | PoissonClock]) -> None:
    graph = topology.watts_strogatz(20, 4, 0.3, 1)
    whole, parts = kind(graph, 3), kind(graph, 3)
    drawn = np.concatenate([parts.draw(count) for count in (1, 0, 12, 7)])
    np.testing.assert_array_equal(whole.draw(20), drawn)


def test_rounds_keep_the_order_of_everybody() -> None:
    clock = EdgeClock(topology.watts_strogatz(30, 4, 0.3, 1), 5)
    pairs = clock.draw(500)
    seen: dict[int, list[int]] = {party: [] for party in range(30)}
    depth = 0
    for step in rounds(30, pairs):
        np.testing.assert_array_equal(step.partner[step.partner], np.arange(30))
        np.testing.assert_array_equal(step.partner == np.arange(30), step.pairing < 0)
        for party in np.flatnonzero(step.pairing >= 0).tolist():
            assert set(pairs[step.pairing[party]]) == {party, step.partner[party]}
            seen[party].append(int(step.pairing[party]))
        depth += 1
    assert depth < 500 / 4
    for party, pairings in seen.items():
        assert pairings == np.flatnonzero((pairs == party).any(axis=1)).tolist()
    assert list(rounds(5, np.zeros((0, 2), dtype=int))) == []


def test_copies_draw_what_each_would_draw_alone() -> None:
    graph = topology.ring(5)
    many = ManyClocks([EdgeClock(graph, 1, stream) for stream in range(3)])
    drawn = many.draw(20)
    assert drawn.shape == (60, 2)
    for copy in range(3):
        np.testing.assert_array_equal(drawn[copy::3] - 5 * copy, EdgeClock(graph, 1, copy).draw(20))
    assert many.chances.shape == (15,)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed"):
        PublicDraws(-1)
    split = topology.from_edges(4, np.array([[0, 1], [2, 3]]))
    for clock in (EdgeClock, PoissonClock):
        with pytest.raises(ConfigError, match="smallest has 2 parties: 0, 1"):
            clock(split, 1)
    with pytest.raises(ConfigError, match="one size"):
        ManyClocks([EdgeClock(topology.ring(5), 1), EdgeClock(topology.ring(6), 1)])
