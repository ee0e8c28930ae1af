"""A party's receipt of its contribution: which entry of which log it is, and that a quorum has signed it.

It has no secret. Specification: protocols/log/README.md.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from smpc_dp.decoding import convert, parse_object
from smpc_dp.errors import LocalError
from smpc_dp.logs.log import Hex32, Hex64, Name

FORMAT = "smpc-dp receipt"
VERSION = 1
# A quorum of 10,000 signatures with names of 63 characters is below.
MAX_BYTES = 1 << 22
# The kind of the entries that parties have receipts of, and the step by which a quorum signs the end.
PUBLISH, ATTEST_TALLY = "publish", "attest-tally"


class LogReceipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Receipt that a party keeps of its entry in a run's log, to check later that the log still has it.

    Attributes:
        session: the session digest. run_id: of the run. party: the author.
        index: the number of the entry, from 1; entry: its digest in the chain of heads.
        head: the last one of the log.
        attested: the digest that a quorum has signed at the end: it binds the run, the head after the tally,
            which covers the entry, and the participants.
        signatures: of the quorum, by name.
    """

    format: str = FORMAT
    version: int = VERSION
    session: Hex32
    run_id: Hex32
    party: Name
    index: Annotated[int, Meta(ge=1, lt=1 << 62)]
    entry: Hex32
    head: Hex32
    attested: Hex32
    signatures: dict[Name, Hex64]

    def to_json(self) -> dict[str, object]:
        """Return the receipt as JSON data, the form in which it is stored in a file."""
        data: dict[str, object] = msgspec.to_builtins(self)
        return data


def read_receipt(path: str | os.PathLike[str]) -> LogReceipt:
    """Read a party's receipt from a JSON file; raise LocalError if the file holds none."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no name of a file"
        raise LocalError(f"{path}: cannot read the receipt ({reason})") from None
    if len(text) > MAX_BYTES:
        raise LocalError(f"{path}: not a receipt (longer than {MAX_BYTES} bytes)")
    try:
        receipt: LogReceipt = convert(parse_object(text), LogReceipt)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LocalError(f"{path}: not a receipt ({error})") from None
    if (receipt.format, receipt.version) != (FORMAT, VERSION):
        raise LocalError(f"{path}: not a receipt ({receipt.format[:40]!r} {receipt.version})")
    return receipt
