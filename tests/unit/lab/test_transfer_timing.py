"""The time of oblivious transfer does not tell two secrets apart (`test_garble_timing` tests the measure)."""

from __future__ import annotations

import pytest

from smpc_dp.crypto import ot
from smpc_dp_lab.bench import transfer_timing
from smpc_dp_lab.bench.garbling_timing import Prepare, t_statistic

# dudect says 4.5; a shared machine is noisy, and a leak repeats itself.
BOUND, TRIES = 10.0, 4


def check(prepare: Prepare, measurements: int) -> None:
    seen = []
    for _ in range(TRIES):
        seen.append(abs(t_statistic(prepare, measurements)))
        if seen[-1] < BOUND:
            return
    pytest.fail(f"t in {TRIES} tries: {seen}")


@pytest.mark.parametrize("name", ["base response", "base keys", "trees"])
def test_a_setup_takes_the_same_time(name: str) -> None:
    check(transfer_timing.setup_cases(2)[name], 60)


@pytest.mark.parametrize("name", ["fastest rows", "portable rows"])
def test_rows_and_hashes_take_the_same_time(name: str) -> None:
    check(transfer_timing.kernel_cases()[name], 1000)


@pytest.mark.parametrize("k", ot.FIELD_SIZES)
def test_a_chunk_takes_the_same_time(k: int) -> None:
    cases = transfer_timing.chunk_cases(k)
    assert list(cases) == ["corrections", "challenge", "response", "check"]
    for prepare in cases.values():
        check(prepare, 200)
