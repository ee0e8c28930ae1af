"""Models by coordinate descent, alternating with the graph [Bellet 2021, Algorithms 2.1, 2.2 and 2.4]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange, Rows
from smpc_dp.capabilities.learn.coordinate_descent import (
    Gradients,
    PersonalizedObjective,
    integer_models,
    pulled_models,
)
from smpc_dp.capabilities.learn.learned_graph import (
    GraphLearning,
    LearnedGraph,
    losses_of_all,
    others,
    sent_by,
)
from smpc_dp.privacy.record_gradients import Integers, RecordNoise
from smpc_dp.privacy.sampling import NoiseSource

# Of the bound of a loss, without noise.
_LOSS_STEPS = 1 << 20


class Losses(Gradients, Protocol):
    """Interface of the local parties' data: gradients, and sums of losses, of records at given models."""

    def sum_losses(self, models: Rows, rows: NDArray[np.intp], bound: float, steps: int) -> Integers:
        """Return each party's sum of losses in steps of bound/`steps`, each loss clipped to `bound`."""
        ...


def release_shares(graph: GraphLearning, wakes: NDArray[np.intp], parties: int) -> list[list[float]]:
    """Return, for each party, the fraction of its privacy budget that each release gets, in order."""
    counts = np.bincount(wakes, minlength=parties)
    rounds = graph.rounds(len(wakes) - graph.alone)
    result: list[list[float]] = [[] for _ in range(parties)]
    for number, party in enumerate(wakes.tolist()):
        if graph.is_update(number):
            for shares in result:
                shares.append(graph.loss_share / rounds)
        result[party].append((1 - graph.loss_share) / int(counts[party]))
    return result


class Alternation:
    """One run of learning models and their graph in turns (Algorithm 2.1), of one party or of all.

    Args:
        exchange: how models and losses travel: from each party to all others.
        objective: confidences and step sizes; its graph is not used.
        bits: models are on the grid of steps 2^-bits; with noise that of the noise.
        bound: B, that the loss of a record is clipped to.
        noise: of each of the n parties, for its releases in order (`release_shares`); None: nothing is
            protected.
        source: `NoiseSource.system()` in a real run.

    Attributes:
        models: of all parties, from their messages, in grid steps, shape (n, length).
    """

    def __init__(
        self,
        exchange: PeerExchange,
        objective: PersonalizedObjective,
        records: Losses,
        learned: LearnedGraph,
        *,
        length: int,
        bits: int,
        bound: float,
        noise: Sequence[RecordNoise] | None,
        source: NoiseSource,
    ) -> None:
        self._exchange, self._objective, self._records, self._graph = exchange, objective, records, learned
        self._bits, self._bound, self._noise, self._source = bits, bound, noise, source
        self._row_of = {int(party): row for row, party in enumerate(exchange.here)}
        self._releases = np.zeros(exchange.parties, dtype=np.intp)
        self.models: Integers = np.zeros((exchange.parties, length), dtype=np.int64)

    async def run(self, settings: GraphLearning, wakes: NDArray[np.intp]) -> None:
        """Let parties update their models in the order of `wakes`; relearn the graph in between.

        Raises ConfigError for a model that diverges.
        """
        for number, party in enumerate(wakes.tolist()):
            if settings.is_update(number):
                await self._learn_graph()
            await self._tick(number, party)

    def _floats(self, parties: slice | list[int]) -> Rows:
        """Return the models of some parties as floats, shape (parties, length)."""
        return np.ldexp(self.models[parties].astype(np.float64), -self._bits)

    def _drawn(self, party: int, length: int) -> Integers | None:
        """Return the noise of a party's next release, and count the release; None without noise."""
        if self._noise is None:
            return None
        self._releases[party] += 1
        return self._noise[party].draw(self._source, length, int(self._releases[party]) - 1)

    async def _tick(self, number: int, party: int) -> None:
        """Let a party move its model, by its data and its neighbours' models, and send the model to all."""
        row, sent = self._row_of.get(party), np.zeros((len(self._row_of), self.models.shape[1]))
        if row is not None:
            sent[[row]] = np.ldexp(self._moved(number, party, row).astype(np.float64), -self._bits)
        near = others(party, len(self.models))
        received = await self._exchange.mix(sent, sent_by(party, near.tobytes(), len(self.models)))
        values = received[:1] if row is None else sent[[row]]
        if len(values):
            self.models[[party]] = integer_models(np.rint(np.ldexp(values, self._bits)), number)

    def _moved(self, number: int, party: int, row: int) -> Integers:
        """Return a party's next model, (1, length) grid steps: (2.3), or (2.9) with a new, counted noise."""
        objective, rows, bits = self._objective, np.array([row]), self._bits
        parties, models = np.array([party]), self._floats([party])
        near = self._graph.around(self._floats(slice(None)), party)
        moved = pulled_models(objective, models, near[None], parties)
        drawn = self._drawn(party, moved.shape[1])
        if drawn is None:
            moved -= objective.factors[party] * self._records.mean(models, rows)
            moved = np.rint(np.ldexp(moved, bits))
        else:
            taken = self._records.contributions(models, rows, objective.reaches[parties], bits)
            moved = np.rint(np.ldexp(moved, bits)) - (taken + drawn)
        return integer_models(moved, number)

    async def _learn_graph(self) -> None:
        """Exchange all parties' sums of losses, and learn the graph's weights from their means."""
        own = [self._loss(row, int(party)) for row, party in enumerate(self._exchange.here)]
        sizes = np.maximum(self._objective.sizes, 1)
        units = np.array([self._bound / (self._steps(party) * int(size)) for party, size in enumerate(sizes)])
        sent = np.ldexp(np.array(own, dtype=np.float64), -self._bits)
        received = await losses_of_all(self._exchange, sent, self.models.shape[1])
        if own:
            losses = np.clip(np.ldexp(received, self._bits) * units, 0, self._bound)
            self._graph.learn(self._floats(slice(None)), losses)

    def _steps(self, party: int) -> int:
        """Return how many integer steps the greatest loss of a record has in a party's sum of losses."""
        return _LOSS_STEPS if self._noise is None else 2 * self._noise[party].bound

    def _loss(self, row: int, party: int) -> int:
        """Return a party's sum of losses in integer steps, noisy if planned; 0 if it has no records."""
        drawn = self._drawn(party, 1)
        if not self._objective.sizes[party]:
            return 0
        models, rows = self._floats([party]), np.array([row])
        total = int(self._records.sum_losses(models, rows, self._bound, self._steps(party))[0])
        return total if drawn is None else total + int(drawn[0])
