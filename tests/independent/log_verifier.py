"""A verifier of logs of verifiable averages, written from protocols/log/README.md alone, without the library.

It checks spelling, order, chain, signatures, certificates, coins and the total. It checks no zero-knowledge
proof, so it takes from the certificates who is excluded. It reads no logs of learners' groups.
"""

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from Crypto.Hash import SHA256, TupleHash256
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

LIMIT = 1 << 24
HEADER = "format:text version:int session:text request:int question:text number:int runs:hash before:hash"
HEADER += " present:base64 root:base64 run_id:hash"
ENTRY = "sequence:int previous:hash party:name kind:name payload:base64 signature:signature"
PATTERNS = {"name": "[a-z0-9][a-z0-9_.-]{0,62}", "hash": "[0-9a-f]{64}", "signature": "[0-9a-f]{128}"}
PATTERNS |= {"text": "(?s:.*)", "base64": "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"}
QUESTION = re.compile("(?s:.* )?(0|[1-9a-f][0-9a-f]*)/(0|[1-9a-f][0-9a-f]*)")
STEPS = ["", "certify-begin", "commit", "certify-commitments", "coin", "certify-coins", "publish"]
TALLY = 1 << 62  # the rank of `tally`; it is even, so that only `certify-tally` can follow


class Refused(Exception):
    pass


def need(holds: object, what: str) -> None:
    if not holds:
        raise Refused(what)


def H(label: str, *parts: bytes) -> bytes:  # noqa: N802 - its name on the page
    state = TupleHash256.new(digest_bytes=32, custom=b"smpc-dp/1/" + label.encode())
    for part in parts:
        state.update(part)
    return state.digest()


def uint(n: int) -> bytes:
    return n.to_bytes(8, "big")


def read_value(value: Any, kind: str) -> Any:
    if kind == "int":
        need(type(value) is int and 0 <= value < 1 << 62, "not an integer from 0 to 2^62 - 1")
        return value
    need(isinstance(value, str) and re.fullmatch(PATTERNS[kind], value), f"a {kind} of another form")
    if kind == "base64":
        decoded = base64.b64decode(value)
        need(base64.b64encode(decoded).decode() == value, "base64 of another spelling")
        return decoded
    return bytes.fromhex(value) if kind in ("hash", "signature") else value


def read_line(line: bytes, form: str) -> dict[str, Any]:
    need(len(line) <= LIMIT, "the line is too long")
    try:
        read = json.loads(line.decode())
        same = json.dumps(read, separators=(",", ":"), ensure_ascii=False).encode() == line
    except (ValueError, RecursionError) as error:
        raise Refused(f"no JSON in UTF-8: {error}") from None
    need(same and isinstance(read, dict), "JSON of another spelling, or no object")
    types = dict(item.split(":") for item in form.split())
    need(list(types) == list(read), "other fields than specified")
    return {name: read_value(read[name], kind) for name, kind in types.items()}


def read_fields(payload: bytes, *sizes: int) -> list[Any]:
    """Return byte strings (0: of any size; -1: an integer), or [] if malformed."""
    try:
        read = msgspec.msgpack.decode(payload, type=list[bytes | int])
    except (msgspec.MsgspecError, RecursionError):
        return []
    good = len(read) == len(sizes) and msgspec.msgpack.encode(read) == payload
    for value, size in zip(read, sizes, strict=False):
        is_bytes = isinstance(value, bytes) and (len(value) == size or size == 0)
        good = good and (is_bytes or (isinstance(value, int) and size == -1 and value >= 0))
    return read if good else []


def read_list(data: bytes, n: int) -> list[int] | None:
    """Return a list of parties, or None for a malformed one."""
    read = [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]
    good = len(data) % 2 == 0 and read == sorted(set(read)) and all(1 <= i <= n for i in read)
    return read if good else None


def write_list(parties: Iterable[int]) -> bytes:
    return b"".join(i.to_bytes(2, "little") for i in sorted(parties))


def read_set(data: bytes, n: int) -> frozenset[int]:
    width, everyone = -(-n // 8), frozenset(range(1, n + 1))
    bits = int.from_bytes(data[1:], "big")
    absent: list[int] | None = [i for i in sorted(everyone) if not bits >> (8 * width - i) & 1]
    if data[:1] == b"\x01":
        absent = read_list(data[1:], n)
    parties = everyone - set(absent or ())
    bits = sum(1 << (8 * width - i) for i in parties)
    short = 2 * (n - len(parties)) < width
    encoded = b"\x01" + write_list(everyone - parties) if short else b"\x00" + bits.to_bytes(width, "big")
    need(data == encoded, "a set of another spelling")
    return parties


@dataclass
class Run:
    """What the header fixes, and what the entries have shown so far."""

    keys: dict[str, bytes]
    aggregator: str
    parties: list[str]
    quorum: int
    digest: bytes
    bound: tuple[bytes, bytes]
    run_id: bytes = b""
    session_head: bytes = b""
    head: bytes = b""
    entries: int = 0
    last: tuple[int, int] = (0, 0)  # rank and author of the last entry
    said: dict[int, dict[int, list[Any]]] = field(default_factory=dict)  # by rank and party; []: malformed
    present: frozenset[int] = frozenset()
    participants: frozenset[int] = frozenset()
    counted: frozenset[int] | None = None  # members of the last certificate of exclusions
    total: list[int] = field(default_factory=list)
    residual: int = 0

    @property
    def complete(self) -> bool:
        return self.last[0] == TALLY + 1

    def check_signature(self, step: str, sender: str, payload: bytes, signature: bytes) -> None:
        parts = step.encode(), sender.encode(), self.aggregator.encode(), SHA256.new(payload).digest()
        try:
            key = Ed25519PublicKey.from_public_bytes(self.keys[sender])
            key.verify(signature, H("envelope", *self.bound, self.run_id, *parts))
        except (InvalidSignature, ValueError):
            raise Refused(f"the signature of {sender} as {step} is false") from None

    def check_certificate(self, step: str, certificate: list[bytes], head: bytes, *more: bytes) -> None:
        members, signers = (read_set(encoded, len(self.parties)) for encoded in certificate[:2])
        need(signers <= members and len(signers) >= self.quorum, "the signers are no quorum of the members")
        need(len(certificate[2]) == 64 * len(signers), "not one signature of each signer")
        signed = H("board-attestation", *self.bound, self.run_id, step.encode(), head, certificate[0], *more)
        for i, signer in enumerate(sorted(signers)):
            signature = certificate[2][64 * i : 64 * i + 64]
            self.check_signature(step, self.parties[signer - 1], b"\x91\xc4\x20" + signed, signature)


def read_session(text: str) -> Run:
    try:
        session = json.loads(text)
        spelt = json.dumps(session, sort_keys=True, separators=(",", ":"), allow_nan=False)
        need(spelt == text, "a session of another spelling")
        need(list(session) == ["parameters", "protocol", "roster", "version"], "a session with other fields")
        parameters, roster = session["parameters"], session["roster"]
        kind = session["protocol"], session["version"], parameters.get("verifiable")
        need(
            kind in [("gopa", version, True) for version in (2, 3, 4, 5)],
            "a session without verifiable averages",
        )
        keys: dict[str, bytes] = {}
        roles: dict[str, list[str]] = {"aggregator": [], "party": []}
        for member in roster:
            expected = {"name", "role", "public_key", "certificate"}
            own = {"address", "checkpoint_key"} if member["role"] == "aggregator" else {"address"}
            need(set(member) - own == expected, "a member with other fields")
            name, key = read_value(member["name"], "name"), read_value(member["public_key"], "hash")
            need(name not in keys and key not in keys.values(), "two members of one name or key")
            keys[name] = key
            roles[member["role"]].append(name)
        parties = roles["party"]
        need(
            len(roles["aggregator"]) == 1 and 0 < len(parties) <= 10_000, "not one aggregator, or no parties"
        )
        default = max(0.1, 1 / len(parties)) if session["version"] > 4 and len(parties) > 2 else 0.1
        colluders = int(parameters.get("corrupt", default) * len(parties) + 1e-9)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Refused(f"the session is malformed: {error!r}") from None
    quorum = (len(parties) + colluders) // 2 + 1
    bound = (b"gopa", uint(session["version"]))
    return Run(keys, roles["aggregator"][0], parties, quorum, H("session-digest", text.encode()), bound)


def read_header(line: bytes) -> Run:
    top = read_line(line, HEADER)
    need((top["format"], top["version"]) == ("smpc-dp board", 2), "another format or version")
    asked = QUESTION.fullmatch(top["question"]) and len(top["question"]) <= 1024
    need(asked, "not the question of a verifiable average")
    run = read_session(top["session"])
    request, number, runs, before = uint(top["request"]), top["number"], top["runs"], top["before"]
    run.present = read_set(top["present"], len(run.parties))
    question = top["question"].encode()
    run.run_id = H("star-run-id", *run.bound, run.digest, request, question, top["present"], top["root"])
    need(run.run_id == top["run_id"], "the run id is not the hash of what it binds")
    first = runs == H("session-log", run.digest) and before == bytes(32)
    need(number > 1 or (number == 1 and first), "the number is 0, or the first run has something before it")
    run.head = H("board-header", line)
    run.session_head = H("session-log-line", runs, uint(number), request, run.run_id, before)
    return run


def rank(kind: str) -> int:
    """Return the place of a kind in the order; odd places are certificates."""
    if kind in STEPS:
        return STEPS.index(kind)
    if kind in ("tally", "certify-tally"):
        return TALLY + (kind == "certify-tally")
    found = re.fullmatch("(certify-exclusions|open)(?:-([2-9]|[1-9][0-9]+))?", kind)
    if not found:
        raise Refused("an unknown kind")
    return 5 + 2 * int(found[2] or 1) + (found[1] == "open")


def read_entry(run: Run, line: bytes) -> None:
    entry = read_line(line, ENTRY)
    need(not run.complete, "an entry after the last one")
    need(entry["sequence"] == run.entries + 1, "the sequence number is not the next one")
    need(entry["previous"] == run.head, "`previous` is not the head of the lines above")
    name, kind, payload, signature = (entry[key] for key in ("party", "kind", "payload", "signature"))
    place, last = rank(kind), run.last[0]
    follows = place in (last + last % 2, last + 1 + last % 2) or (place == TALLY and 5 <= last < TALLY)
    need(follows, "the kind is out of order")
    author = 0
    if place % 2 or place == TALLY:
        need(name == run.aggregator and place > last, "not by the aggregator, or a second one")
    else:
        need(name in run.parties, "not by a party")
        author = run.parties.index(name) + 1
        need((place, author) > run.last, "parties are out of order, or one repeats")
    run.check_signature(kind, name, payload, signature)
    if author:
        run.said.setdefault(place, {})[author] = read_message(run, place, author, payload)
    elif place == TALLY:
        read_tally(run, read_fields(payload, 0, 0, -1))
    else:
        read_certificate(run, place, kind, read_fields(payload, 0, 0, 0))
    parts = name.encode(), kind.encode(), SHA256.new(payload).digest(), signature
    run.head = H("board-head", run.head, H("board-entry", uint(run.entries + 1), *parts))
    run.entries, run.last = run.entries + 1, (place, author)


def read_message(run: Run, place: int, author: int, payload: bytes) -> list[Any]:
    """Return a party's message, or [] for a malformed one."""
    due = run.present if place == 2 else run.participants if place < 7 else run.counted or ()
    need(author in due, "the author is not due to speak")
    if place == 4:
        coin, commit = read_fields(payload, 32), run.said[2][author]
        need(coin, "not a coin")
        expected = H("coin-commitment", *run.bound, run.run_id, run.parties[author - 1].encode(), coin[0])
        need(expected == commit[3], "not the coin that the author committed to")
        return coin
    if place == 6:
        message = read_fields(payload, 0, 32, 32, 0)
        return message if message and len(message[0]) % 8 == 0 else []
    message = read_fields(payload, 32, 0, 32, 32, 0, 0) if place == 2 else read_fields(payload, 0, 0, 0)
    others = read_list(message[4 if place == 2 else 0], len(run.parties)) if message else None
    good = others is not None and len(message[-1]) == 32 * len(others)
    return message if good and not (place == 2 and author in (others or ())) else []


def read_certificate(run: Run, place: int, kind: str, certificate: list[bytes]) -> None:
    need(certificate, "not a certificate")
    members, more = read_set(certificate[0], len(run.parties)), [run.head]
    if place == 1:
        need(members == run.present, "the members are not those present")
        more = [run.session_head]
    elif place == 3:
        commits = run.said.get(2, {})
        need(all(commits.get(i) for i in members), "a participant has no commitment, or a malformed one")
        run.participants = members
    elif place in (5, TALLY + 1):
        need(members == run.participants, "the members are not the participants")
        need(members == frozenset(run.said.get(4, {})), "a participant has no coin")
    else:
        judged = run.said.get(place - 1, {})
        before = frozenset(judged) if place == 7 else run.counted or frozenset()
        shown = before - members
        need(members <= before and shown and shown <= set(judged), "not members of before less some authors")
        malformed = {i for i, message in judged.items() if not message}
        need(malformed <= shown, "a party is not excluded for a malformed statement")
        run.counted = members
        more.append(write_list(shown))
    run.check_certificate(kind.replace("certify", "attest"), certificate, *more)


def read_tally(run: Run, tally: list[Any]) -> None:
    need(tally and len(tally[1]) % 8 == 0, "not a tally")
    n, size, published = len(run.parties), len(tally[1]), run.said.get(6, {})
    counted = frozenset(published) if run.counted is None else run.counted
    need(read_set(tally[0], n) == counted, "not the set of those to be counted")
    terms = [(1, published[i][:1], size) for i in counted]
    neighbours = {i: set(read_list(run.said[2][i][4], n) or ()) for i in run.participants}
    left = {(i, j) for i in counted for j in neighbours[i] & run.participants - counted if i in neighbours[j]}
    for openings in (openings for place, openings in run.said.items() if place >= 8):
        for i in counted & set(openings):
            opened = read_list(b"".join(openings[i][:1]), n) or []
            need(opened, "a counted opening is malformed, or of nothing")
            left -= {(i, j) for j in opened}
            terms.append((-1, openings[i][1:2], size * len(opened)))
    sums = [0] * (size // 8)
    for sign, term, due in terms:
        need(term and len(term[0]) == due, "a counted statement is malformed")
        for i in range(0, due, 8):
            sums[i % size // 8] += sign * int.from_bytes(term[0][i : i + 8], "little")
    total = b"".join((x % (1 << 64)).to_bytes(8, "little") for x in sums)
    need(total == tally[1], "the total is not the sum")
    need(tally[2] <= len(left), "more residual pairs than edges to parties that are not counted")
    run.total = [(x + (1 << 63)) % (1 << 64) - (1 << 63) for x in sums]
    run.residual = tally[2]


def verify(lines: Iterable[bytes]) -> Run:
    """Check a run's log, or raise `Refused` with the line; `complete` and `residual` tell the outcome."""
    run: Run | None = None
    for i, line in enumerate(lines, 1):
        try:
            need(line.endswith(b"\n"), "the line is cut")
            if run:
                read_entry(run, line[:-1])
            else:
                run = read_header(line[:-1])
        except Refused as error:
            raise Refused(f"line {i}: {error}") from None
    if not run:
        raise Refused("line 1: there is no header")
    return run
