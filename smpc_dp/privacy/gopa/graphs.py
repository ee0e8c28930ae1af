"""Graphs of pairwise noise, drawn or given, and the subgraph of the honest parties."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from smpc_dp.errors import ConfigCheck, ConfigError, Issues
from smpc_dp.files import read_bounded
from smpc_dp.optional import import_optional
from smpc_dp.values import decoded

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Randomness = Callable[[int], bytes]
"""As `os.urandom`: takes a number of bytes and returns so many."""

MAX_EDGES = 20_000_000
MAX_FILE_BYTES = 1 << 26
# Faults of a file that an error lists.
_MOST_ISSUES = 100
# Members of a component that an error lists.
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class HonestGraph:
    """Graph of the honest parties: edges whose pairwise noise the adversary does not know.

    Parties are numbered anew, 0 to size - 1; `parties` has the numbers that they had before.
    """

    size: int
    edges: Ints
    """Shape (m, 2), each edge once, smaller end first, sorted."""
    parties: Ints

    @property
    def degrees(self) -> Ints:
        """Number of neighbours of each node, shape (size,)."""
        return np.bincount(self.edges.ravel(), minlength=self.size).astype(np.int64)

    @property
    def adjacency(self) -> csr_array:
        """Symmetric sparse adjacency matrix of ones, shape (size, size)."""
        ends = np.concatenate([self.edges, self.edges[:, ::-1]])
        ones = np.ones(len(ends))
        return csr_array((ones, (ends[:, 0], ends[:, 1])), shape=(self.size, self.size))

    def without(self, removed: Ints | list[int]) -> HonestGraph:
        """Return the graph without these nodes and their edges; the others are renumbered."""
        retained = np.ones(self.size, dtype=bool)
        retained[np.asarray(removed, dtype=np.int64)] = False
        smaller = honest_graph(self.size, self.edges, retained)
        return HonestGraph(smaller.size, smaller.edges, self.parties[smaller.parties])

    def check_connected(self) -> None:
        """Raise ConfigError, with sizes of components and members of one, if the graph is not connected.

        A component pays for its privacy with the independent noise of its own members alone.
        """
        count, label = connected_components(self.adjacency, directed=False)
        if count <= 1:
            return
        sizes = np.bincount(label)
        order = np.argsort(sizes, kind="stable")
        smallest = self.parties[np.flatnonzero(label == order[0])]
        first = ", ".join(map(str, smallest[:_SHOWN])) + (", …" if len(smallest) > _SHOWN else "")
        listed = ", ".join(str(size) for size in sizes[order][::-1][:_SHOWN]) + (
            ", …" if count > _SHOWN else ""
        )
        reason = (
            f"the honest parties fall into {count} components, of {listed} parties; one of them has "
            f"{len(smallest)}: {first}; draw more neighbours, or plan for more honest parties"
        )
        raise ConfigError.at("graph", reason, ConfigCheck.INFEASIBLE)


def honest_graph(parties: int, edges: Ints, honest: NDArray[np.bool_] | None = None) -> HonestGraph:
    """Return the honest parties' subgraph, renumbered, from edges and a mask; ConfigError if unfit.

    Args:
        parties: n; edges join numbers 0 to n - 1.
        edges: integers, shape (m, 2), in any order; an edge given twice is one edge.
        honest: shape (n,), True for the honest parties; None: all are.

    Raises:
        ConfigError: a shape, an end or a loop is wrong, or nobody is honest.
    """
    if isinstance(parties, bool) or not isinstance(parties, int | np.integer) or parties < 1:
        raise ConfigError.at("parties", f"must be an integer from 1, is {parties!r:.80}", ConfigCheck.RANGE)
    try:
        given = np.asarray(edges)
        pairs = given.astype(np.int64, casting="same_kind" if given.size else "unsafe").reshape(-1, 2)
    except (TypeError, ValueError):
        raise ConfigError.at("edges", "must be integers, of shape (m, 2)", ConfigCheck.TYPE) from None
    mask = np.ones(parties, dtype=bool) if honest is None else np.asarray(honest, dtype=bool)
    if mask.shape != (parties,):
        raise ConfigError.at("honest", f"shape must be ({parties},), is {mask.shape}", ConfigCheck.SHAPE)
    if not mask.any():
        raise ConfigError.at("honest", "at least one party must be honest", ConfigCheck.RANGE)
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= parties):
        raise ConfigError.at("graph", f"an edge leaves the parties 0 to {parties - 1}", ConfigCheck.RANGE)
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ConfigError.at("graph", "an edge joins a party with itself", ConfigCheck.RANGE)
    number = np.cumsum(mask) - 1
    inside = pairs[mask[pairs].all(axis=1)]
    size = int(mask.sum())
    return HonestGraph(size, _unique(number[inside], size), np.flatnonzero(mask))


def _unique(pairs: Ints, size: int) -> Ints:
    """Return undirected edges without repetitions, each with its smaller end first."""
    ordered = np.sort(pairs, axis=1)
    codes = np.unique(ordered[:, 0] * size + ordered[:, 1])
    return np.stack([codes // size, codes % size], axis=1)


def randomness_of(seed: int | None) -> Randomness:
    """Return a source of random bytes: the system's, or one derived from a seed so that graphs repeat.

    A seed is never for a run.
    """
    if seed is None:
        return os.urandom
    calls = itertools.count()

    def draw(count: int) -> bytes:
        return hashlib.shake_256(f"smpc-dp plan gopa {seed} {next(calls)}".encode()).digest(count)

    return draw


def _below(randomness: Randomness, bound: int, count: int) -> Ints:
    """Return `count` nearly uniform integers in [0, bound); the bias is below bound / 2^63."""
    raw = np.frombuffer(randomness(8 * count), dtype="<u8") >> np.uint64(1)
    return (raw % np.uint64(bound)).astype(np.int64)


def k_out(parties: int, k: int, draw: int, randomness: Randomness = os.urandom) -> Ints:
    """Return the edges, shape (m, 2), of a graph in which `draw` parties pick k others each at random.

    Each of the first `draw` parties picks k of the other parties - 1; an edge is there if either end picked
    the other. [Bellet 2021, before Theorem 4.1]
    """
    others = parties - 1
    if draw * k > MAX_EDGES:
        raise ConfigError.at(
            "k", f"{draw} parties drawing {k} make more than {MAX_EDGES} edges", ConfigCheck.TOO_LARGE
        )
    # Floyd's sampling without replacement, for all parties at once.
    chosen = np.full((draw, k), -1, dtype=np.int64)
    for index, top in enumerate(range(others - k, others)):
        pick = _below(randomness, top + 1, draw)
        taken = (chosen[:, :index] == pick[:, None]).any(axis=1)
        chosen[:, index] = np.where(taken, top, pick)
    own = np.arange(draw, dtype=np.int64)[:, None]
    picked = chosen + (chosen >= own)  # the others of u are 0 .. u-1, u+1 .. n-1
    return _unique(np.stack([np.broadcast_to(own, picked.shape).ravel(), picked.ravel()], axis=1), parties)


def ring(parties: int) -> Ints:
    """Return the edges of a cycle of `parties` (3 or more) nodes."""
    own = np.arange(parties, dtype=np.int64)
    return _unique(np.stack([own, (own + 1) % parties], axis=1), parties)


def random_regular(parties: int, degree: int, randomness: Randomness = os.urandom) -> Ints:
    """Return the edges of a random `degree`-regular graph; ConfigError if parties * degree is odd.

    parties * degree must be even. Raises LocalError where networkx is not installed.
    """
    if parties * degree % 2:
        raise ConfigError.at(
            "k", f"{parties} parties of degree {degree}: the product must be even", ConfigCheck.RANGE
        )
    networkx = import_optional("networkx")
    seed = int.from_bytes(randomness(8), "little")
    drawn = networkx.random_regular_graph(degree, parties, seed=seed)
    return _unique(np.array(list(drawn.edges), dtype=np.int64).reshape(-1, 2), parties)


def read_edges(path: Path, parties: int) -> Ints:
    """Read a graph's edges, `u v` a line, from a text file; ConfigError that names each wrong line.

    Raises:
        ConfigError: naming each line, up to 100, that is not an edge, is a loop or repeats an edge.
        LocalError: the file cannot be read, or is longer than MAX_FILE_BYTES.
    """
    text = decoded(read_bounded(path, "the graph", MAX_FILE_BYTES), str(path))
    issues = Issues()
    seen: dict[tuple[int, int], int] = {}
    for line, content in enumerate(text.splitlines(), 1):
        if len(issues) == _MOST_ISSUES:
            issues.add_issue(f"{path.name}:{line}", "not read on, after as many faults", ConfigCheck.MORE)
            break
        words = content.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path.name}:{line}"
        if len(words) != 2 or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
            issues.add_issue(
                where, f"not an edge `u v` of two numbers: {content.strip()[:40]!r}", ConfigCheck.FORMAT
            )
            continue
        first, second = sorted(map(int, words))
        if second >= parties:
            issues.add_issue(where, f"party {second} is not in 0..{parties - 1}", ConfigCheck.RANGE)
        elif first == second:
            issues.add_issue(where, f"party {first} joined with itself", ConfigCheck.RANGE)
        elif (first, second) in seen:
            issues.add_issue(where, f"the edge of line {seen[first, second]} again", ConfigCheck.DUPLICATE)
        else:
            seen[first, second] = line
    if not seen and not issues:
        issues.add_issue(path.name, "has no edges", ConfigCheck.MISSING)
    issues.raise_issues()
    return np.array(sorted(seen), dtype=np.int64)
