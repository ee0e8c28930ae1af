"""Sessions with servers: hellos to them, checks of their programs, and the privacy event of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from smpc_dp.capabilities.servers.requests.programs import charge_of, compile_operation
from smpc_dp.capabilities.servers.secret_sharing.agreement import MakeTerms
from smpc_dp.capabilities.servers.secret_sharing.messages import HELLO, Hello
from smpc_dp.capabilities.servers.secret_sharing.params import RECORDS, SharedParameters
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.session.asked import HelloKind

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.parameters import RecordParameters

SHARED_HELLO = HelloKind(HELLO, Hello)


def check_programs(planned: Sequence[SharedParameters]) -> None:
    """Raise ConfigError if servers could not compute a planned sum; do nothing without sums."""
    for parameters in planned:
        if parameters.encoding is not None:
            compile_operation(parameters, parameters.operations[0], parameters.parties, (), b"")


def terms_maker(parameters: SharedParameters) -> MakeTerms:
    """Return the function that compiles a party's operation to the terms that all members compare."""

    def terms(operation: str, parties: int, public_labels: tuple[int, ...], seed: bytes) -> ProgramTerms:
        return compile_operation(parameters, operation, parties, public_labels, seed).terms

    return terms


def sum_event(parameters: SharedParameters) -> Event:
    """Return the privacy event that a ledger charges for one sum or statistic of records."""
    if parameters.program in RECORDS:
        return cast("RecordParameters", parameters).event()
    return charge_of(compile_operation(parameters, "sum", parameters.parties, (), b""))
