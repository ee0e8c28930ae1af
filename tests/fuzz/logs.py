"""Decoders of logs, circuits and kernels."""

from __future__ import annotations

import io
import json
from typing import Any

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol, parse_bristol
from smpc_dp.capabilities.pairs.kernels import Field
from smpc_dp.capabilities.pairs.kernels.described import describe, read_kernel
from smpc_dp.capabilities.pairs.requests.statistic import plan_maker
from smpc_dp.capabilities.servers.requests.programs import compile_operation
from smpc_dp.capabilities.servers.secret_sharing.params import check_parameters
from smpc_dp.errors import SmpcError, VerificationError
from smpc_dp.files import Spool
from smpc_dp.logs.followed import Followed
from smpc_dp.logs.header import ReadHeader
from smpc_dp.logs.log import Chain, Entry, Header, checked_header, decode_line, encode_line, first_head
from smpc_dp.logs.reader import LogReader
from tests.fuzz.target import Decoder, Target


def _log() -> tuple[Header, list[Entry]]:
    fields: dict[str, Any] = {"request": 1, "operation": "average 1/2", "present": b"\xe0", "root": bytes(32)}
    fields |= {"number": 1, "runs": "ab" * 32, "before": "00" * 32}
    chain = Chain.begin(session='{"a":"b\\\\"}', run_id="ab" * 32, **fields)
    entries = [chain.append(f"user-{i}", "commit", bytes([i]) * i, bytes(64)) for i in range(3)]
    return chain.header, entries


_HEADER, _ENTRIES = _log()
_LINES = tuple(encode_line(line) for line in (_HEADER, *_ENTRIES))
_HEADS = Followed(first_head(_LINES[0])).after(b"".join(entry.digest() for entry in _ENTRIES))


def _line(kind: type[Header] | type[Entry]) -> Decoder:
    return lambda content: encode_line(decode_line(content, kind))


def _long_header(content: bytes) -> bytes:
    """A header as it is read in blocks finds what it does as a whole."""
    with Spool("the header") as spool:
        spool.add(content)
        whole: Header | SmpcError
        try:
            whole = checked_header(decode_line(content, Header))
        except SmpcError as error:
            whole = error
        read = ReadHeader(spool)
        assert isinstance(whole, Header)
        assert read.head == first_head(content)
        assert read.session.whole() == whole.session
    return content


def _log_reader(content: bytes) -> bytes:
    with LogReader(io.BytesIO(content)) as reader:
        lines = [encode_line(reader.header), *(encode_line(entry) for entry in reader.entries())]
        assert reader.bytes_read == len(content)
    return b"".join(line + b"\n" for line in lines)


def _followed(content: bytes) -> bytes:
    """A line of a log whose heads are known is one of its lines."""
    for number in range(-1, 5):
        try:
            _HEADS.check(number, content)
        except VerificationError:
            continue
        return _LINES[number]
    return content


_CIRCUITS = (
    b"2 5\n2 1 2\n1 1\n\n2 1 0 1 3 AND\n2 1 3 2 4 XOR\n",
    b"4 8\n2 2 2\n1 2\n\n1 1 0 4 INV\n1 1 1 5 EQ\n1 1 4 6 EQW\n2 1 6 5 7 AND\n",
    b"3 7\n1 4\n1 2\n\n4 2 0 1 2 3 4 5 MAND\n2 1 4 5 6 XOR\n",
)


def _circuit(content: bytes) -> None:
    circuit = parse_bristol(content)
    again = parse_bristol(format_bristol(circuit))
    assert again.digest == circuit.digest


def _kernels() -> tuple[bytes, ...]:
    from smpc_dp.capabilities.pairs.kernels import gini_mean_difference, kendall_tau

    field = Field(0.0, 3.0, 1.0, "x")
    known = [kendall_tau(field, field), gini_mean_difference(field)]
    # |x - y| of two bits each is what XOR gives for bits, and 0 for the upper one.
    circuit = parse_bristol(b"2 6\n2 2 2\n1 2\n\n2 1 0 2 4 XOR\n1 1 0 5 EQ\n")
    described = {
        **{**known[1].terms(), "kernel": "own"},
        "symmetric": True,
        "circuit": format_bristol(circuit).decode(),
        "digest": circuit.digest.hex(),
    }
    own = read_kernel(described)
    return tuple(json.dumps(describe(kernel), sort_keys=True).encode() for kernel in (*known, own))


def _kernel(content: bytes) -> None:
    try:
        described = json.loads(content)
    except (ValueError, RecursionError):
        return
    if isinstance(described, dict):
        read_kernel(described)


_SHARED, _ = check_parameters({}, 5)


def _shared_operation(content: bytes) -> None:
    """A question to mpyc's servers, compiled into a program."""
    assert _SHARED is not None
    compile_operation(_SHARED, content.decode("utf-8", "replace"), 5, (), bytes(32))


def _pairs_operation(content: bytes) -> None:
    """A question about pairs, compiled into a plan."""
    plan_maker(())(content.decode("utf-8", "replace"))


def _operations(**rest: object) -> tuple[bytes, ...]:
    return tuple(json.dumps({**json.loads(kernel), **rest}).encode() for kernel in _kernels())


def targets() -> list[Target]:
    """Return the targets of this file."""
    shares = _operations(epsilon=1.0, delta=0.0, law="laplace", partners=0)
    pairs = _operations(epsilon=1.0, delta=0.0, partners=1, noise="laplace")[:2]
    log = b"".join(line + b"\n" for line in _LINES)
    return [
        Target("log.header", _line(Header), _LINES[:1], "text"),
        Target("log.entry", _line(Entry), _LINES[1:], "text"),
        Target("log.header-in-blocks", _long_header, _LINES[:1], "text", cost=4),
        Target("log.reader", _log_reader, (log, _LINES[0] + b"\n"), "text", cost=6),
        Target("log.followed", _followed, _LINES, "text", cost=6),
        Target("circuit", _circuit, _CIRCUITS, "text", cost=4),
        Target("kernel", _kernel, _kernels(), "text", cost=20),
        Target("operation.shares", _shared_operation, shares, "text", cost=100),
        Target("operation.pairs", _pairs_operation, pairs, "text", cost=100),
    ]
