"""Pairwise statistics through the public API, over real sockets."""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.covert.copies import GarblerCopy
from smpc_dp.capabilities.pairs.covert.evaluator import CovertEvaluatorRole
from smpc_dp.capabilities.pairs.covert.garbler import CovertGarblerRole
from smpc_dp.capabilities.pairs.covert.terms import TABLES, Terms
from smpc_dp.capabilities.pairs.garbled.draw import matchings
from smpc_dp.capabilities.pairs.garbled.effects import Send
from smpc_dp.capabilities.pairs.kernels import Field, auc, kendall_tau, table_kernel
from smpc_dp.capabilities.pairs.requests import statistic
from smpc_dp.capabilities.pairs.requests.audit_certificate import audit_certificate
from smpc_dp.capabilities.pairs.ustatistic import pairs
from smpc_dp.capabilities.pairs.ustatistic.messages import RelayEnd
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.errors import Check, Code, certificate_of
from smpc_dp.logs.audits.audit import audit
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.aggregator import RequestServer
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.session.tasks import Beside
from smpc_dp.session.threads import run_in_loop
from tests.deadlines import HOURS

PARTIES = ("alice", "bob", "carol", "dave", "eve")
PARAMETERS: dict[str, object] = {
    "length": 1,
    "lower": 0.0,
    "upper": 1.0,
    "precision": 0.01,
    "dropout": 0.3,
    "corrupt": 0.0,
}
GRID = Field(0, 99)

Act = Callable[[smpc_dp.Session, int], Awaitable[object]]


async def execute(
    path: Path, act: Act, *, ledgers: dict[str, Path] | None = None, **serve: object
) -> list[object]:
    """Serve while every party acts; return what each party got, then what the aggregator did."""

    async def party(index: int, name: str) -> object:
        try:
            async with smpc_dp.connect(path, party=name, ledger=(ledgers or {}).get(name)) as session:
                return await act(session, index)
        except smpc_dp.SmpcError as error:
            return error

    serving = asyncio.create_task(smpc_dp.serve(path, **serve))  # type: ignore[arg-type]
    got = await asyncio.gather(*(party(index, name) for index, name in enumerate(PARTIES)))
    return [*got, *await serving]


def session(folder: Path) -> Path:
    return create_local_session(folder, PARTIES, PARAMETERS, addresses=True, timeouts=HOURS)


async def test_an_aggregator_without_statistics_of_pairs_refuses_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is accused, and the next request is served."""
    monkeypatch.setattr(Beside, "is_there", False)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        with pytest.raises(smpc_dp.TimeoutFault) as caught:
            await opened.pairwise(kendall_tau(GRID, GRID), (index, index), 1.0, 1, covert=0)
        assert caught.value.code in (Code.KIND, Code.PAST)
        return (await opened.sum([0.5], number=2)).value.tolist()

    *got, refused, summed = await execute(session(tmp_path), act, requests=2)
    assert got == [[2.5]] * 5
    assert str(refused) == "most parties ask for 'pairs', which is not in this installation"
    assert isinstance(summed, smpc_dp.Result)


async def test_five_parties_estimate_and_their_ledgers_are_charged(tmp_path: Path) -> None:
    """At epsilon 12 a pair there is hardly any noise: concordant records give 1; below 0.4 has odds of 1e-6.

    Five are odd: one rests. Partners of a party that leaves are told so: nobody waits for a deadline.
    """
    path, ledgers = session(tmp_path), {"bob": tmp_path / "bob.ledger"}
    Ledger.create(
        ledgers["bob"], party="bob", dataset="pairs", relation="substitution", epsilon=30.0, delta=1e-6
    )
    kernel = kendall_tau(GRID, GRID)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        first = await opened.pairwise(kernel, (index, 10 + index), 24.0, 2)
        try:
            second: object = await opened.pairwise(kernel, (index, 10 + index), 24.0, 2)
        except smpc_dp.SmpcError as error:
            second = error
        total = await opened.sum([0.5]) if opened.party != "bob" else None
        return first, second, total

    *answers, served, again, summed = await execute(path, act, ledgers=ledgers)
    assert isinstance(served, StatisticResult)
    assert isinstance(again, StatisticResult)
    assert isinstance(summed, smpc_dp.Result)
    for answer in answers:
        assert isinstance(answer, tuple)
        first, _, _ = answer
        assert (first.value, first.pairs, first.failed) == (served.value, 4, 0)
        assert first.value == pytest.approx(1.0, abs=0.6)
        assert first.evidence == served.evidence
        assert (first.privacy.epsilon, first.privacy.delta) == (24.0, 0.0)
        assert first.survivors == PARTIES
        # By default four copies.
        assert any("1/4 is no part of delta" in line for line in first.privacy.not_protected)
    bob = answers[1]
    assert isinstance(bob, tuple)
    assert served.evidence is not None
    assert bob[0].privacy.receipt.run == served.evidence.run_id.hex()
    # Refused before anything of the record was sent; the others' pairs with bob fail, the rest counts.
    assert isinstance(bob[1], smpc_dp.PrivacyError)
    assert len(Ledger.open(ledgers["bob"]).entries()) == 1
    assert again.pairs + again.failed == 4
    # None with a chance of 1/25, where bob rests in both matchings.
    assert again.evidence is not None
    drawn = matchings(again.evidence.beacon, len(PARTIES), 2)
    assert again.failed == np.count_nonzero(drawn == PARTIES.index("bob"))


async def test_a_sum_keeps_what_the_party_has_seen_of_the_session_log(tmp_path: Path) -> None:
    async def act(opened: smpc_dp.Session, index: int) -> object:
        await opened.pairwise(kendall_tau(GRID, GRID), (index, 10 + index), 24.0, 2)
        member = opened._requests.membership
        scope = member.context(1).scope
        before = member.runs_seen.get(scope)
        await opened.sum([0.5])
        return before, member.runs_seen.get(scope)

    *seen, _, summed = await execute(session(tmp_path), act)
    assert isinstance(summed, smpc_dp.Result)
    assert len(seen) == len(PARTIES)
    for pair in seen:
        assert isinstance(pair, tuple)
        assert pair[0].number == 1
        assert pair[0] == pair[1]


async def test_a_failed_pair_is_spent_and_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One party is gone when its pair begins: the pair is dropped and counted, and nobody asks again."""
    ledgers = {name: tmp_path / f"{name}.ledger" for name in PARTIES}
    for name, ledger in ledgers.items():
        Ledger.create(ledger, party=name, dataset="d", relation="substitution", epsilon=30.0, delta=1e-6)

    begun: list[tuple[str, int]] = []
    evaluate = statistic.PairRounds._evaluate

    async def counted(self: statistic.PairRounds, matching: int, garbler: str, evaluator: str) -> None:
        own = self._identity.name
        begun.append((own, matching))
        # Charged, on disk, before anything of the record can be sent.
        assert len(Ledger.open(ledgers[own]).entries()) == 1
        if own == "eve":
            raise smpc_dp.LocalError("eve's machine has gone")
        await evaluate(self, matching, garbler, evaluator)

    monkeypatch.setattr(statistic.PairRounds, "_evaluate", counted)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise("collision", 7, 12.0, 1)

    # Eve's partner waits for her until the step is over.
    timeouts = Timeouts(connect=60.0, step=20.0, gather=10.0)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=timeouts)
    *answers, served = await execute(path, act, ledgers=ledgers)
    assert isinstance(served, StatisticResult)
    hers = [matching for name, matching in begun if name == "eve"]
    assert len(begun) == len(set(begun)) == 4
    assert served.failed == len(hers)
    assert served.pairs == 2 - len(hers)
    for answer in answers:
        assert isinstance(answer, StatisticResult)
        assert answer.value == served.value
        assert answer.privacy.receipt is not None
    for ledger in ledgers.values():
        # Spent all the same.
        assert len(Ledger.open(ledger).entries()) == 1


async def test_a_sum_and_a_statistic_do_not_mix(tmp_path: Path) -> None:
    async def act(opened: smpc_dp.Session, index: int) -> object:
        if opened.party == "alice":
            return await opened.pairwise("collision", 7, 1.0)
        await asyncio.sleep(0.5)
        return await opened.sum([0.25])

    *answers, served = await execute(session(tmp_path), act)
    assert isinstance(served, smpc_dp.Result)
    assert served.absent == ("alice",)
    assert "asks for a sum where others ask for a pairwise statistic" in str(answers[0])


async def test_one_party_that_asks_first_and_otherwise_takes_the_request_from_nobody(tmp_path: Path) -> None:
    async def act(opened: smpc_dp.Session, index: int) -> object:
        if opened.party == "alice":
            return await opened.sum([0.25])
        await asyncio.sleep(0.5)
        return await opened.pairwise("collision", 7, 12.0, 1)

    *answers, served = await execute(session(tmp_path), act)
    assert isinstance(served, StatisticResult)
    assert (served.absent, served.pairs) == (("alice",), 2)
    assert "asks for a sum where others ask for a pairwise statistic" in str(answers[0])


@pytest.mark.parametrize("kind", ["pairwise", pytest.param("sum", marks=pytest.mark.long)])
async def test_a_record_that_is_refused_moves_no_other_one(tmp_path: Path, kind: str) -> None:
    """The others go on without it at once, and its party's next record is one of the next request.

    It comes when the request is open, and before it is clear that it is for a statistic.
    """
    pauses = {"alice": 0.3, "dave": 0.6, "eve": 0.6}

    async def act(opened: smpc_dp.Session, index: int) -> object:
        await asyncio.sleep(pauses.get(opened.party, 0))
        if opened.party != "alice":
            await opened.pairwise("collision", 3, 12.0, 1, covert=0)
        else:
            with pytest.raises(smpc_dp.PrivacyError):
                await (opened.sum([2.5]) if kind == "sum" else opened.pairwise("collision", 2.5, 12.0, 1))
        return await opened.pairwise("collision", 7, 12.0, 1, covert=0)

    async with asyncio.timeout(30):
        *_, first, second = await execute(session(tmp_path), act)
    assert isinstance(first, StatisticResult)
    assert isinstance(second, StatisticResult)
    assert (first.absent, first.pairs, second.absent, second.pairs) == (("alice",), 2, (), 2)
    assert "signature" not in str(first.faults)


@pytest.mark.long
async def test_who_was_started_anew_joins_by_relayed_pairs(tmp_path: Path) -> None:
    """After the answer to its past request; messages of pairs are longer than those of excluded parties."""
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=HOURS)
    serving = asyncio.create_task(smpc_dp.serve(path))
    opened = {name: await smpc_dp.Session.open(path, name) for name in PARTIES}

    async def ask(name: str, number: int | None = None) -> StatisticResult:
        return await opened[name].pairwise("collision", 7, 12.0, 1, covert=0, number=number)

    await asyncio.gather(*map(ask, PARTIES))
    await opened["eve"].close()
    opened["eve"] = await smpc_dp.Session.open(path, "eve")
    with pytest.raises(smpc_dp.TimeoutFault) as caught:
        await ask("eve")
    assert (caught.value.code, caught.value.number) == (Code.PAST, 2)
    answers = await asyncio.gather(*map(ask, PARTIES[:-1]), ask("eve", 2))
    assert [(answer.absent, answer.faults) for answer in answers] == [((), ())] * 5
    for each in opened.values():
        await each.close()
    assert [type(served) for served in await serving] == [StatisticResult] * 2


async def test_users_kernels_and_public_labels(tmp_path: Path) -> None:
    near = table_kernel("near", lambda x, y: float(abs(x[0] - y[0]) <= 2), Field(0, 9), low=0, high=1)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        first = await opened.pairwise(near, index, 12.0, 1, noise="randomised_response")
        label = int(index < 2)
        second = await opened.pairwise("auc", 50 - index, 12.0, 1, public_label=label, covert=0)
        return first, second

    *answers, first, second = await execute(session(tmp_path), act, kernels=[near])
    assert isinstance(first, StatisticResult)
    assert isinstance(second, StatisticResult)
    assert first.pairs == 2
    assert second.pairs == 2
    assert "covert garbler" in first.privacy.claim
    assert "semi-honest garbler" in second.privacy.claim
    # Three steps of noise have odds of 1e-7.
    assert second.value == pytest.approx(1.0, abs=0.6)
    for answer in answers:
        assert isinstance(answer, tuple)
        assert [each.value for each in answer] == [first.value, second.value]


async def test_parties_without_addresses_are_relayed(tmp_path: Path) -> None:
    """Gaussian noise has tables of 600 kB: many frames for one message, more than are under way at once."""
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=HOURS)
    kernel = kendall_tau(GRID, GRID)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        first = await opened.pairwise(kernel, (index, 10 + index), 24.0, 2)
        wide = await opened.pairwise(kernel, (index, 10 + index), 0.8, 1, noise="gaussian", delta=1e-6)
        return first, wide

    *answers, first, wide = await execute(path, act)
    assert isinstance(first, StatisticResult)
    assert isinstance(wide, StatisticResult)
    assert (first.pairs, first.failed, wide.pairs, wide.failed) == (4, 0, 2, 0)
    assert first.value == pytest.approx(1.0, abs=0.6)
    for answer in answers:
        assert isinstance(answer, tuple)
        assert [each.value for each in answer] == [first.value, wide.value]


async def test_an_unknown_kernel_is_refused_by_name(tmp_path: Path) -> None:
    mine = table_kernel("mine", lambda x, y: float(x == y), Field(0, 9), low=0, high=1)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise(mine, index, 1.0)

    *answers, served = await execute(session(tmp_path), act)
    assert any("the aggregator does not know or cannot plan" in str(answer) for answer in answers)
    assert "cannot be had here" in str(served)
    assert "mine" in str(served)


@pytest.mark.long
async def test_processes_without_addresses_and_one_is_killed_amid_its_pair(tmp_path: Path) -> None:
    """The pair is spent and counted, its partner is told at once, and the log of the run names it."""
    names = PARTIES[:4]
    path = create_local_session(tmp_path, names, PARAMETERS, timeouts=HOURS)
    for name in names:
        ledger = tmp_path / f"{name}.ledger"
        Ledger.create(ledger, party=name, dataset="d", relation="substitution", epsilon=12.0, delta=1e-6)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    member = str(Path(__file__).with_name("pairs_statistic_member.py"))
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, member, str(path), name, "dies" if name == "dave" else "lives"),
            stdout=asyncio.subprocess.PIPE,
        )
        for name in names
    ]
    outputs = [(await process.communicate())[0] for process in processes]
    (served,) = await serving
    assert isinstance(served, StatisticResult)
    assert (served.pairs, served.failed) == (1, 1)
    reported = {name: json.loads(output) for name, output in zip(names, outputs, strict=True) if output}
    assert set(reported) == set(names) - {"dave"}
    (partner,) = (name for name, result in reported.items() if result["faults"])
    assert "dave" in reported[partner]["faults"][0]
    for name in names:
        # Also of the one that died: before its first message that depends on its record.
        assert len(Ledger.open(tmp_path / f"{name}.ledger").entries()) == 1
    (log,) = (tmp_path / "board").glob("request-*.jsonl")
    heads = reported["alice"]["evidence"]["log"]
    # It says which run, and not what the aggregator has signed in the end.
    assert audit(log, session=path, head=heads["session_head"]).code == 4
    report = audit(log, session=path, head=heads["head"])
    assert report.ok
    assert report.statistic is not None
    assert [set(pair) for _, *pair in report.statistic.failed] == [{"dave", partner}]
    assert report.statistic.unheard == ("dave",)
    assert report.statistic.disputed == ()
    assert served.evidence is not None
    assert report.statistic.beacon == reported["alice"]["evidence"]["beacon"] == served.evidence.beacon.hex()


@pytest.mark.long
def test_the_example_with_six_borrowers() -> None:
    """The first six of its thirty, to save time; seven standard errors of the noise, and tau is within 2."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "kendall_tau.py"))
    result = asyncio.run(example["main"](6))
    assert (result["pairs"], result["failed"]) == (6, 0)
    assert result["privacy"]["epsilon"] == 8.0
    assert 7.99 < result["privacy"]["receipt"]["spent"]["epsilon"] <= 8.0
    assert abs(result["value"] - result["truth"]) < 7 * result["noise_error"] + 2


async def test_covert_pairs_through_the_aggregator_estimate_the_same(tmp_path: Path) -> None:
    """As above: hardly any noise, and concordant records."""
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=HOURS)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise(kendall_tau(GRID, GRID), (index, 10 + index), 12.0, 1, covert=2)

    *answers, served = await execute(path, act)
    assert isinstance(served, StatisticResult)
    assert (served.pairs, served.failed) == (2, 0)
    assert served.value == pytest.approx(1.0, abs=0.6)
    for answer in answers:
        assert isinstance(answer, StatisticResult)
        assert "covert garbler" in answer.privacy.claim
        assert any("1/2 is no part of delta" in line for line in answer.privacy.not_protected)


class OtherTables(GarblerCopy):
    """A copy whose signed tables do not follow from its seed."""

    def digests(self, *, store: bool = False) -> dict[int, bytes]:
        return super().digests(store=store) | {TABLES: bytes(32)}


class Cheat(CovertGarblerRole):
    def _copy(self, terms: Terms, copy: int, seed: bytes) -> GarblerCopy:
        return OtherTables(terms, copy, seed)


async def test_garblers_that_cheat_are_convicted_their_pairs_fail_and_ledgers_are_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.CovertGarblerRole", Cheat)
    # A deadline that a busy machine misses would end the request before both are convicted.
    path = session(tmp_path)
    ledgers = {name: tmp_path / f"{name}.ledger" for name in PARTIES}
    for name, file in ledgers.items():
        Ledger.create(file, party=name, dataset="pairs", relation="substitution", epsilon=30.0, delta=1e-6)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise(kendall_tau(GRID, GRID), (index, 10 + index), 12.0, 1, covert=2)

    answers = await execute(path, act, ledgers=ledgers, requests=1)
    assert all(isinstance(answer, smpc_dp.SmpcError) for answer in answers)
    # To each evaluator its conviction, not how the run ended; with all parties' first faults in that.
    errors = [answer for answer in answers if isinstance(answer, smpc_dp.SmpcError)]
    convicted = [error for error in errors if certificate_of(error)]
    assert len(convicted) == 2
    assert all(isinstance(error.__cause__, smpc_dp.SmpcError) for error in convicted)
    served = answers[-1]
    assert isinstance(served, smpc_dp.TimeoutFault)
    assert certificate_of(served.__cause__)
    assert str(served).count("is convicted of cheating") == 2
    assert all(len(Ledger.open(file).entries()) == 1 for file in ledgers.values())
    files = sorted((tmp_path / "keys" / "certificates").iterdir())
    assert len(files) == 2
    for file in files:
        report = audit_certificate(file, path)
        assert (report.ok, report.message) == (True, "tables")
        assert file.name.startswith(f"{report.garbler}-")


class OneCheat(CovertGarblerRole):
    def _copy(self, terms: Terms, copy: int, seed: bytes) -> GarblerCopy:
        kind = OtherTables if self.name == "alice" else GarblerCopy
        return kind(terms, copy, seed)


async def test_a_convicted_party_is_paired_no_more_and_its_partners_are_told_who_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parties of label 1 garble: alice, who cheats, and bob. Nobody has a deadline within the test."""
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.CovertGarblerRole", OneCheat)
    path = session(tmp_path)
    stored: list[set[str]] = []
    heed, close = RequestServer._heed_certificates, pairs._close
    serving: list[RequestServer] = []

    async def heed_certificates(server: RequestServer) -> None:
        serving.append(server)
        await heed(server)

    def close_log(*arguments: Any) -> Any:
        assert serving[-1]._convictions is not None
        stored.append(set(serving[-1]._convictions.files))
        return close(*arguments)

    monkeypatch.setattr(RequestServer, "_heed_certificates", heed_certificates)
    monkeypatch.setattr(pairs, "_close", close_log)

    async def ask(opened: smpc_dp.Session, index: int) -> StatisticResult:
        label = int(opened.party in ("alice", "bob"))
        return await opened.pairwise(auc(GRID), 50 - index, 24.0, 2, public_label=label, covert=2)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        try:
            first = await ask(opened, index)
        except smpc_dp.PeerFault:
            # Alice tries again.
            return await ask(opened, index)
        return first, await ask(opened, index)

    *answers, served, again = await execute(path, act, requests=2)
    assert isinstance(served, StatisticResult)
    assert isinstance(again, StatisticResult)
    assert (served.pairs, served.failed) == (2, 2)
    # Before the run was over: an aggregator that is started anew is not shown it again.
    assert stored == [{"alice"}] * 2
    (fault,) = (fault for fault in served.faults if "alice: is convicted of cheating" in fault)
    accuser = fault.removeprefix("alice: is convicted of cheating by the certificate of ")
    assert isinstance(answers[0], smpc_dp.SmpcError)
    assert again.faults[0] == fault
    faults: dict[str, tuple[str, ...]] = {}
    for name, answer in zip(PARTIES[1:], answers[1:], strict=True):
        assert isinstance(answer, tuple), answer
        faults[name] = answer[0].faults
    first, *others = faults.pop(accuser)
    assert "alice: cheated" in first, first
    others += [fault for partner in faults.values() for fault in partner]
    assert len(others) == 1
    assert "alice: is refused: it is convicted of cheating by" in others[0], others
    assert (again.pairs, again.failed, again.absent) == (2, 0, ("alice",))
    # Whoever joins anew is refused too, by the aggregator, before anything of it is paired.
    *answers, served = await execute(path, ask, requests=1)
    assert isinstance(served, StatisticResult)
    assert (served.pairs, served.failed, served.absent) == (2, 0, ("alice",))
    assert isinstance(answers[0], smpc_dp.SmpcError)
    (file,) = (tmp_path / "keys" / "certificates").iterdir()
    assert served.faults == (f"alice: is refused: it is convicted of cheating by {file}",)


class Escaping(OneCheat):
    """Alice says that she has left the pair when she learns that she is caught, and does not hang up.

    `leave` says so.
    """

    leave: ClassVar[Callable[[], None]]

    def farewell(self, error: smpc_dp.SmpcError) -> list[Send]:
        if self.name != "alice":
            return super().farewell(error)
        type(self).leave()
        time.sleep(0.5)
        return []


@pytest.mark.parametrize("addresses", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_no_caught_garbler_escapes_its_certificate(
    addresses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.CovertGarblerRole", Escaping)
    drive_pair = statistic.PairRounds._drive_pair

    async def noted(rounds: statistic.PairRounds, matching: int, garbler: str, *rest: Any) -> None:
        if garbler == rounds._identity.name == "alice":
            loop = asyncio.get_running_loop()
            Escaping.leave = lambda: run_in_loop(rounds._give(RelayEnd(matching)), loop)
        await drive_pair(rounds, matching, garbler, *rest)

    monkeypatch.setattr(statistic.PairRounds, "_drive_pair", noted)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=addresses, timeouts=HOURS)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        label = int(opened.party in ("alice", "bob"))
        return await opened.pairwise(auc(GRID), 50 - index, 12.0, 1, public_label=label, covert=2)

    *answers, served = await execute(path, act, requests=1)
    assert isinstance(served, StatisticResult)
    (fault,) = served.faults
    assert fault.startswith("alice: is convicted of cheating by the certificate of ")
    (file,) = (tmp_path / "keys" / "certificates").iterdir()
    assert audit_certificate(file, path).ok
    faults = [
        fault for answer in answers[1:] if isinstance(answer, StatisticResult) for fault in answer.faults
    ]
    assert len(faults) == 1
    assert "alice: cheated" in faults[0]


@pytest.mark.long
async def test_a_judgement_that_outlasts_the_run_convicts_and_is_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator ends the run in 11 s; its result ends the pairs of who still judges."""
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.CovertGarblerRole", OneCheat)
    check = CovertEvaluatorRole._check_copies

    def slow(role: CovertEvaluatorRole, *arguments: Any) -> None:
        if role._garbler == "alice":
            time.sleep(14.0)
        check(role, *arguments)

    monkeypatch.setattr(CovertEvaluatorRole, "_check_copies", slow)
    timeouts = Timeouts(connect=60.0, step=2.0, gather=1.0)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=timeouts)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        label = int(opened.party in ("alice", "bob"))
        return await opened.pairwise(auc(GRID), 50 - index, 12.0, 1, public_label=label, covert=2)

    *answers, served = await execute(path, act, requests=1)
    assert isinstance(served, StatisticResult)
    assert (served.pairs, served.failed) == (1, 1)
    (file,) = (tmp_path / "keys" / "certificates").iterdir()
    assert audit_certificate(file, path).ok
    faults = [
        fault for answer in answers[1:] if isinstance(answer, StatisticResult) for fault in answer.faults
    ]
    assert len(faults) == 1
    assert "alice: cheated" in faults[0]


class FalseAccuser(CovertEvaluatorRole):
    def _check_copies(self, _terms, learned, envelope, _statement):  # type: ignore[no-untyped-def]
        content = self._certificate(envelope, min(learned.seeds)).encode()
        raise smpc_dp.PeerFault(self._garbler, "cheated", Check.CONVICTED, {"certificate": content})


async def test_who_accuses_an_honest_garbler_is_excluded_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.CovertEvaluatorRole", FalseAccuser)
    path = session(tmp_path)

    async def ask(opened: smpc_dp.Session, index: int) -> StatisticResult:
        label = int(opened.party in ("alice", "bob"))
        return await opened.pairwise(auc(GRID), 50 - index, 12.0, 1, public_label=label, covert=2)

    *answers, served = await execute(path, ask, requests=1)
    assert isinstance(served, smpc_dp.TimeoutFault)
    for garbler in ("alice", "bob"):
        assert f"accuses {garbler}: the copy follows from the seeds" in str(served)
        assert f"{garbler}: is convicted" not in str(served)
    assert sum(isinstance(answer, smpc_dp.PeerFault) for answer in answers) == 2
    # What they wrote convicts nobody: alice and bob are taken again.
    assert len(list((tmp_path / "keys" / "certificates").iterdir())) == 2
    monkeypatch.undo()
    *answers, served = await execute(path, ask, requests=1)
    assert isinstance(served, StatisticResult)
    assert (served.pairs, served.failed, served.absent, served.faults) == (2, 0, (), ())
