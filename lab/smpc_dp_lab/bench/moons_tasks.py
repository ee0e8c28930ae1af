"""100 parties whose two moons are rotated, in four clusters of angles [Bellet 2021, section 2.5]."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CLUSTERS, ANGLES, SPREAD = (10, 20, 30, 40), (45, 135, 225, 315), 5.0
PARTIES, FEATURES, TESTED = sum(CLUSTERS), 20, 100
MOON_NOISE, OTHER, EDGE = 0.1, 1.0, 2.0
# Of the oracle's weights, exp((cos - 1)/SCALE); smaller ones are left out.
SCALE, LEAST_WEIGHT = 0.1, 1e-6


def true_angles(seed: int) -> tuple[Floats, np.random.Generator]:
    """Return the rotation of each party's moons, in degrees, and the generator of its records."""
    rng = np.random.default_rng([seed, 41])
    return np.repeat(ANGLES, CLUSTERS) + rng.normal(0, SPREAD, PARTIES), rng


def problem(seed: int) -> tuple[list[Floats], list[Floats], Floats]:
    """Return records and test records of the parties, and the oracle's weights by their true angles."""
    degrees, rng = true_angles(seed)
    angles = np.deg2rad(degrees)

    def draw(angle: float, records: int) -> Floats:
        labels = rng.integers(0, 2, records)
        turned = math.pi * rng.random(records)
        moons = np.c_[np.cos(turned), np.sin(turned)]
        moons[labels == 1] = np.c_[1 - np.cos(turned), 0.5 - np.sin(turned)][labels == 1]
        moons += rng.normal(0, MOON_NOISE, moons.shape) - [0.5, 0.25]
        rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        others = rng.normal(0, OTHER, (records, FEATURES - 2))
        return np.column_stack([np.clip(np.c_[moons @ rotation, others], -EDGE, EDGE), labels])

    weights = np.exp((np.cos(angles[:, None] - angles) - 1) / SCALE)
    weights[weights < LEAST_WEIGHT] = 0
    np.fill_diagonal(weights, 0)
    given = [draw(angle, int(size)) for angle, size in zip(angles, rng.integers(3, 16, PARTIES), strict=True)]
    return given, [draw(angle, TESTED) for angle in angles], weights


def boosted(margins: Floats, beta: float, steps: int) -> Floats:
    """Return the model of one data set with L1 norm at most `beta`, by Frank-Wolfe on the loss (2.4)."""
    model = np.zeros(margins.shape[1])
    for step in range(steps):
        scores = -(margins @ model)
        share = np.exp(scores - scores.max())
        gradient = -(share / share.sum()) @ margins
        best = int(np.abs(gradient).argmax())
        model *= 1 - 2 / (step + 2)
        model[best] -= 2 / (step + 2) * beta * np.sign(gradient[best])
    return model
