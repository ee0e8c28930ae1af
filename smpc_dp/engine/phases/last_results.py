"""Last results of an aggregator: the next `start` names them, the same to all.

A party that holds another result of a run that is named refuses, with two signatures that contradict each
other. Specification: protocols/secagg/README.md, "Last results".
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping

import msgspec

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.identity.keys import verify
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode

KEY_BYTES = 32
# A key, which names the run to those who know its id, and the digest of the result.
ENTRY_BYTES = 2 * KEY_BYTES
NONCE_BYTES = 32


class SentResults:
    """Entry of the last result that an aggregator has sent to each party of a session.

    `random` draws `nonce`, which makes the run ids of this process differ from those of every other one;
    `entries`: of earlier requests, by party.
    """

    def __init__(self, random: Randomness | None = None, entries: Mapping[str, bytes] | None = None) -> None:
        self.nonce = (random or SystemRandomness()).bytes(NONCE_BYTES)
        self._entries = dict(entries or {})

    def add(self, context: Context, run_id: bytes, body_hash: bytes, names: Iterable[str]) -> None:
        """Record the result of a run, before it is sent to these parties; `body_hash`: SHA-256."""
        self.record(dict.fromkeys(names, b"".join(_entry(context.bound, run_id, body_hash))))

    def record(self, entries: Mapping[str, bytes]) -> None:
        """Record entries, by party; a subclass stores them."""
        self._entries |= entries

    def named(self, names: Iterable[str]) -> bytes:
        """Return the entries of the last results of these parties, each once, in their order."""
        entries = self._entries
        return b"".join(sorted({entries[name] for name in names if name in entries}))


class Held(msgspec.Struct, frozen=True, array_like=True):
    """Result of a run as a party holds it: what the aggregator's signature is of.

    Attributes:
        protocol, version: of the run, as its hashes have them.
        step: of the message; body_hash: SHA-256 of its body; signature: of its envelope.
    """

    protocol: bytes
    version: bytes
    run_id: bytes
    step: str
    body_hash: bytes
    signature: bytes

    @property
    def entry(self) -> tuple[bytes, bytes]:
        """Key and digest of the result."""
        return _entry((self.protocol, self.version), self.run_id, self.body_hash)


class HeldResult:
    """Last result that a party has accepted in a session.

    Attributes:
        held: None before the first.
        refusal: evidence of the refusal after which the party takes part in no further sum; empty without.
    """

    def __init__(self, held: Held | None = None, refusal: Mapping[str, bytes] | None = None) -> None:
        self.held = held
        self.refusal = dict(refusal or {})

    def hold(self, held: Held) -> None:
        """Record the result that is held; a subclass stores it."""
        self.held = held

    def record_refusal(self, evidence: Mapping[str, bytes]) -> None:
        """Record the evidence of a refusal; a subclass stores it."""
        self.refusal = dict(evidence)

    def check_open(self, aggregator: str) -> None:
        """Raise PeerFault after a refusal."""
        if self.refusal:
            # A new one: an error that is raised again has all frames, and their values, of both times.
            raise _contradiction(aggregator, self.refusal)

    def check(self, context: Context, named: bytes) -> str:
        """Compare the held result with the entries of `start`.

        Returns a warning if none is of its run. Raises PeerFault, with its signature, if one is and differs.
        """
        held, aggregator = self.held, context.aggregator
        self.check_open(aggregator)
        if held is None:
            return ""
        key, own = held.entry
        other = dict(_entries(named)).get(key)
        if other is None:
            return f"{aggregator} does not name the run whose result this party holds"
        if other != own:
            evidence = {
                "result protocol": held.protocol,
                "result version": held.version,
                "result run id": held.run_id,
                "result step": held.step.encode(),
                "result": held.body_hash,
                "result signature": held.signature,
            }
            raise _contradiction(aggregator, evidence)
        return ""


def are_sound(named: bytes, parties: int) -> bool:
    """Tell whether bytes are at most so many entries, keys strictly ascending."""
    if len(named) % ENTRY_BYTES or len(named) > ENTRY_BYTES * parties:
        return False
    keys = [key for key, _ in _entries(named)]
    return all(before < after for before, after in itertools.pairwise(keys))


def check_contradiction(key: bytes, evidence: Mapping[str, bytes]) -> None:
    """Check that an aggregator has signed a result of a run, and a `start` that names another one of it.

    `key`: the aggregator's Ed25519 key; `evidence`: of a PeerFault whose check is "other-result".

    Raises VerificationError if the evidence does not show that.
    """
    try:
        start = decode(evidence["message"], Envelope, "")
        step, run_id, body_hash = evidence["result step"], evidence["result run id"], evidence["result"]
        bound = evidence["result protocol"], evidence["result version"]
        named = decode(start.body, m.FollowingStart, "").named
        signatures = [
            (bound, (run_id, step, body_hash), evidence["result signature"]),
            (
                (evidence["message protocol"], evidence["message version"]),
                (start.run_id, start.step.encode(), hashlib.sha256(start.body).digest()),
                start.signature,
            ),
        ]
    except (KeyError, PeerFault) as error:
        raise VerificationError(f"the evidence is malformed: {error}", Check.MALFORMED) from None
    if start.step != m.START or step not in {each.encode() for each in m.RESULTS}:
        raise VerificationError("the evidence is of other messages", Check.UNEXPECTED_STEP)
    members = start.sender.encode(), start.receiver.encode()
    for (protocol, version), (run, step, hashed), signature in signatures:
        verify(key, digest(Label.ENVELOPE, protocol, version, run, step, *members, hashed), signature)
    own, shown = _entry(bound, run_id, body_hash), dict(_entries(named))
    if shown.get(own[0], own[1]) == own[1]:
        raise VerificationError("start does not name another result of the run", Check.OTHER_RESULT)


def _contradiction(aggregator: str, evidence: Mapping[str, bytes]) -> PeerFault:
    """Return the fault of an aggregator that has signed two results of a run."""
    reason = "names another result than it has sent to this party: both are signed"
    return PeerFault(aggregator, reason, Check.OTHER_RESULT, evidence)


def _entry(bound: tuple[bytes, bytes], run_id: bytes, body_hash: bytes) -> tuple[bytes, bytes]:
    """Return key and digest of a result; `bound`: protocol and version of its run."""
    return digest(Label.LAST_RUN, *bound, run_id), digest(Label.LAST_RESULT, *bound, run_id, body_hash)


def _entries(named: bytes) -> list[tuple[bytes, bytes]]:
    """Return key and digest of each entry."""
    return [
        (named[at : at + KEY_BYTES], named[at + KEY_BYTES : at + ENTRY_BYTES])
        for at in range(0, len(named), ENTRY_BYTES)
    ]
