"""Evaluations and statistics of pairs with security against both sides, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.active.evaluator import ActiveEvaluatorRole
from smpc_dp.capabilities.pairs.active.role import evaluation_failure
from smpc_dp.capabilities.pairs.garbled.params import Security
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.pairs.roles import PairTransfers, fresh_transfers
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.errors import Check, Code
from smpc_dp.logs.audits.audit import audit
from smpc_dp.privacy.accountant.events import Pure
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp_verify import Wanted, verify
from tests.deadlines import HOURS
from tests.processes.test_pairs_evaluate import session as evaluating
from tests.processes.test_pairs_statistic import PARAMETERS, PARTIES, execute

CHEAT = 2.0**-40
TAU = kendall_tau(Field(0, 99), Field(0, 99))


class Refusing(ActiveEvaluatorRole):
    """An evaluator for which the first check fails, whatever came."""

    def _require(self, arrived: bytes | memoryview, expected: bytes) -> None:  # noqa: ARG002 (the role's)
        raise evaluation_failure()


def session(folder: Path, *, addresses: bool = True) -> Path:
    return create_local_session(folder, PARTIES, PARAMETERS, addresses=addresses, timeouts=HOURS)


def ledgers_of(folder: Path, *names: str) -> dict[str, Path]:
    files = {name: folder / f"{name}.ledger" for name in names}
    for name, file in files.items():
        Ledger.create(file, party=name, dataset="d", relation="substitution", epsilon=30.0, delta=1e-9)
    return files


async def test_two_parties_compare_and_another_security_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[PairTransfers] = []

    def counted(plan: Plan) -> PairTransfers:
        made.append(fresh_transfers(plan))
        return made[-1]

    monkeypatch.setattr("smpc_dp.capabilities.pairs.requests.evaluation.fresh_transfers", counted)
    securities: tuple[Security, ...] = ("malicious", "semi-honest")
    async with evaluating(tmp_path) as at:
        for security in securities:
            ends = await asyncio.gather(
                at["alice"].evaluate("less_u16", [3], peer="bob", role="garbler", security="malicious"),
                at["bob"].evaluate("less_u16", [4], peer="alice", role="evaluator", security=security),
                return_exceptions=True,
            )
            if security == "malicious":
                for end in ends:
                    assert isinstance(end, smpc_dp.Evaluation)
                    assert end.value == (1,)
                    assert end.evidence.protocol == "pairwise-active"
                    assert end.claim.startswith("secure with abort against a malicious 'alice' (garbler) or")
                continue
            for end in ends:
                assert isinstance(end, smpc_dp.ConfigError)
                assert "security" in str(end)
        count = len(made)
        batches = await asyncio.gather(
            at["alice"].evaluate("less_u16", [[3, 5]], peer="bob", role="garbler", security="malicious"),
            at["bob"].evaluate("less_u16", [[4, 5]], peer="alice", role="evaluator", security="malicious"),
        )
        assert [each.value[0].tolist() for each in batches if each.value is not None] == [[1, 0]] * 2
        # Of alice they are gone with the evaluation that was refused; bob's are of it alone, and made anew.
        assert len(made) == count + 1


async def test_a_cheat_ends_both_with_one_error_that_names_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.ActiveEvaluatorRole", Refusing)
    async with evaluating(tmp_path) as at:
        ends = await asyncio.gather(
            at["alice"].evaluate("less_u16", [3], peer="bob", role="garbler", security="malicious"),
            at["bob"].evaluate("less_u16", [4], peer="alice", role="evaluator", security="malicious"),
            return_exceptions=True,
        )
    for end in ends:
        assert isinstance(end, smpc_dp.VerificationError)
        assert (end.check, end.code, str(end)) == (
            Check.EVALUATION_FAILED,
            Code.EVALUATION,
            str(evaluation_failure()),
        )


async def test_comparisons_cost_a_delta_for_each_attempt(tmp_path: Path) -> None:
    async with evaluating(tmp_path) as at:
        got = await asyncio.gather(
            *(one.similarities([1.0, 0.0], 9.0, levels=4, security="malicious") for one in at.values())
        )
    for one in got:
        assert len(one.scores) == 2
        assert one.guarantee.delta == 2 * CHEAT
        assert "semi-honest" not in one.guarantee.assumption


@pytest.mark.parametrize(
    "addresses", [True, pytest.param(False, marks=pytest.mark.long)], ids=["direct", "relayed"]
)
async def test_five_parties_estimate_and_each_attempt_is_charged(tmp_path: Path, addresses: bool) -> None:
    """At epsilon 12 there is hardly any noise: concordant records give 1; below 0.4 has odds of 1e-6."""
    ledgers = ledgers_of(tmp_path, "bob")

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise(TAU, (index, 10 + index), 24.0, 2, security="malicious")

    path = session(tmp_path, addresses=addresses)
    *answers, served = await execute(path, act, ledgers=ledgers)
    assert isinstance(served, StatisticResult)
    for answer in answers:
        assert isinstance(answer, StatisticResult)
        assert (answer.value, answer.pairs, answer.failed) == (served.value, 4, 0)
        assert answer.value == pytest.approx(1.0, abs=0.6)
        assert (answer.privacy.epsilon, answer.privacy.delta) == (24.0, 2 * CHEAT)
        assert "secure with abort against a malicious garbler" in answer.privacy.claim
        assert not any("semi-honest" in line for line in answer.privacy.assumptions)
    (entry,) = Ledger.open(ledgers["bob"]).entries()
    assert entry.event.descriptions == (Pure(24.0, 2 * CHEAT),)
    (log,) = (tmp_path / "board").glob("request-*.jsonl")
    assert served.evidence is not None
    assert served.evidence.log is not None
    report = audit(log, session=path, head=served.evidence.log.head.hex())
    assert report.ok
    assert report.statistic is not None
    assert report.statistic.terms["security"] == "malicious"
    second = verify(log, Wanted(report.session, head=report.head))
    assert (second.code, second.reason) == (0, "")


async def test_pairs_that_fail_are_charged_and_name_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.ActiveEvaluatorRole", Refusing)
    ledgers = ledgers_of(tmp_path, *PARTIES)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise(TAU, (index, 10 + index), 12.0, 1, security="malicious")

    *answers, served = await execute(session(tmp_path), act, ledgers=ledgers)
    # Nobody is singled out, and of each the attempt is charged.
    for answer in answers:
        assert isinstance(answer, smpc_dp.TimeoutFault)
        assert answer.missing == set(PARTIES)
    assert str(served).count(str(evaluation_failure())) == 2
    for name in PARTIES:
        (entry,) = Ledger.open(ledgers[name]).entries()
        assert entry.event.descriptions == (Pure(12.0, CHEAT),)
