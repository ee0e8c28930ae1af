"""Averagers for a whole network in one process: the ideal functionality, and the roles of servers.

The ideal one rounds to the same grid and draws the same noise distribution from the exact samplers, a share
for each member, so its averages have exactly the distribution of the protocol's; it leaves out the
cryptography, and works on all groups of one size at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from smpc_dp import ball
from smpc_dp.capabilities.learn.averager import (
    AllLocal,
    Averaged,
    Boxes,
    Groups,
    Parties,
    Rows,
    check_average,
    check_boxes,
    check_mixing,
    check_partners,
    check_rows,
)
from smpc_dp.capabilities.learn.exchanges import PlannedMessages
from smpc_dp.capabilities.learn.methods import PlannedAverages
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.executors.shards import run_shards
from smpc_dp.fixed_point import EXACT_FLOAT
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from scipy import sparse

    from smpc_dp.engine.averaging import OnShares

# Squared norms closer than this to the bound are compared exactly.
_NEAR = 1e-7


class _Simulated(AllLocal):
    """Base of averagers of a simulation: plans of averages, counts of participations, and claims."""

    def __init__(self, parties: int, averaging: PlannedAverages) -> None:
        super().__init__(parties)
        self._averaging = averaging
        self._participations = averaging.participation_counter(parties)

    def _claim(self, how: str) -> str:
        """Return the claim of an average in a real run, with the words that it is only simulated."""
        return f"a simulation{how} of: {self._averaging.claim}"


class IdealAverager(_Simulated):
    """Simulated averager that adds the protocol's noise without its cryptography, for many parties.

    `source` gives the noise, and `coins` that of servers; seeded ones (`NoiseSource.keyed`) make the run
    reproducible and insecure.
    """

    def __init__(
        self,
        parties: int,
        averaging: PlannedAverages,
        source: NoiseSource | None = None,
        coins: Randomness | None = None,
    ) -> None:
        super().__init__(parties, averaging)
        self._source = source or NoiseSource.system()
        self._coins = coins or SystemRandomness()

    @property
    def claim(self) -> str:
        """The privacy claim of an average in a real run, and that here it is only simulated."""
        return self._claim(" without cryptography")

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Return each group's average, with the noise that its members or the servers would add."""
        vector, weight, group = check_average(self, vector, weight, group)
        sent = self._averaging.encode_vectors(vector, weight)
        self._participations.count(np.flatnonzero(group >= 0))
        values, weights = vector.copy(), np.zeros(self.parties)
        members = np.flatnonzero(group >= 0)
        order = members[np.argsort(group[members], kind="stable")]
        sizes = np.unique(group[members], return_counts=True)[1]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        for size in np.unique(sizes):
            # All groups of this size, shape (groups, size).
            rows = order[starts[sizes == size][:, None] + np.arange(size)]
            averages, total = self._averaging.decode_averages(self._groups(int(size), sent[rows]), size)
            values[rows] = averages[:, None]
            weights[rows] = total[:, None]
        return Averaged(values, weights, self._averaging.single)

    def _groups(self, size: int, vectors: NDArray[np.float64]) -> Rows:
        """Return the noisy averages of groups of equal size, from shape (groups, size, length)."""
        groups, _, length = vectors.shape
        encoding = self._averaging.encoding(size)
        grid = grid_rows(encoding, vectors.reshape(groups * size, length)).reshape(vectors.shape)
        totals = grid.sum(axis=1)
        if self._averaging.on_shares is None:
            drawn = self._averaging.plan(size).own_noise(self._source, vectors.size)
            totals += drawn.reshape(vectors.shape).sum(axis=1)
        else:
            drawn = self._averaging.plan_shared(size).draw_noise(self._coins, totals.size)
            totals += drawn.reshape(totals.shape)
        noisy = self._averaging.is_noisy(size)
        if np.abs(totals).max(initial=0) >= EXACT_FLOAT:
            return np.stack([encoding.average(total, size, noisy=noisy) for total in totals])
        averages = np.asarray(np.ldexp(totals.astype(np.float64) / size, -encoding.fractional_bits))
        return averages if noisy else encoding.put_within(averages)


class SharesAverager(_Simulated):
    """Simulated averager by servers: runs the whole protocol of each group with its servers.

    `seed_for_simulation` makes the run reproducible and thereby insecure; `executor` runs the groups of a
    step, whose vectors are sent to it.
    """

    def __init__(
        self,
        parties: int,
        averaging: PlannedAverages,
        seed_for_simulation: int | None = None,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(parties, averaging)
        self._seed, self._executor = seed_for_simulation, executor
        self._requests = 0

    @property
    def claim(self) -> str:
        """The privacy claim of an average in a real run, and that here it is only simulated."""
        return self._claim("")

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Return each group's average as its servers compute it on secret shares."""
        vector, weight, group = check_average(self, vector, weight, group)
        sent = self._averaging.encode_vectors(vector, weight)
        self._participations.count(np.flatnonzero(group >= 0))
        values, weights = vector.copy(), np.zeros(self.parties)
        members = [np.flatnonzero(group == label) for label in np.unique(group[group >= 0])]
        calls = self._calls([sent[rows] for rows in members])
        averages = run_shards(self._executor, self.average_group, calls, "group")
        for rows, (average, survivors) in zip(members, averages, strict=True):
            values[rows], weights[rows] = self._averaging.decode_averages(average[None], survivors)
        return Averaged(values, weights, self._averaging.single)

    @staticmethod
    def average_group(
        averaging: PlannedAverages, vectors: Rows, request: int, seed: int | None
    ) -> tuple[Rows, int]:
        """Return the average of one group, shape (length,), and how many members survived."""
        simulate = cast("OnShares", averaging.on_shares).simulate
        planned = averaging.plan_shared(len(vectors))
        return simulate(planned, vectors, request=request, seed_for_simulation=seed)

    def _calls(self, groups: list[Rows]) -> Iterator[tuple[PlannedAverages, Rows, int, int | None]]:
        """Yield, for each group, the plan, vectors, request number and seed of its average."""
        for vectors in groups:
            self._requests += 1
            seed = None if self._seed is None else self._seed + (self._requests << 32)
            yield self._averaging, vectors, self._requests, seed


class IdealExchange(AllLocal):
    """Simulated exchange of messages with the real grid and noise, without cryptography.

    `source` as of `IdealAverager`.
    """

    def __init__(self, parties: int, exchanging: PlannedMessages, source: NoiseSource | None = None) -> None:
        super().__init__(parties)
        self._exchanging = exchanging
        self._participations = exchanging.participation_counter(parties)
        self._source = source or NoiseSource.system()

    @property
    def claim(self) -> str:
        """The privacy claim of a message in a real run, in words."""
        return f"a simulation without cryptography of: {self._exchanging.claim}"

    def name_of(self, party: int) -> str:
        """Return the name of a simulated party by its number, for error messages."""
        return f"party {party}"

    async def exchange(self, vector: Rows, partner: Parties) -> Rows:
        """Return, for each party, its partner's vector on the grid, with noise if it is planned."""
        vector, partner = check_rows(self, vector), check_partners(self.parties, partner)
        paired = np.flatnonzero(partner != self._here)
        received = vector.copy()
        received[partner[paired]] = self._sent(vector, paired)
        return received

    async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
        """Return weighted sums of vectors, where others' vectors have the noise of their messages."""
        from scipy import sparse

        vector, weights = check_rows(self, vector), check_mixing(self.parties, weights)
        own = weights.diagonal()
        others = sparse.csr_array(weights - sparse.diags_array(own))
        others.eliminate_zeros()
        others.sort_indices()
        senders = np.unique(others.indices)
        sent = np.zeros_like(vector)
        sent[senders] = self._sent(vector, senders)
        return np.asarray(own[:, None] * vector + others @ sent)

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        """Return, for each party, the vectors addressed to it, on the grid and without noise."""
        vectors = check_boxes(self, vectors)
        parameters = self._exchanging.parameters.to_each()
        grid = grid_rows(parameters.encoding, vectors.reshape(-1, vectors.shape[2]))
        return parameters.encoding.real(grid).reshape(vectors.shape).transpose(1, 0, 2)

    def _sent(self, vector: Rows, senders: Parties) -> Rows:
        """Return these parties' vectors in the form sent: on the grid, with noise if planned."""
        parameters = self._exchanging.parameters
        self._participations.count(senders)
        grid = grid_rows(parameters.encoding, vector[senders])
        noise = parameters.own_noise(self._source, grid.size).reshape(grid.shape)
        return parameters.encoding.real(grid + noise)


def grid_rows(encoding: Encoding, vectors: Rows) -> NDArray[np.int64]:
    """Return vectors, shape (rows, length), as integers on the grid of an encoding.

    Raises PrivacyError, ConfigError as it does.
    """
    if encoding.integer:
        raise ConfigError.at("kind", "learners average real vectors", ConfigCheck.UNSUPPORTED)
    scaled = np.ldexp(vectors, encoding.fractional_bits)
    grid: NDArray[np.int64] = np.rint(scaled).astype(np.int64)
    if encoding.l2_bound is None:
        lower, upper = encoding.bounds
        bad = (vectors < lower) | (vectors > upper)
        odd = np.flatnonzero(bad.any(axis=1))
    else:
        limit = ball.squared_limit(encoding.l2_bound, encoding.fractional_bits)
        real = grid.astype(np.float64)
        odd = np.flatnonzero(np.einsum("rc,rc->r", real, real) > limit * (1 - _NEAR))
    lowest = np.int64(encoding.lowest)
    for row in odd:
        ring_vector, _ = encoding.encode(vectors[row], party=f"party {row}")
        grid[row] = (
            ring_vector.view(np.int64) + lowest
            if ring_vector.itemsize == 8
            else ring_vector.astype(np.int64) + lowest
        )
    return grid
