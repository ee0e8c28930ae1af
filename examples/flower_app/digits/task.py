"""The model and each node's rows: handwritten digits, 64 pixels and 10 classes."""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

CLASSES, PIXELS = 10, 64
VALUES = CLASSES * (PIXELS + 1)
# The last rows are held out for the server's test.
HELD_OUT = 360

Arrays = list[np.ndarray[Any, Any]]


def load() -> tuple[Any, Any]:
    """Return all rows, pixels from 0 to 1, in a public random order."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return x[order] / 16, y[order]


def rows_of(partition: int, partitions: int) -> tuple[Any, Any]:
    """Return a node's rows; later nodes have more."""
    x, y = load()
    x, y = x[:-HELD_OUT], y[:-HELD_OUT]
    shares = np.cumsum(np.arange(1, partitions + 1)) / sum(range(1, partitions + 1))
    ends = np.concatenate([[0], shares]) * len(y)
    chosen = slice(int(ends[partition]), int(ends[partition + 1]))
    return x[chosen], y[chosen]


def initial(padding: int = 0) -> Arrays:
    """Return the first model; `padding`: so many more values, for measurements of large models."""
    more = [np.zeros(padding, np.float32)] if padding else []
    return [np.zeros((CLASSES, PIXELS)), np.zeros(CLASSES), *more]


def model_of(arrays: Arrays) -> Any:
    model = SGDClassifier(loss="log_loss", alpha=1e-3, learning_rate="constant", eta0=0.05, random_state=0)
    model.classes_, model.coef_, model.intercept_ = np.arange(CLASSES), arrays[0].copy(), arrays[1].copy()
    return model


def train(arrays: Arrays, x: Any, y: Any) -> tuple[Arrays, float]:
    """Return the arrays after two passes over a node's rows, and the model's error on them."""
    model = model_of(arrays)
    for _ in range(2):
        model.partial_fit(x, y, classes=np.arange(CLASSES))
    padding = [array + np.float32(len(y) / 1000) for array in arrays[2:]]
    return [model.coef_, model.intercept_, *padding], 1 - float(model.score(x, y))


def accuracy(arrays: Arrays) -> float:
    """Return the accuracy on the held-out rows."""
    x, y = load()
    return float(model_of(arrays).score(x[-HELD_OUT:], y[-HELD_OUT:]))
