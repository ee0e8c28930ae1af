"""What is publicly expected of a column, and what a plan of a study says of one number."""

from __future__ import annotations

import msgspec

from smpc_dp.privacy.guarantee import PlainStruct


class Expected(msgspec.Struct, frozen=True):
    """Public assumption about a column for a forecast before any request: mean and standard deviation."""

    mean: float
    deviation: float


class Forecast(PlainStruct, frozen=True, kw_only=True):
    """Predicted half widths of the 95% intervals of one number of an answer, before any data are used.

    Attributes:
        text: the answer; name: which of its numbers.
        noise, sampling, both: half widths for the noise alone, the sample of rows alone, and both; None
            where there is none, or none is promised.
        detected: the smallest effect that the test of level .05 finds with probability .8; None without one.
        effect: what `detected` is counted in.
        at_bound: half the width for the noise of a mean at a bound, in proportion to the width of the bounds;
            None of other numbers.
        assumed: what the numbers are stated for, or why there are none.
    """

    text: str
    name: str
    noise: float | None = None
    sampling: float | None = None
    both: float | None = None
    detected: float | None = None
    effect: str = ""
    at_bound: float | None = None
    assumed: str = ""
