"""Models to start coordinate descent from: perturbed local ones, propagated [Bellet and others 2018, C].

Each party learns a model alone by gradient steps, releases it once with noise, and averages it with its
neighbours' models by (16). A record moves a local model of ridge lambda by clip/(m lambda) at most, after any
number of steps: docs/proofs/personalized.md. Only the local model costs privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange, Rows
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.pairing_schedule import Positive
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.record_gradients import RecordNoise
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]

# By which a local model's distance to its minimiser shrinks, unless it takes more steps than that.
_SHRINKS, _MOST_STEPS = 1e6, 10_000
# Of one gradient step in float64, relative to what it is made of (docs/proofs/local-global.md).
_FLOAT = 2.0**-48


class LocalGradients(Protocol):
    """Interface of the local parties' data: gradients of their mean losses, clipped or not."""

    def mean(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return, for each party in `rows`, the gradient of its mean loss at its model."""
        ...

    def clipped_mean(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return, for each party, the mean of its records' clipped gradients at its model."""
        ...


class WarmStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of personalised models that start from local models, noisy with `epsilon`, and not from 0."""

    share: Annotated[
        Annotated[float, Meta(gt=0, lt=1)],
        Meta(description="with `epsilon`: of the budget, for a party's local model; updates have the rest"),
    ] = 0.1
    ridge: Annotated[
        Positive | None,
        Meta(
            description="λ of local models, of the squared norm",
            extra={"default": "without `epsilon` 1/max(m, 1); with it from public numbers and `norm`"},
        ),
    ] = None
    norm: Annotated[Positive, Meta(description="of a good model, expected: for the default of `ridge`")] = 1.0
    pull: Annotated[Positive, Meta(description="μ, of local models against the neighbours'")] = 1.0
    rounds: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Meta(description="of propagation: one model of each party to its neighbours"),
    ] = 10


@dataclass(frozen=True, eq=False)
class LocalPlan:
    """Plan of local training of all n parties: steps, noise and bounds, from public numbers.

    Attributes:
        start: the settings. ridges: lambda, shape (n,). steps: of gradient descent, the same for all.
        rates: of a step, shape (n,): 1/(smoothness + 2 lambda).
        units: of the grid of released models, shape (n,), None without noise. In it a record moves a model
            by what it moves a sum of gradients by, twice the noise's bound.
    """

    start: WarmStart
    ridges: Floats
    steps: int
    rates: Floats
    units: Floats | None


def plan_local(
    start: WarmStart,
    objective: PersonalizedObjective,
    length: int,
    clips: tuple[float, float],
    reach: float,
    noise: Sequence[RecordNoise] | None,
) -> LocalPlan:
    """Return the plan of the local training with which each party starts, and of its noise if there is any.

    Args:
        length: numbers of a model.
        clips: the L2 norm of a record's gradient, and by what an L2 norm times it is one for the noise.
        reach: the largest norm of a record with its intercept.
        noise: of each party; its release 0 is the local model's.
    """
    (clip, widened), smooth = clips, objective.smoothness
    records = np.maximum(objective.sizes, 1).astype(np.float64)
    ridges = np.full(len(records), start.ridge or 0.0)
    if start.ridge is None and noise is None:
        ridges = 1 / records
    elif start.ridge is None and noise is not None:
        # Least of lambda norm^2 + smoothness/2 E|noise|^2, for noise proportional to 1/(m lambda).
        wide = np.array([one.mean_square(length, 0) / (2 * one.bound) ** 2 for one in noise]) * widened**2
        ridges = np.cbrt(max(smooth, 1e-12) * wide) * (clip / (records * start.norm)) ** (2 / 3)
    rates = 1 / (smooth + 2 * ridges)
    slowest = float((2 * ridges * rates).min())
    steps = min(_MOST_STEPS, math.ceil(math.log(_SHRINKS) / slowest))
    if noise is None:
        return LocalPlan(start, ridges, steps, rates, None)
    within = clip / (2 * ridges)
    # A logistic gradient is a difference of numbers of up to 1, times a record, however small the clip.
    made_of = within + rates * ((clip + reach * (1 + within)) * (2 + reach) + 2 * ridges * within)
    rounding = _FLOAT * (length + records + 16) * made_of / (2 * ridges * rates)
    apart = (clip / (records * ridges) + 2 * rounding) * widened
    bounds = np.array([one.bound for one in noise], dtype=np.float64)
    # Rounding to the grid moves two models one step further apart in each coordinate.
    return LocalPlan(start, ridges, steps, rates, apart / (2 * bounds - widened * math.sqrt(length)))


def check_room(plan: LocalPlan, noise: Sequence[RecordNoise], clip: float, length: int, bits: int) -> None:
    """Raise ConfigError if noisy local models may exceed the range of the messages' grid."""
    if plan.units is None:
        return
    far = np.array([one.far(length) for one in noise]) * plan.units + clip / plan.ridges
    if far.max() > math.ldexp(EXACT_STEPS, -bits):
        reason = "has local models with too much noise for the grid of the messages: give a larger ridge"
        raise ConfigError.at("start", reason, ConfigCheck.INFEASIBLE)


def local_models(plan: LocalPlan, gradients: LocalGradients, parties: NDArray[np.intp], length: int) -> Rows:
    """Return the models that the local parties learn alone, each from its own records, before any noise."""
    rows = np.arange(len(parties))
    models = np.zeros((len(rows), length))
    ridges, rates = plan.ridges[parties][:, None], plan.rates[parties][:, None]
    slope = gradients.mean if plan.units is None else gradients.clipped_mean
    for _ in range(plan.steps if len(rows) else 0):
        models = models - rates * (slope(models, rows) + 2 * ridges * models)
    return models


async def propagated_models(
    exchange: PeerExchange,
    objective: PersonalizedObjective,
    plan: LocalPlan,
    gradients: LocalGradients,
    length: int,
    bits: int,
    noise: Sequence[RecordNoise] | None,
    source: NoiseSource | None,
) -> Rows:
    """Return the local parties' start models: local models, noisy if planned, spread over the graph."""
    here = exchange.here
    shown = local_models(plan, gradients, here, length)
    for row, party in enumerate(here.tolist()):
        if not objective.sizes[party]:
            shown[row] = 0
        elif noise is not None and source is not None and plan.units is not None:
            steps = np.rint(shown[row] / plan.units[party]).astype(np.int64)
            shown[row] = (steps + noise[party].draw(source, length, 0)) * plan.units[party]
    # A party without records has its neighbours' models alone.
    pull = (plan.start.pull * objective.confidence * (objective.sizes > 0))[here][:, None]
    degrees = objective.degrees[here][:, None]
    models = shown = np.ldexp(np.rint(np.ldexp(shown, bits)), -bits)
    for _ in range(plan.start.rounds):
        around = await exchange.mix(models, objective.weights)
        models = (around / degrees + pull * shown) / (1 + pull)
        models = np.ldexp(np.rint(np.ldexp(models, bits)), -bits)
    return models
