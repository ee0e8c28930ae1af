"""Adaptive clipping: the bound goes to the quantile, at a mu that no round changes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.engine.registry import checker_of
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.adaptive_clipping import MAX_PARTS, AdaptiveClipping

FIRST = AdaptiveClipping(length=4, first=1.0)
LONG = np.array([1e300, 0, 0, 0])


@pytest.mark.parametrize("parts", [-300_000, -3000, 0, 777, 300_000])
def test_what_is_sent_has_norm_one_whatever_the_vector_and_the_bound(parts: int) -> None:
    """And two vectors are at most twice as far apart, which is reached by opposite ones."""
    clipping = AdaptiveClipping(length=4, first=0.3, share=0.2, parts=parts)
    rng = np.random.default_rng(1)
    vectors = [
        rng.normal(size=4) * scale * clipping.bound for scale in (0.0, 0.01, 1.0, 30.0) for _ in range(20)
    ]
    sent = [clipping.clip(vector) for vector in (*vectors, LONG, -LONG)]
    assert max(np.linalg.norm(one) for one in sent) <= 1
    assert np.linalg.norm(sent[-1] - sent[-2]) == pytest.approx(2 * math.sqrt(0.8))
    # at the bound, and just beyond it on the other side: no pair is further apart
    inside, outside = np.eye(4)[0] * clipping.bound * 0.999999, -np.eye(4)[0] * clipping.bound * 1.001
    assert np.linalg.norm(clipping.clip(inside) - clipping.clip(outside)) == pytest.approx(2, abs=1e-5)
    assert max(np.linalg.norm(a - b) for a, b in itertools.combinations(sent, 2)) <= 2


def test_the_shares_of_mu_are_those_of_the_moves() -> None:
    clipping = AdaptiveClipping(length=4, first=1.0, share=0.2)
    vector, indicator = clipping.mu_shares(3.0)
    assert math.hypot(vector, indicator) == pytest.approx(3.0)
    moved = clipping.clip([0.999, 0, 0, 0]) - clipping.clip([-1.001, 0, 0, 0])
    assert np.linalg.norm(moved[:-1]) / 2 * 3.0 == pytest.approx(vector, rel=1e-3)
    assert abs(moved[-1]) / 2 * 3.0 == pytest.approx(indicator)


def test_parties_that_send_other_coordinates_have_other_labels() -> None:
    labels = {replace(FIRST, **other).label for other in ({}, {"share": 0.2}, {"first": 2.0}, {"parts": 1})}
    assert len(labels) == 4


@pytest.mark.parametrize("parts", [-MAX_PARTS, MAX_PARTS])
@pytest.mark.parametrize("first", [1e-100, 1e12])
def test_the_furthest_bounds_are_numbers(first: float, parts: int) -> None:
    """A vector of zeros has its indicator alone: a refusal would show it."""
    clipping = AdaptiveClipping(length=4, first=first, parts=parts)
    assert clipping.clip(np.zeros(4)) == pytest.approx([0, 0, 0, 0, math.sqrt(0.05)])
    assert 0 < np.linalg.norm(clipping.clip(LONG)) <= 1
    assert np.isfinite(clipping.mean(np.ones(5))).all()


def test_an_indicator_beside_a_vector_of_norm_one_is_found() -> None:
    """Its noise would not be counted in mu: the session refuses the vector."""
    given: dict[str, Any] = {**FIRST.parameters, "epsilon": 4.0, "delta": 1e-6}
    checked, issues = checker_of("secagg", 2)(given, 10)
    assert checked is not None, issues
    encoding = checked.requests[0].sum_encoding
    for scale in (0.0, 0.5, 1.0, 1e9):
        encoding.encode(FIRST.clip(np.full(4, scale)), party="alice")
    sent = FIRST.clip(np.full(4, 9.0))
    whole = np.append(sent[:-1] / math.sqrt(1 - FIRST.share), sent[-1])
    with pytest.raises(PrivacyError, match="alice: the L2 norm is above 1"):
        encoding.encode(whole, party="alice")


@pytest.mark.thin(4)
@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("first", [0.1, 50.0])
def test_the_bound_converges_to_the_quantile(quantile: float, first: float) -> None:
    """200 parties, noise as at epsilon 2, delta 1e-6; the quantile within 0.05 over the last 40 rounds."""
    rng = np.random.default_rng(7)
    norms = np.exp(rng.normal(0.5, 0.6, 200))
    directions = rng.normal(size=(200, 4))
    vectors = directions / np.linalg.norm(directions, axis=1)[:, None] * norms[:, None]
    clipping = AdaptiveClipping(length=4, first=first, quantile=quantile, rate=0.4)
    bounds = []
    for _ in range(140):
        sent = np.mean([clipping.clip(vector) for vector in vectors], axis=0)
        clipping = clipping.following(sent + rng.normal(0, 2 * 2.3 / 200, 5))
        bounds.append(clipping.bound)
    assert np.mean([np.mean(norms <= bound) for bound in bounds[-40:]]) == pytest.approx(quantile, abs=0.05)


def test_rounds_of_a_session_have_one_event_and_the_mean_of_clipped_vectors() -> None:
    """By the roles of whole runs; epsilon 80 and 12 parties leave little noise. The seed is fixed."""
    rng = np.random.default_rng(3)
    norms = np.linspace(0.5, 6.0, 12)
    vectors = [norm * np.append(np.ones(3), rng.normal(0, 1e-3)) / math.sqrt(3) for norm in norms]
    clipping = AdaptiveClipping(length=4, first=20.0, rate=0.7, share=0.2)
    guarantees = set()
    for seed in range(8):
        sent = [clipping.clip(vector) for vector in vectors]
        result = smpc_dp.simulate.average(
            sent, l2_bound=1.0, epsilon=80.0, delta=1e-6, seed_for_simulation=seed
        )
        guarantees.add(repr(result.privacy.guarantee))
        expected = np.mean(
            [vector * min(1.0, clipping.bound / np.linalg.norm(vector)) for vector in vectors], 0
        )
        assert clipping.mean(result.value) == pytest.approx(expected, abs=0.5 * clipping.bound)
        clipping = clipping.following(result.value)
    assert len(guarantees) == 1
    assert clipping.rounds == 8
    assert 2.0 < clipping.bound < 5.0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"length": 0}, "length"),
        ({"first": 0.0}, "first"),
        ({"first": 1e-101}, "first"),
        ({"first": math.inf}, "first"),
        ({"quantile": 1.0}, "quantile"),
        ({"quantile": 0.0}, "quantile"),
        ({"share": 0.0}, "share"),
        ({"share": 1.0}, "share"),
        ({"rate": -1.0}, "rate"),
        ({"parts": 1 << 40}, "parts"),
        ({"rounds": -1}, "rounds"),
    ],
)
def test_a_setting_out_of_range_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        AdaptiveClipping(**{"length": 4, "first": 1.0, **given})
    assert [issue.where for issue in refused.value.issues] == [named]


@pytest.mark.parametrize("vector", [[1.0] * 5, [math.nan] * 4, [math.inf] * 4, ["a"] * 4, 1.0])
def test_a_vector_that_is_none_names_its_party(vector: Any) -> None:
    with pytest.raises(ConfigError, match="bob"):
        FIRST.clip(vector, "bob")
    with pytest.raises(ConfigError, match="average"):
        FIRST.following([0.0] * 4)
    with pytest.raises(ConfigError, match="average"):
        FIRST.mean([math.nan] * 5)


def test_an_average_out_of_range_moves_the_bound_by_no_more_than_the_rate() -> None:
    high, low = FIRST.following([0, 0, 0, 0, 9.0]), FIRST.following([0, 0, 0, 0, -9.0])
    assert high.bound == pytest.approx(math.exp(-0.1), rel=1e-3)
    assert low.bound == pytest.approx(math.exp(0.1), rel=1e-3)
    assert FIRST.label != high.label
