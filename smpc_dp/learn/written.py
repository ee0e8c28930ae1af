"""What a session that learns asks of its averager, as written. This module loads no learner."""

from __future__ import annotations

from collections.abc import Mapping

from smpc_dp.protocols.gopa import versions


def averager_of(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """Return the table of the averager; empty where there is none."""
    averager = parameters.get("averager")
    return averager if isinstance(averager, Mapping) else {}


def is_verifiable(parameters: Mapping[str, object]) -> bool:
    """Tell whether averages are verifiable."""
    return versions.is_verifiable(averager_of(parameters))
