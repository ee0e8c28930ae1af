"""Planned coin flips and pairwise noise of a verifiable session."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from smpc_dp.errors import ConfigError, ConfigIssue

if TYPE_CHECKING:
    from smpc_dp.privacy.gopa.verifiable import VerifiablePlan

# A quarter of the bits is the variance, which must be an integer.
BITS_STEP = 4


@functools.lru_cache(maxsize=64)
def planned_noise(
    parties: int,
    honest: int,
    epsilon: float,
    delta: float,
    *,
    length: int,
    steps: int | tuple[int, ...] | None,
    bound_squared: int | None,
    degree: int | None,
    lost: int,
    corrupt: int,
) -> VerifiablePlan:
    """Return the noise plan with the fewest coin flips per party and coordinate, a multiple of 4."""
    from smpc_dp.privacy.gopa.verifiable import plan_verifiable

    plan = functools.partial(
        plan_verifiable,
        parties=parties,
        honest=honest,
        epsilon=epsilon,
        delta=delta,
        length=length,
        steps=steps,
        bound_squared=bound_squared,
        rounding="nearest",
        degree=degree,
        lost=lost,
        corrupt=corrupt,
    )
    try:
        least = plan().bits
        return plan(bits=-(-least // BITS_STEP) * BITS_STEP)
    except ConfigError as error:
        # The planner's names for a session's precision.
        ours = ("steps", "bits", "bound_squared")
        scale = ""
        if isinstance(steps, tuple):
            scale = f"; ranges have {min(steps)} to {max(steps)} steps: bring coordinates to one scale"
        issues = [
            ConfigIssue("precision", f"{where}: {reason}{scale}", check)
            if where in ours
            else ConfigIssue(where, reason, check)
            for where, reason, check in error.issues
        ]
        raise ConfigError(issues) from None
