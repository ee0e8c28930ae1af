"""Messages of parties that fetch lines of a log, outside of a run: bodies of signed envelopes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.wire.envelope import Body

FETCH = "fetch"
LINES = "lines"


class Fetch(Body, frozen=True):
    """Message of a party to the aggregator: asks for lines of a run's log from `first` on (0: the header)."""

    first: Annotated[int, Meta(ge=0, lt=1 << 32)]


class Lines(Body, frozen=True):
    """Message of the aggregator to a party: lines of a run's log from `first` on; empty if there are none."""

    first: int
    lines: list[bytes]
