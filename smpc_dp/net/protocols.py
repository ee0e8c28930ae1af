"""The protocols of sessions: those of sums and pairs, learners, and local reports."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from smpc_dp.protocols.descriptor import DESCRIPTORS, Descriptor, later
from smpc_dp.protocols.names import AUDITED_VERSION, LEARN, REPORTS, VERIFIABLE_VERSION, VERSION
from smpc_dp.protocols.registry import versions_of


def _learner(version: int) -> Descriptor:
    # Learners take long to load: only sessions that learn load them.
    check = functools.partial(later("smpc_dp.learn.registry", "check_learn_as"), version)
    return Descriptor(protocol=LEARN, version=version, check=check, named=True, requires_aggregator=True)


# What stands above the protocols of sums.
_ABOVE = (
    _learner(VERSION),
    _learner(VERIFIABLE_VERSION),
    Descriptor(
        protocol=REPORTS,
        check=later("smpc_dp.statistics.report_parameters", "check_reports"),
        requires_aggregator=True,
        cost=later("smpc_dp.statistics.report_parameters", "cost_of_report"),
    ),
)
# Of the earlier version of verifiable sessions.
_BEFORE = (
    replace(
        DESCRIPTORS["gopa-verifiable"],
        version=AUDITED_VERSION,
        check=functools.partial(later("smpc_dp.protocols.gopa.check", "check_for_version"), AUDITED_VERSION),
        audited_only=True,
    ),
    replace(_learner(AUDITED_VERSION), audited_only=True),
)
SESSIONS: Mapping[tuple[str, int], Descriptor] = {
    (one.protocol, one.version): one
    for one in (*DESCRIPTORS.values(), *_ABOVE, *_BEFORE)
    if one.check is not None
}


def session_protocols(protocol: str) -> Mapping[tuple[str, int], Descriptor]:
    """Return all of this package, and those that another one registers by this name; raises LocalError."""
    if any(name == protocol for name, _ in SESSIONS):
        return SESSIONS
    return {**SESSIONS, **{(protocol, version): one for version, one in versions_of(protocol).items()}}


def session_protocol(protocol: str, version: int) -> Descriptor | None:
    """Return the protocol of a session, None if it is unknown; raises LocalError."""
    return session_protocols(protocol).get((protocol, version))
