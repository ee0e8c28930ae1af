"""TEMPORARY stand-in until the kernels are merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smpc_dp.crypto import commit as pedersen
from smpc_dp.encoding import RingVector

MAX_ELEMENTS = 1 << 20


def _integers(values: RingVector, *, signed: bool) -> list[int]:
    return [int(x) for x in (values.view(np.int64) if signed else values)]


def commit(values: RingVector, blinding: bytes, *, width: int, signed: bool) -> bytes:
    """Return the commitment."""
    return pedersen.commit(_integers(values, signed=signed), blinding)


def opens(points: Sequence[bytes], total: RingVector, blinding: bytes, *, width: int, signed: bool) -> bool:
    """Tell whether the sum of points commits to total."""
    return pedersen.combine(list(points)) == commit(total, blinding, width=width, signed=signed)
