"""Values that both roles of a pairwise statistic derive alike: run id, beacon, matchings, pair contexts."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smpc_dp.capabilities.pairs.garbled import messages as pairwise
from smpc_dp.capabilities.pairs.garbled.draw import COIN_BYTES, beacon, bipartite_matchings, commit, matchings
from smpc_dp.capabilities.pairs.ustatistic.messages import ATTEMPTS, PROTOCOL, VERSION
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import Check, PeerFault
from smpc_dp.wire.signing import Context


@dataclass(frozen=True, slots=True)
class Draw:
    """Matchings of a run: `pairs` of names, one list for each matching, the garbler first."""

    beacon: bytes
    pairs: tuple[tuple[tuple[str, str], ...], ...]
    _of: tuple[Mapping[str, tuple[str, str]], ...]

    @classmethod
    def of(cls, seed: bytes, pairs: tuple[tuple[tuple[str, str], ...], ...]) -> Draw:
        """Return the draw with these pairs."""
        return cls(seed, pairs, tuple({name: pair for pair in each for name in pair} for each in pairs))

    def partner(self, name: str, matching: int) -> tuple[str, str] | None:
        """Return the pair of `name` in a matching, None where it has none."""
        return self._of[matching].get(name)


def quorum(parties: int, corrupt: int) -> int:
    """Return the number of parties that must be present, and sign the run's beginning: over (n + c)/2.

    The aggregator announces the parties present. From a set of its own choice it could leave a party only one
    partner. Two sets of this size share a party that is not corrupt.
    """
    return (parties + corrupt) // 2 + 1


def statistic_context(context: Context) -> Context:
    """Return the context of the session for this protocol, so that no message serves in another one."""
    return replace(context, protocol=PROTOCOL, version=VERSION)


def commitment_run(context: Context, plan: bytes, attempt: int) -> bytes:
    """Return the value that a commitment to an attempt's coin, from 1, is bound to; `plan` is its digest."""
    return context.session_digest + encode_uint(context.request) + plan + encode_uint(attempt)


def commitments_of(context: Context, plan: bytes, name: str, coins: Sequence[bytes]) -> bytes:
    """Return a party's commitments to its coins, one for each attempt."""
    runs = [commitment_run(context, plan, attempt) for attempt in range(1, ATTEMPTS + 1)]
    return b"".join(commit(run, name, coin) for run, coin in zip(runs, coins, strict=True))


def is_opening(
    context: Context, plan: bytes, attempt: int, name: str, coin: bytes, commitments: bytes
) -> bool:
    """Tell whether `coin` is a party's coin for an attempt, given all its `commitments`."""
    expected = commitments[COIN_BYTES * (attempt - 1) : COIN_BYTES * attempt]
    return hmac.compare_digest(commit(commitment_run(context, plan, attempt), name, coin), expected)


def start_root(commitments: bytes, public_labels: bytes) -> bytes:
    """Return the hash of all commitments and labels of the parties present, in roster order."""
    return digest(Label.STATISTIC_ROOT, commitments, public_labels)


def run_identifier(context: Context, plan: bytes, present: bytes, root: bytes) -> bytes:
    """Return the run id: a hash of all commitments, so fresh for every party that drew a fresh coin."""
    return digest(
        Label.RUN_ID,
        *context.bound,
        context.session_digest,
        encode_uint(context.request),
        plan,
        present,
        root,
    )


def again_identifier(context: Context, earlier: bytes, attempt: int, present: bytes) -> bytes:
    """Return the run id of a further attempt, bound to the earlier ones."""
    return digest(Label.STATISTIC_AGAIN, *context.bound, earlier, encode_uint(attempt), present)


def draw(
    partners: int, bipartite: bool, run_id: bytes, names: Sequence[str], public_labels: bytes, coins: bytes
) -> Draw:
    """Return `partners` matchings of the parties `names`, in roster order, from their coins and labels."""
    opened = [coins[COIN_BYTES * index : COIN_BYTES * (index + 1)] for index in range(len(names))]
    seed = beacon(run_id, list(zip(names, opened, strict=True)))
    if bipartite:
        indices = bipartite_matchings(seed, [public_label - 1 for public_label in public_labels], partners)
    else:
        indices = matchings(seed, len(names), partners)
    pairs = tuple(tuple((names[a], names[b]) for a, b in matching) for matching in indices.tolist())
    return Draw.of(seed, pairs)


def check_failed(result: Draw, name: str, failed: Sequence[int]) -> None:
    """Raise PeerFault unless `failed` are matchings, ascending, in which the party `name` has a partner."""
    paired = [number for number in range(len(result.pairs)) if result.partner(name, number) is not None]
    if list(failed) != sorted(set(failed) & set(paired)):
        raise PeerFault(name, "says of matchings that it has not that they failed", Check.WRONG_COUNT)


def pair_context(context: Context, run_id: bytes, matching: int, pair: tuple[str, str]) -> Context:
    """Return the context of the two-party evaluation of one pair in one matching."""
    return Context(
        protocol=pairwise.PAIRWISE,
        version=pairwise.VERSION,
        session_digest=digest(
            Label.STATISTIC_PAIR, run_id, encode_uint(matching), *(name.encode() for name in pair)
        ),
        request=1,
        names=pair,
        aggregator=context.aggregator,
        keys={name: context.keys[name] for name in (*pair, context.aggregator)},
        verify=context.verify,
    )
