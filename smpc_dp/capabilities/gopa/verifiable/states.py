"""The states of verifiable GOPA. Specification: protocols/gopa/verifiable.md and protocols/gopa/README.md.

A party commits to all values before any coin opens, and proves that its publication is the sum of them; each
head of the board that it signs holds its own entries. The aggregator hosts the board; it checks each
statement before the next step. The author of a false one is excluded, and the statement stays on the board; a
silent party is not counted, and excluded from nothing.

Rounds of openings are states with a number: their steps have it in their names.
"""

from __future__ import annotations

from smpc_dp.capabilities.gopa.verifiable import (
    collecting,
    committing,
    counting,
    joining,
    publishing,
    tallying,
)
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.collecting import (
    CollectAdvertise,
    CollectBegin,
    CollectCoin,
    CollectCoins,
    CollectCommit,
    CollectCommitments,
    CollectReveal,
)
from smpc_dp.capabilities.gopa.verifiable.committing import (
    AwaitCoins,
    AwaitCoinsCertificate,
    AwaitCommitmentsCertificate,
    AwaitCommitted,
)
from smpc_dp.capabilities.gopa.verifiable.counting import (
    CollectExclusions,
    CollectOpen,
    CollectPublish,
    CollectTally,
    Tallied,
)
from smpc_dp.capabilities.gopa.verifiable.follow import VerifiableMember
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.capabilities.gopa.verifiable.joining import (
    AwaitBegin,
    AwaitBegun,
    AwaitMerkleCommitment,
    AwaitNeighbours,
)
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.publishing import (
    AwaitExclusionsCertificate,
    AwaitOpenings,
    AwaitPublications,
    Refused,
)
from smpc_dp.capabilities.gopa.verifiable.tallying import AwaitClosed, AwaitTallied, Finished
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import CollectorRole, CollectorRow
from smpc_dp.engine.party import PartyRole, Row
from smpc_dp.engine.phases import begin, certified_set, key_graph
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.key_graph import AwaitStart, CollectHello, Ready, Watch
from smpc_dp.engine.phases.last_results import HeldResult, SentResults
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.logs.keeping import Board
from smpc_dp.secagg.states import first_state
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.signing import Context, Signer

PARTY = PartyRole(
    first=Ready,
    begin=joining.say_hello,
    hello=m.HELLO,
    rows=(
        Row(
            AwaitStart,
            joining.on_start,
            (AwaitBegin,),
            (),
            "another run: its id binds the nonces of all",
        ),
        Row(
            AwaitBegin,
            joining.on_begin,
            (AwaitBegun,),
            (m.ATTEST_BEGIN,),
            "another session log up to this run: what was signed is kept",
        ),
        Row(
            AwaitBegun,
            joining.on_begun,
            (AwaitMerkleCommitment,),
            (m.ADVERTISE,),
            "another draw: the commitment binds it",
        ),
        Row(
            AwaitMerkleCommitment,
            joining.on_merkle_commitment,
            (AwaitNeighbours,),
            (m.REVEAL,),
            "a party that joins: the root binds the commitments of all",
        ),
        Row(
            AwaitNeighbours,
            joining.on_neighbours,
            (AwaitCommitted,),
            (v.COMMIT,),
            "another vector, Delta, secret bits or coin; the masking key is forgotten",
        ),
        Row(
            AwaitCommitted,
            committing.on_committed,
            (AwaitCommitmentsCertificate,),
            (v.ATTEST_COMMITMENTS,),
            "other commitments of anybody; Delta whose commitments do not cancel",
        ),
        Row(
            AwaitCommitmentsCertificate,
            committing.on_commitments_certificate,
            (AwaitCoins,),
            (v.COIN,),
            "another coin",
        ),
        Row(
            AwaitCoins,
            committing.on_coins,
            (AwaitCoinsCertificate,),
            (v.ATTEST_COINS,),
            "other coins of anybody",
        ),
        Row(
            AwaitCoinsCertificate,
            committing.on_coins_certificate,
            (AwaitPublications,),
            (v.PUBLISH,),
            "another x_hat: vector, secret bits and blinding are forgotten",
        ),
        Row(
            AwaitPublications,
            publishing.on_publications,
            (AwaitExclusionsCertificate, AwaitTallied, Refused),
            (v.ATTEST_EXCLUSIONS,),
            "a publication that comes later; without a false one, any opening: Delta is forgotten",
        ),
        Row(
            AwaitExclusionsCertificate,
            publishing.on_exclusions_certificate,
            (AwaitOpenings,),
            (v.OPEN,),
            "another set of those to whom edges are opened in this round",
        ),
        Row(
            AwaitOpenings,
            publishing.on_openings,
            (AwaitExclusionsCertificate, AwaitTallied, Refused),
            (v.ATTEST_EXCLUSIONS,),
            "an opening that comes later; without a false one, any other: Delta is forgotten",
        ),
        Row(
            AwaitTallied,
            tallying.on_tallied,
            (AwaitClosed,),
            (v.ATTEST_TALLY,),
            "another total",
        ),
        Row(AwaitClosed, tallying.on_closed, (Finished,), (), "anything: the run is over"),
    ),
    last=v.ATTEST_TALLY,
    saved=True,
)


def party(
    context: Context,
    parameters: VerifiableParameters,
    identity: Signer,
    ring_vector: RingVector,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,  # noqa: ARG001 - of exact sums
    seen: Seen = NOTHING_SEEN,
    *,
    last: HeldResult | None = None,  # noqa: ARG001 - of runs without a log
    check_total: bool = True,
) -> Run[Outcome]:
    """Return the state machine of a party in a run of verifiable GOPA, with its encoded vector.

    Args:
        context, parameters, identity, ring elements, randomness: as of
            `smpc_dp.secagg.states.party`.
        seen: the part of the session log that the party keeps. `seen` of each state is to be kept, durably,
            before the state's messages are sent.
        check_total: whether the party adds up the total before it attests it.
    """
    parameters.check_ring_vector(identity.name, ring_vector)
    member = VerifiableMember(
        context, parameters, identity, randomness or SystemRandomness(), check_total=check_total
    )
    return Run(PARTY, member, Ready(vector=ring_vector, seen=seen))


def _rounds(aggregator: VerifiableAggregator) -> int:
    """Return the greatest number of rounds of openings in a run: each excludes at least one party."""
    return aggregator.parameters.most_false


least = key_graph.min_survivors
AGGREGATOR = CollectorRole(
    rows=(
        CollectorRow(
            CollectHello,
            collecting.accept_hello,
            collecting.finish_hello,
            least,
            (CollectBegin,),
            (m.START, m.BEGIN),
            "a party that joins, another operation; the run is in the session log",
        ),
        CollectorRow(
            CollectBegin,
            begin.accept_begin,
            collecting.finish_begin,
            least,
            (CollectAdvertise,),
            (m.BEGUN,),
            "another session log up to this run",
        ),
        CollectorRow(
            CollectAdvertise,
            key_graph.accept_advertise,
            collecting.finish_advertise,
            least,
            (CollectReveal,),
            (m.MERKLE_COMMITMENT,),
            "another draw: the root binds the commitments of all",
        ),
        CollectorRow(
            CollectReveal,
            collecting.accept_reveal,
            collecting.finish_reveal,
            least,
            (CollectCommit,),
            (m.NEIGHBOURS,),
            "another graph",
        ),
        CollectorRow(
            CollectCommit,
            collecting.accept_commit,
            collecting.finish_commit,
            least,
            (CollectCommitments,),
            (v.COMMITTED,),
            "another commitment of anybody, another set of participants",
        ),
        CollectorRow(
            CollectCommitments,
            certified_set.accept_attestation,
            collecting.finish_commitments,
            counting.least_left,
            (CollectCoin,),
            (v.COMMITMENTS_CERTIFICATE,),
            "another board up to the commitments: two quorums share an honest party",
        ),
        CollectorRow(
            CollectCoin,
            collecting.accept_coin,
            collecting.finish_coin,
            collecting.all_coins,
            (CollectCoins,),
            (v.COINS,),
            "another coin of anybody",
        ),
        CollectorRow(
            CollectCoins,
            certified_set.accept_attestation,
            collecting.finish_coins,
            counting.least_left,
            (CollectPublish,),
            (v.COINS_CERTIFICATE,),
            "other noise of anybody",
        ),
        CollectorRow(
            CollectPublish,
            counting.accept_publish,
            counting.finish_publish,
            counting.least_left,
            (CollectExclusions, CollectTally),
            (v.PUBLICATIONS, v.TALLIED),
            "a publication that comes later",
        ),
        CollectorRow(
            CollectExclusions,
            certified_set.accept_attestation,
            counting.finish_exclusions,
            counting.least_left,
            (CollectOpen,),
            (v.EXCLUSIONS_CERTIFICATE,),
            "another set of those to whom edges are opened in this round",
            times=_rounds,
        ),
        CollectorRow(
            CollectOpen,
            counting.accept_open,
            counting.finish_open,
            counting.least_left,
            (CollectExclusions, CollectTally),
            (v.OPENINGS, v.TALLIED),
            "an opening that comes later",
            times=_rounds,
        ),
        CollectorRow(
            CollectTally,
            counting.accept_tally,
            counting.finish_tally,
            counting.least_left,
            (Tallied,),
            (v.CLOSED,),
            "anything: the run is over",
        ),
    ),
    longest=lambda aggregator: aggregator.parameters.most_heard_bytes,
    saved=True,
)


def aggregator(
    context: Context,
    parameters: VerifiableParameters,
    identity: Signer,
    *,
    threads: int = 1,
    watch: Watch | None = None,
    board: Board | None = None,
    fixed: FixedSurvivors | None = None,  # noqa: ARG001 - of exact sums
    last: SentResults | None = None,  # noqa: ARG001 - of runs without a log
) -> Run[Outcome]:
    """Return the state machine of the aggregator in verifiable GOPA; ConfigError without a board for its log.

    Args:
        context, parameters, identity: as of `smpc_dp.secagg.states.aggregator`.
        board: where the run is logged, and which has the session log.
        threads, watch: as of `VerifiableAggregator`.

    Raises:
        ConfigError: there is no board. LocalError: the session log on the board is damaged.
    """
    if board is None:
        raise ConfigError.at("board", "a verifiable run needs one", ConfigCheck.MISSING)
    runs = board.runs(context.session_digest, context.scope)
    member = VerifiableAggregator(context, parameters, identity, board, runs, threads, watch)
    return Run(AGGREGATOR, member, first_state(member.parties))
