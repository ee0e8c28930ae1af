"""The public API over real sockets in one event loop: several requests, weights, refusals, losses."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import runpy
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.engine.result import Result
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts, load_session

PARTIES = ("alice", "bob", "carol", "dave", "erin")
REAL: dict[str, object] = {
    "length": 2,
    "lower": -10.0,
    "upper": 10.0,
    "precision": 1e-6,
    "dropout": 0.25,
    "corrupt": 0.0,
}
# Requests of one session over differing survivors, which the rule against differences refuses.
DIFFERING = {**REAL, "same_survivors": False}
EXAMPLE = Path(__file__).parents[2] / "examples" / "embed_average.py"
FAST = Timeouts(connect=60.0, step=20.0)

Act = Callable[[smpc_dp.Session, int], Awaitable[None]]


async def execute(path: Path, act: Act, requests: int | None = None) -> list[Result | smpc_dp.SmpcError]:
    """Serve, and let every party act on its session; return what the aggregator ended each request with."""

    async def party(index: int, name: str) -> None:
        async with smpc_dp.connect(path, party=name) as session:
            await act(session, index)

    serving = asyncio.create_task(smpc_dp.serve(path, requests=requests))
    await asyncio.gather(*(party(index, name) for index, name in enumerate(PARTIES, 1)))
    return [ended for ended in await serving if isinstance(ended, Result | smpc_dp.SmpcError)]


async def test_a_learner_averages_round_after_round(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    runs: dict[str, set[str]] = {name: set() for name in PARTIES}

    async def act(session: smpc_dp.Session, index: int) -> None:
        for effect in range(3):
            result = await session.average(np.array([index, effect / 4]))
            assert result.value.tolist() == [3.0, effect / 4]
            assert result.survivors == PARTIES
            assert result.privacy.epsilon is None
            runs[session.party].add(result.evidence.run_id.hex())

    served = await execute(path, act)
    assert len(served) == 3
    # Every request has a run id of its own, the same for all.
    assert all(run_ids == runs["alice"] for run_ids in runs.values())
    assert len(runs["alice"]) == 3


async def test_a_process_that_was_started_anew_goes_on_with_the_round_of_the_others(tmp_path: Path) -> None:
    """Its loop begins with round 1; no vector of an earlier round is in a later average."""
    path = create_local_session(tmp_path, PARTIES, DIFFERING, timeouts=FAST)
    rounds, notified, behind = 4, asyncio.Event(), list[smpc_dp.OtherRequestError]()

    async def loop(session: smpc_dp.Session, last: int) -> None:
        number = 1
        while number <= last:
            try:
                result = await session.average([float(number), 0.0], number=number, label=f"round {number}")
            except smpc_dp.OtherRequestError as others:
                behind.append(others)
                notified.set()
                with pytest.raises(smpc_dp.ConfigError, match="say which request this is for") as caught:
                    await session.average([float(number), 0.0])
                assert caught.value.issues[0].check == smpc_dp.ConfigCheck.MISSING
                number = others.next
                continue
            assert result.value[0] == number
            if session.party != "alice" and number == 2:
                await notified.wait()
            number += 1

    async def act(session: smpc_dp.Session, index: int) -> None:
        if index > 1:
            return await loop(session, rounds)
        await loop(session, 2)
        await session.close()
        async with smpc_dp.connect(path, party="alice") as again:
            await loop(again, rounds)
        return None

    served = await execute(path, act)
    assert [len(ended.survivors) for ended in served if isinstance(ended, Result)] == [5] * rounds
    [error] = behind
    assert (error.party, error.number, error.asked, error.next) == ("alice", 1, 2, 3)
    assert (error.label, error.asked_label) == ("round 1", "round 2")


@pytest.mark.long
async def test_the_command_of_a_party_gives_its_vector_to_the_request_that_it_is_for(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, DIFFERING, timeouts=FAST)
    (tmp_path / "alice.txt").write_text("7.0 0.0")
    arguments = ["party", str(path), "--as", "alice", "--input", str(tmp_path / "alice.txt")]
    done: list[tuple[int | None, str, str]] = []
    connected = asyncio.Event()

    async def act(session: smpc_dp.Session, index: int) -> None:
        if index == 1:
            await session.average([1.0, 0.0])
            await session.close()
            for more in ([], ["--number", "2"]):
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "smpc_dp", *arguments, "--json", *more),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                assert process.stderr is not None
                lines = await process.stderr.readline()
                while more and b"connected" not in lines and (line := await process.stderr.readline()):
                    lines += line
                if more:
                    connected.set()
                shown, rest = await process.communicate()
                complained = lines + rest
                done.append((process.returncode, shown.decode(), complained.decode()))
            return
        await session.average([1.0, 0.0])
        await connected.wait()
        assert (await session.average([2.0, 0.0])).value.tolist() == [3.0, 0.0]

    assert len(await execute(path, act)) == 2
    assert [code for code, *_ in done] == [1, 0]
    complained = " ".join(done[0][2].split())
    assert "alice (the run has begun without it, it can ask for request 2; said by aggregator)" in complained
    assert json.loads(done[1][1])["value"] == [3.0, 0.0]


@pytest.mark.thin(2)
@pytest.mark.parametrize("number", [1, 0, 1.5, (1 << 31) - 1])
async def test_a_number_is_taken_once(tmp_path: Path, number: Any) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)

    async def act(session: smpc_dp.Session, _index: int) -> None:
        await session.sum([1.0, 0.0])
        with pytest.raises(smpc_dp.ConfigError, match="must be a whole number above 1") as caught:
            await session.sum([1.0, 0.0], number=number)
        assert [issue.where for issue in caught.value.issues] == ["number"]
        assert (await session.sum([1.0, 0.0], number=2)).survivors == PARTIES

    assert len(await execute(path, act)) == 2


async def test_weights_stay_secret_and_count(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, {**REAL, "max_weight": 100}, timeouts=FAST)

    async def act(session: smpc_dp.Session, index: int) -> None:
        result = await session.average([float(index), -1.0], weight=10 * index)
        assert result.weight == 150
        assert result.value.tolist() == [pytest.approx(11 / 3, abs=1e-15), -1.0]
        total = await session.sum([1.0, 0.0], weight=0 if index > 1 else 7)
        assert total.value.tolist() == [7.0, 0.0]

    await execute(path, act)


async def test_an_average_of_weight_zero_is_an_error_not_a_number(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, {**REAL, "max_weight": 100}, timeouts=FAST)

    async def act(session: smpc_dp.Session, index: int) -> None:
        with pytest.raises(smpc_dp.PrivacyError, match="sum to zero"):
            await session.average([float(index), -1.0], weight=0)

    await execute(path, act)


async def test_integers(tmp_path: Path) -> None:
    integers = {"length": 1, "kind": "integer", "lower": 0, "upper": 1 << 40, "dropout": 0.2, "corrupt": 0.0}
    path = create_local_session(tmp_path, PARTIES, integers, timeouts=FAST)

    async def act(session: smpc_dp.Session, index: int) -> None:
        result = await session.sum(np.array([(1 << 40) - index]))
        assert result.value.dtype == np.int64
        assert result.value.tolist() == [5 * (1 << 40) - 15]
        with pytest.raises(smpc_dp.ConfigError, match="dtype must be an integer"):
            await session.sum([0.5])

    await execute(path, act)


async def test_a_refused_vector_is_missing_and_shifts_nothing(tmp_path: Path) -> None:
    """The n-th call of one party goes with the n-th call of the others, whatever became of earlier ones."""
    path = create_local_session(tmp_path, PARTIES, DIFFERING, timeouts=FAST)

    async def act(session: smpc_dp.Session, index: int) -> None:
        if index == 2:
            with pytest.raises(smpc_dp.PrivacyError, match=r"bob: vector\[1\] is outside \[-10.0, 10.0\]$"):
                await session.sum([1.0, 11.0])
        else:
            result = await session.sum([1.0, 0.0])
            assert result.value.tolist() == [4.0, 0.0]
            assert result.absent == ("bob",)
        with pytest.raises(smpc_dp.ConfigError, match="protocol"):
            await session.average([0.0, 0.0], expect={"protocol": "gopa"})
        result = await session.sum([2.0, 1.0])
        assert result.value.tolist() == [10.0, 5.0]
        assert result.survivors == PARTIES

    assert len(await execute(path, act)) == 2


async def test_all_exact_sums_of_a_session_are_over_the_same_survivors(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)

    async def act(session: smpc_dp.Session, index: int) -> None:
        if index == 2:
            with pytest.raises(smpc_dp.PrivacyError):
                await session.sum([1.0, 11.0])
            # It is left out: with its vector the second sum would give that away.
            with pytest.raises(smpc_dp.TimeoutFault) as caught:
                await session.sum([2.0, 1.0])
            assert caught.value.missing == {"bob"}
            return
        for _ in range(2):
            result = await session.sum([1.0, 0.0])
            assert result.value.tolist() == [4.0, 0.0]
            assert result.absent == ("bob",)
        if index == 5:
            return
        await asyncio.sleep(0.2)
        with pytest.raises(smpc_dp.TimeoutFault) as caught:
            await session.sum([1.0, 0.0])
        assert caught.value.missing == {"erin"}

    served = await execute(path, act)
    assert [type(ended) for ended in served] == [Result, Result, smpc_dp.TimeoutFault]
    assert "(same_survivors)" in str(served[2])


@pytest.mark.parametrize("other", ["label", "kind"])
async def test_who_asks_another_question_is_not_added_up(tmp_path: Path, other: str) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)

    async def act(session: smpc_dp.Session, index: int) -> None:
        if index == 3:
            if other == "label":
                with pytest.raises(smpc_dp.OtherRequestError) as differing:
                    await session.sum([9.0, 9.0], label="weight")
                error = differing.value
                assert (error.party, error.label, error.asked_label) == ("carol", "weight", "height")
                assert (error.number, error.asked, error.next) == (1, 1, 2)
                return
            with pytest.raises(
                smpc_dp.PeerFault, match="asks for something else than most others: this party asks "
            ) as caught:
                await session.average([9.0, 9.0], label="height")
            assert caught.value.culprit == "carol"
            assert caught.value.accuser == "aggregator"
        else:
            result = await session.sum([1.0, 0.0], label="height")
            assert result.value.tolist() == [4.0, 0.0]
            assert result.absent == ("carol",)

    await execute(path, act)


async def test_a_late_party_catches_up_and_blames_nobody(tmp_path: Path) -> None:
    path = create_local_session(
        tmp_path, PARTIES, DIFFERING, timeouts=Timeouts(connect=3.0, step=3.0, gather=60.0)
    )

    over, caught_up = asyncio.Event(), asyncio.Event()

    async def act(session: smpc_dp.Session, index: int) -> None:
        if index == 1:
            await over.wait()
            with pytest.raises(smpc_dp.TimeoutFault) as caught:
                await session.sum([1.0, 0.0])
            assert caught.value.missing == {"alice"}
            caught_up.set()
        else:
            assert (await session.sum([1.0, 0.0])).absent == ("alice",)
            over.set()
            await caught_up.wait()
        assert (await session.sum([1.0, 0.0])).survivors == PARTIES

    assert len(await execute(path, act)) == 2


async def test_one_early_party_does_not_start_the_clock_for_all(tmp_path: Path) -> None:
    """Between two requests the others may take longer than a step: only enough of them start it."""
    path = create_local_session(
        tmp_path, PARTIES, REAL, timeouts=Timeouts(connect=1.5, step=1.5, gather=60.0)
    )

    async def act(session: smpc_dp.Session, index: int) -> None:
        await session.sum([1.0, 0.0])
        if index > 1:
            # More than twice a step, and before there are enough.
            await asyncio.sleep(3.2)
        assert (await session.sum([1.0, 0.0])).survivors == PARTIES

    await execute(path, act)


async def test_lanes_may_be_used_again(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    encoding = load_session(path).checked_parameters.encoding  # type: ignore[attr-defined]

    async def act(session: smpc_dp.Session, index: int) -> None:
        ring_vector, _ = encoding.encode([float(index), 0.0], party=session.party)
        for _ in range(2):
            assert (await session.sum_encoded("sum", ring_vector)).value.tolist() == [15.0, 0.0]

    await execute(path, act)


async def test_who_leaves_between_requests_is_absent_from_the_next(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, DIFFERING, timeouts=FAST)

    async def act(session: smpc_dp.Session, index: int) -> None:
        assert (await session.sum([1.0, 0.0])).value.tolist() == [5.0, 0.0]
        if index == 5:
            return
        await asyncio.sleep(0.2)
        result = await session.sum([1.0, 0.0])
        assert result.value.tolist() == [4.0, 0.0]
        assert result.absent == ("erin",)

    assert len(await execute(path, act)) == 2


async def test_a_process_that_has_restarted_joins_as_documented(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, DIFFERING, timeouts=FAST)
    second_is_over, connected = asyncio.Event(), asyncio.Event()

    async def act(session: smpc_dp.Session, index: int) -> None:
        assert (await session.average([1.0, 0.0])).survivors == PARTIES
        if index == 5:
            return
        await asyncio.sleep(0.2)
        assert (await session.average([1.0, 0.0])).absent == ("erin",)
        second_is_over.set()
        await connected.wait()
        assert (await session.average([1.0, 0.0])).survivors == PARTIES

    async def restarted() -> int:
        """Be erin again, as docs/reference/session-file.md says; return how many requests were over."""
        await second_is_over.wait()
        async with smpc_dp.connect(path, party="erin") as session:
            connected.set()
            number = 1
            while True:
                try:
                    assert (await session.average([1.0, 0.0], number=number)).survivors == PARTIES
                    return number - 1
                except smpc_dp.OtherRequestError as others:
                    number = others.next

    joined = asyncio.create_task(restarted())
    assert len(await execute(path, act, requests=3)) == 3
    assert await joined == 2


async def test_a_lost_aggregator_is_named(tmp_path: Path) -> None:
    """A party calls it again for `connect` seconds, in the request under way and in the next one."""
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=Timeouts(connect=1.0, step=20.0))
    events: list[Event] = []

    async def alone() -> None:
        async with smpc_dp.connect(path, party="alice", on_event=events.append) as session:
            with pytest.raises(smpc_dp.TimeoutFault) as caught:
                await session.sum([0.0, 0.0])
            assert caught.value.missing == {"aggregator"}
            with pytest.raises(smpc_dp.TimeoutFault, match=r"not reached in 1\.0 s"):
                await session.sum([0.0, 0.0])

    serving = asyncio.create_task(smpc_dp.serve(path))
    joining = asyncio.create_task(alone())
    while not any(event.kind == "step" for event in events):
        await asyncio.sleep(0.02)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await joining


async def test_nobody_to_serve_within_the_time(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=Timeouts(connect=0.5, step=0.5))
    (ended,) = await smpc_dp.serve(path, requests=1)
    assert isinstance(ended, smpc_dp.TimeoutFault)
    assert ended.missing == set(PARTIES)


def example() -> Any:
    spec = importlib.util.spec_from_file_location("embed_average", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_vectors_of_a_party_that_was_started_anew_are_of_the_others_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the loop of the example: its process ends before round 2, and the next one joins round 3."""
    parameters = {**DIFFERING, "length": 3, "precision": 1e-9, "max_weight": 1000}
    path = create_local_session(tmp_path, PARTIES, parameters, timeouts=FAST)
    loop, begun, behind = example(), asyncio.Event(), asyncio.Event()
    loop.ROUNDS, loop.PARTIES = 4, PARTIES
    sent: list[tuple[str, int, float, np.ndarray]] = []
    models: dict[int, Any] = {0: np.zeros(3)}
    average = smpc_dp.Session.average

    async def observed(self: smpc_dp.Session, vector: Any, *, weight: float, number: int) -> Result:
        if self.party == "alice" and number == 2:
            raise KeyError(number)
        if self.party != "alice" and number == 3:
            await behind.wait()
        sent.append((self.party, number, weight, vector))
        try:
            result = await average(self, vector, weight=weight, number=number)
        except smpc_dp.OtherRequestError:
            sent.pop()
            behind.set()
            raise
        assert np.array_equal(models.setdefault(number, result.value), result.value)
        if number == 2:
            begun.set()
        return result

    monkeypatch.setattr(smpc_dp.Session, "average", observed)

    async def alice() -> Any:
        with pytest.raises(KeyError):
            await loop.learn(str(path), "alice")
        await begun.wait()
        return await loop.learn(str(path), "alice")

    others = [loop.learn(str(path), name) for name in PARTIES[1:]]
    _, *learned = await asyncio.gather(smpc_dp.serve(path), alice(), *others)
    assert all(np.array_equal(model, models[4]) for model in learned)
    joined = [(number, weight) for name, number, weight, _ in sent if name == "alice"]
    assert joined == [(1, 50), (3, 0), (4, 50)]
    for name, number, weight, vector in sent:
        x, y = loop.private_rows(PARTIES.index(name))
        model = models[number - 1]
        step = model - loop.RATE * x.T @ (x @ model - y) / len(y)
        assert weight == 0 or np.array_equal(vector, step), (name, number)


async def test_the_loop_of_a_party_that_can_join_no_round_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Others:
        async def average(self, *_: Any, **_named: Any) -> Any:
            raise smpc_dp.OtherRequestError("alice", 1, "", 4, "", 5)

    @contextlib.asynccontextmanager
    async def connect(*_: Any, **_named: Any) -> AsyncIterator[Others]:
        yield Others()

    loop = example()
    loop.ROUNDS = 4
    monkeypatch.setattr(smpc_dp, "connect", connect)
    with pytest.raises(smpc_dp.OtherRequestError):
        await asyncio.wait_for(loop.learn("session.toml", "alice"), 10)


@pytest.mark.long
def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("[ 1.5072 -1.9965  0.4987]") == 4
    assert "largest error 0.0072" in printed
