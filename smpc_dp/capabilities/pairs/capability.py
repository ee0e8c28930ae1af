"""Two-party evaluations as a protocol of sessions, and statistics of pairs beside the sums of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from smpc_dp.capabilities.pairs.garbled.messages import PAIRWISE, VERSION
from smpc_dp.capabilities.pairs.ustatistic import messages as statistic
from smpc_dp.engine.session_protocol import Audit, Roles, SessionProtocol, Topology
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import BesideTask, Json, Task

if TYPE_CHECKING:
    from smpc_dp.capabilities.pairs.garbled.evaluation import Evaluation
    from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
    from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
    from smpc_dp.capabilities.pairs.requests.audit_certificate import CertificateReport
    from smpc_dp.capabilities.pairs.requests.convictions import Convictions
    from smpc_dp.capabilities.pairs.statistics.similarity import Similarities
    from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
    from smpc_dp.engine.run import Run
    from smpc_dp.identity.roster import Roster
    from smpc_dp.logs.auditing import LogAuditor
    from smpc_dp.logs.audits.log_watch import LogView
    from smpc_dp.logs.keeping import Board
    from smpc_dp.logs.log import Header
    from smpc_dp.report.document import Section
    from smpc_dp.session.member import Membership
    from smpc_dp.session.party_requests import PartyRequests
    from smpc_dp.wire.signing import Context


def _check(
    parameters: Mapping[str, object], parties: int
) -> tuple[PairwiseParameters | None, list[ConfigIssue]]:
    """Check the parameters of a session of two parties; return them, or None with the issues found."""
    from smpc_dp.capabilities.pairs.garbled.params import check_parameters

    return check_parameters(parameters, parties)


def _topology(_parameters: Mapping[str, object]) -> Topology:
    """Return "two", the connection topology of a session of two parties, whatever the parameters."""
    return "two"


def _task(_parameters: Mapping[str, object]) -> str:
    """Return "circuit", the kind of request that a two-party session serves, whatever the parameters."""
    return "circuit"


def _cost(_parameters: Any, _servers: int) -> None:
    """Return None: no cost is predicted for a session of two parties."""


def _tables() -> Roles:
    """Return the state machines (of a party, of the aggregator) of a pairwise statistic."""
    from smpc_dp.capabilities.pairs.ustatistic import states

    return states.PARTY, states.AGGREGATOR


def _check_run_id(context: Context, header: Header) -> None:
    """Raise VerificationError unless the run id in a log's header follows from its context."""
    from smpc_dp.capabilities.pairs.ustatistic.audit import check_run_id

    check_run_id(context, header)


def _auditor(*arguments: Any) -> LogAuditor:
    """Return an auditor that checks one log of a pairwise statistic; the arguments are passed on."""
    from smpc_dp.capabilities.pairs.ustatistic.audit import auditor

    return auditor(*arguments)


def _view() -> LogView:
    """Return the object that renders logs of pairwise statistics for people."""
    from smpc_dp.capabilities.pairs.log_view import StatisticView

    return StatisticView()


AUDIT = Audit(
    check_run_id=_check_run_id,
    auditor=_auditor,
    view=_view,
    planned=False,
    redraws=True,
)
"""Of statistics, which are requests in sessions of sums."""

PROTOCOLS = (
    SessionProtocol(
        name=PAIRWISE,
        versions={VERSION: _check},
        topology=_topology,
        task=_task,
        cost=_cost,
        tables={"pairwise": _tables},
        vectors=("pairwise", "covert", "active"),
    ),
)


class PairsTask(BesideTask):
    """Kind of session request for a statistic of pairs of records, with its audits and HTML report parts."""

    name: ClassVar[str] = "pairs"
    is_saved: ClassVar[bool] = True
    accuses: ClassVar[str] = statistic.CONVICTION
    audit: ClassVar[Audit] = AUDIT
    agreed: ClassVar[tuple[str, ...]] = ("value", "evidence")

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> StatisticResult:
        """Run a party's request for a statistic of pairs, and return the result."""
        from smpc_dp.capabilities.pairs.requests.pair_requests import request_statistic

        return await request_statistic(requests, *arguments, **named)

    def aggregator(
        self, context: Context, membership: Membership, board: Board, kernels: Sequence[Kernel]
    ) -> Run[Any]:
        """Return the aggregator's role in a request for a statistic of pairs, ready to run."""
        from smpc_dp.capabilities.pairs.requests.statistic import plan_maker
        from smpc_dp.capabilities.pairs.ustatistic import states

        corrupt: int = membership.parameters.plan.max_corrupt
        make = plan_maker(kernels)
        return states.aggregator(context, membership.identity, make, board=board, corrupt=corrupt)

    def audit_certificate(self, path: Path, session: str | None) -> CertificateReport:
        """Judge a certificate of cheating, by a session if given; report whom it convicts, if any."""
        from smpc_dp.capabilities.pairs.requests.audit_certificate import audit_certificate

        return audit_certificate(path, session)

    def convictions(self, folder: Path, roster: Roster) -> Convictions:
        """Judge all cheating certificates in a folder, and return the store of those that convict."""
        from smpc_dp.capabilities.pairs.requests.convictions import Convictions

        return Convictions(folder, roster)

    def has_log(self, session: SessionFile) -> bool:
        """Return whether the aggregator keeps a log: false in sessions with computing servers."""
        return session.topology != "servers"

    def views(self, session: SessionFile) -> list[str]:
        """Return which explanation of roles a report shows: "servers" or "pairs", by topology."""
        return ["servers" if session.topology == "servers" else "pairs"]

    def text(self, results: Mapping[str, Json]) -> str:
        """Return the one result of a pairwise statistic, given as JSON, as lines of text."""
        from smpc_dp.capabilities.pairs.commands.statistic_text import statistic_text

        return statistic_text(next(iter(results.values())))

    def title(self, result: Json) -> str:
        """Return the title of a report on a statistic of pairs."""
        return f"Statistic of pairs: {result['kernel']}"

    def own_sections(self, _session: SessionFile, result: Json) -> list[Section]:
        """Return the report sections that only a pairwise statistic has: its estimate."""
        from smpc_dp.report.sections import pairs_section

        return pairs_section(result)


class CircuitTask(Task):
    """Kind of request of a session: two parties evaluate a circuit on their private inputs."""

    name: ClassVar[str] = "circuit"

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> Evaluation:
        """Run a party's request to evaluate a circuit with another party; return the result."""
        from smpc_dp.capabilities.pairs.requests.pair_requests import request_evaluation

        return await request_evaluation(requests, *arguments, **named)

    def error_in_other_session(self, session: SessionFile) -> ConfigError:
        """Return the ConfigError for evaluating a circuit in a session of another kind."""
        reason = f"{session.protocol!r} is not an evaluation by two parties"
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)


class SimilaritiesTask(Task):
    """Kind of request of a session: noisy cosines between the vectors of each two parties."""

    name: ClassVar[str] = "similarities"

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> Similarities:
        """Run a party's request that compares its vector with all others'; return the noisy cosines."""
        from smpc_dp.capabilities.pairs.requests.pair_requests import request_similarities

        return await request_similarities(requests, *arguments, **named)


TASKS = (PairsTask(), CircuitTask(), SimilaritiesTask())
