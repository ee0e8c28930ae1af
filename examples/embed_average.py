"""Embed a secure average in a learner that you already have: federated linear regression.

Each party keeps its rows; what leaves it is a masked vector. The five lines that matter are marked.
A party whose process is started anew adds nothing until it has the others' model. The session below needs all
parties in each round; with `same_survivors = false`, `dropout = 0.25` and `corrupt = 0.0` the others go on
without one.
Run: python examples/embed_average.py
"""

import asyncio
import tempfile

import numpy as np

import smpc_dp
from smpc_dp.session.local import create_local_session

PARTIES = ("alice", "bob", "carol", "dave")
ROUNDS, RATE = 20, 0.3
TRUTH = np.array([1.5, -2.0, 0.5])


def private_rows(index: int) -> tuple[np.ndarray, np.ndarray]:
    """Return one party's own rows: features of shape (rows, 3) and targets of shape (rows,)."""
    rng = np.random.default_rng(index)
    x = rng.normal(size=(50 + 25 * index, 3))
    return x, x @ TRUTH + 0.1 * rng.normal(size=len(x))


async def learn(path: str, name: str) -> np.ndarray:
    """Run one party: local gradient steps on its own rows, a secure average of the models after each."""
    x, y = private_rows(PARTIES.index(name))
    model, number, weight = np.zeros(3), 1, len(y)
    async with smpc_dp.connect(path, party=name) as session:  # 1
        while number <= ROUNDS:  # 2
            step = model - RATE * x.T @ (x @ model - y) / len(y)  # 3
            try:
                # Rows counted, and the count is secret too.
                average = await session.average(step, weight=weight, number=number)  # 4
                model, number, weight = np.asarray(average.value), number + 1, len(y)  # 5
            except smpc_dp.OtherRequestError as others:
                # This process was started anew, and the others have gone on to a later round: this model is
                # none of that round. With weight 0 nothing of it is added, and the average is the others'.
                number, weight = others.next, 0
                if number > ROUNDS:
                    raise
            except smpc_dp.TimeoutFault as late:
                # So if it came too late for a round; any other timeout ends the loop.
                number, weight = late.number, 0
                if late.code != "begun" or number > ROUNDS:
                    raise
    return model


async def main() -> None:
    """Run the aggregator and all parties here; between hosts each of them is a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        parameters = {"length": 3, "lower": -10.0, "upper": 10.0, "precision": 1e-9, "max_weight": 1000}
        path = str(create_local_session(folder, PARTIES, parameters))
        _, *models = await asyncio.gather(smpc_dp.serve(path), *(learn(path, name) for name in PARTIES))
    for name, model in zip(PARTIES, models, strict=True):
        print(f"{name}: {np.round(model, 4)}")
    print(f"truth: {TRUTH}, largest error {max(abs(models[0] - TRUTH)):.4f}")


if __name__ == "__main__":
    asyncio.run(main())
