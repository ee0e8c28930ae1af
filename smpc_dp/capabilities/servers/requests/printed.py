"""Type of what servers print as JSON, from which its schema is made."""

from __future__ import annotations

from typing import TypedDict

from smpc_dp.results.printed import PrintedCertificate


class PrintedOpened(TypedDict):
    """JSON output of a computing server: the integers that the servers have opened, as text."""

    kind: str
    opened: list[str]
    included: list[str]
    faults: list[str]
    run_id: str
    included_by: PrintedCertificate
    opened_by: PrintedCertificate
