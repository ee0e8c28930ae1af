"""The GOPA plan and its fields, and the plan by Theorem 4.1."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.gopa import theorem
from smpc_dp.privacy.gopa.lattice import Smoothing
from smpc_dp.privacy.gopa_request import GopaRequest


class GopaPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of GOPA (averaging with noise that cancels): noise, graph and privacy that are claimed."""

    parties: int
    honest: int
    epsilon: float
    delta: float
    delta_process: float | None
    delta_process_reason: str
    delta_asked: float
    sufficient: bool
    curator_delta: float
    k: int | None
    sigma_delta: float
    sigma_eta: float
    planned: tuple[str, ...]
    error_std: float
    error_std_honest: float
    curator_error_std: float | None
    method: str
    graph: str
    diameter: float
    length: int
    step: float
    max_dropouts: int
    curious: bool
    theta_lower: float | None = None
    theta_upper: float
    delta_lower: float | None = None
    delta_all_stay: float | None = None
    delta_zcdp: float | None = None
    smoothing: Smoothing | None = None
    edges: int | None = None
    min_degree: int | None = None
    connectivity: float | None = None
    certificate_failure_log2: float | None = None
    assumption: str
    warnings: tuple[str, ...]


def warnings_of(request: GopaRequest, delta: float) -> list[str]:
    """Return the warnings about a plan with this delta, for instance that delta is large."""
    result = []
    if request.delta_asked > 1 / request.parties:
        result.append(
            f"delta = {request.delta_asked:g} is larger than 1/n = {1 / request.parties:g}: a mechanism that "
            "publishes one party's value at random would satisfy it"
        )
    if delta > request.delta_asked:
        result.append(f"not sufficient: delta is {delta:.4g}, asked for {request.delta_asked:.4g}")
    return result


def plan_by_theorem(request: GopaRequest) -> GopaPlan:
    """Return a GOPA plan by the closed formulas of a paper's Theorem 4.1; ConfigError where they fail."""
    parties, unit = request.parties, request.upper - request.lower
    honest = request.honest - int(request.curious)
    issues = [
        ConfigIssue(name, f"Theorem 4.1 is about {reason}", ConfigCheck.INFEASIBLE)
        for wrong, name, reason in (
            (request.graph != "k-out", "graph", "random k-out graphs"),
            (request.length != 1 or request.radius is not None, "length", "one value in [lower, upper]"),
            (request.max_dropouts > 0, "max_dropouts", "dropouts that nobody chooses; use method exact"),
            (not 0 < request.epsilon < 1, "method", "epsilon in (0, 1): condition 0 < epsilon < 1 fails"),
            (not 0 < request.curator_delta_asked < 1, "curator_delta", "0 < delta' < 1"),
        )
        if wrong
    ]
    if issues:
        raise ConfigError(issues)
    requested, central = request.delta_asked, request.curator_delta_asked
    k = theorem.smallest_k(honest, honest / parties, requested) if request.k is None else request.k
    sigma_eta, sigma_delta = request.sigma_eta, request.sigma_delta
    if sigma_eta is None:
        sigma_eta = unit * theorem.corollary_sigma_eta(honest, request.epsilon, central)
    if sigma_delta is None:
        kappa = theorem.corollary_kappa(central, requested)
        sigma_delta = theorem.corollary_sigma_delta(honest, honest / parties, k, sigma_eta, kappa)
    granted = theorem.guarantee(
        parties=parties,
        n_honest=honest,
        k=k,
        epsilon=request.epsilon,
        delta=requested,
        sigma_eta=sigma_eta / unit,
        sigma_delta=sigma_delta / unit,
    )
    # With a curious party one of n_H is taken out (Remark 4.1); the average is still over all.
    return GopaPlan(
        **common_fields(request, granted.delta, k, sigma_eta, sigma_delta, unit),
        delta_process=granted.delta,
        delta_process_reason="Theorem 4.1",
        step=0.0,
        theta_upper=granted.theta,
        assumption=f"{request.honest} of {parties} parties are honest, stay to the end and are fixed before "
        "anybody draws; noise is continuous; Theorem 4.1 as printed, which was not proven again",
    )


def common_fields(
    request: GopaRequest, delta: float, k: int | None, sigma_eta: float, sigma_delta: float, diameter: float
) -> dict[str, Any]:
    """Return the fields of a GOPA plan that do not depend on the method of analysis."""
    names = {"k": request.k, "sigma_delta": request.sigma_delta, "sigma_eta": request.sigma_eta}
    reachable = 0 < delta < 1
    return {
        "parties": request.parties,
        "honest": request.honest,
        "epsilon": request.epsilon,
        "delta": delta,
        "delta_asked": request.delta_asked,
        "sufficient": delta <= request.delta_asked,
        "curator_delta": request.curator_delta_asked,
        "k": k,
        "sigma_delta": sigma_delta,
        "sigma_eta": sigma_eta,
        "planned": tuple(name for name, value in names.items() if value is None and (name != "k" or k)),
        "error_std": sigma_eta / math.sqrt(request.parties),
        "error_std_honest": sigma_eta / math.sqrt(request.honest),
        "curator_error_std": (
            diameter / (request.honest * gaussian_mu(request.epsilon, delta)) if reachable else None
        ),
        "method": request.method,
        "graph": request.graph,
        "diameter": diameter,
        "length": request.length,
        "max_dropouts": request.max_dropouts,
        "curious": request.curious,
        "warnings": tuple(warnings_of(request, delta)),
    }
