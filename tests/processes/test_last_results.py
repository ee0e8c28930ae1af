"""Sessions over sockets whose aggregator sends two results of one run: its victims refuse the next one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa import states as gopa
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.requests.learning import learn, serve_steps
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import ENTRY_BYTES, check_contradiction
from smpc_dp.engine.registry import make_aggregator
from smpc_dp.engine.run import Run
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check
from smpc_dp.secagg import states as secagg
from smpc_dp.session.aggregator import log_folder, open_aggregator
from smpc_dp.session.events import Event
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.refusals import StoredResult, evidence_file
from smpc_dp.session.requests import AggregatorLostError
from smpc_dp.session.session_file import Timeouts, load_session
from smpc_dp.wire.signing import decode

NAMES = ("ann", "bob", "cas", "dan", "eve")
TIMEOUTS = Timeouts(connect=30.0, gather=30.0, step=20.0)
# Of each form of a sum: the last step that the aggregator collects, and what it sends then.
LAST = (
    (secagg.CollectUnmask, secagg.finish_unmask, m.Result),
    (gopa.CollectPublished, gopa.finish_published, g.Average),
)


def two_totals(victim: str, request: int = 1) -> Callable[..., Run[Any]]:
    """Return what makes an aggregator that sends one party another total in one request."""

    def lie(finish: Any, kind: Any, aggregator: Any, collected: Any) -> Transition:
        after, sent = finish(aggregator, collected), []
        for envelope in after.messages:
            result = decode(envelope.body, kind, AGGREGATOR)
            other = bytes([result.total[0] ^ 1]) + result.total[1:]
            told = msgspec.structs.replace(result, total=other) if envelope.receiver == victim else result
            party = aggregator.context.number(envelope.receiver)
            sent += aggregator.write(envelope.run_id, envelope.step, (party,), told)
        return Transition(after.state, sent)

    def make(context: Any, *arguments: Any, **more: Any) -> Run[Any]:
        run = make_aggregator(context, *arguments, **more)
        if context.request == request:
            assert isinstance(run.role, CollectorRole)
            for state, finish, kind in LAST:
                run.role = run.role.with_row(state, finish=partial(lie, finish, kind))
        return run

    return make


async def ask(path: Path, name: str, requests: int, warnings: list[str]) -> list[object]:
    def watch(event: Event) -> None:
        if event.kind == "warned":
            warnings.append(f"{event.party}: {event.request}: {event.detail}")

    answers: list[object] = []
    async with smpc_dp.connect(path, party=name, on_event=watch) as session:
        for _ in range(requests):
            try:
                answers.append(await session.sum([0.25, 0.5]))
            except smpc_dp.SmpcError as error:
                answers.append(error)
    return answers


def given(**more: object) -> dict[str, object]:
    same = {} if "epsilon" in more else {"same_survivors": False}
    plain = {"length": 2, "lower": 0.0, "upper": 1.0, "precision": 2.0**-10, "dropout": 0.2, "corrupt": 0.0}
    # Of a checked total there is one alone, unless more collude than planned.
    return plain | {"total": "unchecked"} | same | more


async def test_a_victim_refuses_the_next_request_and_all_further_ones(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, NAMES, given(), timeouts=TIMEOUTS)
    warnings: list[str] = []
    serving = asyncio.create_task(smpc_dp.serve(path, requests=4, role=two_totals("bob")))

    async def four(name: str) -> list[object]:
        if name != "bob":
            return await ask(path, name, 4, warnings)
        # The last one over another connection, as of another process.
        return [*await ask(path, name, 3, warnings), *await ask(path, name, 1, warnings)]

    answers = dict(zip(NAMES, await asyncio.gather(*map(four, NAMES)), strict=True))
    served = await serving
    first, *refused = answers["bob"]
    assert isinstance(first, smpc_dp.Result)
    assert first.value.tolist() != answers["ann"][0].value.tolist()  # type: ignore[attr-defined]
    assert len(refused) == 3
    session = load_session(path)
    # Of this session alone: the key may be that of others too.
    file = path.parent / "keys" / f"bob-{session.digest.hex()[:16]}.evidence.json"
    assert evidence_file(path.parent / "keys" / "bob.key", "bob", session.digest) == file
    assert file.stat().st_mode & 0o777 == 0o600
    key = session.roster.keys[AGGREGATOR]
    kept = StoredResult(file, key)
    for error in refused:
        assert isinstance(error, smpc_dp.PeerFault), error
        assert (error.culprit, error.check) == (AGGREGATOR, Check.OTHER_RESULT)
        assert error.evidence == kept.refusal
    check_contradiction(key, kept.refusal)
    with pytest.raises(smpc_dp.PeerFault, match="names another result"):
        kept.check_open(AGGREGATOR)
    # A file that convicts nobody accuses nobody, and is no refusal either.
    changed = json.dumps(json.loads(file.read_text("utf-8")) | {"result": ""})
    for content in ("{", "{}", '{"message": "00"}', changed):
        file.write_text(content, "utf-8")
        with pytest.raises(smpc_dp.LocalError, match=r"convicts nobody|no evidence of a refusal"):
            StoredResult(file, key)
    for result in (*served[1:], *answers["ann"][1:]):
        assert isinstance(result, smpc_dp.Result)
        assert result.survivors == ("ann", "cas", "dan", "eve")
        np.testing.assert_allclose(result.value, [1.0, 2.0], atol=1e-5)
    assert warnings == []


async def test_an_aggregator_that_has_forgotten_its_results_is_reported(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, NAMES, given(), timeouts=TIMEOUTS)
    warnings: list[str] = []

    def forgets(context: Any, *arguments: Any, **more: Any) -> Run[Any]:
        return make_aggregator(context, *arguments, **more | ({"last": None} if context.request == 2 else {}))

    serving = asyncio.create_task(smpc_dp.serve(path, requests=3, role=forgets))
    answers = await asyncio.gather(*(ask(path, name, 3, warnings) for name in NAMES))
    await serving
    assert all(isinstance(answer, smpc_dp.Result) for each in answers for answer in each)
    # The result of request 2 was recorded by that one role alone.
    text = f"{AGGREGATOR} does not name the run whose result this party holds"
    assert sorted(warnings) == sorted(f"{name}: {number}: {text}" for name in NAMES for number in (2, 3))


async def test_an_aggregator_that_is_started_anew_is_not_accused(tmp_path: Path) -> None:
    """The parties connect anew as well, and count from 1 again; no run has the id of one before."""
    path = create_local_session(tmp_path, NAMES, given(), timeouts=TIMEOUTS)
    warnings: list[str] = []
    nonces: list[bytes] = []

    def role(context: Any, *arguments: Any, **more: Any) -> Run[Any]:
        nonces.append(more["last"].nonce)
        return make_aggregator(context, *arguments, **more)

    for _ in range(2):
        serving = asyncio.create_task(smpc_dp.serve(path, requests=2, role=role))
        answers = await asyncio.gather(*(ask(path, name, 2, warnings) for name in NAMES))
        await serving
        assert all(isinstance(answer, smpc_dp.Result) for each in answers for answer in each)
    assert warnings == []
    # One of each process.
    assert (len(nonces), len(set(nonces))) == (4, 2)


def test_a_refusal_whose_evidence_cannot_be_written_is_kept_all_the_same(tmp_path: Path) -> None:
    kept, evidence = StoredResult(tmp_path / "missing" / "evidence.json", b""), {"result": b"signed"}
    kept.record_refusal(evidence)
    assert kept.refusal == evidence
    with pytest.raises(smpc_dp.PeerFault, match="names another result"):
        kept.check_open(AGGREGATOR)


def table(party: int) -> np.ndarray:
    drawn = np.random.default_rng(party).normal(size=(8, 2))
    return np.column_stack([drawn, (drawn[:, 0] > 0).astype(float)])


@pytest.mark.thin(2)
@pytest.mark.parametrize("method", ["secagg", "gopa"])
async def test_a_victim_in_a_group_of_learners_stops(tmp_path: Path, method: str) -> None:
    """It was in one of two groups; the next group has members of both, and both results are named."""
    names = (*NAMES, "fay", "gus", "hal")
    settings = {"learner": "block-gossip", "features": 2, "steps": 4, "group": 4, "seed": 2}
    averager = {"method": method} | ({"total": "unchecked"} if method == "secagg" else {})
    private = {"epsilon": 5.0, "delta": 1e-5, "averager": averager}
    path = create_local_session(tmp_path, names, settings | private, protocol="learn", timeouts=TIMEOUTS)
    draws = GroupDraws(8, 4, 2).draw(4)
    victim = names[draws[0][0]]
    for party, name in enumerate(names):
        np.save(tmp_path / f"{name}.npy", table(party))
    membership = Membership.load(path, AGGREGATOR, None, "aggregator")
    logs = log_folder(membership, path, None)
    warnings: list[str] = []

    def watch(event: Event) -> None:
        if event.kind == "warned":
            warnings.append(event.detail)

    async def one(name: str) -> object:
        try:
            return await learn(path, name, tmp_path / f"{name}.npy", on_event=watch)
        except smpc_dp.SmpcError as error:
            return error

    lying, named = two_totals(victim, request=2), set()

    def role(context: Any, *arguments: Any, **more: Any) -> Run[Any]:
        named.add(len(more["last"].named(context.names)) // ENTRY_BYTES)
        return lying(context, *arguments, **more)

    serving = asyncio.create_task(serve_steps(membership, open_aggregator(membership, logs=logs, role=role)))
    results = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
    await serving
    error = results.pop(victim)
    assert isinstance(error, AggregatorLostError), error
    assert f"{AGGREGATOR}: refused in request" in str(error)
    assert isinstance(error.__cause__, smpc_dp.PeerFault)
    assert error.__cause__.check == Check.OTHER_RESULT
    check_contradiction(membership.session.roster.keys[AGGREGATOR], error.__cause__.evidence)
    assert all(isinstance(result, Learned) for result in results.values())
    assert warnings == []
    # How many a role sees depends on how many groups have ended when it is made.
    assert (min(named), max(named)) == (0, 2)
