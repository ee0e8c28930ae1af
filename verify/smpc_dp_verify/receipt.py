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
    """Receipt of a party's published entry: session, run, number and hash of the entry, end of the log."""

    session: bytes
    run_id: bytes
    party: str
    index: int
    entry: bytes
    head: bytes
    attested: bytes
    signatures: dict[str, bytes]

    def check(self, audit: RunLog) -> None:
        """Raise Refused unless a log has the receipt's entry and end, signed by a quorum."""
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
    """Return a JSON object's pairs as a dict; raise Refused for a key that is there twice."""
    fields = dict(pairs)
    required(len(fields) == len(pairs), "a key twice")
    return fields


def read_receipt(path: str | os.PathLike[str]) -> Receipt:
    """Read a party's receipt from a JSON file; Refused if malformed, OSError if it cannot be read."""
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
