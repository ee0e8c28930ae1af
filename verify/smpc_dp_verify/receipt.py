"""Whether a log has the contribution of a receipt [protocols/log/README.md, "Receipts"]."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smpc_dp_verify.encodings import read_value
from smpc_dp_verify.errors import Refused, required

if TYPE_CHECKING:
    from smpc_dp_verify.log import RunLog

LONGEST = 1 << 22
FORM = {"party": "name", "index": "integer", "signatures": "object"}
FORM |= dict.fromkeys(("session", "run_id", "entry", "head", "attested"), "hash")
FORMAT = {"format": "smpc-dp receipt", "version": 1}


@dataclass(frozen=True)
class Receipt:
    """What a party keeps of its publication."""

    session: bytes
    run_id: bytes
    party: str
    index: int
    entry: bytes
    head: bytes
    attested: bytes
    signatures: dict[str, bytes]

    def check(self, audit: RunLog) -> None:
        """Refuse a log without its entry, with another end, or that no quorum has signed."""
        required(self.session == audit.session.digest, "the session of the receipt")
        required(self.run_id == audit.run_id, "the run of the receipt")
        required(1 <= self.index <= audit.entries, "the entry of the receipt")
        own = (self.party, "publish", self.entry)
        required(audit.digests[self.index - 1] == own, "the entry of the receipt")
        required((self.head, self.attested) == (audit.head, audit.attested), "the end of the receipt's log")
        required(len(self.signatures) >= audit.quorum, "the signatures of the receipt")
        for name, signature in self.signatures.items():
            required(name in audit.names, "the signatures of the receipt")
            audit.check_signer("attest-tally", name, self.attested, signature)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, which has each key once."""
    fields = dict(pairs)
    required(len(fields) == len(pairs), "a key twice")
    return fields


def read_receipt(path: str | os.PathLike[str]) -> Receipt:
    """Return the receipt in a file, or refuse it; raise OSError if it cannot be read."""
    with open(path, "rb") as file:
        text = file.read(LONGEST + 1)
    try:
        required(len(text) <= LONGEST, "the format of the receipt")
        fields: dict[str, Any] = FORMAT | json.loads(text.decode(), object_pairs_hook=_once)
        kind = (type(fields["version"]), fields.pop("format"), fields.pop("version"))
        required(kind == (int, *FORMAT.values()) and {*fields} == {*FORM}, "the format of the receipt")
        signatures = fields.pop("signatures")
        values = {name: read_value(value, FORM[name]) for name, value in fields.items()}
        required(values["index"] >= 1, "the format of the receipt")
        signed = {
            read_value(name, "name"): read_value(value, "signature") for name, value in signatures.items()
        }
    except (ArithmeticError, AttributeError, RecursionError, Refused, TypeError, ValueError):
        raise Refused("the format of the receipt") from None
    return Receipt(**values, signatures=signed)
