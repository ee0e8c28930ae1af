"""Calls of several requests with saved states go on after crashes, in simulated time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import LocalError
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from tests.faults.saved_call_schedules import LEARNERS, OWN, PLAYED, Learning, all_have_results, played
from tests.faults.saved_session_schedules import without_syncs


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


@pytest.mark.parametrize("kind", [*PLAYED])
@pytest.mark.parametrize(
    ("first", "runs"), [(1, 2), pytest.param(1001, 200, marks=[pytest.mark.long, pytest.mark.slow])]
)
def test_calls_of_several_requests_go_on(kind: str, first: int, runs: int, tmp_path: Path) -> None:
    """To the answers, and bit for bit to the models, of sessions without crashes."""
    play, crashed = PLAYED[kind], 0
    kinds = len(LEARNERS) if kind == "learner" else 1
    whole: dict[int, object] = {}
    for seed in range(first, first + runs):
        # One seed of each learner is one of its members and their inputs.
        same = seed % kinds
        if same not in whole:
            whole[same] = play(same, tmp_path / f"whole {same}", crashing=False).results
        run = play(seed, tmp_path / str(seed))
        crashed += run.crashed.total()
        assert run.results == whole[same] or all_have_results(run), f"seed {seed}: {run.crashed}"
    assert crashed >= runs / 2


def test_a_learner_that_comes_back_after_its_groups_goes_on(tmp_path: Path) -> None:
    """The aggregator waits for it at the end, and a later request of another group has ended: it is told."""
    [groups] = [given for given in LEARNERS if given["learner"] == "diffusion" and "group" in given]
    victim = "party-00004"
    run = played(Learning, "learn", groups, tmp_path / "session", [(97, victim, 2.0)], parties=5)
    learned = run.learned[victim]
    assert learned.resumed
    [failure] = learned.failures
    assert "too late: the others are at another request" in failure
    assert (learned.steps - learned.done).tolist() == [1]


def test_a_function_is_called_for_no_earlier_step(tmp_path: Path) -> None:
    """And where the vector of the step is stored, what it gives is not used: all models are one."""
    calls: list[str] = []

    class Counting(Learning):
        def gradient(self, party: str, model: Any, data: float) -> Any:
            # As of a minibatch: no call gives what another one gave.
            calls.append(party)
            return model - data + 0.125 * len(calls)

    whole = played(Counting, "learn", OWN, tmp_path / "whole", [])
    assert [len(got) for got in whole.results.values()] == [1] * 3
    in_all, calls[:] = len(calls), []
    victim = whole.simulated.parties[1]
    for number in range(whole.sent // 2, whole.sent, whole.sent // 3):
        calls.clear()
        run = played(Counting, "learn", OWN, tmp_path / str(number), [(number, victim, 1.0)])
        models = {one.values.tobytes() for one in run.learned.values()}
        assert len(models) == 1, (number, run.learned)
        assert run.crashed[victim] == 1
        assert in_all <= len(calls) <= in_all + 1, number
        assert {name for name, one in run.learned.items() if one.resumed} == {victim}


def test_without_a_counter_a_learner_leaves_an_average_out(tmp_path: Path) -> None:
    class Uncounted(Learning):
        with_counter = False

    whole = played(Uncounted, "learn", OWN, tmp_path / "whole", [])
    victim = whole.simulated.parties[1]
    run = played(Uncounted, "learn", OWN, tmp_path / "crashed", [(whole.sent // 2, victim, 1.0)])
    [failure] = run.learned[victim].failures
    assert "is not restored without a counter" in failure
    # The models of all are one again, after the next average of models.
    assert len({one.values.tobytes() for one in run.learned.values()}) == 1


def test_the_last_average_waits_for_who_crashes_before_it_has_it(tmp_path: Path) -> None:
    """And its model is there again when the aggregator, and the session, have ended."""
    whole = played(Learning, "learn", OWN, tmp_path / "whole", [])
    victim = whole.simulated.parties[1]
    run = played(Learning, "learn", OWN, tmp_path / "crashed", [(whole.sent - 1, victim, 1.0)])
    assert run.crashed[victim] == 1
    assert run.results == whole.results
    run_simulation(lambda: run.member(victim))
    assert run.learned[victim].resumed
    assert run.results == whole.results


def test_messages_go_on_from_no_earlier_model(tmp_path: Path) -> None:
    """Without the progress of a learner that sends models, nothing is sent, and the file is named."""
    run = played(Learning, "learn", LEARNERS[-1], tmp_path / "session", [], parties=5)
    victim = run.simulated.parties[0]
    (run.folder / "states" / victim / "progress").unlink()
    sent = run.sent
    run.results.clear()

    async def again() -> None:
        serving = asyncio.ensure_future(run.member(AGGREGATOR))
        await run.member(victim)
        run.tasks[AGGREGATOR].cancel()
        await asyncio.gather(serving, return_exceptions=True)

    run_simulation(again)
    [error] = run.results[victim]
    assert isinstance(error, LocalError)
    assert "progress: the result of request 1, which is over, is not there: the file was set back" in str(
        error
    )
    assert run.sent == sent
