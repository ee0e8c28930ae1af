"""Rényi accounting: divergences of each order add up, also for adaptively chosen mechanisms.

The orders are integers from 2 up, where every bound that we use holds; zCDP is also taken between 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import PrivacyError
from smpc_dp.privacy.accountant.decimals import summed
from smpc_dp.privacy.accountant.events import (
    AnyDescription,
    Event,
    Gaussian,
    Joint,
    Pure,
    RandomisedResponse,
    Renyi,
)

Floats = NDArray[np.float64]

_WHOLE = np.concatenate((np.arange(2, 257), np.unique(np.geomspace(257, 1 << 20, 120).astype(np.int64))))
INTEGER_ORDERS: Floats = _WHOLE.astype(np.float64)
ALL_ORDERS: Floats = np.concatenate(
    (1 + np.geomspace(0.01, 0.99, 60), INTEGER_ORDERS, INTEGER_ORDERS[:60] + 0.5)
)
# The formulas below are good to this, relatively.
_MARGIN = 1 + 1e-9


def curve(description: AnyDescription, orders: Floats) -> Floats | None:
    """Return upper bounds on a release's Rényi divergence at these orders (> 1); None if none is known."""
    match description:
        case Renyi(lines, all_orders):
            if not all_orders and not np.array_equal(orders, np.floor(orders)):
                return None
            divergence = np.min([line.offset + line.slope * orders for line in lines], axis=0)
        case Gaussian(mu, closeness):
            # densities within a range of e^closeness: P^a Q^(1-a) grows by e^(a closeness) at most
            divergence = orders * (mu**2 / 2) + closeness * orders / (orders - 1)
        case Pure(epsilon):
            divergence = _two_points(orders, epsilon)
        case RandomisedResponse(categories, ratio, values):
            divergence = values * _two_points(orders, math.log(ratio), float(categories))
        case Joint(parts) if not any(isinstance(part, Pure) and part.delta for part in parts):
            each = [known for part in parts if (known := curve(part, orders)) is not None]
            if len(each) < len(parts):
                return None
            divergence = np.sum(each, axis=0)
        case _:
            return None
    return np.asarray(divergence * _MARGIN, dtype=np.float64)


def _two_points(orders: Floats, epsilon: float, categories: float = 2.0) -> Floats:
    """Return the Rényi divergence of randomised response with this epsilon, at each order.

    With two categories no epsilon-DP mechanism has a greater one.
    """
    terms = [orders * epsilon, (1 - orders) * epsilon]
    if categories > 2:
        terms.append(np.full_like(orders, math.log(categories - 2)))
    # log(e^eps + k - 1)
    total = np.logaddexp(epsilon, math.log(categories - 1))
    return np.asarray((np.logaddexp.reduce(terms) - total) / (orders - 1), dtype=np.float64)


def event_curve(event: Event, orders: Floats) -> tuple[Floats, float] | None:
    """Return (bounds on a release's Rényi divergence at each order, the least delta); None if unknown."""
    best: tuple[Floats, float] | None = None
    for description in event.descriptions:
        divergence = curve(description, orders)
        if divergence is None:
            continue
        # (eps, delta)-DP is eps-DP except with probability delta [Kairouz, Oh, Viswanath 2015]
        failing = description.delta if isinstance(description, Pure) else 0.0
        slack = summed([(event.slack, 1), (failing, 1)]) if failing else event.slack
        if best is None or slack < best[1]:
            best = (divergence, slack)
        elif slack == best[1]:
            best = (np.minimum(best[0], divergence), slack)
    return best


def renyi_epsilon(divergence: Floats, orders: Floats, delta: float) -> float:
    """Convert Rényi divergences to the least epsilon at delta [Canonne, Kamath, Steinke 2020, Prop. 12]."""
    bounds = divergence + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(bounds.min()) * (_MARGIN if bounds.min() > 0 else 1.0))


def renyi_delta(divergence: Floats, orders: Floats, epsilon: float) -> float:
    """Convert Rényi divergences at these orders to the least delta at epsilon (>= 0)."""
    logs = (orders - 1) * (divergence - epsilon) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
    return min(1.0, math.exp(min(float(logs.min()), 0.0)) * _MARGIN)


def total_curve(events: Sequence[tuple[Event, int]]) -> tuple[Floats, Floats, float] | None:
    """Return (orders, total Rényi divergence at each, total delta) of releases; None if one has no bound."""
    for orders in (ALL_ORDERS, INTEGER_ORDERS):
        divergence, slack = np.zeros_like(orders), list[tuple[float, int]]()
        for event, count in events:
            known = event_curve(event, orders)
            if known is None:
                break
            divergence = divergence + count * known[0]
            slack.append((known[1], count))
        else:
            return orders, divergence, summed(slack)
    return None


class FilterPlan:
    """Settings of a Rényi privacy filter (adaptive composition): one order, and the divergence to spend.

    Chosen so that Gaussian releases get the most. Holds for mechanisms whose parameters depend on earlier
    results [Feldman and Zrnic 2021; Lécuyer 2021]. Half of delta is reserved for releases that may fail.
    """

    __slots__ = ("delta", "order", "radius", "slack")

    def __init__(self, epsilon: float, delta: float) -> None:
        if not 0 < delta < 1 or epsilon <= 0:
            raise PrivacyError("adaptive composition needs epsilon > 0 and delta > 0")
        self.delta = self.slack = delta / 2
        orders = INTEGER_ORDERS
        radii = epsilon - np.log1p(-1 / orders) + (math.log(self.delta) + np.log(orders)) / (orders - 1)
        best = int(np.argmax(radii / orders))
        if radii[best] <= 0:
            raise PrivacyError(f"epsilon = {epsilon:g} is too small for adaptive composition at this delta")
        # so much less that the conversion, which rounds up, gives no more than epsilon
        self.order, self.radius = float(orders[best]), float(radii[best]) - 2e-9 * epsilon
