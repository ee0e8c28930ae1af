"""The two-party benchmarks' reports, on sizes that take no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smpc_dp.capabilities.pairs.garbled.effects import Effects, Send
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.requests.pairwise import drive
from smpc_dp.engine.result import Privacy
from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.transport.blocking import BlockingChannel
from smpc_dp_lab.bench import pair_floor, pairwise, transfers


@pytest.mark.long
def test_a_comparison_is_measured_between_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise, "COMPARISONS", 50)
    shown = pairwise.run_compare_bench(1).to_json()
    figures = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    assert shown["bench"] == "compare"
    assert figures["one comparison"]["median"] > 0
    # 49 more tables of 16 gates, and 16 corrections, are sent for 50 comparisons than for one.
    more = figures["50 comparisons, sent"]["median"] - figures["one comparison, sent"]["median"]
    assert more > 49 * (16 * 32 + 16 * 16)
    after = figures["a comparison after setup"]
    assert 0 < after["median"] < figures["a comparison after the base transfers"]["median"]
    for name in ("50 comparisons", "one comparison", "a comparison after setup"):
        assert figures[name]["target"] == {"of": "ratio_to_peer", "at_least": 1.0}
    assert 0 < after["ratio_to_limit"] < 1
    assert all(figure["peer"] is None for figure in figures.values())


@pytest.mark.long
def test_transfers_are_measured_in_memory_and_between_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "CHUNKS", 8)
    shown = pairwise.run_ot_bench(1).to_json()
    figures = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    base = figures["128 base transfers"]
    assert base["target"] == {"of": "ratio_to_limit", "at_least": 1 / 1.25}
    assert base["limit"]["median"] > figures["128 base transfers, of those made"]["limit"]["median"]
    for where, least in (("in memory", 1.0), ("over the channel", 0.5)):
        for k in (2, 4):
            figure = figures[f"correlated transfers {where}, k = {k}"]
            assert figure["median"] > 1e5
            assert figure["target"]["at_least"] == least
    for k in (2, 4):
        name = f"correlated transfers in memory, k = {k}"
        # A thread has not more processor time than the clock shows, but the clock ticks.
        assert figures[f"{name}, processor time"]["median"] > 0.9 * figures[name]["median"]


def test_rows_that_do_not_fit_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = transfers.Pair(2)
    assert pair.rate(1) > 0
    monkeypatch.setattr("smpc_dp.crypto.ot.Sender.delta", bytes(16))
    with pytest.raises(LocalError, match="do not fit"):
        pair.rate(5)


def test_no_runs_are_refused() -> None:
    with pytest.raises(ConfigError, match="runs"):
        pairwise.run_ot_bench(0)


class _Working(Participant):
    """A role that works for its steps' messages, by the test's clock."""

    def __init__(self, clock: list[float]) -> None:
        self.step, self._clock = "hello", clock

    def run(self) -> Effects[Evaluated]:
        for step, seconds in (("setup", 1.0), ("transfers", 2.0), ("tables", 4.0)):
            self.step = step
            self._clock[0] += seconds
            yield Send("peer", (b"",))
            yield Send("peer", (b"",))
        return Evaluated(None, b"", b"", b"", cast(Privacy, None))


def test_a_step_begins_before_the_work_for_its_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    silent = SimpleNamespace(send=lambda _parts: None, bytes_sent=0, bytes_received=0)
    report = drive(_Working(clock), {"peer": cast(BlockingChannel, silent)})
    assert report.steps == {"setup": 0.0, "transfers": 1.0, "tables": 3.0, "done": 7.0}


def test_the_floor_of_a_message_is_not_that_of_the_first_of_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one also takes the memory of the connection."""
    calls: list[tuple[pair_floor._Clock, str]] = []

    class Recorded(pair_floor._Clock):
        def __call__(self, side: int, call: Callable[..., Any], *arguments: Any) -> Any:
            calls.append((self, call.__name__))
            return super().__call__(side, call, *arguments)

    monkeypatch.setattr(pair_floor, "_Clock", Recorded)
    pair_floor.connection_seconds()
    shaking = calls[0][0]
    assert [clock is shaking for clock, name in calls if name == "send"] == [True, True, False]
    assert [clock is shaking for clock, name in calls if name == "receive"] == [True, True, False]
