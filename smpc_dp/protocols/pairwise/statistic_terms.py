"""What both roles of a pairwise statistic derive alike: run id, beacon, matchings, the session of a pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.pairwise import params
from smpc_dp.protocols.pairwise.draw import COIN_BYTES, beacon, bipartite_matchings, matchings
from smpc_dp.protocols.pairwise.statistic import PROTOCOL, VERSION, StatisticPlan


@dataclass(frozen=True, slots=True)
class Draw:
    """The matchings of a run: `pairs` of names, one list for each matching, the garbler first."""

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


def quorum(parties: int) -> int:
    """Return how many of a session's parties must be present: more than half.

    The aggregator says who is. Of a set that is its to choose it could leave a party no partner but one.
    """
    return parties // 2 + 1


def statistic_context(context: Context) -> Context:
    """Return the context of the session for this protocol, so that no message serves in another one."""
    return replace(context, protocol=PROTOCOL, version=VERSION)


def commitment_run(context: Context, plan: StatisticPlan) -> bytes:
    """Return what commitments are bound to, before there is a run id."""
    return context.session_digest + encode_uint(context.request) + plan.digest


def run_identifier(
    context: Context, plan: StatisticPlan, present: bytes, commitments: bytes, marks: bytes
) -> bytes:
    """Return the run id: a hash of everybody's commitment, so fresh for whoever drew a fresh coin."""
    return digest(
        Label.RUN_ID,
        *context.bound,
        context.session_digest,
        encode_uint(context.request),
        plan.digest,
        present,
        commitments,
        marks,
    )


def draw(plan: StatisticPlan, run_id: bytes, names: Sequence[str], marks: bytes, coins: bytes) -> Draw:
    """Return the matchings of the parties `names`, in roster order, from their coins."""
    opened = [coins[COIN_BYTES * place : COIN_BYTES * (place + 1)] for place in range(len(names))]
    seed = beacon(run_id, list(zip(names, opened, strict=True)))
    if plan.bipartite:
        places = bipartite_matchings(seed, [mark - 1 for mark in marks], plan.partners)
    else:
        places = matchings(seed, len(names), plan.partners)
    pairs = tuple(tuple((names[a], names[b]) for a, b in matching) for matching in places.tolist())
    return Draw.of(seed, pairs)


def pair_context(context: Context, run_id: bytes, matching: int, pair: tuple[str, str]) -> Context:
    """Return the context of the two-party evaluation of one pair in one matching."""
    return Context(
        protocol=params.PROTOCOL,
        version=params.VERSION,
        session_digest=digest(
            Label.STATISTIC_PAIR, run_id, encode_uint(matching), *(name.encode() for name in pair)
        ),
        request=1,
        names=pair,
        aggregator=context.aggregator,
        keys={name: context.keys[name] for name in (*pair, context.aggregator)},
        verify=context.verify,
    )
