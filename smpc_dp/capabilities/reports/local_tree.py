"""Hierarchical histograms under local differential privacy: the frequency oracles of [Bellet 2021, 3.3.3].

Parties' nodes in a binary tree of `levels` levels below the root are reported by a response to one Hadamard
coefficient, one bit, or by k-ary randomised response, k = 2^l in level l. Either every party answers in one
level, or the budget is shared by answers in all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.kernels.fields import Codes, Floats
from smpc_dp.crypto.prg import SEED_BYTES, add_masks
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.local_auc import Split
from smpc_dp.privacy.mechanisms.randomised_response import KaryRandomisedResponse
from smpc_dp.privacy.sampling import NoiseSource

Oracle = Literal["hadamard", "krr"]

MAX_LEVELS = 30
MAX_PARTIES = 1 << 40
ANSWER_BYTES = 4
# Parties whose answers are processed together, nodes of a level that are always transformed at once, and the
# average gap of parties' numbers up to which words of the coins are made in a run; beyond, each alone.
CHUNK = 1 << 14
SMALL = 1 << 12
MAX_WORDS = 1 << 21
APART = 64


@dataclass(frozen=True)
class Tree:
    """Public parameters of a tree histogram under local privacy: levels, epsilon, and the public coins.

    Attributes:
        levels: alpha; leaves are 0..2^alpha - 1.
        epsilon: of all answers of a party together.
        oracle: "hadamard" or "krr".
        split: "users": one level for each party; "budget": all levels, with epsilon / alpha each.
        coins: 32 bytes that give each party, by its number, its level and its coefficients. They must not
            depend on the records, or estimates are biased; privacy holds for any coins.

    Raises ConfigError.
    """

    levels: int
    epsilon: float
    oracle: Oracle
    split: Split
    coins: bytes

    def __post_init__(self) -> None:
        checks = ArgumentChecks()
        checks.require_integer("levels", self.levels, 1, MAX_LEVELS)
        checks.require_budget(self.epsilon)
        if self.oracle not in get_args(Oracle):
            checks.add_issue("oracle", f"must be hadamard or krr, is {self.oracle!r}", ConfigCheck.CHOICE)
        if self.split not in get_args(Split):
            checks.add_issue("split", f"must be users or budget, is {self.split!r}", ConfigCheck.CHOICE)
        if not isinstance(self.coins, bytes) or len(self.coins) != SEED_BYTES:
            checks.add_issue("coins", f"must be {SEED_BYTES} bytes", ConfigCheck.RANGE)
        checks.raise_issues()

    @property
    def width(self) -> int:
        """The number of randomised answers in a party's report."""
        return 1 if self.split == "users" else self.levels

    def response(self, level: int) -> KaryRandomisedResponse:
        """Return the randomised response with which an answer on this level of the tree is drawn."""
        categories = 2 if self.oracle == "hadamard" else 1 << level
        return _response(self.epsilon / self.width, categories)

    @property
    def event(self) -> Event:
        """The privacy event that a party's ledger charges for all its answers together."""
        response = self.response(1)
        if self.oracle == "hadamard":
            return replace(response, changed=self.width).event()
        epsilon = self.width * math.log(response.ratio) * (1 + 1e-15)
        name = f"randomised response in {self.width} of {self.levels} levels of a tree"
        return Event(name, response.relation, (Pure(epsilon),))

    def variance(self, level: int) -> float:
        """Return a bound on what one party adds to the variance of a node's estimated count."""
        distribution = self.response(level).distribution
        repeat = self.levels if self.split == "users" else 1
        return (
            repeat / float(distribution.retained) ** 2
            if self.oracle == "hadamard"
            else distribution.count_variance(repeat)
        )

    def indices(self, parties: Codes) -> tuple[Codes, Codes]:
        """Return the tree levels and Hadamard coefficients that the public coins assign to parties.

        A level is a 64-bit number modulo alpha: uniform up to 2^-59. Coefficients are uniform.
        """
        per = 2 if self.split == "users" else self.levels
        words = _words(self.coins, parties, per)
        if self.split == "users":
            levels = (words[:, :1] % np.uint64(self.levels)).astype(np.int64) + 1
            words = words[:, 1:]
        else:
            levels = np.broadcast_to(np.arange(1, self.levels + 1), words.shape)
        coefficients = (words >> (64 - levels).astype(np.uint64)).astype(np.int64)
        return levels, coefficients

    def answer(self, leaves: Codes, parties: Codes, source: NoiseSource) -> Codes:
        """Randomise parties' leaves into answers, shape (n, width)."""
        levels, coefficients = self.indices(parties)
        nodes = leaves[:, None] >> (self.levels - levels)
        if self.oracle == "hadamard":
            bits = _parity(nodes & coefficients)
            return self.response(1).release(bits.ravel(), source).reshape(bits.shape)
        answers = np.empty_like(nodes)
        for level in np.unique(levels):
            here = levels == level
            answers[here] = self.response(int(level)).release(nodes[here], source)
        return answers

    def encode(self, answers: Codes) -> list[bytes]:
        """Encode each party's randomised answers as bytes."""
        if self.oracle == "hadamard":
            packed = np.packbits(answers.astype(np.uint8), axis=1)
        else:
            packed = answers.astype(">u4").view(np.uint8).reshape(len(answers), -1)
        return [row.tobytes() for row in packed]

    @property
    def size(self) -> int:
        """The number of bytes of a party's encoded answers."""
        return -(-self.width // 8) if self.oracle == "hadamard" else ANSWER_BYTES * self.width

    def decode(self, rows: NDArray[np.uint8], parties: Codes) -> Codes:
        """Decode parties' answers from rows of bytes; raise ConfigError for an invalid report."""
        if self.oracle == "hadamard":
            bits = np.unpackbits(rows, axis=1).astype(np.int64)
            answers = bits[:, : self.width]
            answers[np.any(bits[:, self.width :] != 0, axis=1)] = -1  # no bit follows the answers
        else:
            answers = np.ascontiguousarray(rows).view(">u4").astype(np.int64)
        return self.checked(answers, parties)

    def checked(self, answers: Codes, parties: Codes) -> Codes:
        """Return the answers as they are; raise ConfigError that names the first invalid one."""
        for start in range(0, len(answers), CHUNK):
            part = answers[start : start + CHUNK]
            levels, _ = self.indices(parties[start : start + CHUNK])
            most = 2 if self.oracle == "hadamard" else 1 << levels
            wrong = ((part < 0) | (part >= most)).any(axis=1)
            if wrong.any():
                index = start + int(np.flatnonzero(wrong)[0])
                raise ConfigError.at(
                    f"reports[{index}]", "its answer is none of this protocol", ConfigCheck.CHOICE
                )
        return answers

    def histogram(self, parties: Codes, answers: Codes, chosen: NDArray[np.bool_] | None = None) -> Histogram:
        """Return the estimator of node counts from parties' randomised answers, or `chosen` ones."""
        return Histogram(self, parties, answers, chosen)


class Histogram:
    """Unbiased estimator of how many parties lie in each node of a tree, from randomised answers.

    If parties are split, their answers are read anew for each level, CHUNK parties at a time: beside them the
    estimates of v nodes take O(v) memory, unless the parties' numbers are far apart. Then, and if the
    budget is split, the indices of all answers are stored. With n parties, of whom r answer in the level,
    they take O(n + r v) time from Hadamard responses, or O(n + l 2^l) where 2^l is at most 4 v, or at
    most SMALL; O(n + r log v) from the others. If parties are split, r is about a part alpha of them.
    """

    def __init__(
        self, tree: Tree, parties: Codes, answers: Codes, chosen: NDArray[np.bool_] | None = None
    ) -> None:
        self._tree = tree
        self._numbers, self._answers, self._chosen = parties, answers, chosen
        self.parties = len(parties) if chosen is None else int(np.count_nonzero(chosen))
        # With answers in all levels, or numbers far apart, indices are too costly to make for each level.
        apart = len(parties) > 0 and int(parties.max() - parties.min()) > APART * len(parties) + 1_000
        self._indices = tree.indices(parties) if apart or tree.split == "budget" else None

    def variance(self, level: int) -> float:
        """Return a bound on the variance of each node's estimated count on this level."""
        return self.parties * self._tree.variance(level)

    def counts(self, level: int, nodes: Codes) -> Floats:
        """Return the estimated numbers of parties in these nodes of a level; nodes must ascend."""
        tree = self._tree
        distribution = tree.response(level).distribution
        repeat = tree.levels if tree.split == "users" else 1
        if tree.oracle == "hadamard":
            sums: Floats = repeat / float(distribution.retained) * self._sums(level, nodes)
            return sums
        hits, there = np.zeros(len(nodes)), 0
        if not len(nodes):
            return hits
        for _, answers in self._chunks(level):
            index = np.minimum(np.searchsorted(nodes, answers), len(nodes) - 1)
            hits += np.bincount(index[nodes[index] == answers], minlength=len(nodes))
            there += len(answers)
        return repeat * distribution.unbiased(hits, there)

    def _sums(self, level: int, nodes: Codes) -> Floats:
        """Return for each node the sum of all reports' Hadamard signs."""
        whole = 1 << level <= max(4 * len(nodes), SMALL)
        sums: Floats = np.zeros(1 << level if whole else len(nodes))
        for coefficients, answers in self._chunks(level):
            signs = 1.0 - 2.0 * answers.astype(np.float64)
            if whole:
                sums += np.bincount(coefficients, weights=signs, minlength=len(sums))
            elif len(nodes) > len(signs):
                for sign, coefficient in zip(signs, coefficients, strict=True):
                    sums += sign * (1.0 - 2.0 * _parity(nodes & coefficient))
            else:
                sums += [float(signs @ (1.0 - 2.0 * _parity(node & coefficients))) for node in nodes]
        return _transform(sums)[nodes] if whole else sums

    def _chunks(self, level: int) -> Iterator[tuple[Codes, Codes]]:
        """Yield (coefficients, answers) of the parties that answer on this level, in chunks."""
        for start in range(0, len(self._numbers), CHUNK):
            part = slice(start, start + CHUNK)
            if self._indices is None:
                levels, coefficients = self._tree.indices(self._numbers[part])
            else:
                levels, coefficients = (each[part] for each in self._indices)
            here = levels == level
            if self._chosen is not None:
                here &= self._chosen[part, None]
            yield coefficients[here], self._answers[part][here]


@functools.lru_cache(maxsize=256)
def _response(epsilon: float, categories: int) -> KaryRandomisedResponse:
    """Return the k-ary randomised response with this epsilon and number of categories."""
    return KaryRandomisedResponse.calibrate(epsilon, 0.0, categories)


def _transform(sums: Floats) -> Floats:
    """Return the Walsh-Hadamard transform of 2^l numbers."""
    half = 1
    while half < len(sums):
        pairs = sums.reshape(-1, 2, half)
        sums = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).ravel()
        half *= 2
    return sums


def _parity(values: Codes) -> Codes:
    """Return the parity (XOR of all bits) of each non-negative integer below 2**32."""
    for shift in (16, 8, 4, 2, 1):
        values = values ^ (values >> shift)
    return values & 1


def _words(coins: bytes, parties: Codes, per: int) -> NDArray[np.uint64]:
    """Return `per` pseudorandom 64-bit words for each party, from the public coins and its number."""
    if not len(parties):
        return np.zeros((0, per), dtype=np.uint64)
    first, last = int(parties.min()), int(parties.max())
    # Making a word with others costs far less than making it alone.
    if last - first < 4 * len(parties) + 1_000 or (
        last - first < APART * len(parties) and (last - first) * per < MAX_WORDS
    ):
        words = np.zeros((last - first + 1) * per, dtype=np.uint64)
        add_masks(words, [coins], [1], offset=first * per)
        return words.reshape(-1, per)[parties - first]
    rows = np.zeros((len(parties), per), dtype=np.uint64)
    for row, party in zip(rows, parties, strict=True):
        add_masks(row, [coins], [1], offset=int(party) * per)
    return rows
