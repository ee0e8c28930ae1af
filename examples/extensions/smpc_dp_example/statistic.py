"""The statistic `ratio(top, below)` of records: the sum of one column over that of another."""

from __future__ import annotations

from smpc_dp.records.registered import SumsOfRows, statistic_of_sums


def _ratio(sums: tuple[float, ...]) -> float:
    _, top, below = sums
    return top / below


ratio = statistic_of_sums(
    "ratio",
    SumsOfRows(
        arguments=("top", "below"),
        sums=((), ("top",), ("below",)),
        # Both sums are half as long as their ranges, whose noise counts alike.
        factors=(0.25, 0.25, 0.25),
        groups=True,
    ),
    _ratio,
)
