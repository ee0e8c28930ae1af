"""Plan GOPA: check the given parameters, plan those left out."""

from __future__ import annotations

import math
import os

import numpy as np

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.gopa import graphs
from smpc_dp.privacy.gopa.exact import CertifiedGraph, ExactPrivacy, exact_privacy
from smpc_dp.privacy.gopa.graphs import HonestGraph, Ints, Randomness, honest_graph
from smpc_dp.privacy.gopa.lattice import Smoothing, smoothing_for, zcdp_delta
from smpc_dp.privacy.gopa.plan import GopaPlan, common_fields, plan_by_theorem, warnings_of
from smpc_dp.privacy.gopa.process import BUDGETS, ProcessPrivacy, analyse_process
from smpc_dp.privacy.gopa_request import GopaRequest
from smpc_dp.privacy.search import bisect, first_integer

# When k is planned, badly connected graphs may take this part of delta in each of three tails.
_PLANNED_BUDGET = (1e-3,)
_ROUNDS = 60


def plan_gopa(
    request: GopaRequest, *, edges: Ints | None = None, randomness: Randomness = os.urandom
) -> GopaPlan:
    """Return a plan of noise and graph for GOPA; given edges or noise are checked, the rest is planned.

    Args:
        request: the numbers; None where a number is to be planned.
        edges: of a given graph on the parties 0 to parties - 1, for `request.graph` other than a named
            family.
        randomness: draws the graph, and the honest parties of a graph that is not symmetric.

    Raises:
        ConfigError: naming what is out of range, the condition of the theorem that fails, the component that
            is on its own, or what cannot be reached with the numbers given.
    """
    if request.method == "theorem":
        return plan_by_theorem(request)
    return _Exact(request, edges, randomness).plan()


class _Exact:
    """Planner of GOPA noise by exact analysis of the graph instead of a theorem's formula."""

    def __init__(self, request: GopaRequest, edges: Ints | None, randomness: Randomness) -> None:
        self.request, self.given, self.randomness = request, edges, randomness
        self.step, self.diameter = _domain(request)
        self.removed = request.max_dropouts + int(request.curious)
        if request.honest - self.removed < 2:
            reason = (
                f"{request.honest} honest parties, {self.removed} of whom may be taken out, leave "
                "fewer than 2: nobody hides a single one"
            )
            raise ConfigError.at("max_dropouts", reason, ConfigCheck.INFEASIBLE)

    def plan(self) -> GopaPlan:
        """Return the plan with the least noise that the exact analysis certifies."""
        request = self.request
        sigma_eta = self._sigma_eta()
        k = self._k(sigma_eta)
        certified = self._certified(k)
        proven = self._process(k)
        sigma_delta = request.sigma_delta
        if sigma_delta is None:
            sigma_delta = self._sigma_delta(certified, proven, sigma_eta)
        result = self._exact(certified, sigma_eta, sigma_delta)
        delta = result.delta(request.epsilon)
        delta_process, reason = self._whole(proven, result, k, sigma_eta, sigma_delta)
        common = common_fields(request, delta, k, sigma_eta, sigma_delta, self.diameter)
        extra = []
        if request.sigma_delta is None and (delta_process is None or delta_process > request.delta_asked):
            extra.append(f"sigma_delta is planned for the graph drawn here, not for another ({reason})")
        common["warnings"] = (*warnings_of(request, delta), *extra)
        full_mu = self.diameter * math.sqrt(result.worst_upper)
        return GopaPlan(
            **common,
            delta_process=delta_process,
            delta_process_reason=reason,
            step=self.step,
            theta_lower=result.worst_lower,
            theta_upper=result.worst_upper,
            delta_lower=result.delta_lower(request.epsilon),
            delta_all_stay=result.delta(request.epsilon, worst=False),
            delta_zcdp=zcdp_delta(request.epsilon, full_mu, result.smoothing.log_ratio_zcdp),
            smoothing=result.smoothing,
            edges=result.edges,
            min_degree=result.min_degree,
            connectivity=result.connectivity,
            certificate_failure_log2=result.failure_log2,
            assumption=self._assumption(result),
        )

    def _sigma_eta(self) -> float:
        """Return the own noise per party with which the honest total is as private as delta' asks."""
        request = self.request
        if request.sigma_eta is not None:
            return request.sigma_eta
        left = request.honest - self.removed
        central = self.diameter / gaussian_mu(request.epsilon, request.curator_delta_asked)
        sigma_eta = central / math.sqrt(left)
        # s does not depend on the noise here, only on the size.
        s = self._smoothing(sigma_eta, math.inf).s
        return math.sqrt(sigma_eta**2 + s**2) * (1 + 1e-12)

    def _smoothing(self, sigma_eta: float, sigma_delta: float) -> Smoothing:
        """Return the privacy cost of discrete noise on the grid, 0 for continuous noise.

        It holds for any graph of the family: none has more edges or a larger eigenvalue.
        """
        honest = self.request.honest
        return smoothing_for(
            step=self.step,
            sigma_eta=sigma_eta,
            sigma_delta=sigma_delta,
            parties=honest,
            edges=honest * (honest - 1) // 2,
            greatest=honest,
            length=self.request.length,
        )

    def _k(self, sigma_eta: float) -> int | None:
        """Return the number of neighbours each party draws, given or planned; None for other graphs."""
        request = self.request
        if request.graph == "complete":
            return request.parties - 1
        if request.graph not in ("k-out", "random-regular"):
            return None
        if request.k is not None:
            return request.k
        k = self._smallest_k(sigma_eta)
        if request.graph == "k-out" or k == request.parties - 1:
            return k
        # As many edges as the k-out graph, and an even number of edge ends.
        degree = min(2 * k, request.parties - 1)
        return degree - (request.parties * degree) % 2

    def _smallest_k(self, sigma_eta: float) -> int:
        """Return the least number of neighbours for which privacy is proven; else a complete graph's.

        With sigma_delta given: delta_process is at most delta. Else: gap times degree is at least 1, so that
        the proof needs at most about twice the pairwise variance of an ideal graph of this degree.
        """
        request = self.request

        def suffices(k: int) -> bool:
            """Return whether the process with this k is proven well enough."""
            # A regular graph is planned like a random k-out graph, about which something is proven.
            proven = self._k_out_process(k, _PLANNED_BUDGET)
            if not isinstance(proven, ProcessPrivacy):
                return False
            if request.sigma_delta is None:
                best = proven.choices[0]
                return best.gap * (best.neighbour_degree - best.removed) >= 1
            return self._process_delta(proven, sigma_eta, request.sigma_delta) <= request.delta_asked

        most = request.parties - 1
        low, high = 1, 2
        while high < most and not suffices(high):
            low, high = high, min(2 * high, most)
        return min(first_integer(suffices, low, high), most)

    def _process(self, k: int | None) -> ProcessPrivacy | str:
        """Return the proven privacy of the random graph with its noise, or why there is no proof."""
        if self.request.graph != "k-out" or k is None:
            return f"nothing is proven about {self.request.graph} graphs in general"
        return self._k_out_process(k, BUDGETS)

    def _k_out_process(self, k: int, budgets: tuple[float, ...]) -> ProcessPrivacy | str:
        """Return the proven privacy of GOPA on random k-out graphs, or why there is no proof."""
        request = self.request
        if k == request.parties - 1:
            return "the complete graph"
        return analyse_process(
            request.parties,
            request.honest - int(request.curious),
            k,
            removed=request.max_dropouts,
            delta=request.delta_asked,
            budgets=budgets,
        )

    def _process_delta(self, proven: ProcessPrivacy, sigma_eta: float, sigma_delta: float) -> float:
        """Return delta at the asked epsilon of drawing the graph and running GOPA with this noise."""
        delta, _ = proven.delta(
            self.request.epsilon,
            diameter=self.diameter,
            sigma_eta=sigma_eta,
            sigma_delta=sigma_delta,
            smoothing=self._smoothing(sigma_eta, sigma_delta),
        )
        return delta

    def _certified(self, k: int | None) -> CertifiedGraph:
        """Return the given or a drawn graph, with a certified bound on its connectivity."""
        if k == self.request.parties - 1:
            return CertifiedGraph.complete(self.request.honest)
        return CertifiedGraph(self._draw(k), self.randomness)

    def _draw(self, k: int | None) -> HonestGraph:
        """Return the honest part of a drawn random graph, or of given edges; ConfigError without edges."""
        request = self.request
        n, honest = request.parties, request.honest
        if request.graph == "k-out" and k is not None:
            # All parties are alike: the first are the honest ones, and picks of corrupt ones do not count.
            drawn = graphs.k_out(n, k, honest, self.randomness)
            return honest_graph(n, drawn, np.arange(n) < honest)
        if request.graph == "ring":
            edges = graphs.ring(n)
        elif request.graph == "random-regular" and k is not None:
            edges = graphs.random_regular(n, k, self.randomness)
        elif self.given is not None:
            edges = self.given
        else:
            raise ConfigError.at(
                "graph", f"{request.graph!r} is no graph and no edges are given", ConfigCheck.MISSING
            )
        keys = np.frombuffer(self.randomness(8 * n), dtype="<u8")
        return honest_graph(n, edges, np.argsort(np.argsort(keys)) < honest)

    def _exact(self, certified: CertifiedGraph, sigma_eta: float, sigma_delta: float) -> ExactPrivacy:
        """Return certified bounds on the privacy of GOPA with this noise on the graph."""
        return exact_privacy(
            certified,
            sigma_eta=sigma_eta,
            sigma_delta=sigma_delta,
            diameter=self.diameter,
            max_dropouts=self.request.max_dropouts,
            curious=self.request.curious,
            step=self.step,
            length=self.request.length,
        )

    def _sigma_delta(
        self, certified: CertifiedGraph, proven: ProcessPrivacy | str, sigma_eta: float
    ) -> float:
        """Return about the least pairwise noise for drawn graph and process; ConfigError if none found."""
        request = self.request
        requested = request.delta_asked
        left = request.honest - self.removed
        room = (gaussian_mu(request.epsilon, requested) / self.diameter) ** 2
        s = self._smoothing(sigma_eta, math.inf).s
        room -= 1 / (left * (sigma_eta**2 - s**2))
        if room <= 0:
            reason = (
                f"{sigma_eta:.6g} does not give delta = {requested:g} with any pairwise noise; at least "
                f"{self.diameter / gaussian_mu(request.epsilon, requested) / math.sqrt(left):.6g} is "
                "needed, and more with less pairwise noise"
            )
            raise ConfigError.at("sigma_eta", reason, ConfigCheck.INFEASIBLE)
        # Entries fall as s = sigma_eta^2/sigma_delta^2 grows: what a larger sigma_delta estimates is enough.
        # Where delta is so large that parties need no pairwise noise, there is still a little.
        least = 0.01 * sigma_eta
        entry = (1 + 1 / max(certified.connectivity.lower, 0.1)) / certified.min_degree
        sigma_delta = max(2 * math.sqrt(entry / room), least)
        for _ in range(_ROUNDS):
            result = self._exact(certified, sigma_eta, sigma_delta)
            variance = sigma_eta**2 - result.smoothing.s**2
            entry = (result.worst_upper - 1 / (left * variance)) * sigma_delta**2
            before, sigma_delta = sigma_delta, max(math.sqrt(entry / room) * (1 + 1e-6), least)
            if 0.9 * before < sigma_delta <= before:
                break
        for _ in range(_ROUNDS):
            if self._exact(certified, sigma_eta, sigma_delta).delta(request.epsilon) <= requested:
                break
            sigma_delta *= 1.0005
        else:
            reason = (
                f"none suffices: in this graph {self.removed} chosen parties can leave another without "
                "pairwise noise; draw more neighbours"
            )
            raise ConfigError.at("sigma_delta", reason, ConfigCheck.INFEASIBLE)
        if isinstance(proven, ProcessPrivacy):
            sigma_delta = self._at_least(proven, sigma_eta, sigma_delta)
        return sigma_delta

    def _at_least(self, proven: ProcessPrivacy, sigma_eta: float, low: float) -> float:
        """Return the least pairwise noise from `low` up that is proven for the process; else `low`."""

        def short(sigma_delta: float) -> bool:
            """Return whether this sigma_delta is too small."""
            return self._process_delta(proven, sigma_eta, sigma_delta) > self.request.delta_asked

        high, rounds = low, 0
        while short(high):
            high, rounds = 1.5 * high, rounds + 1
            if rounds > 12:
                return low
        return bisect(short, low, high, 14 if rounds else 0)[1]

    def _whole(
        self,
        proven: ProcessPrivacy | str,
        result: ExactPrivacy,
        k: int | None,
        sigma_eta: float,
        sigma_delta: float,
    ) -> tuple[float | None, str]:
        """Return delta of graph draw and run together with its proof, or None and why there is none."""
        request = self.request
        delta = result.delta(request.epsilon)
        everyone = request.honest == request.parties
        # Not by what was drawn: a sample may happen to be complete.
        if request.graph == "complete" or (
            request.graph in ("k-out", "random-regular") and k == request.parties - 1
        ):
            return delta, "complete graph: the same for every choice of the parties who are not honest"
        if isinstance(proven, ProcessPrivacy):
            value = self._process_delta(proven, sigma_eta, sigma_delta)
            return value, "conductance and degrees of random k-out graphs; docs/proofs/gopa-plan.md"
        if request.graph not in ("k-out", "random-regular"):
            if everyone:
                return delta, "the graph is fixed and all are honest"
            return None, "the honest parties of a fixed graph were drawn here; others may have less"
        return None, proven

    def _assumption(self, result: ExactPrivacy) -> str:
        """Return words for what the plan's privacy assumes."""
        request = self.request
        chosen = []
        if request.max_dropouts:
            chosen.append(f"any {request.max_dropouts} of them left out by whoever knows the graph")
        if request.curious:
            chosen.append("any one of them curious")
        worst = ", with " + " and ".join(chosen) if chosen else ""
        everyone = request.honest == request.parties
        drawn = {
            "k-out": "one random k-out graph, drawn here as a sample, corrupt parties fixed before the draw",
            "random-regular": "one random regular graph, drawn here as a sample, honest parties drawn apart",
            "complete": "the complete graph, whoever the honest parties are",
        }.get(request.graph, "the given graph" + ("" if everyone else " and a sample of honest parties"))
        chance = (
            f"; bounds hold except with probability 2^{result.failure_log2:.0f} of the planner's own probes"
            if result.failure_log2 is not None
            else ""
        )
        return (
            f"{request.honest} of {request.parties} parties are honest and publish{worst}; delta: {drawn}"
            f"{chance}; delta_process: corrupt parties fixed before anybody draws, all drawing of graph and "
            "noise included; neighbouring: one party's value replaced"
        )


def _domain(request: GopaRequest) -> tuple[float, float]:
    """Return the grid step (0 if continuous), and the largest distance of two inputs on the grid."""
    length, root = request.length, math.sqrt(request.length)
    if request.precision == 0:
        wide = 2 * request.radius if request.radius is not None else root * (request.upper - request.lower)
        return 0.0, wide
    low, high = (request.lower, request.upper)
    if request.radius is not None:
        low, high = -request.radius, request.radius
    encoding = Encoding.plan(
        length=length, lower=low, upper=high, precision=request.precision, parties=request.parties
    )
    step = encoding.step
    if request.radius is not None:
        # Rounding moves each of two inputs by at most half a step a coordinate.
        return step, 2 * request.radius + step * root
    return step, root * step * (encoding.highest - encoding.lowest)
