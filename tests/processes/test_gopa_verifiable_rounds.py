"""Parties who sign something false, over real channels: how long it may be, and rounds of openings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import smpc_dp
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.statements import FALSE, MALFORMED, OPENING_OTHER
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.result import Result
from smpc_dp.errors import PeerFault, PrivacyError, SmpcError
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp_lab.vectors.verifiable_runs import Cheater

NAMES = ("alice", "bob", "carol", "dave", "erin")
PARAMETERS = {
    "length": 1,
    "lower": 0,
    "upper": 1,
    "precision": 0.5,
    "epsilon": 8.0,
    "delta": 1e-3,
    "dropout": 0.2,
    "corrupt": 0.0,
    "verifiable": True,
}
Lie = Callable[[Any], Any]


def results(folder: Path, lies: dict[tuple[str, str], Lie]) -> tuple[dict[str, Result | SmpcError], Report]:
    """Average 0.5 of everybody, some of whom say something else in some steps; return what each got."""

    def lying(*given: Any, **named: Any) -> Cheater:
        def tamper(party: Cheater, step: str, message: msgspec.Struct) -> Any:
            lie = lies.get((party.name, step))
            return message if lie is None else lie(message)

        return Cheater(make_party(*given, **named), tamper)

    path = create_local_session(folder, list(NAMES), PARAMETERS, protocol="gopa")
    ledgers = {path.stem: path for path in folder.glob("*.ledger")}

    async def make() -> dict[str, Any]:
        serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
        async with contextlib.AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(
                    smpc_dp.connect(path, name, ledger=ledgers.get(name), role=lying)
                )
                for name in NAMES
            ]
            requested = [
                session.average([0.5], expect={"protocol": "gopa", "verifiable": True})
                for session in sessions
            ]
            got = await asyncio.gather(*requested, return_exceptions=True)
        await serving
        return dict(zip(NAMES, got, strict=True))

    got = asyncio.run(make())
    [log] = (folder / "board").glob("request-*.jsonl")
    return got, smpc_dp.audit(log)


def longer(by: int) -> Lie:
    return lambda message: replace(message, noise_proof=message.noise_proof + bytes(by))


def off_by_one(message: Any) -> Any:
    return replace(message, x_hat=(np.frombuffer(message.x_hat, "<u8") + np.uint64(1)).tobytes())


def test_who_publishes_too_much_is_excluded(tmp_path: Path) -> None:
    got, report = results(tmp_path, {("dave", v.PUBLISH): longer(10_000)})
    assert report.code == 3, report.conclusion
    assert [(item.party, item.reason) for item in report.excluded] == [("dave", FALSE[MALFORMED])]
    assert report.verdict is not None
    for name in NAMES:
        result = got[name]
        if name == "dave":
            assert isinstance(result, PeerFault)
        else:
            assert isinstance(result, Result)
            assert tuple(result.value) == report.verdict.average


def test_what_no_channel_takes_was_not_said(tmp_path: Path) -> None:
    """Three times what the aggregator hears: the link is cut before it is read, and the party is silent."""
    got, report = results(tmp_path, {("dave", v.PUBLISH): longer(50_000)})
    assert report.code == 1
    assert not report.excluded
    assert report.verdict is not None
    assert report.verdict.silent == ("dave",)
    assert isinstance(got["dave"], SmpcError)


def test_who_opens_something_false_is_excluded_too(tmp_path: Path) -> None:
    lies: dict[tuple[str, str], Lie] = {
        ("dave", v.PUBLISH): off_by_one,
        ("bob", v.OPEN): lambda _message: v.Open(b"", b"", b""),
    }
    index = tmp_path / "alice.ledger"
    ledger = Ledger.create(
        index, party="alice", dataset="d", relation="substitution", epsilon=8.0, delta=1e-3
    )
    got, report = results(tmp_path, lies)
    assert report.code == 3, report.conclusion
    assert {item.party: item.reason for item in report.excluded}["bob"] == FALSE[OPENING_OTHER]
    assert report.verdict is not None
    assert report.verdict.counted == ("alice", "carol", "erin")
    for name in report.verdict.counted:
        result = got[name]
        assert isinstance(result, Result)
        assert tuple(result.value) == report.verdict.average
        assert result.privacy.epsilon == report.verdict.epsilon
    # Planned for no corrupt party: one that is excluded raises epsilon, two do again; it is recorded beyond
    # the budget, which then allows nothing more.
    planned, *raised = ledger.entries()
    assert planned.label == "request 1"
    assert {entry.label for entry in raised} == {"request 1: more parties were corrupt than planned"}
    assert len(raised) == 2
    alice = got["alice"]
    assert isinstance(alice, Result)
    assert alice.privacy.receipt is not None
    assert alice.privacy.receipt.number == 3
    with pytest.raises(PrivacyError, match="is refused"):
        ledger.charge(bytes(32), Event("one more", "substitution", (Pure(1e-3),)))
