"""Edges folded as they stream by, and checks that are done later and reported in order."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from smpc_dp.crypto import commit
from smpc_dp.crypto.edges import Claim, EdgeFold
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.wire.batch_verifier import SUBMITTED, BatchVerifier, EarlierFault, Workers, raise_first
from tests.executors import Backwards

PARTIES = 12
Graph = dict[int, dict[int, bytes]]


def graph(seed: int) -> Graph:
    """The commitments of both ends of random edges."""
    source, randomness = random.Random(seed), SystemRandomness()
    claims: Graph = {party: {} for party in range(1, PARTIES + 1)}
    for u in claims:
        for v in claims:
            if u < v and source.random() < 0.4:
                blinding = commit.fresh_blinding(randomness)
                claims[u][v] = commit.commit([7], blinding)
                claims[v][u] = commit.combine([], [claims[u][v]])
    return claims


def claim_of(party: int, edges: dict[int, bytes], others: bytes = b"") -> Claim:
    ordered = sorted(edges)
    packed = np.array(ordered, dtype="<u2").tobytes()
    return Claim(party, packed, b"".join(edges[peer] for peer in ordered), others)


def folded(claims: Graph, *, without: Sequence[int] = (), locate: bool = False) -> EdgeFold:
    counted = np.array([party not in without for party in range(1, PARTIES + 1)])
    fold = EdgeFold(counted, locate=locate)
    for party, edges in claims.items():
        if party not in without:
            fold.take([claim_of(party, edges)])
    return fold


def test_edges_of_two_ends_cancel_and_their_sums_are_right() -> None:
    claims = graph(1)
    fold = EdgeFold(np.ones(PARTIES, dtype=np.bool_))
    sums = fold.take([claim_of(party, edges) for party, edges in claims.items()])
    assert fold.cancels()
    assert sums == [(commit.combine(list(edges.values())), "") for edges in claims.values()]
    assert folded(claims, without=(3, 8)).cancels()
    assert not folded({party: edges for party, edges in claims.items() if party != 3}).cancels()


@pytest.mark.parametrize("seed", range(8))
def test_one_wrong_edge_is_noticed_wherever_it_is(seed: int) -> None:
    """Another commitment, one that only one end claims, exchanged ones, the identity: both ends are found."""
    claims, source = graph(seed), random.Random(seed)
    party = source.choice([party for party in claims if len(claims[party]) > 1])
    peer, second = source.sample(sorted(claims[party]), 2)
    kinds = ("another", "dropped", "identity", "exchanged")
    kind = kinds[seed % 4]
    expected = {party, peer}
    if kind == "another":
        claims[party][peer] = commit.commit([8], commit.fresh_blinding(SystemRandomness()))
    elif kind == "dropped":
        del claims[party][peer]
    elif kind == "identity":
        # Both ends' are nothing, and only one says so.
        claims[peer][party] = commit.IDENTITY
        del claims[party][peer]
    else:
        claims[party][peer], claims[party][second] = claims[party][second], claims[party][peer]
        expected.add(second)
    assert not folded(claims).cancels()
    assert folded(claims, locate=True).find_uncancelled() == sorted(expected)
    assert folded(claims, without=sorted(expected)).cancels()


def test_what_is_malformed_is_said_and_not_folded() -> None:
    claims = graph(2)
    fold = EdgeFold(np.ones(PARTIES, dtype=np.bool_))
    good = claim_of(1, claims[1])
    [first, second, third] = fold.take(
        [good, Claim(2, b"\1\0", b"\xff" * 32), claim_of(3, {}, others=b"\xff" * 32)]
    )
    assert first[1] == ""
    assert second[0] == third[0] == b""
    assert "not the encoding of a group element" in second[1]
    assert "not the encoding" in third[1]
    for wrong in (Claim(1, b"\1", b""), Claim(1, b"\2\0", b""), Claim(1, b"", b"\0"), Claim(99, b"", b"")):
        with pytest.raises(ValueError, match=r"."):
            fold.take([wrong])
    with pytest.raises(ValueError, match="no party"):
        fold.take([Claim(1, b"\x63\0", bytes(32))])


def test_the_first_of_many_faults_is_raised_whoever_finds_it_first() -> None:
    def check(items: Sequence[int]) -> list[VerificationError | None]:
        return [
            VerificationError(str(item), Check.BAD_SIGNATURE) if item in (70, 150, 151) else None
            for item in items
        ]

    start = functools.partial(Workers().shard, "numbers", check)
    one, two = BatchVerifier(start), BatchVerifier(start)
    for number in range(200):
        (two if number < 100 else one).add((number, 10 * number), number, 1)
    with pytest.raises(EarlierFault, match=r"^70$") as caught:
        raise_first(one, two)
    assert caught.value.position == (70, 700)


def test_calls_beyond_those_under_way_are_waited_for_by_their_values() -> None:
    executor = Backwards()
    workers = Workers(executor=executor)
    values = [workers.shard("numbers", abs, -number) for number in range(SUBMITTED)]
    assert executor.ran == 0
    values.append(workers.shard("numbers", abs, -SUBMITTED))
    assert executor.ran == SUBMITTED
    assert [value() for value in values] == [*range(SUBMITTED + 1)]


def test_the_error_of_a_call_that_is_waited_for_names_it() -> None:
    with ThreadPoolExecutor(1) as executor:
        workers = Workers(executor=executor)
        workers.shard("proofs", bytes, 1 << 62)
        for number in range(1, SUBMITTED):
            workers.shard("numbers", abs, -number)
        with pytest.raises(LocalError, match=r"^proofs: memory is exhausted$"):
            workers.shard("numbers", abs, -SUBMITTED)


def test_large_items_do_not_wait_for_many() -> None:
    seen: list[int] = []

    def check(items: Sequence[int]) -> list[VerificationError | None]:
        seen.append(len(items))
        return [None] * len(items)

    queue = BatchVerifier(functools.partial(Workers().here, check))
    for number in range(4):
        queue.add((number, 0), number, 1 << 19)
    assert seen == [2, 2]
    raise_first(queue)
    assert seen == [2, 2]
