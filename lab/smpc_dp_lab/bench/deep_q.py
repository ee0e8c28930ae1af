"""The deep-Q policy of a local and a global model [Jin, He, Dai, Algorithm 2], on private or public states.

As published a state is a node's local model and its loss on the next batch: replay memory and weights then
carry what past records were, and when a node joins shows it, so nothing is protected (NOT DP). With
`PublicLoss` a state is what all know: the global model, how often the node joined, and the global model's
loss on the next batch with noise. Decisions are then functions of public values alone.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.requirements import Table
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian
from smpc_dp_lab.bench.public_loss import LOSS_STEPS, PublicLoss, losses

Floats = NDArray[np.float64]

# Of the paper; the discount and how often the target network follows are not in it.
HIDDEN, MEMORY, DRAWN, ADAM, LEAST_EXPLORED, DISCOUNT, FOLLOWS = 128, 20, 10, 0.01, 0.1, 0.9, 10


class Network:
    """Two linear layers with Adam on the squared error of one output."""

    def __init__(self, inputs: int, rng: np.random.Generator) -> None:
        sizes = (inputs, HIDDEN, 2)
        # Glorot's uniform weights ("Xavier initialization"), and biases of 0.
        self.weights = []
        for before, after in pairwise(sizes):
            reach = math.sqrt(6 / (before + after))
            self.weights += [rng.uniform(-reach, reach, (before, after)), np.zeros(after)]
        self._moments = [np.zeros((2, *one.shape)) for one in self.weights]
        self._steps = 0

    def __call__(self, states: Floats) -> Floats:
        """Return the value of each of the two actions, shape (states, 2)."""
        first, bias, second, last = self.weights
        return np.asarray((states @ first + bias) @ second + last)

    def fit(self, states: Floats, actions: NDArray[np.intp], targets: Floats) -> None:
        """Take one Adam step that moves the values of these actions towards the targets."""
        first, bias, second, _ = self.weights
        hidden, rows = states @ first + bias, np.arange(len(states))
        errors = np.zeros((len(states), 2))
        errors[rows, actions] = (self(states)[rows, actions] - targets) * 2 / len(states)
        back = errors @ second.T
        self._steps += 1
        slopes = (states.T @ back, back.sum(axis=0), hidden.T @ errors, errors.sum(axis=0))
        for weights, moments, slope in zip(self.weights, self._moments, slopes, strict=True):
            moments[0] = 0.9 * moments[0] + 0.1 * slope
            moments[1] = 0.999 * moments[1] + 0.001 * slope**2
            mean, square = (
                moment / (1 - base**self._steps) for moment, base in zip(moments, (0.9, 0.999), strict=True)
            )
            weights -= ADAM * mean / (np.sqrt(square) + 1e-8)


class Agent:
    """The network of one node, its target network and its replay memory."""

    def __init__(self, inputs: int, rounds: int, rng: np.random.Generator) -> None:
        self._network, self._target = Network(inputs, rng), Network(inputs, rng)
        self._rng, self._half, self._acted = rng, max(1, rounds // 2), 0
        self._memory: deque[tuple[Floats, int, float, Floats]] = deque(maxlen=MEMORY)
        self._last: tuple[Floats, int] | None = None

    def act(self, state: Floats, reward: float) -> bool:
        """Learn from the reward of the last action, and return whether to join the global model."""
        if self._last is not None:
            self._memory.append((*self._last, reward, state))
            drawn = self._rng.choice(len(self._memory), min(DRAWN, len(self._memory)), replace=False)
            some = [self._memory[index] for index in drawn]
            before, after = np.array([one[0] for one in some]), np.array([one[3] for one in some])
            targets = np.array([one[2] for one in some]) + DISCOUNT * self._target(after).max(axis=1)
            self._network.fit(before, np.array([one[1] for one in some]), targets)
        if self._acted % FOLLOWS == 0:
            self._target.weights = [one.copy() for one in self._network.weights]
        explored = max(LEAST_EXPLORED, 1 - (1 - LEAST_EXPLORED) * self._acted / self._half)
        self._acted += 1
        action = int(self._network(state[None])[0].argmax())
        if self._rng.random() < explored:
            action = int(self._rng.integers(2))
        self._last = state, action
        return bool(action)


class DeepQ:
    """The policy of all nodes in one process; `loss`: None for the states of the paper, which are private."""

    def __init__(
        self, nodes: int, rounds: int, length: int, seed: int, loss: PublicLoss | None, source: NoiseSource
    ) -> None:
        rng = np.random.default_rng([seed, 128])
        inputs = length + (1 if loss is None else 2)
        self._agents = [Agent(inputs, rounds, one) for one in rng.spawn(nodes)]
        self._loss, self._source, self._rounds = loss, source, rounds
        self._variance = None if loss is None else loss.noise.variances[0]
        self._batches: list[Table | None] = [None] * nodes
        self._joined = np.zeros(nodes)

    def __call__(self, row: int, batch: Table, local: Floats, shared: Floats) -> bool:
        """Return whether a node's step is global; see `local_global.Policy`."""
        if self._loss is None or self._variance is None:
            before, self._batches[row] = self._batches[row], batch
            # The moved model's loss on the batch that moved it.
            reward = 0.0 if before is None else -float(losses(local, before).mean())
            return self._agents[row].act(np.r_[local, losses(local, batch).mean()], reward)
        noisy = self._loss.sum_steps(shared, batch) + discrete_gaussian(self._source, 1, self._variance)[0]
        seen = float(noisy) / LOSS_STEPS * self._loss.bound / len(batch)
        state = np.r_[shared, self._joined[row] / self._rounds, seen]
        joins = self._agents[row].act(state, -seen)
        self._joined[row] += joins
        return joins
