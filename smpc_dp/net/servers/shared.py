"""Sessions with servers: checks of their programs, the privacy event of a sum, and bounds on messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from smpc_dp.net.servers.programs import charge_of, compile_operation
from smpc_dp.protocols.secret_sharing.agreement import MakeTerms
from smpc_dp.protocols.secret_sharing.messages import MAX_OPERATION
from smpc_dp.protocols.secret_sharing.params import RECORDS, SharedParameters
from smpc_dp.protocols.secret_sharing.terms import MODULUS_BITS, ProgramTerms
from smpc_dp.statistics.shared.pairs import MAX_PARTNERS

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.protocols.records import RecordParameters

# Bytes of one message of the bridge.
PIECE = 1 << 18
# Bytes of an opened integer and its index in a message, in decimal; of a fault; of half a pair's output.
OUTPUT_BYTES, FAULT_BYTES, PAIR_BYTES = 2 * MODULUS_BITS[-1] // 6, 32, 8


def check_programs(planned: Sequence[SharedParameters]) -> None:
    """Raise ConfigError for sums that are impossible."""
    for parameters in planned:
        if parameters.encoding is not None:
            compile_operation(parameters, parameters.operations[0], parameters.parties, (), b"")


def terms_maker(parameters: SharedParameters) -> MakeTerms:
    """Return the function that makes the terms of a party's operation."""

    def terms(operation: str, parties: int, public_labels: tuple[int, ...], seed: bytes) -> ProgramTerms:
        return compile_operation(parameters, operation, parties, public_labels, seed).terms

    return terms


def sum_event(parameters: SharedParameters) -> Event:
    """Return the privacy event of one sum, or of one request for statistics of records."""
    if parameters.program in RECORDS:
        return cast("RecordParameters", parameters).event()
    return charge_of(compile_operation(parameters, "sum", parameters.parties, (), b""))


def largest_message(parameters: SharedParameters, servers: int) -> int:
    """Return a bound in bytes on any message of a run: an operation, a record's shares, opened values."""
    values = 64 if parameters.encoding is None else parameters.encoding.ring_length
    parties = parameters.parties
    # A server gives a reason for missing shares; the output has all servers' reasons, for few parties.
    faults = max(parties, (parties - parameters.fewest) * servers) * FAULT_BYTES
    each = 64 + MAX_PARTNERS * PAIR_BYTES
    return (64 << 10) + MAX_OPERATION + PIECE + values * OUTPUT_BYTES + parties * each + faults
