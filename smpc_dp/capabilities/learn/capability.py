"""Learning as a protocol of sessions, whose averages and messages are requests by other protocols."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from smpc_dp.capabilities.learn.written import LEARN, METHODS, averager_of, averages_by
from smpc_dp.engine.registry import find_protocol
from smpc_dp.engine.session_protocol import Audit, SessionProtocol, Topology, no_servers
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues, PrivacyError
from smpc_dp.identity.roster import Member
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import SUM_OPTIONS, GivenInputs, Json, Ledgers, Task

if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.registry import LearnParameters
    from smpc_dp.capabilities.learn.requirements import Learned
    from smpc_dp.identity.roster import Role
    from smpc_dp.logs.audits.log_session import LogSession
    from smpc_dp.logs.log import Header
    from smpc_dp.report.document import Section
    from smpc_dp.session.connection import Connection
    from smpc_dp.session.events import OnEvent
    from smpc_dp.session.host import HostMember
    from smpc_dp.session.launcher import ProcessOutcome
    from smpc_dp.session.member import Membership
    from smpc_dp.session.party_requests import PartyRequests
    from smpc_dp.session.session_state import SessionState

# Averages of the method that alone has verifiable ones: sessions with them have logs of its protocol. None
# where its capability is absent.
LOGGED = find_protocol(METHODS["gopa"])
# A session's groups average in its version: it is `group_version` of GOPA's parameters.
VERSION = 4


def _check(
    version: int, parameters: Mapping[str, object], names: Sequence[str]
) -> tuple[LearnParameters | None, list[ConfigIssue]]:
    """Check a learner session's `[parameters]` by a version's rules; return them, or None with the faults."""
    # Learners take long to load: only sessions that learn load them.
    from smpc_dp.capabilities.learn.registry import check_learn_as

    return check_learn_as(version, parameters, names)


def _is_logged(parameters: Mapping[str, object]) -> bool:
    """Tell whether the protocol that averages for the learner writes public logs."""
    return LOGGED is not None and LOGGED.is_logged(averager_of(parameters))


def _topology(parameters: Mapping[str, object]) -> Topology:
    """Return the topology of the protocol that averages for the learner; "aggregator" if it is missing."""
    averages = averages_by(parameters)
    return "aggregator" if averages is None else averages.topology({})


def _roster_issues(
    protocol: str, parameters: Mapping[str, object], members: Sequence[Member]
) -> list[ConfigIssue]:
    """Return the faults that the averaging protocol of a learner finds in a roster's members."""
    averages = averages_by(parameters)
    check = no_servers if averages is None else averages.roster_issues
    return check(protocol, {}, members)


def _check_requests(parameters: Mapping[str, object], planned: Sequence[Any]) -> None:
    """Raise ConfigError if the protocol that averages for the learner cannot run these requests."""
    averages = averages_by(parameters)
    if averages is not None:
        averages.check_requests({}, planned)


async def _open_servers(
    membership: Membership, on_event: OnEvent, listen_on: str | None, state: SessionState | None
) -> Connection:
    """Open a party's connections to the mpyc servers that average for the learner."""
    averages: Any = averages_by(membership.session.parameters)
    connection: Connection = await averages.connections["servers"](membership, on_event, listen_on, state)
    return connection


def _task(_parameters: Mapping[str, object]) -> str:
    """Return "learner", the kind of task of these sessions."""
    return "learner"


def _check_logged(parameters: Mapping[str, object], members: int) -> None:
    """Raise VerificationError if the groups of the learner's schedule cannot have logs of their own."""
    from smpc_dp.capabilities.learn.requests.log_groups import check_schedule

    check_schedule(parameters, members)


def _group_of(session: LogSession, planned: Any, header: Header) -> tuple[tuple[str, ...], Any]:
    """Return the names of the group whose log has this header, and the parameters of its average."""
    from smpc_dp.capabilities.learn.requests.log_groups import group_of

    return group_of(session, planned, header.request, header.operation)


def _is_group(session: SessionFile, scope: str) -> bool:
    """Tell whether the hash in a log's header is that of a group of the learner's schedule."""
    from smpc_dp.capabilities.learn.requests.log_groups import is_group

    return is_group(session, scope)


def _unsaved(parameters: Mapping[str, object], planned: Any) -> str:
    """Return why a session with these parameters cannot be saved to disk and resumed, or "" if it can."""
    from smpc_dp.capabilities.learn.registry import sends_models, unsaved_learner

    if reason := unsaved_learner(parameters):
        return reason
    if sends_models(parameters):
        return ""
    averages = find_protocol(planned.protocol)
    if averages is None or averages.unsaved is None:
        return f"averages by '{planned.protocol}' are not saved yet"
    return averages.unsaved(averager_of(parameters), planned)


def _cost(_parameters: Any, _servers: int) -> None:
    """Return None: no cost is predicted for a learner's session."""


def _audit() -> Audit | None:
    """Return how to audit the logs of a learner's verifiable averages; None if the protocol is missing."""
    if LOGGED is None or LOGGED.audit is None:
        return None
    return replace(
        LOGGED.audit,
        protocol=LOGGED.name,
        certifies=(),
        check_session=_check_logged,
        group_of=_group_of,
        is_group=_is_group,
    )


def _audited() -> list[int]:
    """Return the earlier protocol versions of verifiable averages whose logs can be audited."""
    if LOGGED is None or LOGGED.audit is None:
        return []
    return [number for _, number in LOGGED.audit.certifies if number < VERSION]


def _checkers(versions: Iterable[int]) -> dict[int, Callable[..., Any]]:
    """Return the function that checks a learner's `[parameters]`, by protocol version."""
    return {number: functools.partial(_check, number) for number in versions}


PROTOCOLS = (
    SessionProtocol(
        name=LEARN,
        versions=_checkers((VERSION,)),
        audited=_checkers(_audited()),
        named=True,
        topology=_topology,
        is_logged=_is_logged,
        task=_task,
        roster_issues=_roster_issues,
        check_requests=_check_requests,
        connections={"servers": _open_servers},
        unsaved=_unsaved,
        audit=_audit(),
        cost=_cost,
    ),
)


class LearnerTask(Task):
    """Kind of session that runs a learner, which itself makes the requests for averages and messages."""

    name: ClassVar[str] = "learner"
    is_saved: ClassVar[bool] = True
    refused: ClassVar[frozenset[str]] = SUM_OPTIONS | {"--requests", "--statistic", "--labels"}
    refusal: ClassVar[str] = "is not for a session that learns"
    on_leaving: ClassVar[str] = (
        "A party that has no further step leaves, and the aggregator reports that as a loss too."
    )

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> Learned:
        """Run a party's learner, which makes all requests, and return what it has learned."""
        from smpc_dp.capabilities.learn.requests.learning import learn_once

        return await learn_once(requests, *arguments, **named)

    def error_of_other_request(self, _session: SessionFile) -> ConfigError:
        """Return the error that a learning session was asked for a sum of its own."""
        reason = (
            "'learn' has no sums: parties call Session.learn, and smpc-dp party or "
            "smpc_dp.capabilities.learn.requests.learning.serve_learning runs the aggregator"
        )
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    def error_in_other_session(self, session: SessionFile) -> ConfigError:
        """Return the error that a learner was started in a session of another kind."""
        return ConfigError.at("protocol", f"is '{session.protocol}', not 'learn'", ConfigCheck.UNSUPPORTED)

    def check_inputs(self, session: SessionFile, given: GivenInputs) -> None:
        """Read all parties' tables; raise ConfigError with every fault found in them."""
        checked, issues = cast("LearnParameters", session.checked_parameters), Issues()
        for name, file in given.files.items():
            try:
                checked.read(file, name)
            except ConfigError as error:
                issues += error.issues
        issues.raise_issues()

    def check_ledgers(self, session: SessionFile, ledgers: Mapping[str, Path]) -> None:
        """Raise PrivacyError naming the parties whose ledgers have too little budget for all steps.

        Else those that do would be charged for a run that cannot end.
        """
        from smpc_dp.capabilities.learn.requests.learning import check_budget
        from smpc_dp.session.charging import open_ledger

        checked, refused = cast("LearnParameters", session.checked_parameters), []
        for party, (name, file) in enumerate(ledgers.items()):
            try:
                check_budget(open_ledger(file, name), checked, party)
            except PrivacyError as error:
                refused.append(str(error))
        if refused:
            raise PrivacyError("; ".join(refused))

    def ends_run(self, session: SessionFile) -> str | None:
        """Return the member whose end ends a run: the first server, else the aggregator; or None."""
        servers = session.roster.servers
        return servers[0].name if servers else super().ends_run(session)

    async def serve(
        self, host: HostMember, _role: Role, _requests: int | None, _results: list[Any]
    ) -> list[str]:
        """Run the aggregator or a server for all groups' averages; return the errors of those that failed."""
        from smpc_dp.capabilities.learn.requests.learning import serve_learning

        failures = await serve_learning(
            host.session,
            name=host.name,
            key=host.key,
            listen_on=host.listen,
            on_event=host.watch,
            board=host.board,
            web=host.web,
            state=host.state,
        )
        return [f"request {request}: {reason}" for request, reason in failures.items()]

    async def serve_opened(
        self, membership: Membership, opening: AbstractAsyncContextManager[Any], on_event: OnEvent
    ) -> dict[int, str]:
        """Serve all steps on an open connection; return failed groups' errors by request number."""
        from smpc_dp.capabilities.learn.requests.learning import serve_steps

        return await serve_steps(membership, opening, on_event)

    async def contribute(
        self, host: HostMember, _membership: Membership, _options: Mapping[str, Any], results: list[Any]
    ) -> None:
        """Run the learner on the party's table, and append the result to `results`."""
        from smpc_dp.capabilities.learn.requests.learning import learn

        learned = await learn(
            host.session,
            host.name,
            host.input_file,
            key=host.key,
            ledger=host.ledger,
            on_event=host.watch,
            web=host.web,
            state=host.state,
        )
        results.append(learned)

    def has_log(self, _session: SessionFile) -> bool:
        """Return False: a learning session has no one log; each average may have its own."""
        return False

    def text(self, results: Mapping[str, Json]) -> str:
        """Return, as lines of text, what the parties have learned."""
        from smpc_dp.capabilities.learn.commands.learn import learned_text

        return learned_text(results)

    def print_run(
        self,
        session: SessionFile,
        outcomes: Mapping[str, ProcessOutcome],
        results: Mapping[str, dict[str, Any]],
        planned: Sequence[str],
        *,
        as_json: bool,
        out: Path | None,
    ) -> bool:
        """Print what parties have learned; return False if writing to `out` fails; exit if none learned."""
        from smpc_dp.capabilities.learn.commands.learn import report_learned

        pool = self.ends_run(session)
        return report_learned(outcomes, pool, results, planned, as_json=as_json, out=out)

    def title(self, result: Json) -> str:
        """Return the title of a report on a learner's result."""
        return f"Learning: {result['learner']}"

    def sections(self, _session: SessionFile, results: Mapping[str, Json], ledgers: Ledgers) -> list[Section]:
        """Return the report's sections about what was learned and its privacy."""
        from smpc_dp.report.sections import learned_privacy, learned_section

        return [*learned_section(results), *learned_privacy(results, *ledgers())]

    def counted(self, results: Mapping[str, Json]) -> int:
        """Return the number of parties that have learned a model."""
        return len(results)

    def privacy(self, result: Json) -> Json:
        """Return epsilon, delta and the protected unit of all steps of a learner together, as JSON."""
        guarantee: Json = result["guarantee"] or {"epsilon": None, "delta": None, "protects": None}
        return {**guarantee, "unit": guarantee["protects"]}


TASKS = (LearnerTask(),)
