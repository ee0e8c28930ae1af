"""The list of all runs of a session [protocols/log/README.md, "Session log"]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from smpc_dp_verify.encodings import read_line, tuple_hash, uint
from smpc_dp_verify.errors import Refused, required

if TYPE_CHECKING:
    from smpc_dp_verify.log import RunLog


class Line(NamedTuple):
    """One run in a session log: request number, run id, and the last hash of the run before."""

    request: int
    run: bytes
    before: bytes


class Seen(NamedTuple):
    """What a party has seen of a session log: last signed line, and last run that it saw end, with hashes."""

    number: int
    head: bytes
    closed: int
    closed_head: bytes


FIRST = {"format": "text", "version": "integer", "session": "hash", "scope": "hash"}
RUN = {"number": "integer", "request": "integer", "run_id": "hash", "before": "hash"}
CERTIFIED = {"certifies": "integer", "protocol": "name", "version": "integer"}
CERTIFIED |= dict.fromkeys(("members", "signers", "signatures"), "base64")
PROTOCOLS = {("gopa", 2), ("gopa", 3), ("gopa", 4), ("gopa", 5), ("pairwise-statistic", 3)}


def next_head(head: bytes, number: int, line: Line) -> bytes:
    """Return a session log's hash after line `number`, from the hash before it."""
    return tuple_hash("session-log-line", head, uint(number), uint(line.request), line.run, line.before)


class SessionLog:
    """Parsed list of a session's runs; the constructor raises Refused for a malformed one."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.runs: list[Line] = []
        self.certified: dict[str, Any] | None = None
        # The lines as bytes, and the head after each: of these the checkpoints are.
        self.leaves: list[bytes] = []
        self.heads_at: list[bytes] = []
        first = None
        expected = False
        for line in lines:
            if first is None:
                first = read_line(line, FIRST)
                required((first["format"], first["version"]) == ("smpc-dp session log", 1), "the format")
                self.session, self.scope = first["session"], first["scope"]
                self.heads = [tuple_hash("session-log", self.scope)]
            elif line.startswith('{"certifies"'):
                self.certified = read_line(line, CERTIFIED)
                required(expected and self.certified["certifies"] == len(self.runs), "the order of lines")
                expected = False
            else:
                fields = read_line(line, RUN)
                required(fields["number"] == len(self.runs) + 1, "the order of lines")
                self.runs.append(Line(fields["request"], fields["run_id"], fields["before"]))
                self.heads.append(next_head(self.heads[-1], len(self.runs), self.runs[-1]))
                expected = True
            self.leaves.append(line.encode())
            self.heads_at.append(self.heads[-1])
        required(first, "the format")

    def check(self, audit: RunLog) -> None:
        """Raise Refused unless the list has an audited run with this end, signed by a quorum."""
        number = audit.number
        own = (audit.session.digest, audit.scope)
        required((self.session, self.scope) == own, "the session and its scope")
        required(self.heads[number : number + 1] == [audit.session_head], "the run is a line")
        after = self.runs[number : number + 1]
        required(not after or after[0].before == audit.head, "the end of the run before")
        try:
            required(self.certified is not None, "no certificate")
            result: dict[str, Any] = self.certified or {}
            last, protocol = result["certifies"], (result["protocol"], result["version"])
            required(last >= number and protocol in PROTOCOLS, "which")
            signed = [result["members"], result["signers"], result["signatures"]]
            audit.certify_list(protocol, self.runs[last - 1].run, self.heads[last], signed)
        except Refused:
            raise Refused("the quorum's signatures on the head") from None

    def select(
        self, audit: RunLog, run: bytes | None = None, request: int | None = None, head: bytes | None = None
    ) -> tuple[int, int, bool]:
        """Return a run's number among tries, the number of tries, and if the arguments determine it."""
        required(request in (None, audit.request), "the request that was given")
        required(run in (None, audit.run_id), "the run that was given")
        self.check(audit)
        number = audit.number
        tries = [index for index, line in enumerate(self.runs, 1) if line.request == audit.request]
        index, last = tries.index(number) + 1, number == tries[-1]
        own = head in (audit.head, audit.session_head)
        required(head is None or own or head in self.heads[number:], "the head that was given")
        later = head in self.heads[number + 1 :] and request is not None and last
        return index, len(tries), run is not None or own or later


def shown(seen: Seen, scope: bytes, body: bytes, request: int, run: bytes) -> bytes:
    """Return the head after the session log's lines in `body`; Refused if they contradict those seen."""
    fields = msgspec.msgpack.decode(body)
    required(msgspec.msgpack.encode(fields) == body and fields[2], "the format")
    base, listed = fields[0], [Line(*line) for line in fields[2]]
    head: bytes = fields[1]
    required(listed[-1][:2] == (request, run), "this run is last")
    required(base + len(listed) > seen.number, "what the party has signed")
    required(not seen.number or base <= seen.number, "what the party has signed")
    required(base or head == tuple_hash("session-log", scope), "the session and its scope")
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
