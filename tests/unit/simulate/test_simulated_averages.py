"""`simulate.average`: its grids, its threads, and what of its result is the aggregator's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.crypto.prg import add_masks
from smpc_dp.engine.phases import masks

AVERAGE = sys.modules["smpc_dp.simulate.average"]
ROWS = np.array([[1.0], [2.0], [6.0]])


def test_integers_are_added_as_integers() -> None:
    result = simulate.average(ROWS.astype(np.int64), kind="sum", lower=0, upper=9, precision=None)
    assert (result.value.dtype, result.value.tolist()) == (np.dtype(np.int64), [9])
    assert result.step == 1.0


def test_a_verifiable_run_has_the_coarse_grid_and_the_aggregators_evidence() -> None:
    result = simulate.average(
        ROWS / 6,
        method="gopa",
        verifiable=True,
        lower=0,
        upper=1,
        epsilon=20.0,
        delta=1e-2,
        planned_dropout=0.0,
        corrupt=0.0,
        seed_for_simulation=1,
    )
    assert result.step > 1 / 100
    assert result.evidence.log is not None
    # That of one party, which has shown it to nobody.
    assert result.evidence.entry is None


def test_faults_are_those_that_the_aggregator_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parties have none: a party that ends after its vector is sent is missing nowhere else."""
    monkeypatch.setattr(AVERAGE, "draw_kills", lambda *_: {"party-00002": 3})
    result = simulate.average(
        np.ones((5, 1)), lower=0, upper=1, planned_dropout=0.3, corrupt=0.2, seed_for_simulation=1
    )
    assert result.faults == ("missing in step 'reveal': party-00002 (not connected)",)


def test_masks_are_removed_with_the_threads_that_the_caller_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    def counted(ring_vector: Any, seeds: Sequence[bytes], signs: Sequence[int], threads: int = 1) -> None:
        used.append(threads)
        add_masks(ring_vector, seeds, signs, threads=threads)

    monkeypatch.setattr(masks, "add_masks", counted)
    # A session's aggregator has two at most.
    assert simulate.average(ROWS, lower=0, upper=6, threads=3).value == pytest.approx([3.0])
    # Each party adds its own mask with one thread.
    assert used == [1, 1, 1, 3]
