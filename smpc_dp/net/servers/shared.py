"""Sessions with servers: their programs, what a sum is to a ledger, and how long messages are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from smpc_dp.net.servers.programs import charge_of, compile_operation
from smpc_dp.protocols.secret_sharing.agreement import MakeTerms
from smpc_dp.protocols.secret_sharing.messages import MAX_OPERATION
from smpc_dp.protocols.secret_sharing.params import SharedParameters
from smpc_dp.protocols.secret_sharing.terms import MODULUS_BITS, ProgramTerms
from smpc_dp.statistics.shared.pairs import MAX_PARTNERS

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

# Bytes of one message of the bridge.
PIECE = 1 << 18
# Bytes of an opened integer and its place in a message, in decimal; of a fault; of half a pair's output.
OUTPUT_BYTES, FAULT_BYTES, PAIR_BYTES = 2 * MODULUS_BITS[-1] // 6, 32, 8


def check_programs(planned: Sequence[SharedParameters]) -> None:
    """Raise ConfigError for sums that cannot be computed."""
    for parameters in planned:
        if parameters.encoding is not None:
            compile_operation(parameters, "sum", parameters.parties, (), b"")


def terms_maker(parameters: SharedParameters) -> MakeTerms:
    """Return what makes the terms of what a party asks for."""

    def terms(operation: str, parties: int, public_labels: tuple[int, ...], seed: bytes) -> ProgramTerms:
        return compile_operation(parameters, operation, parties, public_labels, seed).terms

    return terms


def sum_event(parameters: SharedParameters) -> Event:
    """Return what one sum is to a privacy ledger."""
    return charge_of(compile_operation(parameters, "sum", parameters.parties, (), b""))


def largest_message(parameters: SharedParameters, servers: int) -> int:
    """Return a bound in bytes on any message of a run: an operation, a record's shares, what is opened."""
    values = 64 if parameters.encoding is None else parameters.encoding.ring_length
    parties = parameters.parties
    # A server says why it lacks a party's shares; what is opened has all servers' reasons, for few parties.
    faults = max(parties, (parties - parameters.fewest) * servers) * FAULT_BYTES
    each = 64 + MAX_PARTNERS * PAIR_BYTES
    return (64 << 10) + MAX_OPERATION + PIECE + values * OUTPUT_BYTES + parties * each + faults
