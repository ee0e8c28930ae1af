"""The tables of states of a pairwise statistic. Specification: protocols/pairwise/README.md.

`party` has a party's states; `aggregator` and `pairs` have the aggregator's.
"""

from __future__ import annotations

from smpc_dp.capabilities.pairs.ustatistic import aggregator as a
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import pairs as pairs
from smpc_dp.capabilities.pairs.ustatistic import party as p
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.pairs.ustatistic.serving import MakePlan, Serving
from smpc_dp.capabilities.pairs.ustatistic.terms import quorum, statistic_context
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.engine.collector import CollectorRole, CollectorRow, Inbox
from smpc_dp.engine.party import Member, PartyRole, Row
from smpc_dp.engine.phases import messages as common
from smpc_dp.engine.phases.begin import accept_begin
from smpc_dp.engine.phases.run_log import LoggingAggregator
from smpc_dp.engine.run import Run
from smpc_dp.logs.keeping import Board, MemoryBoard
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.signing import Context, Signer

PARTY = PartyRole(
    first=p.Ready,
    begin=p.say_hello,
    hello=m.HELLO,
    rows=(
        Row(
            p.AwaitStart,
            p.on_start,
            (p.AwaitBegin,),
            (),
            "another run: its id binds the commitments and marks of all",
        ),
        Row(
            p.AwaitBegin,
            p.on_begin,
            (p.AwaitBegun,),
            (common.ATTEST_BEGIN,),
            "another session log up to this run",
        ),
        Row(
            p.AwaitBegun,
            p.on_begun,
            (p.AwaitDraw,),
            (m.COINS[0],),
            "another line for this run: two quorums share an honest party",
        ),
        Row(
            p.AwaitDraw,
            p.on_again,
            (p.AwaitDraw, p.AwaitLastDraw),
            m.COINS[1:],
            "a draw with the coins before",
        ),
        Row(
            p.AwaitDraw,
            p.on_matched,
            (p.Evaluating,),
            (),
            "a further draw: its coins are forgotten",
            instead=m.MATCHED,
        ),
        Row(p.AwaitLastDraw, p.on_last_matched, (p.Evaluating,), (), "another draw"),
        Row(p.Evaluating, p.on_result, (p.Finished,), (), "anything: the run is over"),
        Row(p.AwaitResult, p.on_result, (p.Finished,), (), "anything: the run is over"),
    ),
    reports=(Row(p.Evaluating, p.say_done, (p.AwaitResult,), (m.DONE,), "another evaluation"),),
    last=m.DONE,
    saved=True,
)

AGGREGATOR = CollectorRole(
    rows=(
        CollectorRow(
            a.CollectHello,
            a.accept_hello,
            a.finish_hello,
            a.needed,
            (a.CollectBegin,),
            (m.START, common.BEGIN),
            "a party that joins, another statistic",
            agreed=a.agreed_hellos,
        ),
        CollectorRow(
            a.CollectBegin,
            accept_begin,
            a.finish_begin,
            a.needed,
            (a.CollectCoins,),
            (common.BEGUN,),
            "another line for this run: two quorums share an honest party",
        ),
        CollectorRow(
            a.CollectCoins,
            a.accept_coin,
            a.finish_coins,
            a.needed,
            (a.CollectCoins, pairs.CollectDone),
            (*m.AGAINS, m.MATCHED),
            "a further draw, once the matchings are drawn",
            stop=a.keep_openings,
            times=a.attempts,
        ),
        CollectorRow(
            pairs.CollectDone,
            pairs.accept_done,
            pairs.finish_done,
            pairs.nobody,
            (pairs.Estimated,),
            (m.RESULT,),
            "anything: the run is over",
            beside={
                m.PAIR: pairs.on_pair,
                m.RELAY: pairs.on_relay,
                m.RELAY_END: pairs.on_relay,
                m.CONVICTION: pairs.on_conviction,
            },
            late=pairs.late_done,
            report=pairs.take_end,
        ),
    ),
    gone=pairs.end_pairs,
    saved=True,
)


def party(
    context: Context,
    identity: Signer,
    plan: StatisticPlan,
    operation: str,
    public_label: int = -1,
    randomness: Randomness | None = None,
    *,
    corrupt: int = 0,
    seen: Seen = NOTHING_SEEN,
) -> Run[StatisticResult]:
    """Return a party's run of a pairwise statistic: the state machine that begins with its hello.

    Args:
        context: of the session.
        plan, operation, public_label: as of `party.StatisticRequest`.
        corrupt: c of the session.
        seen: the party's state of the session log.
    """
    requested = p.StatisticRequest(plan, operation, public_label, quorum(len(context.names), corrupt))
    member = Member(statistic_context(context), requested, identity, randomness or SystemRandomness())
    return Run(PARTY, member, p.Ready(seen=seen))


def aggregator(
    context: Context,
    identity: Signer,
    make_plan: MakePlan,
    randomness: Randomness | None = None,
    *,
    board: Board | None = None,
    corrupt: int = 0,
) -> Run[StatisticResult]:
    """Return the aggregator's run of a pairwise statistic: the state machine that begins with hellos.

    Args:
        context, corrupt: as of `party`.
        make_plan: as of `serving.Serving`.
        board: stores the log of the run; None: a board in memory.
    """
    context, retained = statistic_context(context), board or MemoryBoard("")
    needed = quorum(len(context.names), corrupt)
    runs = retained.runs(context.session_digest, context.scope)
    serving = Serving(make_plan, needed, randomness or SystemRandomness())
    everyone = set(range(1, len(context.names) + 1))
    member = LoggingAggregator(context, serving, identity, retained, runs)
    return Run(AGGREGATOR, member, a.CollectHello(inbox=Inbox(everyone)))
