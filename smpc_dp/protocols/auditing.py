"""What the auditors of all logs find."""

from __future__ import annotations

import msgspec

from smpc_dp.errors import Check


class Excluded(msgspec.Struct, frozen=True):
    """Party that signed a false statement: the entry that shows it, the false part, and the check."""

    party: str
    sequence: int
    reason: str
    check: Check
