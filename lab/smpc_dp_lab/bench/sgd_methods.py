"""The methods of `without_replacement`, by their names: what protects a record, and what is published."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.local_global import LocalGlobal, LocalGlobalRun
from smpc_dp.privacy.gaussian import gaussian_epsilon
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench.deep_q import DeepQ
from smpc_dp_lab.bench.public_loss import PublicLoss
from smpc_dp_lab.bench.with_replacement import BATCH, composed_deviation, naive_deviation, with_replacement

Floats = NDArray[np.float64]

# The step size without a ridge.
RATE = 0.1
# Of the threshold policy: the loss above which a node joins the others, and its part of epsilon.
THRESHOLD, POLICY_PART = 0.55, 0.25


@dataclass(frozen=True)
class Method:
    """How models are made: by the product's learner, with a policy of its own or not, or with replacement."""

    protected: bool
    learner: LocalGlobal | None = None
    deviation: float = 0.0
    ridge: float = 0.0
    deep: bool = False
    loss: PublicLoss | None = None


def methods(
    features: int, rounds: int, epsilon: float, delta: float, ridge: float = 0.0
) -> dict[str, Method]:
    """Return the compared methods by name: private ones, the published one, and ones without privacy."""

    def learner(**more: Any) -> LocalGlobal:
        given: dict[str, Any] = {
            "features": features,
            "rounds": rounds,
            "batch": BATCH,
            "record_bound": 1.0,
            "rate": RATE,
        }
        result = LocalGlobal(**given | {"values": "local", "ridge": ridge} | more)
        # With the paper's ridge, 1e-4, steps 1/(a ridge t) of Theorem 4 are above what Lemma 4 permits in all
        # rounds: the largest that it permits are taken.
        return msgspec.structs.replace(result, rate=result.largest_rate) if ridge else result

    def private(share: float = 1.0, **more: Any) -> LocalGlobal:
        return learner(epsilon=epsilon * share, delta=delta, **more)

    # The classical noise is as much as some other epsilon takes. With a ridge the paper doubles the
    # sensitivity: L = 1 + lambda R at R = 1/lambda.
    doubled = 2 if ridge else 1
    mu = epsilon / math.sqrt(2 * math.log(1.25 / delta)) / doubled
    published_epsilon = gaussian_epsilon(delta, mu)
    published = private(published_epsilon / epsilon)
    naive = naive_deviation(epsilon, delta) * doubled
    composed = composed_deviation(epsilon, delta)
    part: dict[str, Any] = {
        "policy": "threshold",
        "threshold": THRESHOLD,
        "policy_epsilon": POLICY_PART * epsilon,
    }
    loss = PublicLoss(epsilon, delta)
    return {
        "noiseless": Method(False, learner()),
        "deep-Q, as published": Method(False, published, deep=True),
        "global, as published": Method(published_epsilon <= epsilon, published),
        "with replacement, as published": Method(naive >= composed, deviation=naive, ridge=ridge),
        "global": Method(True, private()),
        "half global": Method(True, private(chance=0.5)),
        "threshold": Method(True, private(**part)),
        "deep-Q, public states": Method(True, private(loss.left / epsilon), deep=True, loss=loss),
        "with replacement": Method(True, deviation=composed, ridge=ridge),
    }


def accuracy(tables: list[Floats], test: Floats, method: Method, seed: int) -> float:
    """Train all nodes' models by a method; return their mean accuracy on the test table."""
    source = NoiseSource.keyed(bytes(32), seed.to_bytes(8, "big"))
    if method.learner is None:
        models = with_replacement(tables, method.deviation, method.ridge, seed)[None]
    else:
        nodes, rounds, length = len(tables), method.learner.rounds, method.learner.loss.length
        policy = DeepQ(nodes, rounds, length, seed, method.loss, source) if method.deep else None
        # Not by `simulate.learn`: a node alone has nobody to send to.
        run = LocalGlobalRun(method.learner, PlainExchange(nodes), tables, source, policy)
        models = asyncio.run(run.learn())[0]
    scores = np.c_[test[:, :-1], np.ones(len(test))] @ models.T
    return float(np.mean((scores > 0) == test[:, -1:]))
