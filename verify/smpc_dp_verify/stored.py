"""The stored result of a party: what in it is evidence, in its types [protocols/secagg/signed-results.md]."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from dataclasses import dataclass
from typing import Any

from smpc_dp_verify.errors import printable

LONGEST = 1 << 29
# Each value can take some 100 bytes in memory; it follows one of the characters that are counted.
MOST_VALUES = 1 << 23
# What fits in any case, with the names and signatures of the most parties.
MOST_ELEMENTS = 4_000_000
LONGEST_OPERATION = 1024
VERSION = 1
HASH, SIGNATURE = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{128}")
BYTES = re.compile("(?:[0-9a-f]{2})*+")
NAME = re.compile("[a-z0-9][a-z0-9_.-]{0,62}")
START = {"present", "root", "nonce", "named"}
ROOTS = {"advertised", "root", "values_root"}
MESSAGE = {"version", "request", "operation", "start", "roll", "receiver", "body", "signature"}


class Failed(Exception):
    """Error: a check of a result fails; `check` is its name, `signed` if the aggregator signed the fault."""

    def __init__(self, check: str, reason: str, *, signed: bool = False) -> None:
        super().__init__(printable(reason))
        self.check, self.signed = check, signed


def demand(truth: object, check: str, reason: str, *, signed: bool = False) -> None:
    """Raise Failed, with the check's name and a reason, if `truth` is false; else do nothing."""
    if not truth:
        raise Failed(check, reason, signed=signed)


@dataclass(frozen=True)
class Certificate:
    """Signatures by party name over a set's digest; with `root`, those of a sample of the signers."""

    digest: bytes
    signatures: dict[str, bytes]
    signers: list[str]
    root: bytes
    proof: bytes

    @property
    def is_sampled(self) -> bool:
        """Whether the certificate shows the signatures of a random sample of signers alone."""
        return bool(self.root or self.proof)


@dataclass(frozen=True)
class Stored:
    """Parsed result file with a signed result: evidence in its types, and all fields of the file."""

    fields: dict[str, Any]
    protocol: tuple[str, int]
    session: bytes
    run: bytes
    commitment: bytes
    participants: list[str]
    survivors: list[str]
    absent: list[str]
    certified: Certificate
    survivors_certified: Certificate | None
    is_checked: bool | None
    request: int
    operation: str
    present: bytes
    nonces: bytes
    nonce: bytes
    named: bytes
    advertised: bytes
    root: bytes
    values_root: bytes
    receiver: str
    body: bytes
    signature: bytes


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Parse a file's JSON object; Failed if malformed, OSError if it cannot be read or is too large."""
    with open(path, "rb") as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST or sum(map(content.count, b",[{")) > MOST_VALUES:
        reason = f"too large to audit: at most {MOST_ELEMENTS:,} elements"
        raise OSError(errno.EFBIG, reason, os.fspath(path))
    try:
        fields = json.loads(
            content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite
        )
    except (ValueError, RecursionError):
        raise Failed("malformed", "the file is no JSON") from None
    demand(isinstance(fields, dict), "malformed", "the file is no JSON object")
    evidence = fields.get("evidence")
    demand(evidence is None or isinstance(evidence, dict), "malformed", "the evidence")
    return dict(fields)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key twice")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _no_number(text: str) -> None:
    raise ValueError(text)


def session_of(fields: dict[str, Any]) -> str | None:
    """Return the session digest, in hex, in a result file's evidence; None without evidence."""
    evidence = fields.get("evidence")
    return None if evidence is None else str(evidence["session_digest"])


def read_stored(fields: dict[str, Any]) -> Stored | None:
    """Parse the evidence of a result's fields; None without a signed result; Failed if malformed."""
    evidence = fields.get("evidence")
    if evidence is None:
        return None
    message = evidence.get("signed_result")
    if message is None:
        _hex(evidence.get("session_digest"), HASH, "session_digest")
        return None
    _is(isinstance(message, dict), "signed_result")
    version = message.get("version")
    if type(version) is int and version != VERSION:
        raise Failed("unknown-format", f"the signed result is of version {version}")
    _is({*message} == MESSAGE and type(version) is int, "signed_result")
    start, roots = message["start"], message["roll"]
    _is(isinstance(start, dict) and {*start} == START, "start")
    _is(isinstance(roots, dict) and {*roots} == ROOTS, "roll")
    survivors = evidence.get("survivors", ...)
    checked, values = evidence.get("checked", ...), roots["values_root"]
    _is(checked is None or isinstance(checked, bool), "checked")
    _is(isinstance(fields.get("kind"), str), "kind")
    _integer(fields.get("residual_pairs"), "residual_pairs")
    return Stored(
        fields=fields,
        protocol=(_text(evidence.get("protocol"), "protocol"), _whole(evidence.get("version"), "version")),
        session=_hex(evidence.get("session_digest"), HASH, "session_digest"),
        run=_hex(evidence.get("run_id"), HASH, "run_id"),
        commitment=_hex(evidence.get("roll"), HASH, "roll"),
        participants=_names(evidence.get("participating"), "participating"),
        survivors=_names(fields.get("survivors"), "survivors"),
        absent=_names(fields.get("absent"), "absent"),
        certified=_certificate(evidence.get("participants"), "participants"),
        survivors_certified=None if survivors is None else _certificate(survivors, "survivors"),
        is_checked=checked,
        request=_integer(message["request"], "request", 1),
        operation=_operation(message["operation"]),
        present=_hex(start["present"], BYTES, "present"),
        nonces=_hex(start["root"], HASH, "root"),
        nonce=_hex(start["nonce"], HASH, "nonce"),
        named=_hex(start["named"], BYTES, "named"),
        advertised=_hex(roots["advertised"], BYTES, "advertised"),
        root=_hex(roots["root"], HASH, "root"),
        values_root=b"" if values is None else _hex(values, HASH, "values_root"),
        receiver=_name(message["receiver"], "receiver"),
        body=_hex(message["body"], BYTES, "body"),
        signature=_hex(message["signature"], SIGNATURE, "signature"),
    )


def _certificate(fields: Any, where: str) -> Certificate:
    _is(isinstance(fields, dict) and {*fields} == {"set_digest", "signatures", "sample"}, where)
    _is(isinstance(fields["signatures"], dict), where)
    signatures = {
        _name(name, where): _hex(signature, SIGNATURE, where)
        for name, signature in fields["signatures"].items()
    }
    digest, sample = _hex(fields["set_digest"], HASH, where), fields["sample"]
    if sample is None:
        return Certificate(digest, signatures, list(signatures), b"", b"")
    _is(isinstance(sample, dict) and {*sample} == {"signers", "root", "proof"}, where)
    root, proof = _hex(sample["root"], HASH, where), _hex(sample["proof"], BYTES, where)
    return Certificate(digest, signatures, _names(sample["signers"], where), root, proof)


def _is(truth: object, where: str) -> None:
    demand(truth, "malformed", f"{where} is malformed")


def _text(value: Any, where: str) -> str:
    _is(isinstance(value, str), where)
    return str(value)


def _operation(value: Any) -> str:
    _is(isinstance(value, str) and len(value) <= LONGEST_OPERATION, "operation")
    # Half of a surrogate pair, which JSON can have.
    _is(not re.search("[\ud800-\udfff]", value), "operation")
    return str(value)


def _whole(value: Any, where: str) -> int:
    _is(type(value) is int, where)
    return int(value)


def _integer(value: Any, where: str, least: int = 0) -> int:
    _is(type(value) is int and least <= value < 1 << 62, where)
    return int(value)


def _hex(value: Any, pattern: re.Pattern[str], where: str) -> bytes:
    _is(isinstance(value, str) and pattern.fullmatch(value), where)
    return bytes.fromhex(value)


def _name(value: Any, where: str) -> str:
    _is(isinstance(value, str) and NAME.fullmatch(value), where)
    return str(value)


def _names(value: Any, where: str) -> list[str]:
    _is(isinstance(value, list), where)
    return [_name(name, where) for name in value]
