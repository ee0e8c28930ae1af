"""Linear algebra of small matrices: eigenvalues by Jacobi's rotations, inverses by elimination."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

Matrix = list[list[float]]
# Rounds of rotations, of which some ten suffice.
ROUNDS = 60


def eigen(matrix: Matrix) -> tuple[list[float], Matrix]:
    """Return the eigenvalues of a symmetric matrix, and its eigenvectors in the same order."""
    size = len(matrix)
    left, vectors = [[*row] for row in matrix], [[float(i == j) for j in range(size)] for i in range(size)]
    for _ in range(ROUNDS):
        if not any(left[i][j] for i, j in itertools.combinations(range(size), 2)):
            break
        for i, j in itertools.combinations(range(size), 2):
            _rotate(left, vectors, i, j)
    return [left[i][i] for i in range(size)], vectors


def _rotate(left: Matrix, vectors: Matrix, i: int, j: int) -> None:
    """Make entry (i, j) 0 by a rotation of both axes."""
    own = left[i][j]
    if abs(own) <= 1e-18 * math.sqrt(abs(left[i][i] * left[j][j])) or own == 0:
        left[i][j] = left[j][i] = 0.0
        return
    slope = (left[j][j] - left[i][i]) / (2 * own)
    tangent = math.copysign(1.0, slope) / (abs(slope) + math.hypot(slope, 1.0))
    cosine = 1 / math.hypot(tangent, 1.0)
    sine = tangent * cosine
    for row in left:
        row[i], row[j] = cosine * row[i] - sine * row[j], sine * row[i] + cosine * row[j]
    for rows in (left, vectors):
        first, second = rows[i], rows[j]
        rows[i] = [cosine * a - sine * b for a, b in zip(first, second, strict=True)]
        rows[j] = [sine * a + cosine * b for a, b in zip(first, second, strict=True)]
    left[i][j] = left[j][i] = 0.0


def inverse(matrix: Matrix) -> Matrix:
    """Return the inverse of a matrix; raise ZeroDivisionError for a singular one."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        own = [value / rows[at][at] for value in rows[at]]
        rows = [
            own if row == at else [a - each[at] * b for a, b in zip(each, own, strict=True)]
            for row, each in enumerate(rows)
        ]
    return [row[size:] for row in rows]


def has_small_radius(matrix: Matrix) -> bool:
    """Tell whether all eigenvalues of a matrix without negative entries are below 1 in size.

    They are if elimination of one less the matrix, without exchanges, has positive pivots.
    """
    size = len(matrix)
    rows = [[float(i == j) - value for j, value in enumerate(row)] for i, row in enumerate(matrix)]
    for at in range(size):
        if not rows[at][at] > 0:
            return False
        for row in rows[at + 1 :]:
            part = row[at] / rows[at][at]
            row[at:] = [a - part * b for a, b in zip(row[at:], rows[at][at:], strict=True)]
    return True


def applied(matrix: Matrix, vector: Sequence[float]) -> list[float]:
    """Return a matrix times a vector."""
    return [math.fsum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
