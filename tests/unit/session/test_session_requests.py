"""Which request a session's next call is for, after one that the others have passed; nothing is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.requests import pair_requests
from smpc_dp.errors import Code, ConfigCheck
from smpc_dp.session.events import ignore
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.party_requests import MOST_REQUESTS
from smpc_dp.session.session import Session
from smpc_dp.session.session_state import SessionState
from tests.unit.records.test_fit import FITS, SCHEMA, hospital

PARTIES = ("alice", "bob", "carol", "dave")
FITTING = {"records": {**SCHEMA, "rows_expected": 80_000}, "ask": FITS["ill"], "steps": 4}
FEW: dict[str, Any] = {"dropout": 0.0, "corrupt": 0.0}
REAL: dict[str, object] = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.25}


class Failing:
    """A connection whose requests end with the given errors, one after the other.

    `declined`: the requests that the party has left before they began.
    """

    check_total = True
    contexts = object()
    resumed = False

    def __init__(self, *errors: smpc_dp.SmpcError) -> None:
        self.state = SessionState()
        self.asked: list[int] = []
        self.declined: list[int] = []
        self._errors = list(errors)

    async def run(self, request: int, *_: Any, **_named: Any) -> Any:
        self.asked.append(request)
        raise self._errors.pop(0)

    async def decline(self, request: int, _error: smpc_dp.SmpcError, *, beside: object) -> None:
        assert getattr(beside, "task", None) == "pairs"
        self.declined.append(request)

    statistic = run


def session_of(
    folder: Path, parameters: dict[str, Any], connection: Any, protocol: str = "secagg"
) -> Session:
    path = create_local_session(folder, PARTIES, parameters, protocol=protocol)
    return Session(Membership.load(path, "alice"), connection, ignore)


def behind(asked: int, following: int) -> smpc_dp.OtherRequestError:
    return smpc_dp.OtherRequestError("alice", 1, "", asked, "", following)


@pytest.mark.parametrize(("following", "joined"), [(2, 5), (4, 5), (5, 5), (6, 9)])
async def test_a_regression_that_has_begun_is_followed_by_the_next_one(
    tmp_path: Path, following: int, joined: int
) -> None:
    connection = Failing(behind(following, following), smpc_dp.TimeoutFault({"bob"}, "hello"), behind(9, 9))
    session, table = session_of(tmp_path, FITTING | FEW, connection), hospital(0, 100)
    with pytest.raises(smpc_dp.OtherRequestError) as caught:
        await session.statistics(table)
    error = caught.value
    assert (error.number, error.asked, error.next) == (1, following, joined)
    with pytest.raises(smpc_dp.ConfigError, match=f"the others ask for {joined}$"):
        await session.statistics(table)
    for number in (joined + 1, joined + 3):
        with pytest.raises(smpc_dp.ConfigError, match=f"of which each has 4: is {number}"):
            await session.statistics(table, number=number)
    with pytest.raises(smpc_dp.TimeoutFault):
        await session.statistics(table, number=joined)
    # The numbers of all its steps are used up, after an error too.
    with pytest.raises(smpc_dp.OtherRequestError):
        await session.statistics(table)
    assert connection.asked == [1, joined, joined + 4]


async def test_what_one_member_says_is_called_that(tmp_path: Path) -> None:
    past = smpc_dp.TimeoutFault({"alice"}, "start", code=Code.PAST, number=901)
    session = session_of(tmp_path, REAL | FEW, Failing(past, behind(3, 4)))
    for expected, number in (("aggregator says that the others ask for 901", 1), ("the others ask for 4", 2)):
        with pytest.raises((smpc_dp.TimeoutFault, smpc_dp.OtherRequestError)):
            await session.average([0.5], number=number)
        with pytest.raises(smpc_dp.ConfigError, match=f"which request this is for: {expected}$"):
            await session.average([0.5])


@pytest.fixture
def no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests for statistics of pairs go to the connection."""

    async def estimate(_requested: object, connection: Failing, request: int, *_: object) -> Any:
        return await connection.run(request)

    async def no_evaluations(*_: object) -> None:
        pass

    monkeypatch.setattr(pair_requests, "estimate", estimate)
    monkeypatch.setattr(pair_requests, "_evaluating", no_evaluations)


@pytest.mark.usefixtures("no_pairs")
@pytest.mark.parametrize(
    "refused", [{"data": 2.5}, {"data": 1 << 40}, {"public_label": 1}, {"kernel": "none"}, {"epsilon": -1.0}]
)
async def test_a_record_that_is_refused_has_a_number(tmp_path: Path, refused: dict[str, Any]) -> None:
    """The next record is not moved to the request of the refused one."""
    connection = Failing(smpc_dp.TimeoutFault({"bob"}, "hello"))
    session = session_of(tmp_path, REAL | FEW, connection)
    given: dict[str, Any] = {"kernel": "collision", "data": 7, "epsilon": 8.0, "P": 1}
    with pytest.raises(smpc_dp.SmpcError) as caught:
        await session.pairwise(**given | refused)
    assert not isinstance(caught.value, smpc_dp.TimeoutFault)
    assert (connection.asked, connection.declined) == ([], [1])
    with pytest.raises(smpc_dp.TimeoutFault):
        await session.pairwise(**given)
    assert (connection.asked, connection.declined) == ([2], [1])


@pytest.mark.usefixtures("no_pairs")
async def test_a_call_that_is_cancelled_has_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancel(*_: object) -> None:
        raise asyncio.CancelledError

    connection = Failing(smpc_dp.TimeoutFault({"bob"}, "hello"))
    session = session_of(tmp_path, REAL | FEW, connection)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "to_thread", cancel)
        with pytest.raises(asyncio.CancelledError):
            await session.pairwise("collision", 7, 8.0, 1)
    with pytest.raises(smpc_dp.TimeoutFault):
        await session.pairwise("collision", 7, 8.0, 1)
    assert connection.asked == [2]


async def test_a_number_is_not_above_the_greatest(tmp_path: Path) -> None:
    session = session_of(tmp_path, REAL | FEW, Failing())
    with pytest.raises(smpc_dp.ConfigError, match="must be a whole number above 0, "):
        await session.average([0.5], number=MOST_REQUESTS + 1)


async def test_a_number_is_no_boolean(tmp_path: Path) -> None:
    session = session_of(tmp_path, REAL | FEW, Failing())
    with pytest.raises(smpc_dp.ConfigError, match=r"must be a whole number above 0, .* is True"):
        await session.average([0.5], number=True)


@pytest.mark.parametrize("number", [0, 1, MOST_REQUESTS + 1])
async def test_a_number_that_no_call_can_have_is_not_noted(tmp_path: Path, number: int) -> None:
    past = smpc_dp.TimeoutFault({"alice"}, "start", code=Code.PAST, number=number)
    connection = Failing(past, smpc_dp.TimeoutFault({"bob"}, "hello"))
    session = session_of(tmp_path, REAL | FEW, connection)
    for _ in range(2):
        with pytest.raises(smpc_dp.TimeoutFault):
            await session.average([0.5])
    assert connection.asked == [1, 2]


@pytest.mark.usefixtures("no_pairs")
@pytest.mark.parametrize("protocol", ["secagg", "mpyc"])
async def test_a_record_is_not_moved_to_another_request(tmp_path: Path, protocol: str) -> None:
    past = smpc_dp.TimeoutFault({"alice"}, "start", code=Code.PAST, number=3)
    connection = Failing(past, *(smpc_dp.TimeoutFault({"bob"}, "hello") for _ in range(2)))
    session = session_of(tmp_path, REAL | FEW if protocol == "secagg" else {}, connection, protocol)
    with pytest.raises(smpc_dp.TimeoutFault):
        await session.pairwise("collision", 7, 8.0, 1)
    with pytest.raises(smpc_dp.ConfigError, match=r"which request this is for: a?.* others ask for 3$"):
        await session.pairwise("collision", 7, 8.0, 1)
    for number in (3, None):
        with pytest.raises(smpc_dp.TimeoutFault, match="bob"):
            await session.pairwise("collision", 7, 8.0, 1, number=number)
    with pytest.raises(smpc_dp.ConfigError, match="must be a whole number above 4"):
        await session.pairwise("collision", 7, 8.0, 1, number=4)
    assert connection.asked == [1, 3, 4]


@pytest.mark.parametrize("label", ["a ", " a", "\u00a0a"])
async def test_a_label_that_looks_like_another_one_is_refused(tmp_path: Path, label: str) -> None:
    connection = Failing()
    session = session_of(tmp_path, REAL | FEW, connection)
    with pytest.raises(smpc_dp.ConfigError, match="must not begin or end with a blank") as caught:
        await session.average([0.5], label=label)
    assert (caught.value.issues[0].where, caught.value.issues[0].check) == ("label", ConfigCheck.FORMAT)
    assert connection.asked == []
