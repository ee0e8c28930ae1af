"""The time of garbling does not tell two secrets apart; and the measure would see it if it did."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from smpc_dp.crypto import garble
from smpc_dp_lab.bench import garbling_core, garbling_timing

# dudect says 4.5; a shared machine is noisy, and a leak repeats itself.
BOUND, TRIES, MEASUREMENTS = 10.0, 4, 1500
NAMES = ["garble", "encode", "evaluate"]
CIRCUIT = garbling_timing.chain()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", garble.Mode)
def test_two_secrets_take_the_same_time(name: str, mode: garble.Mode) -> None:
    run = garble.Run(os.urandom(16), mode, 16, 16)
    prepare = dict(garbling_timing.cases(CIRCUIT, run))[name]
    seen = []
    for _ in range(TRIES):
        seen.append(abs(garbling_timing.t_statistic(prepare, MEASUREMENTS)))
        if seen[-1] < BOUND:
            return
    pytest.fail(f"t in {TRIES} tries: {seen}")


def test_a_leak_is_seen() -> None:
    def leaking(secret: int) -> Callable[[], object]:
        return lambda: sum(range(1000 + 2000 * secret))

    assert abs(garbling_timing.t_statistic(leaking, MEASUREMENTS)) > BOUND


def test_welch() -> None:
    assert garbling_timing.welch([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 0
    # Means 2 and 5, variances 1 and 4, three each: -3 / sqrt(1/3 + 4/3).
    assert garbling_timing.welch([1.0, 2.0, 3.0], [3.0, 5.0, 7.0]) == pytest.approx(-2.3237900077)
    assert garbling_timing.welch([1.0, 1.0], [2.0, 2.0]) == -float("inf")
    assert garbling_timing.welch([1.0, 1.0], [1.0, 1.0]) == 0


@pytest.mark.parametrize("mode", garble.Mode)
def test_rates_are_measured(mode: garble.Mode) -> None:
    rates = garbling_core.rates(CIRCUIT, 100, mode=mode, runs=3)
    assert rates.gates == 64 * 100
    assert len(rates.garble) == len(rates.evaluate) == 3
    assert min(rates.per_second()) > 0
