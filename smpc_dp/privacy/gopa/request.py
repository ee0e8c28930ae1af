"""What a GOPA planner is asked, checked as a whole."""

from __future__ import annotations

import math

import msgspec

from smpc_dp.errors import ConfigError, Fault

MAX_PARTIES = 200_000
MAX_EPSILON = 100.0
MAX_SIGMA = 1e9
METHODS = ("exact", "theorem")
FAMILIES = ("k-out", "complete", "ring", "random-regular")


class GopaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a plan, None where one is to be planned; ConfigError names each that is out of range."""

    parties: int
    """n, users that publish, 3 to 200,000."""
    honest_fraction: float = 1.0
    """rho, in (0, 1]: floor(rho n) users are honest and stay to the end, unless `max_dropouts` takes them."""
    epsilon: float
    """Above 0, at most 100."""
    delta: float | None = None
    """Asked for, in (0, 1); None: 10 curator_delta."""
    curator_delta: float | None = None
    """delta', at which the honest users' independent noise alone would protect their sum; None: delta/10, or
    1/n_H^2 where delta is None too."""
    k: int | None = None
    """Others that each user draws (k-out), or degree (random-regular)."""
    sigma_delta: float | None = None
    sigma_eta: float | None = None
    method: str = "exact"
    graph: str = "k-out"
    """A family, or the name of a given graph."""
    lower: float = 0.0
    upper: float = 1.0
    """Bounds of each coordinate."""
    radius: float | None = None
    """A bound on the L2 norm of a vector, instead of lower and upper."""
    length: int = 1
    """Coordinates of a vector."""
    precision: float = 1e-6
    """Grid step of values and noise, at most; 0: continuous noise, which no run has."""
    curious: bool = False
    """Whether also any single honest user uses what it knows (Remark 4.1)."""
    max_dropouts: int = 0
    """Honest users whom somebody who knows the graph can choose to leave out."""

    @property
    def honest(self) -> int:
        """n_H = floor(rho n), for the fraction that was meant."""
        return math.floor(self.honest_fraction * self.parties + 1e-9)

    @property
    def curator_delta_asked(self) -> float:
        """delta' of the total alone: by default a tenth of delta, or 1/n_H^2 without one."""
        if self.curator_delta is not None:
            return self.curator_delta
        return self.delta / 10 if self.delta is not None else 1 / self.honest**2

    @property
    def delta_asked(self) -> float:
        """Return delta of the whole view: by default ten times that of the total."""
        return self.delta if self.delta is not None else 10 * self.curator_delta_asked

    def __post_init__(self) -> None:
        faults = []

        def check(name: str, holds: bool, bounds: str) -> None:
            if not holds:
                faults.append(Fault(name, f"must be {bounds}, is {getattr(self, name)}"))

        counted = 3 <= self.parties <= MAX_PARTIES
        check("parties", counted, f"an integer in 3..{MAX_PARTIES}")
        check("honest_fraction", 0 < self.honest_fraction <= 1, "in (0, 1]")
        check("epsilon", 0 < self.epsilon <= MAX_EPSILON, f"above 0, at most {MAX_EPSILON:g}")
        for name in ("delta", "curator_delta"):
            value = getattr(self, name)
            check(name, value is None or 1e-290 < value < 1, "between 0 and 1, both excluded")
        for name in ("sigma_delta", "sigma_eta"):
            value = getattr(self, name)
            check(name, value is None or 1e-9 <= value <= MAX_SIGMA, f"in [1e-9, {MAX_SIGMA:g}]")
        check("method", self.method in METHODS, " or ".join(METHODS))
        finite = math.isfinite(self.lower) and math.isfinite(self.upper)
        check("lower", finite and self.lower < self.upper, f"finite and below upper = {self.upper}")
        check("radius", self.radius is None or 0 < self.radius <= MAX_SIGMA, f"in (0, {MAX_SIGMA:g}]")
        check("length", 1 <= self.length <= 1 << 26, f"an integer in 1..{1 << 26}")
        check(
            "precision",
            self.precision == 0 or 2.0**-60 <= self.precision <= 2.0**60,
            "0, or in [2^-60, 2^60]",
        )
        if counted:
            others = self.parties - 1
            check("k", self.k is None or 1 <= self.k <= others, f"an integer in 1..{others}")
            check("max_dropouts", 0 <= self.max_dropouts <= others, f"in 0..{others}")
        if not faults:
            check("honest_fraction", self.honest >= 2, f"such that 2 users are honest (n_H = {self.honest})")
        if not faults and not 0 < self.curator_delta_asked < self.delta_asked < 1:
            faults.append(
                Fault(
                    "curator_delta",
                    f"must be below delta = {self.delta_asked:g} and both below 1, "
                    f"is {self.curator_delta_asked:g}",
                )
            )
        if self.k is not None and self.graph not in ("k-out", "random-regular"):
            faults.append(Fault("k", f"has no meaning for the graph {self.graph!r}"))
        if faults:
            raise ConfigError(faults)
