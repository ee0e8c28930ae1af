"""Messages of parties that fetch lines of a log, outside of a run: bodies of signed envelopes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.wire.envelope import Body

FETCH = "fetch"
LINES = "lines"


class Fetch(Body, frozen=True):
    """Party: a request for the lines from entry `first` on; 0 is the header."""

    first: Annotated[int, Meta(ge=0, lt=1 << 32)]


class Lines(Body, frozen=True):
    """Aggregator, in answer: some lines from `first` on, without line feeds; none if there are none."""

    first: int
    lines: list[bytes]
