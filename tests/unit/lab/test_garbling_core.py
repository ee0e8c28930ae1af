"""The rates of garbling are measured in every mode. Timing of secrets is checked by `make timing`."""

from __future__ import annotations

import numpy as np
import pytest

from smpc_dp.crypto import garble
from smpc_dp_lab.bench import garbling_core

ANDS = 64


def chain() -> garble.GarblingCircuit:
    """Return a chain of AND gates, each of its own input and of the last gate's output."""
    gates = np.arange(ANDS, dtype=np.uint32)
    return garble.compile_circuit(
        np.ones(ANDS, dtype=np.uint8),
        np.where(gates == 0, gates, ANDS + gates),
        gates + 1,
        ANDS + 1 + gates,
        n_wires=2 * ANDS + 1,
        n_inputs=ANDS + 1,
        outputs=np.array([2 * ANDS], dtype=np.uint32),
    )


@pytest.mark.parametrize("mode", garble.Mode)
def test_rates_are_measured(mode: garble.Mode) -> None:
    rates = garbling_core.rates(chain(), 100, mode=mode, runs=3)
    assert rates.gates == ANDS * 100
    assert len(rates.garble) == len(rates.evaluate) == 3
    assert min(rates.per_second()) > 0
