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
    """Result of drawing pairs: for each matching the pairs of names (garbler first), and the public seed."""

    beacon: bytes
    pairs: tuple[tuple[tuple[str, str], ...], ...]
    _of: tuple[Mapping[str, tuple[str, str]], ...]

    @classmethod
    def of(cls, seed: bytes, pairs: tuple[tuple[tuple[str, str], ...], ...]) -> Draw:
        """Make a draw from its seed and pairs, indexed by the names of the parties."""
        return cls(seed, pairs, tuple({name: pair for pair in each for name in pair} for each in pairs))

    def partner(self, name: str, matching: int) -> tuple[str, str] | None:
        """Return the pair that party `name` is in, in this matching; None if it is in none."""
        return self._of[matching].get(name)


def quorum(parties: int, corrupt: int) -> int:
    """Return how many parties must be present and sign a run's beginning: over (n + corrupt) / 2.

    The aggregator announces the parties present. From a set of its own choice it could leave a party only one
    partner. Two sets of this size share a party that is not corrupt.
    """
    return (parties + corrupt) // 2 + 1


def statistic_context(context: Context) -> Context:
    """Return the context with this protocol's name, so that its messages fit no other protocol."""
    return replace(context, protocol=PROTOCOL, version=VERSION)


def commitment_run(context: Context, plan: bytes, attempt: int) -> bytes:
    """Return the bytes that bind a coin's commitment to session, request, plan and attempt."""
    return context.session_digest + encode_uint(context.request) + plan + encode_uint(attempt)


def commitments_of(context: Context, plan: bytes, name: str, coins: Sequence[bytes]) -> bytes:
    """Return a party's commitments to its coins, one hash for each drawing attempt, joined."""
    runs = [commitment_run(context, plan, attempt) for attempt in range(1, ATTEMPTS + 1)]
    return b"".join(commit(run, name, coin) for run, coin in zip(runs, coins, strict=True))


def is_opening(
    context: Context, plan: bytes, attempt: int, name: str, coin: bytes, commitments: bytes
) -> bool:
    """Return whether `coin` is what the party committed to for this drawing attempt."""
    expected = commitments[COIN_BYTES * (attempt - 1) : COIN_BYTES * attempt]
    return hmac.compare_digest(commit(commitment_run(context, plan, attempt), name, coin), expected)


def start_root(commitments: bytes, public_labels: bytes) -> bytes:
    """Return the hash of all commitments and labels of the parties present, in roster order."""
    return digest(Label.STATISTIC_ROOT, commitments, public_labels)


def run_identifier(context: Context, plan: bytes, present: bytes, root: bytes) -> bytes:
    """Return the run id: a hash of plan, parties present, and all commitments to fresh coins."""
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
    """Return the run id of a further drawing attempt, derived from the earlier one."""
    return digest(Label.STATISTIC_AGAIN, *context.bound, earlier, encode_uint(attempt), present)


def draw(
    partners: int, bipartite: bool, run_id: bytes, names: Sequence[str], public_labels: bytes, coins: bytes
) -> Draw:
    """Derive `partners` matchings of the named parties from all their coins; return the pairs."""
    opened = [coins[COIN_BYTES * index : COIN_BYTES * (index + 1)] for index in range(len(names))]
    seed = beacon(run_id, list(zip(names, opened, strict=True)))
    if bipartite:
        indices = bipartite_matchings(seed, [public_label - 1 for public_label in public_labels], partners)
    else:
        indices = matchings(seed, len(names), partners)
    pairs = tuple(tuple((names[a], names[b]) for a, b in matching) for matching in indices.tolist())
    return Draw.of(seed, pairs)


def check_failed(result: Draw, name: str, failed: Sequence[int]) -> None:
    """Raise PeerFault unless `failed` lists matchings, ascending, in which party `name` has a partner."""
    paired = [number for number in range(len(result.pairs)) if result.partner(name, number) is not None]
    if list(failed) != sorted(set(failed) & set(paired)):
        raise PeerFault(name, "says of matchings that it has not that they failed", Check.WRONG_COUNT)


def pair_context(
    context: Context,
    run_id: bytes,
    matching: int,
    pair: tuple[str, str],
    protocol: tuple[str, int] = (pairwise.PAIRWISE, pairwise.VERSION),
) -> Context:
    """Return the context (protocol, run, matching, two names) that one pair's messages are bound to."""
    return Context(
        protocol=protocol[0],
        version=protocol[1],
        session_digest=digest(
            Label.STATISTIC_PAIR, run_id, encode_uint(matching), *(name.encode() for name in pair)
        ),
        request=1,
        names=pair,
        aggregator=context.aggregator,
        keys={name: context.keys[name] for name in (*pair, context.aggregator)},
        verify=context.verify,
    )
