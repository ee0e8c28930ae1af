"""Auditor of verifiable runs written from protocols/gopa/verifiable.md and protocols/log/README.md alone.

For tests. `Audit` takes the parties of the vectors: two coordinates with bounds 0 to 4, or of their own, and
12 bits each, or a norm of at most 5 and the bits that the session plans for it; a quorum of 4 of 5. Or those
of another `Shape`: `NINE` is that of the runs with rounds of openings. On a sparse graph the proofs of some
parties may have to do.

`SessionLog` reads the list of all runs of a session; `shown` checks what a party is shown of it.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from functools import cache
from math import isqrt
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.reference import proofs_twin, ristretto
from tests.reference.merkle_twin import tuple_hash, uint
from tests.reference.proofs_twin import Refused, committed, decode_point, decode_scalar, total
from tests.reference.secagg_twin import party_set


class Shape(NamedTuple):
    """What a session decides; and whose proofs are verified, None: everybody's."""

    length: int = 2
    upper: int = 4
    bits: int = 12
    quorum: int = 4
    proven: frozenset[str] | None = None


NINE = Shape(1, 2, 4, 6)
# By the bound on the squares, if there is one.
BITS = {None: 12, 25: 64}
# The logs have most statements in common, and a proof takes a good part of a second here.
verify_noise, verify_range = cache(proofs_twin.verify_noise), cache(proofs_twin.verify_range)
verify_norm = cache(proofs_twin.verify_norm)
ORDER = (
    ("certify-begin", True),
    ("commit", False),
    ("certify-commitments", True),
    ("coin", False),
    ("certify-coins", True),
    ("publish", False),
    ("tally", True),
    ("certify-tally", True),
)


def hashed(label: str, *parts: bytes) -> bytes:
    return tuple_hash(label, *parts)


def required(truth: object, reason: str) -> None:
    if not truth:
        raise Refused(reason)


def integers(packed: bytes, length: int) -> list[int]:
    required(len(packed) == 8 * length, "a vector has another length")
    return [int.from_bytes(packed[i : i + 8], "little", signed=True) for i in range(0, len(packed), 8)]


def unpacked(body: bytes) -> Any:
    """Return what is in MessagePack, or None if it is not in its canonical spelling."""
    try:
        fields = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, ValueError):
        return None
    return fields if msgspec.msgpack.encode(fields) == body else None


class Audit:
    """Reads the lines of a log; `excluded` and `total` are what it found."""

    def __init__(self, lines: list[str], shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        header = json.loads(lines[0])
        session = json.loads(header["session"])
        required(header["format"] == "smpc-dp board" and header["version"] == 2, "format")
        bound = session["parameters"].get("l2_bound")
        self.squared = None if bound is None else int(bound**2)
        self.bits = BITS[self.squared] if shape is None else shape.bits
        # What is committed to is the vector, x_hat counts from the lowest value on the grid.
        self.centre = 0 if bound is None else int(bound)
        self.lowest = -self.centre
        self.range: tuple[Any, Any] = (0, self.shape.upper)
        highest = self.shape.upper if bound is None else 2 * int(bound)
        if bound is None and isinstance(session["parameters"]["lower"], list):
            # A box: what is committed to counts from the lowest value of all coordinates.
            lower, upper = session["parameters"]["lower"], session["parameters"]["upper"]
            self.lowest = min(lower)
            self.range = tuple(v - self.lowest for v in lower), tuple(v - self.lowest for v in upper)
            highest = max(upper) - self.lowest
        parties = [member for member in session["roster"] if member["role"] == "party"]
        [relay] = [member["name"] for member in session["roster"] if member["role"] == "aggregator"]
        self.names = [member["name"] for member in parties]
        self.relay = relay
        self.keys = {
            member["name"]: Ed25519PublicKey.from_public_bytes(bytes.fromhex(member["public_key"]))
            for member in session["roster"]
        }
        present, root = (b64decode(header[key]) for key in ("present", "root"))
        self.bound = (b"gopa", uint(2))
        required(session["version"] == 2, "version")
        # No noise is 40 standard deviations out.
        pair = int(header["question"].split("/")[-1], 16)
        self.most_delta = 40 * (1 + isqrt(pair))
        self.most_x_hat = highest + self.bits + 40 * (1 + isqrt(len(parties) * pair))
        digest = hashed("session-digest", header["session"].encode())
        # No groups of learners here: the scope is the session.
        first = (hashed("session-log", digest).hex(), bytes(32).hex())
        self.digest, self.number, self.request = digest, header["number"], header["request"]
        required(header["number"] > 1 or (header["runs"], header["before"]) == first, "the first run")
        self.present = self._set(present)
        self.run = hashed(
            "star-run-id",
            *self.bound,
            digest,
            uint(header["request"]),
            header["question"].encode(),
            present,
            root,
        )
        required(self.run.hex() == header["run_id"], "run id")
        self.session_head = hashed(
            "session-log-line",
            bytes.fromhex(header["runs"]),
            uint(header["number"]),
            uint(header["request"]),
            self.run,
            bytes.fromhex(header["before"]),
        )
        self.head = hashed("board-header", lines[0].encode())
        self.excluded: dict[str, str] = {}
        self.total: list[int] = []
        self.void: list[tuple[str, str]] = []
        self._order = list(ORDER)
        self._entries: dict[str, dict[Any, Any]] = {kind: {} for kind, _ in ORDER}
        # Rounds of openings: who is known to be false, who owes which edges, and Delta that was opened.
        self.rounds = 0
        self._known: set[str] = set()
        self._owed: dict[str, set[str]] = {}
        self._opened: dict[tuple[str, str], list[int]] = {}
        self._simulated = 0
        for number, line in enumerate(lines[1:], start=1):
            self._take(number, json.loads(line))
        required(self._simulated == len(self._order), "no end")

    def _signed(self, step: str, name: str, body: bytes, signature: bytes, run: bytes | None = None) -> None:
        statement = hashed(
            "envelope",
            *self.bound,
            run or self.run,
            step.encode(),
            name.encode(),
            self.relay.encode(),
            hashlib.sha256(body).digest(),
        )
        try:
            self.keys[name].verify(signature, statement)
        except InvalidSignature:
            raise Refused(f"signature of {name}") from None

    def _take(self, number: int, entry: dict[str, Any]) -> None:
        required(entry["sequence"] == number and entry["previous"] == self.head.hex(), "chain")
        name, kind, body = entry["party"], entry["kind"], b64decode(entry["payload"])
        signature = bytes.fromhex(entry["signature"])
        self._signed(kind, name, body, signature)
        suffix = "" if self.rounds == 0 else f"-{self.rounds + 1}"
        if kind == "certify-exclusions" + suffix and self._order[self._simulated][0][:4] in ("publ", "open"):
            self.rounds += 1
            self._order[self._simulated + 1 : self._simulated + 1] = [(kind, True), ("open" + suffix, False)]
        while self._simulated < len(self._order) and self._order[self._simulated][0] != kind:
            required(not self._order[self._simulated][1], "order")
            self._simulated += 1
        required(self._simulated < len(self._order), "order")
        required((name == self.relay) == self._order[self._simulated][1], "who")
        fields = unpacked(body)
        parties = kind.startswith(("commit", "publish", "open"))
        required(fields is not None or parties, "not canonical")
        getattr(self, "_" + kind.rstrip("-0123456789").replace("-", "_"))(name, fields)
        self._simulated += self._order[self._simulated][1]
        digest = hashed(
            "board-entry",
            uint(number),
            name.encode(),
            kind.encode(),
            hashlib.sha256(body).digest(),
            signature,
        )
        self.head = hashed("board-head", self.head, digest)

    def _context(self, name: str) -> bytes:
        return hashed("proof-context", self.run, name.encode())

    def _proven(self, name: str) -> bool:
        return self.shape.proven is None or name in self.shape.proven

    def _commit(self, name: str, fields: list[Any]) -> None:
        try:
            value, proof, secret, coin, neighbours, edges = fields
            peers = [int.from_bytes(neighbours[i : i + 2], "little") for i in range(0, len(neighbours), 2)]
            required(len(coin) == 32 and len(edges) == 32 * len(peers), "length")
            required(sorted({*peers}) == peers and self.names.index(name) + 1 not in peers, "neighbours")
            points = {self.names[peer - 1]: edges[32 * i : 32 * i + 32] for i, peer in enumerate(peers)}
            for point in (value, secret, *points.values()):
                decode_point(point)
            lows, highs = ((b,) * self.shape.length if isinstance(b, int) else b for b in self.range)
            digits = sum((high - low).bit_length() for low, high in zip(lows, highs, strict=True))
            expected = 32 * (2 * (digits - 1).bit_length() + 6)
            required(self.squared is not None or len(proof) == expected, "length")
        except (Refused, TypeError, ValueError, IndexError):
            self.excluded[name] = "commit-malformed"
            return
        try:
            if self._proven(name) and self.squared is None:
                verify_range(self._context(name), value, self.shape.length, *self.range, proof)
            elif self._proven(name):
                verify_norm(self._context(name), value, self.shape.length, self.squared, proof)
        except Refused:
            self.excluded[name] = "range" if self.squared is None else "norm"
        self._entries["commit"][name] = {"value": value, "secret": secret, "coin": coin, "edges": points}

    def _set(self, packed: bytes) -> list[str]:
        if packed[:1] == b"\1":
            out = {int.from_bytes(packed[i : i + 2], "little") for i in range(1, len(packed), 2)}
            return [name for i, name in enumerate(self.names, 1) if i not in out]
        bits = int.from_bytes(packed[1:], "big") >> (-len(self.names) % 8)
        return [name for i, name in enumerate(reversed(self.names)) if bits >> i & 1][::-1]

    def _certify_begin(self, _name: str, fields: list[Any]) -> None:
        self._certify("attest-begin", fields, self.present, head=self.session_head)

    def _certify(
        self,
        step: str,
        fields: list[Any],
        going_on: list[str] | None = None,
        *false: bytes,
        head: bytes = b"",
        run: bytes | None = None,
    ) -> None:
        members, signers, signatures = fields
        inside = self.participants if going_on is None else going_on
        required(members == party_set([self.names.index(n) + 1 for n in inside], len(self.names)), "members")
        parts = (run or self.run, step.encode(), head or self.head, members, *false)
        attested = hashed("board-attestation", *self.bound, *parts)
        who = self._set(signers)
        required(len(who) >= self.shape.quorum and set(who) <= set(inside), "quorum")
        for i, name in enumerate(who):
            signature = signatures[64 * i : 64 * i + 64]
            self._signed(step, name, msgspec.msgpack.encode([attested]), signature, run)

    def certify_list(self, run: bytes, head: bytes, members: bytes, signers: bytes, signed: bytes) -> None:
        """Check the signatures on a head of the session log, after the line of a run."""
        present = self._set(members)
        required(len(signed) == 64 * len(self._set(signers)), "one signature for each signer")
        self._certify("attest-begin", [members, signers, signed], present, head=head, run=run)

    def _certify_commitments(self, _name: str, fields: list[Any]) -> None:
        commits = self._entries["commit"]
        self.participants = [name for name in self.names if name in commits and name not in self.excluded]
        self._known = {*self.excluded}
        self.packed = party_set([self.names.index(n) + 1 for n in self.participants], len(self.names))
        self.edges: dict[str, dict[str, bytes]] = {}
        for name in self.participants:
            self.edges[name] = {
                peer: edge
                for peer, edge in commits[name]["edges"].items()
                if peer in self.participants
                and name in commits[peer]["edges"]
                # (4.5)
                and ristretto.encode(total([decode_point(edge), decode_point(commits[peer]["edges"][name])]))
                == bytes(32)
            }
        self.void = [
            (name, peer)
            for name in self.participants
            for peer in self.participants
            if name < peer
            and (peer in commits[name]["edges"] or name in commits[peer]["edges"])
            and peer not in self.edges[name]
        ]
        self._certify("attest-commitments", fields)

    def _coin(self, name: str, fields: list[Any]) -> None:
        expected = self._entries["commit"][name]["coin"]
        required(
            hashed("coin-commitment", *self.bound, self.run, name.encode(), fields[0]) == expected, "coin"
        )
        self._entries["coin"][name] = fields[0]

    def _certify_coins(self, _name: str, fields: list[Any]) -> None:
        coins = self._entries["coin"]
        required(list(coins) == self.participants, "coins")
        self.combined = hashed("coins", *self.bound, self.run, self.packed, b"".join(coins.values()))
        self._certify("attest-coins", fields)

    def _refused(self, fields: Any) -> str:
        """Tell what is false in a publication before any proof is looked at."""
        try:
            x_hat, blinding, noise, proof = fields
            values = integers(x_hat, self.shape.length)
            decode_scalar(blinding)
            decode_point(noise)
            required(len(proof) == 32 * (2 * (self.shape.length * self.bits - 1).bit_length() + 5), "length")
        except (Refused, TypeError, ValueError):
            return "malformed"
        return "bounds" if max(map(abs, values)) > self.most_x_hat else ""

    def _publish(self, name: str, fields: list[Any]) -> None:
        required(name in self.participants, "participant")
        if false := self._refused(fields):
            self.excluded[name] = false
            self._entries["publish"][name] = []
            return
        x_hat, blinding, noise, proof = fields
        commits = self._entries["commit"][name]
        seed = hashed("coin-bits", *self.bound, self.run, self.combined, name.encode())
        length, bits = self.shape.length, self.bits
        stream = bytearray(hashlib.shake_256(seed).digest(-(-length * bits // 8)))
        stream[-1] &= 0xFF >> (-length * bits % 8)
        coins = bytes(stream)
        try:
            if self._proven(name):
                verify_noise(self._context(name), commits["secret"], noise, length, bits, coins, proof)
        except Refused:
            self.excluded[name] = "noise"
        # (4.4)
        shown = total([decode_point(p) for p in (commits["value"], noise, *self.edges[name].values())])
        expected = committed(
            [value - self.centre for value in integers(x_hat, length)], decode_scalar(blinding)
        )
        if name not in self.excluded and ristretto.encode(shown) != ristretto.encode(expected):
            self.excluded[name] = "sum"
        self._entries["publish"][name] = integers(x_hat, length)

    def _good(self) -> list[str]:
        return [name for name in self._entries["publish"] if name not in self.excluded]

    def _certify_exclusions(self, _name: str, fields: list[Any]) -> None:
        fresh, good = {*self.excluded} - self._known, self._good()
        required(fresh, "a round without a reason")
        self._known |= fresh
        self._owed = {name: fresh & {*self.edges[name]} for name in good}
        false = b"".join(index.to_bytes(2, "little") for index, n in enumerate(self.names, 1) if n in fresh)
        self._certify(
            "attest-exclusions" + ("" if self.rounds == 1 else f"-{self.rounds}"), fields, good, false
        )

    def _false_opening(self, name: str, fields: Any) -> str:
        """Take an opening, or tell what is false in it."""
        size = 8 * self.shape.length
        try:
            parties, deltas, blindings = fields
            numbers = [int.from_bytes(parties[i : i + 2], "little") for i in range(0, len(parties), 2)]
            required(len(parties) % 2 == 0 and sorted({*numbers}) == numbers, "list")
            required(all(1 <= number <= len(self.names) for number in numbers), "list")
            required(len(deltas) == size * len(numbers) and len(blindings) == 32 * len(numbers), "length")
        except (Refused, TypeError, ValueError):
            return "opening-malformed"
        peers = [self.names[number - 1] for number in numbers]
        if {*peers} != self._owed[name]:
            return "opening-other"
        required(peers, "an opening of nothing")
        opened, wrong = {}, False
        for i, peer in enumerate(peers):
            delta = integers(deltas[size * i : size * (i + 1)], self.shape.length)
            if max(map(abs, delta)) > self.most_delta:
                return "opening-bounds"
            try:
                point = committed(delta, decode_scalar(blindings[32 * i : 32 * i + 32]))
            except Refused:
                return "opening-malformed"
            wrong |= ristretto.encode(point) != self.edges[name][peer]
            opened[name, peer] = delta
        if wrong:
            return "opening"
        self._opened |= opened
        return ""

    def _open(self, name: str, fields: Any) -> None:
        required(name in self._owed and name not in self.excluded, "opens, and is out")
        if false := self._false_opening(name, fields):
            self.excluded[name] = false

    def _tally(self, _name: str, fields: list[Any]) -> None:
        counted, published, residual = fields
        good = self._good()
        required({*self.excluded} == self._known, "no edges opened to who was shown false")
        required(counted == party_set([self.names.index(n) + 1 for n in good], len(self.names)), "counted")
        values = [self._entries["publish"][name] for name in good]
        opened = [delta for (name, _), delta in self._opened.items() if name in good]
        self.total = [sum(v[i] for v in values) - sum(d[i] for d in opened) for i in range(self.shape.length)]
        required(integers(published, self.shape.length) == self.total, "total")
        left = sum(
            (name, peer) not in self._opened for name in good for peer in self.edges[name] if peer not in good
        )
        required(left == residual == 0, "residual pairs")

    def _certify_tally(self, _name: str, fields: list[Any]) -> None:
        self._certify("attest-tally", fields)


class Line(NamedTuple):
    """A run in a session log."""

    request: int
    run: bytes
    before: bytes


class Seen(NamedTuple):
    """What a party keeps: the last line that it signed, the last run that it saw end, each with its head."""

    number: int
    head: bytes
    closed: int
    closed_head: bytes


FIRST = {"format": str, "version": int, "session": bytes, "scope": bytes}
RUN = {"number": int, "request": int, "run_id": bytes, "before": bytes}
CERTIFIED = {"certifies": int, "protocol": str, "version": int, "members": b64decode, "signers": b64decode}
CERTIFIED |= {"signatures": b64decode}


def spelt(line: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line, digests as bytes; they are all there, in this order, in one spelling."""
    try:
        result = json.loads(line)
        required(list(result) == list(fields), "the format")
        required(json.dumps(result, separators=(",", ":")) == line, "the format")
        for name, kind in fields.items():
            value = result[name]
            if kind is bytes:
                result[name] = bytes.fromhex(value)
                required(len(result[name]) == 32 and result[name].hex() == value, "the format")
            elif kind is b64decode:
                result[name] = b64decode(value)
                required(b64encode(result[name]).decode() == value, "the format")
            else:
                required(type(value) is kind and (kind is str or value >= 0), "the format")
    except (ValueError, TypeError):
        raise Refused("the format") from None
    return dict(result)


def next_head(head: bytes, number: int, line: Line) -> bytes:
    return hashed("session-log-line", head, uint(number), uint(line.request), line.run, line.before)


class SessionLog:
    """The list of all runs of a session, read from its lines; Refused says which check refuses it."""

    def __init__(self, lines: list[str]) -> None:
        required(lines, "the format")
        first = spelt(lines[0], FIRST)
        required((first["format"], first["version"]) == ("smpc-dp session log", 1), "the format")
        self.session, self.scope = first["session"], first["scope"]
        self.runs: list[Line] = []
        self.heads = [hashed("session-log", self.scope)]
        self.certified: dict[str, Any] | None = None
        expected = False
        for line in lines[1:]:
            if line.startswith('{"certifies"'):
                self.certified = spelt(line, CERTIFIED)
                required(expected and self.certified["certifies"] == len(self.runs), "the order of lines")
                expected = False
                continue
            fields = spelt(line, RUN)
            required(fields["number"] == len(self.runs) + 1, "the order of lines")
            self.runs.append(Line(fields["request"], fields["run_id"], fields["before"]))
            self.heads.append(next_head(self.heads[-1], len(self.runs), self.runs[-1]))
            expected = True

    def check(self, audit: Audit) -> None:
        """Check that the list has the run of a log, with this end, and that a quorum has signed that."""
        number = audit.number
        required(self.session == self.scope == audit.digest, "the session and its scope")
        required(self.heads[number : number + 1] == [audit.session_head], "the run is a line")
        after = self.runs[number : number + 1]
        required(not after or after[0].before == audit.head, "the end of the run before")
        try:
            required(self.certified is not None, "no certificate")
            result: dict[str, Any] = self.certified or {}
            last = result["certifies"]
            required(last >= number and (result["protocol"], result["version"]) == ("gopa", 2), "which")
            signed = (result["members"], result["signers"], result["signatures"])
            audit.certify_list(self.runs[last - 1].run, self.heads[last], *signed)
        except Refused:
            raise Refused("the quorum's signatures on the head") from None

    def select(
        self, audit: Audit, run: bytes | None = None, request: int | None = None, head: bytes | None = None
    ) -> tuple[int, int, bool]:
        """Tell which try of how many a run is, and whether what a party has from its result selects it."""
        required(request in (None, audit.request), "the request that was given")
        required(run in (None, audit.run), "the run that was given")
        self.check(audit)
        number = audit.number
        tries = [index for index, line in enumerate(self.runs, 1) if line.request == audit.request]
        index, last = tries.index(number) + 1, number == tries[-1]
        own = head in (audit.head, audit.session_head)
        required(head is None or own or head in self.heads[number:], "the head that was given")
        later = head in self.heads[number + 1 :] and request is not None and last
        return index, len(tries), run is not None or own or later


def shown(seen: Seen, scope: bytes, body: bytes, request: int, run: bytes) -> bytes:
    """Return the head that a party signs which is shown a list, or refuse it."""
    fields = unpacked(body)
    required(fields is not None and fields[2], "the format")
    base, listed = fields[0], [Line(*line) for line in fields[2]]
    head: bytes = fields[1]
    required(listed[-1][:2] == (request, run), "this run is last")
    required(base + len(listed) > seen.number, "what the party has signed")
    required(not seen.number or base <= seen.number, "what the party has signed")
    required(base or head == hashed("session-log", scope), "the session and its scope")
    for number, line in enumerate(listed, base + 1):
        required(
            not seen.number or number != seen.number + 1 or head == seen.head, "what the party has signed"
        )
        if number == 1:
            required(line.before == bytes(32), "the end of the run before")
        if seen.closed:
            ended = number != seen.closed + 1 or line.before == seen.closed_head
            required(ended, "the end of the run before")
        head = next_head(head, number, line)
    return head
