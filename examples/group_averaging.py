"""Twelve clinics learn a score; in each step groups average sums of gradients, and nothing else is sent.

Larger groups have less noise and mix faster, and more clinics must be online at once. Data: Breast Cancer
Wisconsin (Original), UCI, CC BY 4.0. docs/proofs/learning.md, "Rounds of groups", has the claims.
Run: python examples/group_averaging.py
"""

from pathlib import Path

from smpc_dp import simulate
from smpc_dp.capabilities.learn.data import wisconsin
from smpc_dp.capabilities.learn.models import Model

DATA = Path(__file__).parent / "data" / "breast_cancer_wisconsin_original.csv"
CLINICS, MODEL = 12, Model("logistic", 9)
GIVEN = {"learner": "dual-averaging-groups", "features": 9, "steps": 24, "rate": 2.0}


def main() -> dict[tuple[int, bool], float]:
    """Print the mean accuracy of the clinics' models for several sizes of groups; return it."""
    tables, test = wisconsin(DATA).split(CLINICS, 0.3, 1)
    accuracies = {}
    for group in (3, 6, 12):
        # The expected squared distance to the average shrinks by the factor 1 - gap in a step.
        gap = CLINICS // group * (group - 1) / (CLINICS - 1)
        for budget in ({}, {"epsilon": 8.0, "delta": 1e-4}):
            learned = simulate.learn(GIVEN | {"group": group} | budget, tables)
            scores = [MODEL.accuracy(model, test) for model in learned.values]
            accuracies[group, bool(budget)] = sum(scores) / CLINICS
            privacy = f"epsilon {budget['epsilon']:g} a clinic" if budget else "exact: not private"
            print(f"groups of {group:2}, gap {gap:.2f}, {privacy}: {sum(scores) / CLINICS:.3f}")
    return accuracies


if __name__ == "__main__":
    main()
