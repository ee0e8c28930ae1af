"""Adapt-then-combine diffusion, plain, with i.i.d. and with graph-homomorphic noise [Vlaski and Sayed 2020].

Models and noise are on a grid of integers, so that the guarantee of `DiffusionNoise` holds for the messages
as sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Groups, PeerExchange, Rows, check_rows
from smpc_dp.capabilities.learn.group_steps import GroupOutcome, GroupRun
from smpc_dp.capabilities.learn.models import RecordGradients
from smpc_dp.capabilities.learn.step_progress import NoProgress, StepProgress, TakenSteps
from smpc_dp.capabilities.learn.topology import mixing_gap
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.diffusion import DiffusionNoise
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.sampling import NoiseSource, discrete_laplace

if TYPE_CHECKING:
    from scipy import sparse

    from smpc_dp.privacy.factorisation import CorrelatedNoise

Integers = NDArray[np.int64]
# Gradients of the data of the parties here at their models, shape (rows, length), at step 1, 2, ...
Gradient = Callable[[Rows, int], Rows]
Watch = Callable[[int, Rows], None]

# Models beyond so many grid steps, or units without noise, have diverged.
_FAR = 1 << 46
# The regulariser's factor 1 - mu rho is a multiple of 2^-_FRACTION.
_FRACTION = 16


@dataclass(frozen=True, slots=True)
class Diffused:
    """Result of a run of diffusion: the models of the local parties, and the privacy guarantee.

    `models`: shape (rows, length); `guarantee` None without noise. With homomorphic noise the models are
    secret: see the guarantee's assumption.
    """

    models: Rows
    guarantee: PrivacyGuarantee | None


async def diffuse(  # noqa: PLR0913 - each can be left out
    exchange: PeerExchange,
    weights: sparse.csr_array,
    gradient: Gradient,
    start: Rows,
    steps: int,
    step_size: float,
    *,
    ridge: float = 0.0,
    noise: DiffusionNoise | None = None,
    source: NoiseSource | None = None,
    budget: float | None = None,
    radius: float | None = None,
    watch: Watch | None = None,
    progress: StepProgress | None = None,
) -> Diffused:
    """Run diffusion learning between neighbours with the given kind of noise; return the local models.

    Args:
        exchange: carries the messages; each agent sends one message to all its neighbours.
        weights: A, shape (n, n), symmetric and stochastic, of a connected graph.
        gradient: of the loss without its regulariser; clipped to `noise.l1_bound` in the l1 norm.
        start: shape (rows, length), the same for all; length is a multiple of M: so many independent runs go
            side by side.
        step_size: mu.
        ridge: rho, of the regulariser rho/2 |w|^2; 0 <= mu rho <= 1.
        source: `NoiseSource.system()` in a real run; needed with noise.
        budget: epsilon that the steps may cost; refused before the first if they cost more.
        radius: bound on the coordinates of messages: beyond it the descent has diverged. None: as large as
            possible.
        watch: called with step and models of the local parties after each step; in a simulation, for studies.
        progress: keeps the steps of a run without noise; None: nothing does.

    Raises:
        ConfigError: an argument is refused, or the descent diverges. PrivacyError: the budget is too small.
    """
    start = check_rows(exchange, start)
    _check(exchange, weights, steps, step_size, ridge, noise, source)
    claim = None if noise is None else noise.guarantee(steps, budget)
    far = _FAR * (1.0 if noise is None else 2.0**-noise.bits) if radius is None else radius
    if noise is None or source is None:
        models, begin, progress = start, 0, progress or NoProgress()
        if (taken := await progress.restore()) is not None:
            models, begin = taken.models, taken.number
        for step in range(begin + 1, steps + 1):
            adapted = models - step_size * (_check_finite(gradient(models, step), step) + ridge * models)
            models = await exchange.mix(_check_bounded(exchange, adapted, step, far), weights)
            done = np.full(len(models), step)
            await progress.keep(TakenSteps(step, models, done, done))
            if watch is not None:
                watch(step, models)
        return Diffused(models, claim)
    if start.shape[1] % noise.dimension:
        reason = f"length {start.shape[1]} is no multiple of M = {noise.dimension}"
        raise ConfigError.at("start", reason, ConfigCheck.SHAPE)
    retained = round(retained_part(step_size, ridge) * (1 << _FRACTION))
    own: Integers = np.rint(np.ldexp(start, noise.bits)).astype(np.int64)
    for step in range(1, steps + 1):
        models = np.ldexp(own.astype(np.float64), -noise.bits)
        drawn = discrete_laplace(source, own.size, noise.scale).reshape(own.shape)
        moved = ((own * retained) >> _FRACTION) - update(_check_finite(gradient(models, step), step), noise)
        sent = np.ldexp((moved + drawn).astype(np.float64), -noise.bits)
        mixed = await exchange.mix(_check_bounded(exchange, sent, step, far), weights)
        own = np.rint(np.ldexp(mixed, noise.bits)).astype(np.int64)
        if noise.kind == "homomorphic":
            # Own weight a_kk times own perturbation -(1 - a_kk)/a_kk v in place of v: v less in the sum.
            own -= drawn
        if watch is not None:
            watch(step, np.ldexp(own.astype(np.float64), -noise.bits))
    return Diffused(np.ldexp(own.astype(np.float64), -noise.bits), claim)


async def diffuse_in_groups(
    run: GroupRun, gradient: Gradient, start: Rows, watch: Watch | None = None
) -> GroupOutcome:
    """Run diffusion in which random groups, not neighbours, average models; return the outcome.

    The other parties keep theirs, and take no step. `gossip_bounds.group_disagreement` bounds how far models
    are from their centroid.

    Args:
        run: the averages and the groups; `retained` is 1 - mu rho and `factor` -mu.
        gradient, start, watch: as of `diffuse`.

    Raises:
        ConfigError: the descent diverges.
    """

    async def changes(models: Rows, rows: NDArray[np.intp], _group: Groups, step: int) -> Rows:
        return _check_finite(gradient(models, step), step)[rows] if len(rows) else models[rows]

    def moved(models: Rows, step: int) -> None:
        if watch is not None:
            watch(step, models)

    return await run.run(start, changes, moved)


def retained_part(step_size: float, ridge: float) -> float:
    """Return the factor 1 - mu rho of a party's own model in an update, rounded to a grid."""
    return round((1 - step_size * ridge) * (1 << _FRACTION)) / (1 << _FRACTION)


async def diffuse_records(
    exchange: PeerExchange,
    weights: sparse.csr_array,
    batches: Sequence[RecordGradients],
    factors: NDArray[np.float64],
    steps: int,
    retained: float,
    noise: Sequence[CorrelatedNoise],
    *,
    source: NoiseSource,
    room: tuple[int, float],
) -> Rows:
    """Run diffusion on batches in cyclic order, with noise correlated over steps; return local models.

    Args:
        exchange, weights: as of `diffuse`.
        batches: gradients of the records of each batch of the parties here.
        factors: shape (rows,): by what a step multiplies the gradient of one record.
        retained: see `retained_part`.
        noise: of the parties here, all on one grid; its guarantee is for as many batches and steps.
        room: the length of a model, and the bound on a coordinate of a message.

    Raises:
        ConfigError: the descent diverges.
    """
    length, far = room
    own: Integers = np.zeros((len(noise), length), np.int64)
    drawn: list[list[Integers]] = [[] for _ in noise]
    bits, rows = noise[0].bits if noise else 0, np.arange(len(noise))
    for step in range(steps):
        sent = np.zeros(own.shape)
        if len(noise):
            models = np.ldexp(own.astype(np.float64), -bits)
            changes = batches[step % len(batches)].contributions(models, rows, factors, bits)
            for one, earlier in zip(noise, drawn, strict=True):
                earlier.append(one.draw(earlier, length, source))
            moved = ((own * round(retained * (1 << _FRACTION))) >> _FRACTION) - changes
            moved += np.array([each[-1] for each in drawn])
            sent = np.ldexp(moved.astype(np.float64), -bits)
        mixed = await exchange.mix(_check_bounded(exchange, sent, step + 1, far), weights)
        own = np.rint(np.ldexp(mixed, bits)).astype(np.int64)
    return np.ldexp(own.astype(np.float64), -bits)


def update(gradients: Rows, noise: DiffusionNoise) -> Integers:
    """Return gradients times the step size on the grid, scaled down to l1 norm `noise.update` if longer."""
    # Gradients beyond the bound are scaled to it: nothing overflows after this.
    most = 2.0 * noise.l1_bound
    rows = np.asarray(gradients, dtype=np.float64).reshape(-1, noise.dimension)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = np.where(largest > most, rows / np.maximum(largest, most) * most, rows)
    parts = np.ldexp(rows * noise.step_size, noise.bits)
    norms = np.abs(parts).sum(axis=1)
    factor = np.minimum(1.0, noise.update * (1 - 1e-9) / np.maximum(norms, 1e-300))
    # Toward zero: rounding adds nothing to the norm.
    grid: Integers = np.trunc(parts * factor[:, None]).astype(np.int64)
    return grid.reshape(gradients.shape)


def publish_models(
    models: Rows, noise: DiffusionNoise, steps: int, epsilon: float, source: NoiseSource
) -> Rows:
    """Return the final models of homomorphic diffusion with fresh noise, at a cost of `epsilon` more.

    Costs `noise.guarantee(steps, publish=epsilon)` in all. Raises ConfigError.
    """
    drawn = discrete_laplace(source, models.size, noise.publication(steps, epsilon)).reshape(models.shape)
    return np.asarray(models + np.ldexp(drawn.astype(np.float64), -noise.bits))


def _check(
    exchange: PeerExchange,
    weights: sparse.csr_array,
    steps: int,
    step_size: float,
    ridge: float,
    noise: DiffusionNoise | None,
    source: NoiseSource | None,
) -> None:
    """Raise ConfigError unless weights, steps, step size, ridge and noise of a diffusion run are valid."""
    issues = []
    if weights.shape != (exchange.parties, exchange.parties):
        issues.append(
            ConfigIssue(
                "weights",
                f"shape must be (n, n), n = {exchange.parties}, is {weights.shape}",
                ConfigCheck.SHAPE,
            )
        )
    elif mixing_gap(weights) < 1e-12:
        issues.append(
            ConfigIssue(
                "weights",
                "do not mix: the graph is disconnected, or bipartite without own weights",
                ConfigCheck.CONFLICT,
            )
        )
    elif weights.data.min() < 0 or (noise is not None and weights.diagonal().min() <= 0):
        issues.append(
            ConfigIssue(
                "weights",
                "must not be negative, and own weights above 0 where there is noise",
                ConfigCheck.RANGE,
            )
        )
    if not steps >= 1:
        issues.append(ConfigIssue("steps", f"must be at least 1, is {steps}", ConfigCheck.RANGE))
    if not (step_size > 0 and 0 <= step_size * ridge <= 1):
        issues.append(
            ConfigIssue("step_size", f"must be above 0 and at most 1/rho, is {step_size}", ConfigCheck.RANGE)
        )
    if noise is not None and noise.step_size != step_size:
        issues.append(
            ConfigIssue(
                "noise", f"is for steps of {noise.step_size:g}, not {step_size:g}", ConfigCheck.DIFFERS
            )
        )
    if (noise is None) != (source is None):
        issues.append(
            ConfigIssue(
                "source", "is needed with noise, and without there is nothing to draw", ConfigCheck.MISSING
            )
        )
    if issues:
        raise ConfigError(issues)


def _check_finite(gradients: Rows, step: int) -> Rows:
    """Return the gradients of a step; raise ConfigError if one of them is not finite."""
    gradients = np.asarray(gradients, dtype=np.float64)
    if not np.isfinite(gradients).all():
        raise ConfigError.at(
            "step_size", f"the descent diverges: step {step} has no finite gradient", ConfigCheck.INFEASIBLE
        )
    return gradients


def _check_bounded(exchange: PeerExchange, sent: Rows, step: int, far: float) -> Rows:
    """Return the messages; raise ConfigError if a coordinate exceeds `far`: models diverged."""
    # An aggregator has no rows. Written so that NaN is caught.
    wrong = np.flatnonzero(~(np.abs(sent) <= far).all(axis=1))
    if len(wrong):
        largest = float(np.abs(sent[wrong[0]]).max())
        who = exchange.name_of(int(exchange.here[wrong[0]]))
        reason = (
            f"the descent diverges: at step {step} {who} has a coordinate of "
            f"{largest:.3g}, the bound is {far:.3g}; take smaller steps"
        )
        raise ConfigError.at("step_size", reason, ConfigCheck.INFEASIBLE)
    return sent
