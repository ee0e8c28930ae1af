"""Logs of a learner's verifiable averages: the groups of a session, the parameters of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from smpc_dp.capabilities.learn.written import is_verifiable
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.errors import Check, VerificationError
from smpc_dp.logs.audits.log_session import LogSession
from smpc_dp.seen import scope_of_group
from smpc_dp.session.session_file import SessionFile
from smpc_dp.wire.signing import group_operation

# Learners take long to load, and most sessions have none.
if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.registry import LearnParameters

# Most places in all groups together: an auditor draws them again, from a seed that a stranger wrote.
MOST_INDICES = 1 << 22


def check_schedule(parameters: Mapping[str, object], members: int) -> None:
    """Raise VerificationError for a learning session whose groups have no logs, or are too many.

    It is called before the parameters are planned: a stranger's session must not exhaust the memory.
    """
    # Not at the top: learners take long to load.
    from smpc_dp.capabilities.learn.registry import has_groups

    if not has_groups(parameters.get("learner")) or not is_verifiable(parameters):
        raise VerificationError("a run of 'learn' that is not verifiable", Check.NOT_VERIFIABLE)
    steps, group = parameters.get("steps"), parameters.get("group", members)
    if type(steps) is int and type(group) is int and steps * max(members, group) > MOST_INDICES:
        reason = (
            f"{steps} steps of {members} parties are too many for an audit: {MOST_INDICES} places at most"
        )
        raise VerificationError(reason, Check.NOT_VERIFIABLE)


def is_group(session: SessionFile, scope: str) -> bool:
    """Tell whether a hash in hex is that of a group of the session's learner."""
    groups = cast("LearnParameters", session.checked_parameters).groups
    if groups is None:
        return False
    names = session.roster.party_names
    return any(
        scope_of_group(session.digest, [names[party] for party in group]).hex() == scope
        for group in {tuple(each.tolist()) for each in groups}
    )


def group_of(
    session: LogSession, planned: LearnParameters, request: int, operation: str
) -> tuple[tuple[str, ...], SumParameters]:
    """Return a request's group of names and average's parameters; raise VerificationError if unlogged.

    `planned` are the session's parameters. Raises VerificationError for a request that is no verifiable
    average of the learner.
    """
    if (groups := planned.groups) is None:
        raise VerificationError(f"a run of '{session.protocol}' that is not verifiable", Check.NOT_VERIFIABLE)
    index, step = planned.average_of(request) or (len(groups), 0)
    if index >= len(groups) or planned.average is None:
        raise VerificationError(
            f"request {request} is no average of gradients in this session", Check.NOT_VERIFIABLE
        )
    names = tuple(session.names[int(party)] for party in groups[index])
    parameters = planned.average.plan(len(names))
    if not parameters.is_logged:
        raise VerificationError(f"a run of '{session.protocol}' that is not verifiable", Check.NOT_VERIFIABLE)
    if operation != group_operation(
        expected := f"{planned.requested('average')} {parameters.planned()}", names
    ):
        raise VerificationError(
            f"the parties asked for {operation!r}, not for {expected!r} of the group of step {step}",
            Check.OTHER_OPERATION,
        )
    return names, parameters
