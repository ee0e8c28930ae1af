"""An auditor's check of the entries' signatures, in batches by other workers."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from smpc_dp.errors import Check, VerificationError
from smpc_dp.logs.log import Entry
from smpc_dp.wire.batch_verifier import BatchVerifier, Position, Workers
from smpc_dp.wire.signing import Context, Verifier

# Bytes held of a signature until it is checked.
_HELD_BYTES = 256


class _Signed(NamedTuple):
    """A log entry's statement with key and signature, queued to be verified."""

    party: str
    kind: str
    key: bytes
    statement: bytes
    signature: bytes


class SignatureAudit:
    """Queue that verifies, for an auditor, that parties have signed the log entries that name them."""

    def __init__(self, context: Context, run_id: bytes, workers: Workers) -> None:
        self._context, self._run_id = context, run_id
        self.checks: BatchVerifier[_Signed] = BatchVerifier(
            functools.partial(workers.shard, "signatures of the log", _faults, context.verify)
        )

    def add(self, position: Position, entry: Entry) -> None:
        """Queue a log entry's signature check; raise VerificationError if its party is unknown."""
        key = self._context.keys.get(entry.party)
        if key is None:
            raise VerificationError(
                f"an entry '{entry.kind}' in the name of {entry.party} is not in the roster",
                Check.NOT_IN_ROSTER,
            )
        body_hash = hashlib.sha256(entry.payload).digest()
        relay = self._context.aggregator
        statement = self._context.statement(self._run_id, entry.kind, entry.party, relay, body_hash)
        signature = bytes.fromhex(entry.signature)
        self.checks.add(position, _Signed(entry.party, entry.kind, key, statement, signature), _HELD_BYTES)


def _faults(verify: Verifier, statements: Sequence[_Signed]) -> list[VerificationError | None]:
    """Verify a batch of signatures; return an error for each wrong one and None for each right one."""
    return [_fault(verify, signed) for signed in statements]


def _fault(verify: Verifier, signed: _Signed) -> VerificationError | None:
    """Verify one signature; return the error if it is wrong, or None."""
    try:
        verify(signed.key, signed.statement, signed.signature)
    except VerificationError:
        # It says nothing about the party: anyone may have written it.
        reason = f"an entry '{signed.kind}' in the name of {signed.party}"
        return VerificationError(f"{reason} was not signed by it", Check.BAD_SIGNATURE)
    return None
