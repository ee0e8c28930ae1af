"""Last results of an aggregator: the next `start` names them, the same to all.

A party that holds another result of a run that is named refuses, with two signatures that contradict each
other. Specification: protocols/secagg/README.md, "Last results".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from smpc_dp.engine.phases.keys import result_digest, result_key
from smpc_dp.errors import Check, PeerFault
from smpc_dp.wire.signing import Context

KEY_BYTES = 32
# A key, which names the run to those who know its id, and the digest of the result.
ENTRY_BYTES = 2 * KEY_BYTES


class SentResults:
    """Entry of the last result that an aggregator has sent to each party of a session.

    `entries`: of earlier requests, by party.
    """

    def __init__(self, entries: Mapping[str, bytes] | None = None) -> None:
        self._entries = dict(entries or {})

    def add(self, context: Context, run_id: bytes, body_hash: bytes, names: Iterable[str]) -> None:
        """Record the result of a run, before it is sent to these parties; `body_hash`: SHA-256."""
        entry = result_key(context, run_id) + result_digest(context, run_id, body_hash)
        self.record(dict.fromkeys(names, entry))

    def record(self, entries: Mapping[str, bytes]) -> None:
        """Record entries, by party; a subclass stores them."""
        self._entries |= entries

    def named(self, names: Iterable[str]) -> bytes:
        """Return the entries of the last results of these parties, each once, in their order."""
        entries = self._entries
        return b"".join(sorted({entries[name] for name in names if name in entries}))


class Held(msgspec.Struct, frozen=True, array_like=True):
    """Signed result of a run: its entry, and what the aggregator's signature is of.

    Attributes:
        step: of the message; body_hash: SHA-256 of its body; signature: of its envelope.
    """

    key: bytes
    digest: bytes
    run_id: bytes
    step: str
    body_hash: bytes
    signature: bytes


class HeldResult:
    """Last result that a party has accepted in a session.

    Attributes:
        held: None before the first.
        refusal: the error after which the party takes part in no further run; None if there is none.
    """

    def __init__(self, held: Held | None = None, refusal: PeerFault | None = None) -> None:
        self.held = held
        self.refusal = refusal

    def take(self, context: Context, run_id: bytes, step: str, body_hash: bytes, signature: bytes) -> None:
        """Hold the result of a run."""
        key, digest = result_key(context, run_id), result_digest(context, run_id, body_hash)
        self.hold(Held(key, digest, run_id, step, body_hash, signature))

    def hold(self, held: Held) -> None:
        """Record the result that is held; a subclass stores it."""
        self.held = held

    def check(self, context: Context, named: bytes) -> str:
        """Compare the held result with the entries of `start`.

        Returns a warning if none is of its run. Raises PeerFault, with its signature, if one is and differs.
        """
        held, aggregator = self.held, context.aggregator
        if held is None:
            return ""
        digest = dict(entries_of(named)).get(held.key)
        if digest is None:
            return f"{aggregator} does not name the last result that it has sent to this party"
        if digest != held.digest:
            evidence = {
                "result run id": held.run_id,
                "result step": held.step.encode(),
                "result": held.body_hash,
                "result signature": held.signature,
            }
            raise contradiction(aggregator, evidence)
        return ""

    def refuse(self, refusal: PeerFault) -> None:
        """Record a refusal, with all of its evidence; a subclass stores it."""
        self.refusal = refusal


def contradiction(aggregator: str, evidence: Mapping[str, bytes]) -> PeerFault:
    """Return the fault of an aggregator that has signed two results of a run."""
    reason = "names another result than it has sent to this party: both are signed"
    return PeerFault(aggregator, reason, Check.OTHER_RESULT, evidence)


def entries_of(named: bytes) -> list[tuple[bytes, bytes]]:
    """Return key and digest of each entry."""
    return [
        (named[at : at + KEY_BYTES], named[at + KEY_BYTES : at + ENTRY_BYTES])
        for at in range(0, len(named), ENTRY_BYTES)
    ]


def are_sound(named: bytes, parties: int) -> bool:
    """Tell whether bytes are at most so many entries, keys strictly ascending."""
    if len(named) % ENTRY_BYTES or len(named) > ENTRY_BYTES * parties:
        return False
    keys = [key for key, _ in entries_of(named)]
    return all(before < after for before, after in itertools.pairwise(keys))
