"""The aggregator's signed result of a run, and what binds the run: the evidence of a total for others.

It has no secret. Specification: protocols/secagg/signed-results.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from smpc_dp.wire.sets import PartySet

VERSION = 1


class RunStart(msgspec.Struct, frozen=True):
    """Values of a run's start that its id depends on: the parties present, and the root over nonces.

    Where no log is kept, also the aggregator's nonce and the last results that it names.
    """

    present: PartySet
    root: bytes
    nonce: bytes = b""
    named: bytes = b""

    @property
    def following(self) -> tuple[bytes, ...]:
        """The aggregator's nonce and the last results that it names; () in runs with a public log."""
        return (self.nonce, self.named) if self.nonce else ()

    def to_json(self) -> dict[str, object]:
        """Return the values of a run's start (parties present, nonces' root) as JSON data, bytes as hex."""
        return {
            "present": self.present.packed.hex(),
            "root": self.root.hex(),
            "nonce": self.nonce.hex(),
            "named": self.named.hex(),
        }


class RunRoots(msgspec.Struct, frozen=True):
    """Values that all parties of a run agreed on early: its start, who advertised keys, and Merkle roots.

    `values_root` binds the commitments to vectors; empty where totals are not checked.
    """

    start: RunStart
    advertised: PartySet
    root: bytes
    values_root: bytes = b""

    @property
    def roots(self) -> tuple[bytes, ...]:
        """The Merkle roots over keys and, if totals are checked, over commitments to vectors."""
        return (self.root, self.values_root) if self.values_root else (self.root,)

    def to_json(self) -> dict[str, object]:
        """Return who advertised keys and the Merkle roots as JSON data, bytes as hex."""
        return {
            "advertised": self.advertised.packed.hex(),
            "root": self.root.hex(),
            "values_root": self.values_root.hex() or None,
        }


@dataclass(frozen=True, slots=True)
class SignedResult:
    """Evidence of a result: the aggregator's signed message with the total, and the run's values.

    `body` is the same for all receivers; a large one is a read-only view of the message.
    """

    request: int
    operation: str
    roots: RunRoots
    receiver: str
    body: bytes = field(repr=False)
    signature: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        # No view is pickled.
        values = (self.request, self.operation, self.roots, self.receiver, bytes(self.body), self.signature)
        return SignedResult, values

    def to_json(self) -> dict[str, object]:
        """Return the aggregator's signed message and the run's values as JSON data, bytes as hex."""
        return {
            "version": VERSION,
            "request": self.request,
            "operation": self.operation,
            "start": self.roots.start.to_json(),
            "roll": self.roots.to_json(),
            "receiver": self.receiver,
            "body": self.body.hex(),
            "signature": self.signature.hex(),
        }
