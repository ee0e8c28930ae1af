"""A session charges each party's privacy ledger before its vector leaves, and is refused when it is spent."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.adaptive_clipping import AdaptiveClipping
from smpc_dp.session.local import create_local_session
from smpc_dp.session.planned import UnchargedWarning
from smpc_dp.session.session_file import Timeouts
from tests import command

PARTIES = ("alice", "bob", "carol", "dave", "eve")
GOPA = {"length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6, "dropout": 0.2}


def budget(path: Path, epsilon: float | None) -> Path:
    Ledger.create(
        path, party="alice", dataset="patients", relation="substitution", epsilon=epsilon, delta=1e-5
    )
    return path


async def average(path: Path, name: str, requests: int, ledger: Path | None) -> list[object]:
    """Ask as often as that; return a result or an error for each."""
    answers: list[object] = []
    async with smpc_dp.connect(path, party=name, ledger=ledger) as session:
        for _ in range(requests):
            try:
                answers.append(await session.average([0.5]))
            except smpc_dp.SmpcError as error:
                answers.append(error)
    return answers


async def test_requests_are_charged_until_the_budget_is_spent(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, GOPA, protocol="gopa")
    ledger = budget(tmp_path / "alice.ledger", 1.2)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=2))
    alice, *others = await asyncio.gather(
        *(average(path, name, 2, ledger if name == "alice" else None) for name in PARTIES)
    )
    await serving
    first, second = alice
    assert isinstance(first, smpc_dp.Result)
    assert first.privacy.receipt is not None
    assert first.privacy.receipt.run == first.evidence.run_id.hex()
    assert isinstance(second, smpc_dp.PrivacyError)
    assert "epsilon is short: request 2 is refused (unit party, 'GOPA'; alice, 'patients')" in str(second)
    # One charge; the request that was refused cost nothing, and went on without her.
    assert len(Ledger.open(ledger).entries()) == 1
    for answers in others:
        assert isinstance(answers[1], smpc_dp.Result)
        assert answers[1].absent == ("alice",)
        assert answers[1].privacy.receipt is None


async def test_without_a_relay_a_spent_budget_stops_the_publication_alone(tmp_path: Path) -> None:
    timeouts = Timeouts(connect=60.0, step=20.0)
    given = GOPA | {"topology": "direct", "corrupt": 0.0}
    path = create_local_session(tmp_path, PARTIES, given, protocol="gopa", timeouts=timeouts)
    ledger = budget(tmp_path / "alice.ledger", 1.2)
    alice, *others = await asyncio.gather(
        *(average(path, name, 2, ledger if name == "alice" else None) for name in PARTIES)
    )
    first, second = alice
    assert isinstance(first, smpc_dp.Result)
    assert first.privacy.receipt is not None
    assert first.privacy.receipt.run == first.evidence.run_id.hex()
    assert isinstance(second, smpc_dp.PrivacyError)
    assert len(Ledger.open(ledger).entries()) == 1
    for answers in others:
        assert isinstance(answers[1], smpc_dp.Result)
        assert answers[1].absent == ("alice",)
        assert "alice" in answers[1].evidence.participating, "she left between certificate and publication"
        assert answers[1].to_json()["residual_pairs"] == 4


async def test_an_exact_sum_is_refused_by_a_ledger_with_a_budget(tmp_path: Path) -> None:
    given = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 1e-3, "dropout": 0.2}
    path = create_local_session(tmp_path, PARTIES, given)
    ledger = budget(tmp_path / "alice.ledger", 1.2)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    alice, *_ = await asyncio.gather(
        *(average(path, name, 1, ledger if name == "alice" else None) for name in PARTIES)
    )
    await serving
    assert isinstance(alice[0], smpc_dp.PrivacyError)
    assert "an exact release has no differential privacy" in str(alice[0])
    assert not Ledger.open(ledger).entries()


def test_every_ledger_is_opened_before_any_process_starts(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, GOPA, protocol="gopa")
    (tmp_path / "inputs").mkdir()
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    for name in PARTIES:
        (tmp_path / "inputs" / f"{name}.json").write_text("[0.5]")
    for name in PARTIES[:-1]:
        budget(ledgers / f"{name}.ledger", 1.2)
    (ledgers / "carol.ledger").write_text("{")
    before = {file: file.read_bytes() for file in ledgers.glob("*.ledger")}
    done = command.smpc_dp("run", str(path), "--ledgers", str(ledgers), "--json")
    assert (done.returncode, done.stdout) == (1, "")
    bob, carol, dave, eve = done.stderr.splitlines()
    assert "bob.ledger: the ledger of party 'alice', not of 'bob'" in bob
    assert "carol.ledger: damaged" in carol
    assert "dave.ledger: the ledger of party 'alice'" in dave
    assert "eve.ledger: cannot read the ledger (No such file or directory)" in eve
    assert {file: file.read_bytes() for file in ledgers.glob("*.ledger")} == before


async def test_anothers_ledger_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, GOPA, protocol="gopa")
    ledger = budget(tmp_path / "alice.ledger", None)
    with pytest.raises(smpc_dp.ConfigError, match="of party 'alice', not of 'bob'"):
        async with smpc_dp.connect(path, party="bob", ledger=ledger):
            pass


@pytest.mark.parametrize("private", [True, False])
async def test_a_session_with_epsilon_warns_without_a_ledger(tmp_path: Path, private: bool) -> None:
    exact = {key: value for key, value in GOPA.items() if key not in ("epsilon", "delta")}
    given, protocol = (GOPA, "gopa") if private else (exact | {"precision": 0.01}, "secagg")
    path = create_local_session(
        tmp_path, PARTIES, given, protocol=protocol, timeouts=Timeouts(connect=0.05, step=5.0)
    )
    ledger = budget(tmp_path / "alice.ledger", None)
    for book in (None, ledger):
        with (
            warnings.catch_warnings(record=True, action="always") as caught,
            pytest.raises(smpc_dp.TimeoutFault),
        ):
            await smpc_dp.Session.open(path, "alice", ledger=book)
        uncharged = [one for one in caught if one.category is UnchargedWarning]
        named = [str(one.message).partition(":")[0] for one in uncharged]
        assert named == ["alice"] * (private and book is None)


@pytest.mark.filterwarnings("ignore::smpc_dp.session.planned.NoiseWarning")
async def test_rounds_of_adaptive_clipping_are_charged_one_by_one(tmp_path: Path) -> None:
    """One that is repeated too; a party with another bound is excluded by name, its peers go on."""
    clipping = AdaptiveClipping(length=2, first=8.0, rate=1.0)
    given = {**clipping.parameters, "epsilon": 1.0, "delta": 1e-6, "dropout": 0.2, "corrupt": 0.0}
    path = create_local_session(tmp_path, PARTIES, given, protocol="secagg")
    ledger = budget(tmp_path / "alice.ledger", 20.0)

    async def take_part(name: str) -> tuple[AdaptiveClipping, smpc_dp.Result]:
        own, book = clipping, ledger if name == "alice" else None
        async with smpc_dp.connect(path, party=name, ledger=book) as session:
            result = await session.average(own.clip([1.0, 0.5], name), label=own.label)
            after = own.following(result.value)
            for _ in range(2):
                used = own if name == "eve" else after
                result = await session.average(used.clip([1.0, 0.5], name), label=used.label)
        return after, result

    serving = asyncio.create_task(smpc_dp.serve(path, requests=3))
    *others, eve = await asyncio.gather(*map(take_part, PARTIES), return_exceptions=True)
    await serving
    assert isinstance(eve, smpc_dp.SmpcError)
    made = [one for one in others if not isinstance(one, BaseException)]
    assert len({after for after, _ in made}) == 1
    assert [result.absent for _, result in made] == [("eve",)] * 4
    assert len(Ledger.open(ledger).entries()) == 3


@pytest.mark.filterwarnings("ignore::smpc_dp.session.planned.NoiseWarning")
async def test_an_attempt_that_stops_is_charged_and_the_next_one_at_the_same_bound_again(
    tmp_path: Path,
) -> None:
    """Two of five cannot pay and leave when vectors are due: no average. All connect and repeat it."""
    clipping = AdaptiveClipping(length=2, first=8.0, rate=1.0)
    given = {**clipping.parameters, "epsilon": 1.0, "delta": 1e-6, "dropout": 0.2, "corrupt": 0.0}
    path = create_local_session(tmp_path, PARTIES, given, protocol="secagg")
    ledger = budget(tmp_path / "alice.ledger", 20.0)
    terms: Any = {"dataset": "patients", "relation": "substitution", "epsilon": 0.1, "delta": 1e-5}
    short = {name: tmp_path / f"{name}.ledger" for name in ("dave", "eve")}
    for name, book in short.items():
        Ledger.create(book, party=name, **terms)

    async def attempt(books: dict[str, Path]) -> list[smpc_dp.Result | smpc_dp.SmpcError]:
        async def take_part(name: str) -> smpc_dp.Result | smpc_dp.SmpcError:
            async with smpc_dp.connect(path, party=name, ledger=books.get(name)) as session:
                try:
                    return await session.average(clipping.clip([1.0, 0.5], name), label=clipping.label)
                except smpc_dp.SmpcError as error:
                    return error

        serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
        ended = await asyncio.gather(*map(take_part, PARTIES))
        await serving
        return ended

    alice, *_ = await attempt({"alice": ledger, **short})
    assert isinstance(alice, smpc_dp.TimeoutFault)
    assert sorted(alice.missing) == ["dave", "eve"]
    [first], stopped = Ledger.open(ledger).entries(), Ledger.open(ledger).spent().epsilon
    results = await attempt({"alice": ledger})
    assert all(isinstance(one, smpc_dp.Result) and one.survivors == PARTIES for one in results)
    first, second = Ledger.open(ledger).entries()
    assert first.event == second.event
    assert first.run != second.run
    spent = Ledger.open(ledger).spent().epsilon
    assert stopped is not None
    assert spent is not None
    assert 1.3 * stopped < spent < 1.5 * stopped
