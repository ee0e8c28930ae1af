"""What logs of all kinds of runs have: header, chain, signatures, certificates [protocols/log/README.md]."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature

from smpc_dp_verify.encodings import party_set, read_line, read_set, tuple_hash, uint
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.session import Session, has_small_order, read_session

HEADER = {"format": "text", "version": "integer", "session": "text", "request": "integer", "question": "text"}
HEADER |= {"number": "integer", "runs": "hash", "before": "hash", "present": "base64", "root": "base64"}
HEADER |= {"run_id": "hash"}
ENTRY = {"sequence": "integer", "previous": "hash", "party": "name", "kind": "name", "payload": "base64"}
ENTRY |= {"signature": "signature"}
LONGEST_OPERATION = 1024
# The bytes of a line beside its payload, at most, and the longest payload in a line of any length.
REST, LONGEST_PAYLOAD = 768, 12_582_144
# Sizes of the fields of each certificate; None: of any size.
CERTIFICATE = (None, None, None)


@dataclass(frozen=True)
class Header:
    """Parsed first line of a run's log: the line, its fields by name, and the session."""

    line: str
    fields: dict[str, Any]
    session: Session

    @classmethod
    def read(cls, line: str) -> Header:
        """Parse the first line of a log; raise Refused if it is malformed."""
        fields = read_line(line, HEADER)
        required((fields["format"], fields["version"]) == ("smpc-dp board", 2), "the format")
        required(len(fields["question"]) <= LONGEST_OPERATION, "the question")
        required(fields["number"] > 0, "the number of the run")
        return cls(line, fields, read_session(fields["session"]))


class RunLog(ABC):
    """Base of auditors of one run's log: `read` checks its lines; Refused says which check fails.

    Args:
        header: of the log.
        names: of the parties of the run, in order: all of the session, or a group.
        corrupt: c. scope: of the session log.

    Attributes:
        request, number, run, session_head: of the run; head: of the log; entries: how many were read.
        digests: author, kind and digest of each entry; attested: what the last certificate is over.
        run_id: the run id in results.
    """

    bound: tuple[bytes, bytes]

    def __init__(self, header: Header, names: list[str], corrupt: int, scope: bytes) -> None:
        self.session, self.names, self.corrupt, self.scope = header.session, names, corrupt, scope
        self.aggregator = header.session.aggregator
        fields = header.fields
        self.request, self.number, self.run = fields["request"], fields["number"], fields["run_id"]
        self.run_id = self.run
        beginning = (tuple_hash("session-log", scope), bytes(32))
        required(self.number > 1 or (fields["runs"], fields["before"]) == beginning, "the first run")
        self.present = self._names(read_set(fields["present"], len(names)))
        line = (fields["runs"], uint(self.number), uint(self.request), self.run, fields["before"])
        self.session_head = tuple_hash("session-log-line", *line)
        self.head = tuple_hash("board-header", header.line.encode())
        self.entries = 0
        self.digests: list[tuple[str, str, bytes]] = []
        self.attested = b""

    @property
    def quorum(self) -> int:
        """The least number of signatures that certify a set of parties."""
        return (len(self.names) + self.corrupt) // 2 + 1

    @property
    @abstractmethod
    def is_one_log(self) -> bool:
        """Whether no other log of this run can pass, while at most c parties are corrupt."""

    @abstractmethod
    def _longest(self, kind: str) -> int:
        """Return the greatest length in bytes of the payload of an entry of this kind."""

    def _longest_certificate(self) -> int:
        return 2 * (len(self.names) // 8 + 16) + 64 * len(self.names) + 64

    @abstractmethod
    def _take(self, entry: dict[str, Any]) -> None:
        """Check an entry that follows in the hash chain, with its signature, and update the state."""

    @abstractmethod
    def _end(self) -> None:
        """Raise Refused if entries are missing at the end of the log."""

    def read(self, lines: Iterable[str]) -> None:
        """Check all entries of the log in order, and its end; raise Refused at the first wrong one."""
        for line in lines:
            entry = read_line(line, ENTRY)
            most = REST + 4 * (-(-self._longest(entry["kind"]) // 3))
            required(len(line.encode()) <= most, "the length of a payload of its kind")
            number = self.entries + 1
            required((entry["sequence"], entry["previous"]) == (number, self.head), "the chain of heads")
            self._take(entry)
            self.entries = number
            name, kind, body = entry["party"].encode(), entry["kind"].encode(), entry["payload"]
            parts = (uint(number), name, kind, hashlib.sha256(body).digest(), entry["signature"])
            digest = tuple_hash("board-entry", *parts)
            self.digests.append((entry["party"], entry["kind"], digest))
            self.head = tuple_hash("board-head", self.head, digest)
        self._end()

    def _names(self, numbers: Iterable[int]) -> list[str]:
        return [self.names[number - 1] for number in numbers]

    def _packed(self, names: Iterable[str]) -> bytes:
        return party_set([self.names.index(name) + 1 for name in names], len(self.names))

    def _signed(
        self,
        step: str,
        name: str,
        body: bytes,
        signature: bytes,
        run: bytes,
        bound: tuple[bytes, bytes] | None = None,
    ) -> None:
        digest, to = hashlib.sha256(body).digest(), self.aggregator.encode()
        parts = (*(bound or self.bound), run, step.encode(), name.encode(), to, digest)
        required(name in (*self.names, self.aggregator), "a stranger")
        try:
            self.session.keys[name].verify(signature, tuple_hash("envelope", *parts))
        except InvalidSignature:
            raise Refused(f"signature of {name}") from None
        required(not has_small_order(signature[:32]), f"signature of {name}")

    def _certify(
        self, step: str, fields: list[Any], inside: list[str], *false: bytes, head: bytes | None = None
    ) -> None:
        head = self.head if head is None else head
        self.attested = self._certificate(step, fields, inside, self.run, head, self.bound, *false)

    def _certificate(
        self,
        step: str,
        fields: list[Any],
        inside: list[str],
        run: bytes,
        head: bytes,
        bound: tuple[bytes, bytes],
        *false: bytes,
    ) -> bytes:
        """Check a quorum's certificate of a set; return the digest signed, or raise Refused."""
        members, signers, signatures = fields
        required(members == self._packed(inside), "the members of a certificate")
        attested = tuple_hash("board-attestation", *bound, run, step.encode(), head, members, *false)
        who = self._names(read_set(signers, len(self.names)))
        required(len(who) >= self.quorum and {*who} <= {*inside}, "the quorum's signatures on the head")
        required(len(signatures) == 64 * len(who), "one signature for each signer")
        for i, name in enumerate(who):
            self.check_signer(step, name, attested, signatures[64 * i : 64 * i + 64], run, bound)
        return attested

    def check_signer(
        self,
        step: str,
        name: str,
        attested: bytes,
        signature: bytes,
        run: bytes | None = None,
        bound: tuple[bytes, bytes] | None = None,
    ) -> None:
        """Raise Refused unless a party has signed the digest that a certificate is over."""
        self._signed(step, name, msgspec.msgpack.encode([attested]), signature, run or self.run, bound)

    def certify_list(self, protocol: tuple[str, int], run: bytes, head: bytes, signed: list[bytes]) -> None:
        """Raise Refused unless a quorum signed a hash of the session log after a run's line."""
        inside = self._names(read_set(signed[0], len(self.names)))
        bound = (protocol[0].encode(), uint(protocol[1]))
        self._certificate("attest-begin", signed, inside, run, head, bound)


def header_of(lines: Iterable[str]) -> tuple[Header, Iterator[str]]:
    """Return the parsed header of a log, and an iterator over the log's other lines."""
    rest = iter(lines)
    return Header.read(next(rest, "")), rest
