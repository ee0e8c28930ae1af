"""Movie ratings, read or synthetic, and features of movies that are made from ratings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smpc_dp.capabilities.learn.data import movielens
from smpc_dp.errors import ConfigCheck, ConfigError

Floats = NDArray[np.float64]

TESTED = 0.2
FACTORS, ROUNDS, RIDGE = 20, 10, 0.1
SYNTHETIC = "synthetic ratings of the form of MovieLens"


@dataclass(frozen=True)
class Ratings:
    """Table of movie ratings: columns party and movie (numbered from 0), and rating."""

    table: Floats
    name: str

    @property
    def shape(self) -> tuple[int, int]:
        """The number of parties, and the number of movies."""
        return int(self.table[:, 0].max()) + 1, int(self.table[:, 1].max()) + 1

    def tested(self, seed: int) -> NDArray[np.bool_]:
        """Return which ratings are for the test: a fifth of each party's, drawn, and at least one."""
        rng = np.random.default_rng([seed, 80])
        order, counts = np.argsort(self.table[:, 0], kind="stable"), np.bincount(self.table[:, 0].astype(int))
        result = np.zeros(len(self.table), dtype=np.bool_)
        for own in np.split(order, np.cumsum(counts)[:-1]):
            result[rng.permutation(own)[: max(1, round(TESTED * len(own)))]] = True
        return result

    def matrix(self, keep: NDArray[np.bool_], values: Floats) -> sparse.csr_array:
        """Return values of the ratings to keep, shape (parties, movies)."""
        parties, movies = self.table[keep, 0].astype(int), self.table[keep, 1].astype(int)
        return sparse.csr_array((values[keep], (parties, movies)), shape=self.shape)


def read_ratings(path: Path) -> Ratings:
    """Read a ratings file: a header userId, movieId, rating, timestamp (.csv, .csv.gz), or u.data of ml-100k.

    Raises ConfigError for another table, LocalError for a file that cannot be read.
    """
    if path.suffix == ".data":
        try:
            read = np.loadtxt(path, delimiter="\t", ndmin=2)
            table = read[:, [0, 1, 2]]
        except (ValueError, IndexError):
            raise ConfigError.at(str(path), "must have four columns with tabs", ConfigCheck.FORMAT) from None
    else:
        table = movielens(path).table[:, [0, 1, 3]]
    parties, movies = (np.unique(table[:, column], return_inverse=True)[1] for column in (0, 1))
    return Ratings(np.column_stack([parties, movies, table[:, 2]]), path.name)


def synthetic_ratings(parties: int, movies: int, seed: int) -> Ratings:
    """Return ratings from 1 to 5 of low rank; parties differ in their means and numbers of ratings."""
    rng = np.random.default_rng([seed, 100])
    tastes, kinds = rng.normal(size=(parties, 3)) * 0.6, rng.normal(size=(movies, 3)) * 0.6
    level = 3.5 + 0.4 * rng.normal(size=parties)[:, None] + 0.4 * rng.normal(size=movies)
    full = np.clip(np.rint(level + tastes @ kinds.T + 0.7 * rng.normal(size=(parties, movies))), 1, 5)
    rows = []
    for party, count in enumerate(np.minimum(15 + rng.geometric(1 / 15, parties), movies)):
        seen = rng.choice(movies, count, replace=False)
        rows.append(np.column_stack([np.full(count, party), seen, full[party, seen]]))
    return Ratings(np.concatenate(rows), SYNTHETIC)


def features_of(ratings: sparse.csr_array, seed: int) -> Floats:
    """Return features of the movies by alternating least squares, shape (movies, 20); 0 without ratings."""
    known = np.random.default_rng([seed, 20]).normal(size=(ratings.shape[1], FACTORS)) / FACTORS**0.5

    def half(values: sparse.csr_array, other: Floats) -> Floats:
        pattern = values.copy()
        pattern.data[:] = 1.0
        grams = (pattern @ (other[:, :, None] * other[:, None]).reshape(len(other), -1)).reshape(
            -1, FACTORS, FACTORS
        )
        counts = np.maximum(pattern.sum(axis=1), 1)
        grams = grams + RIDGE * counts[:, None, None] * np.eye(FACTORS)
        return np.asarray(np.linalg.solve(grams, (values @ other)[..., None])[..., 0])

    other_way = ratings.T.tocsr()
    for _ in range(ROUNDS):
        known = half(other_way, half(ratings, known))
    return np.asarray(known)
