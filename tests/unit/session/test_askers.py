"""How many parties open a request, by its plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from smpc_dp.session.askers import Askers
from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.deadline import StepTimer
from smpc_dp.session.exchange.params import plan_exchange
from smpc_dp.session.session_file import Timeouts


@dataclass
class Plan:
    tolerated: tuple[int, int, int]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, in a list of one."""
    time = [0.0]
    for name in ("smpc_dp.session.deadline.now", "smpc_dp.session.askers.now"):
        monkeypatch.setattr(name, lambda: time[0])
    return time


def made(plan: tuple[int, int, int], *, is_group: bool = False) -> tuple[Askers, StepTimer]:
    timer = StepTimer(Timeouts(connect=9.0, step=1.0, gather=5.0), first=False)
    return Askers(Plan(plan), timer, is_group=is_group), timer


@pytest.mark.parametrize(
    ("plan", "enough"),
    [
        ((10, 2, 2), 5),
        ((10, 0, 0), 1),
        # As many as a run needs, where fewer may not be enough.
        ((5, 1, 3), 4),
        ((5, 0, 5), 5),
        # Half of all where a run does with fewer.
        ((5, 4, 4), 3),
        (
            plan_exchange(5, length=1, l2_bound=1.0, precision=0.5)
            .between(((1,), (0,), (), (), ()))
            .tolerated,
            3,
        ),
    ],
)
@pytest.mark.usefixtures("clock")
def test_more_must_ask_than_may_lie_and_no_more_than_may_be_left(
    plan: tuple[int, int, int], enough: int
) -> None:
    askers, timer = made(plan)
    everybody = [f"p{index}" for index in range(plan[0])]
    for index in range(enough):
        assert not askers.opened
        assert timer.at == math.inf
        for _ in range(3):
            askers.add(InboundEvent(f"p{index}"))
        askers.open_if_enough((), everybody)
    assert askers.opened
    assert timer.at == 5.0


@pytest.mark.usefixtures("clock")
def test_who_asks_for_a_later_request_has_passed_this_one() -> None:
    askers, _ = made((7, 1, 1))
    askers.add(InboundEvent("a"))
    askers.open_if_enough({"a", "b"}, "abcdefg")
    assert not askers.opened
    askers.open_if_enough({"b", "c"}, "abcdefg")
    assert askers.opened


def test_who_asks_early_waits_for_others_until_a_time_of_its_own(clock: list[float]) -> None:
    askers, _ = made((7, 1, 1))
    for clock[0], name in ((1.0, "a"), (2.0, "b")):
        askers.add(InboundEvent(name))
    assert askers.until == 6.0
    clock[0] = 6.5
    assert [hello.peer for hello in askers.take_late()] == ["a"]
    assert askers.until == 7.0
    for name in "cd":
        askers.add(InboundEvent(name))
    askers.remove("c")
    askers.open_if_enough((), "abcdefg")
    assert not askers.opened
    askers.add(InboundEvent("a"))
    askers.open_if_enough((), "abcdefg")
    assert askers.opened
    clock[0] = 20.0
    assert askers.take_late() == []
    assert askers.until == math.inf


@pytest.mark.usefixtures("clock")
def test_nobody_else_is_waited_for_only_in_a_group_or_where_half_may_be_absent() -> None:
    for plan, is_group, opens in (
        ((7, 1, 1), False, False),
        ((7, 1, 1), True, True),
        ((7, 5, 6), False, True),
    ):
        askers, _ = made(plan, is_group=is_group)
        askers.open_if_enough((), ())
        assert not askers.opened
        askers.add(InboundEvent("a"))
        askers.open_if_enough((), "ab")
        assert not askers.opened
        askers.open_if_enough((), "a")
        assert askers.opened == opens
