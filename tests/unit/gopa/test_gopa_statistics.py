"""GOPA's noise in numbers: what a run of 10,000 parties adds, and what colluding parties can tell.

Each coordinate has noise of its own, so ring elements of many coordinates are as many repetitions of the
machines' arithmetic for vectors of length 1. Seeds are fixed: over the choice of the seed a right
implementation fails the test of moments with probability 1.2e-6 at most (two bounds of 5 standard
deviations), each audit with 1e-3 (`FALSE_ALARM`).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.params import GopaParameters, check_parameters
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases.draws import draw_neighbours
from smpc_dp.privacy.empirical import Claim, audit
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

PARTIES, REPETITIONS = 10_000, 20_000
SAMPLES = 400_000
# A large delta: whether epsilon holds then shows in events that are frequent enough to be counted.
EPSILON, DELTA = 1.0, 0.05


def planned(parties: int, **more: float) -> GopaParameters:
    given: dict[str, object] = {"length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
    parameters, faults = check_parameters(given | more, parties)
    assert parameters is not None, faults
    return parameters


@pytest.mark.long
def test_error_of_ten_thousand_users_is_the_planned_one() -> None:
    """20,000 repetitions: the variance has a relative deviation of 1 %, so 5 % are five of them."""
    parameters = planned(PARTIES, dropout=0.001)
    total = np.zeros(REPETITIONS, dtype=np.uint64)
    for party in range(PARTIES):
        parameters.add_noise(total, SeededRandomnessForSimulation(1, f"user {party}"))
    stated = parameters.noise(PARTIES, 0).total / parameters.encoding.step
    noise = total.view(np.int64).astype(np.float64)
    assert abs(np.mean(noise**2) / stated**2 - 1) < 0.05
    assert abs(noise.mean()) < 5 * stated / math.sqrt(REPETITIONS)
    # rho = n_H / n; over the honest parties alone, the noise is within five per cent of the curator's.
    session = parameters.session
    assert session.honest == PARTIES - 10 - 1_000
    assert 1 <= session.honest * session.own_variance / session.curator_deviation**2 < 1.05


@pytest.mark.long
def test_pairwise_noise_of_a_drawn_graph_cancels() -> None:
    parties = 500
    parameters = planned(parties, dropout=0.01)
    source = SeededRandomnessForSimulation(1, "graph")
    edges = set()
    for party in range(1, parties + 1):
        for peer in draw_neighbours(party, parties, parameters.plan.degree, source):
            edges.add((min(party, peer), max(party, peer)))
    seeds = {edge: source.bytes(32) for edge in edges}
    values = np.zeros((parties + 1, 1), dtype=np.uint64)
    for party in range(1, parties + 1):
        own = [edge for edge in edges if party in edge]
        signs = [1 if party == edge[0] else -1 for edge in own]
        parameters.add_pair_terms(values[party], [seeds[edge] for edge in own], signs)
    assert values.sum() == 0
    deviation = math.sqrt(2 * len(edges) / parties * parameters.session.pair_variance)
    assert np.std(values[1:].view(np.int64)) == pytest.approx(deviation, rel=0.2)


class JointView:
    """What the last party and the aggregator see of the others, in many runs at once, less what they know.

    All parties are neighbours. `no_own`: party 1 leaves its independent noise out; `no_pairs`: all leave the
    pairwise noise out.
    """

    def __init__(
        self, parameters: GopaParameters, present: int, *, no_own: bool = False, no_pairs: bool = False
    ) -> None:
        self._parameters, self._present = parameters, present
        self._no_own, self._no_pairs = no_own, no_pairs
        self._honest = list(range(1, present))
        self._calls = 0

    def sample(self, which: int, count: int, _key: bytes) -> NDArray[np.float64]:
        """Runs in which party 1 has the least (0) or the largest value (1), on the best linear statistic."""
        self._calls += 1
        randomness = SeededRandomnessForSimulation(self._calls, f"joint view {which}")
        width = self._parameters.encoding.highest - self._parameters.encoding.lowest
        parties = [*self._honest, self._present]
        seeds = {pair: randomness.bytes(32) for pair in itertools.combinations(parties, 2)}
        seen = []
        for party in self._honest:
            ring_vector = np.full(count, width * which if party == 1 else 0, dtype=np.uint64)
            if not (self._no_own and party == 1):
                self._parameters.add_noise(ring_vector, randomness)
            self._add_terms(ring_vector, {pair: seed for pair, seed in seeds.items() if party in pair}, party)
            # Of the noise that it shares with each of them, the colluder knows every bit.
            self._add_terms(ring_vector, {(party, self._present): seeds[party, self._present]}, self._present)
            seen.append(ring_vector.view(np.int64))
        scores: NDArray[np.float64] = np.stack(seen, axis=1) @ self._direction()[:, np.newaxis]
        return scores

    def _add_terms(self, ring_vector: RingVector, seeds: dict[tuple[int, int], bytes], party: int) -> None:
        if not self._no_pairs:
            signs = [1 if party == pair[0] else -1 for pair in seeds]
            self._parameters.add_pair_terms(ring_vector, list(seeds.values()), signs)

    def _direction(self) -> NDArray[np.float64]:
        """M^-1 e_1, up to a factor: the statistic that tells two values of party 1 apart best."""
        honest, session = len(self._honest), self._parameters.session
        own = np.full(honest, float(session.own_variance))
        own[0] *= not self._no_own
        laplacian = honest * np.eye(honest) - np.ones((honest, honest))
        covariance = np.diag(own) + laplacian * (0 if self._no_pairs else session.pair_variance)
        row: NDArray[np.float64] = np.linalg.solve(covariance, np.eye(honest)[0])
        row /= row[0]
        return row


def lower_bound(view: JointView) -> float:
    claim = Claim(EPSILON, DELTA)
    return max(finding.lower for finding in audit(view.sample, [claim], SAMPLES))


@pytest.mark.thin(2)
@pytest.mark.parametrize("vanished", [1, 0])
def test_colluders_learn_no_more_than_stated(vanished: int) -> None:
    """Party 5 colludes with the aggregator, which may have another vanish before the certificate."""
    parameters = planned(5, epsilon=EPSILON, delta=DELTA, corrupt=0.2, dropout=0.2 * vanished)
    assert parameters.plan.complete
    assert parameters.session.honest == 4 - vanished
    # Not far below either: an audit that finds nothing would show nothing.
    assert 0.85 * EPSILON < lower_bound(JointView(parameters, 5 - vanished)) < EPSILON


@pytest.mark.parametrize("left_out", ["no_own", "no_pairs"])
def test_audit_finds_noise_that_is_left_out(left_out: str) -> None:
    """Party 1 alone forgets its independent noise, or all of them the pairwise noise."""
    parameters = planned(5, epsilon=EPSILON, delta=DELTA, corrupt=0.2, dropout=0.0)
    assert lower_bound(JointView(parameters, 5, **{left_out: True})) > EPSILON
