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
    """An aggregator's record of the last result sent to each party, to be named in the next run.

    `random` draws `nonce`, which makes the run ids of this process differ from those of every other one;
    `entries`: of earlier requests, by party.
    """

    def __init__(self, random: Randomness | None = None, entries: Mapping[str, bytes] | None = None) -> None:
        self.nonce = (random or SystemRandomness()).bytes(NONCE_BYTES)
        self._entries = dict(entries or {})

    def add(self, context: Context, run_id: bytes, body_hash: bytes, names: Iterable[str]) -> None:
        """Record a run's result by its SHA-256, for these parties, before it is sent."""
        self.record(dict.fromkeys(names, b"".join(_entry(context.bound, run_id, body_hash))))

    def record(self, entries: Mapping[str, bytes]) -> None:
        """Store the encoded results that were sent, by party; a subclass also saves them to disk."""
        self._entries |= entries

    def named(self, names: Iterable[str]) -> bytes:
        """Return the distinct encoded entries of these parties' last results, in sorted order."""
        entries = self._entries
        return b"".join(sorted({entries[name] for name in names if name in entries}))


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A run's result as a party keeps it for later checks: message hash and aggregator's signature.

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
        """The key and the digest of the result, to compare with what the aggregator names."""
        return _entry((self.protocol, self.version), self.run_id, self.body_hash)


class HeldResult:
    """A party's record of the last result that it accepted in a session, to check the next run.

    Attributes:
        held: None before the first.
        refusal: evidence of the refusal after which the party takes part in no further sum; empty without.
    """

    def __init__(self, held: Held | None = None, refusal: Mapping[str, bytes] | None = None) -> None:
        self.held = held
        self.refusal = dict(refusal or {})

    def hold(self, held: Held) -> None:
        """Store a result that the party has accepted; a subclass also saves it to disk."""
        self.held = held

    def record_refusal(self, evidence: Mapping[str, bytes]) -> None:
        """Store evidence of a refused result, which ends the session; a subclass saves it."""
        self.refusal = dict(evidence)

    def check_open(self, aggregator: str) -> None:
        """Raise PeerFault if the party has refused a result before, so that the session is over."""
        if self.refusal:
            # A new one: an error that is raised again has all frames, and their values, of both times.
            raise _contradiction(aggregator, self.refusal)

    def check(self, context: Context, named: bytes) -> str:
        """Return a warning if no named result is of the held one's run, else ""; PeerFault if it differs.

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
    """Tell whether bytes are well-formed entries of results, at most `parties`, with ascending keys."""
    if len(named) % ENTRY_BYTES or len(named) > ENTRY_BYTES * parties:
        return False
    keys = [key for key, _ in _entries(named)]
    return all(before < after for before, after in itertools.pairwise(keys))


def check_contradiction(key: bytes, evidence: Mapping[str, bytes]) -> None:
    """Raise VerificationError unless evidence shows that an aggregator signed two results of one run.

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
    """Return the PeerFault, with evidence, that an aggregator has signed two results of a run."""
    reason = "names another result than it has sent to this party: both are signed"
    return PeerFault(aggregator, reason, Check.OTHER_RESULT, evidence)


def _entry(bound: tuple[bytes, bytes], run_id: bytes, body_hash: bytes) -> tuple[bytes, bytes]:
    """Return the key and the digest that stand for a run's result."""
    return digest(Label.LAST_RUN, *bound, run_id), digest(Label.LAST_RESULT, *bound, run_id, body_hash)


def _entries(named: bytes) -> list[tuple[bytes, bytes]]:
    """Return the key and the digest of each entry in the bytes."""
    return [
        (named[at : at + KEY_BYTES], named[at + KEY_BYTES : at + ENTRY_BYTES])
        for at in range(0, len(named), ENTRY_BYTES)
    ]
