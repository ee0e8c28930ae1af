"""The request to a GOPA planner: a table of settings, checked as a whole."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.settings import read

FAMILIES = ("k-out", "complete", "ring", "random-regular")
MAX_LENGTH = 1 << 26

Probability = Annotated[float, Meta(gt=1e-290, lt=1)]
Deviation = Annotated[float, Meta(ge=1e-9, le=1e9)]


class GopaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments for a GOPA plan; None for what is to be planned. ConfigError names each out of range."""

    parties: Annotated[int, Meta(ge=3, le=200_000, description="parties that publish, n")]
    epsilon: Annotated[float, Meta(gt=0, le=100, description="privacy parameter")]
    honest_fraction: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="rho: floor(rho n) parties are honest and stay, unless `max_dropouts` takes them",
        ),
    ] = 1.0
    delta: Annotated[
        Probability | None,
        Meta(description="asked for", extra={"range": "between 0 and 1", "default": "10 curator-delta"}),
    ] = None
    curator_delta: Annotated[
        Probability | None,
        Meta(
            description="of the honest parties' independent noise alone, for their sum",
            extra={"range": "between 0 and delta", "default": "delta/10, or 1/n_H^2 without delta"},
        ),
    ] = None
    k: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="parties that each one draws in k-out, or the degree in random-regular",
            extra={"range": "1 to n - 1", "default": "planned"},
        ),
    ] = None
    sigma_delta: Annotated[
        Deviation | None,
        Meta(description="standard deviation of pairwise noise", extra={"default": "planned"}),
    ] = None
    sigma_eta: Annotated[
        Deviation | None,
        Meta(description="standard deviation of independent noise", extra={"default": "planned"}),
    ] = None
    method: Annotated[
        Literal["exact", "theorem"], Meta(description="certified computation, or Theorem 4.1")
    ] = "exact"
    graph: Annotated[str, Meta(description=f"{', '.join(FAMILIES)}, or the name of a given graph")] = "k-out"
    lower: Annotated[float, Meta(description="least value of every coordinate")] = 0.0
    upper: Annotated[float, Meta(description="greatest value of every coordinate")] = 1.0
    radius: Annotated[
        Annotated[float, Meta(gt=0, le=1e9)] | None,
        Meta(description="largest L2 norm of a vector; in the place of `lower` and `upper`"),
    ] = None
    length: Annotated[int, Meta(ge=1, le=MAX_LENGTH, description="coordinates of a vector")] = 1
    precision: Annotated[
        float,
        Meta(
            description="grid step of values and noise, at most; 0: continuous noise, which no run has",
            extra={"range": "0, or 2^-60 to 2^60"},
        ),
    ] = 1e-6
    curious: Annotated[bool, Meta(description="any one honest party may also be curious (Remark 4.1)")] = (
        False
    )
    max_dropouts: Annotated[
        int,
        Meta(
            ge=0,
            description="honest parties that an adversary who knows the graph may leave out",
            extra={"range": "0 to n - 1"},
        ),
    ] = 0

    @property
    def honest(self) -> int:
        """Number of honest parties, floor(rho n), without floating-point error."""
        return math.floor(self.honest_fraction * self.parties + 1e-9)

    @property
    def curator_delta_asked(self) -> float:
        """Delta' of the noisy total alone: by default delta / 10, or 1/n_H^2 without delta."""
        if self.curator_delta is not None:
            return self.curator_delta
        return self.delta / 10 if self.delta is not None else 1 / self.honest**2

    @property
    def delta_asked(self) -> float:
        """Delta of all that is seen together: by default ten times that of the total."""
        return self.delta if self.delta is not None else 10 * self.curator_delta_asked

    def __post_init__(self) -> None:
        given = msgspec.structs.asdict(self)
        plain = {
            key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()
        }
        good, issues = read(GopaRequest, plain)
        if good.keys() >= {"lower", "upper"} and not self.lower < self.upper:
            issues.append(
                ConfigIssue(
                    "lower", f"must be below upper = {self.upper}, is {self.lower}", ConfigCheck.RANGE
                )
            )
        if good.get("precision", 0) and not 2.0**-60 <= self.precision <= 2.0**60:
            issues.append(
                ConfigIssue(
                    "precision", f"must be 0, or from 2^-60 to 2^60, is {self.precision}", ConfigCheck.RANGE
                )
            )
        for key in ("k", "max_dropouts"):
            if "parties" in good and (good.get(key) or 0) >= self.parties:
                issues.append(
                    ConfigIssue(key, f"must be at most {self.parties - 1}, is {good[key]}", ConfigCheck.RANGE)
                )
        if good.get("k") is not None and self.graph not in ("k-out", "random-regular"):
            issues.append(
                ConfigIssue("k", f"has no meaning for the graph {self.graph!r}", ConfigCheck.UNSUPPORTED)
            )
        if not issues and self.honest < 2:
            few = f"must be such that 2 parties are honest (n_H = {self.honest}), is {self.honest_fraction}"
            issues.append(ConfigIssue("honest_fraction", few, ConfigCheck.RANGE))
        if not issues and not 0 < self.curator_delta_asked < self.delta_asked < 1:
            issues.append(self._delta_issue())
        if issues:
            raise ConfigError(issues)

    def _delta_issue(self) -> ConfigIssue:
        """Return the fault of deltas in the wrong order, naming those that were given."""
        if self.delta is not None:
            reason = f"must be below delta = {self.delta:g}, is {self.curator_delta_asked:g}"
            return ConfigIssue("curator_delta", reason, ConfigCheck.RANGE)
        if self.curator_delta is not None:
            reason = (
                f"must be below 0.1 without a delta, which is ten times it then; is {self.curator_delta:g}"
            )
            return ConfigIssue("curator_delta", reason, ConfigCheck.RANGE)
        reason = (
            f"is needed: its default with {self.honest} honest parties, 10/n_H^2, is {self.delta_asked:.3g}"
        )
        return ConfigIssue("delta", f"{reason}, and not below 1", ConfigCheck.MISSING)
