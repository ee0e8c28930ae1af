"""Learners over real sockets: groups, who is missing, ledgers, messages; and as processes of their own."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
import typer
from msgspec import Meta
from msgspec.structs import replace
from scipy import sparse
from typer.testing import CliRunner

from smpc_dp import simulate
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.capabilities.learn import registry
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.commands.learn import report_learned
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
)
from smpc_dp.cli import app
from smpc_dp.engine.events import Message, Start
from smpc_dp.errors import ConfigError, ConfigIssue, PeerFault, PrivacyError, SmpcError, TimeoutFault
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.log_session import is_scope
from smpc_dp.logs.log import FORMAT, VERSION, Header
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.secagg import states as secagg
from smpc_dp.secagg.noisy import NoisySumParameters
from smpc_dp.session.aggregator import serve
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.requests import AggregatorLostError
from smpc_dp.session.session_file import Timeouts, load_session
from smpc_dp.wire.canonical_session import session_json
from smpc_dp.wire.envelope import Envelope
from smpc_dp_verify import verify
from smpc_dp_verify.run import Audit as SecondAudit
from smpc_dp_verify.session_log import SessionLog
from tests.accessibility import check_accessible
from tests.command import smpc_dp
from tests.pages import Page
from tests.unit.logs.hostile_headers import with_run_id

NAMES = ("ann", "bob", "cas", "dan", "eve")
GIVEN: dict[str, Any] = {
    "learner": "block-gossip",
    "features": 2,
    "steps": 5,
    "group": 3,
    "epsilon": 5.0,
    "delta": 1e-5,
    "seed": 2,
}
TIMEOUTS = Timeouts(connect=30.0, gather=30.0, step=20.0)


def table(party: int) -> np.ndarray:
    drawn = np.random.default_rng(party).normal(size=(8, 2))
    return np.column_stack([drawn, (drawn[:, 0] > 0).astype(float)])


def session(folder: Path, change: Mapping[str, object], names: tuple[str, ...] = NAMES) -> Path:
    path = create_local_session(folder, names, GIVEN | dict(change), protocol="learn", timeouts=TIMEOUTS)
    (folder / "inputs").mkdir()
    for party, name in enumerate(names):
        np.save(folder / "inputs" / f"{name}.npy", table(party))
    return path


async def everybody(
    path: Path, names: tuple[str, ...], ledgers: bool = False, begin_with: int | None = None
) -> tuple[dict[str, Learned | SmpcError], dict[int, str]]:
    """Run these parties and the aggregator in one loop, over real sockets."""

    async def one(name: str) -> Learned | SmpcError:
        ledger = path.parent / f"{name}.ledger" if ledgers else None
        try:
            return await learn(path, name, path.parent / "inputs" / f"{name}.npy", ledger=ledger)
        except SmpcError as error:
            return error

    serving = asyncio.create_task(serve_learning(path, begin_with=begin_with))
    result = await asyncio.gather(*(one(name) for name in names))
    return dict(zip(names, result, strict=True)), await serving


@pytest.mark.parametrize(
    ("averager", "size"),
    [({"method": "secagg"}, 3), ({"method": "gopa"}, 4), ({"method": "pair", "colluders": 0}, 2)],
    ids=["secagg", "gopa", "pair"],
)
def test_groups_learn_and_are_charged(tmp_path: Path, averager: dict[str, object], size: int) -> None:
    path = session(tmp_path, {"averager": averager, "group": size})
    for name in NAMES:
        Ledger.create(
            tmp_path / f"{name}.ledger",
            party=name,
            dataset="d",
            relation="substitution",
            epsilon=5.0,
            delta=1e-5,
        )
    results, failures = asyncio.run(everybody(path, NAMES, ledgers=True))
    assert failures == {}
    planned = GroupDraws(5, size, 2).participations(5)
    last = GroupDraws(5, size, 2).draw(5)[-1]
    for party, name in enumerate(NAMES):
        result = results[name]
        assert isinstance(result, Learned), result
        assert result.done.tolist() == result.steps.tolist() == [planned[party]]
        assert result.guarantee is not None
        assert (result.guarantee.epsilon, result.guarantee.delta) == (5.0, 1e-5)
        ledger = Ledger.open(tmp_path / f"{name}.ledger")
        assert len(ledger.entries()) == planned[party]
        spent = ledger.spent().epsilon
        assert spent is not None
        assert spent <= 5.0
    models = [results[NAMES[party]].values for party in last]  # type: ignore[union-attr]
    np.testing.assert_array_equal(models, [models[0]] * size)


@pytest.mark.parametrize("method", ["secagg", "gopa"])
def test_processes_and_machines_learn_the_same_with_the_same_randomness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Every share of noise of either is the same draw of the sampler, so whole models must agree."""
    for kind in (NoisySumParameters, GopaParameters):
        drawn = kind.own_noise

        def same(self: Any, source: NoiseSource, count: int, drawn: Any = drawn) -> Any:
            return drawn(self, NoiseSource.keyed(b"s" * 32, b"test"), count)

        monkeypatch.setattr(kind, "own_noise", same)
    change = {"averager": {"method": method}, "group": 4}
    results, failures = asyncio.run(everybody(session(tmp_path, change), NAMES))
    assert failures == {}
    tables = [table(party) for party in range(len(NAMES))]
    simulated = simulate.learn(GIVEN | change, tables, fidelity="machines")
    plain = simulate.learn(GIVEN | change, tables, fidelity="plain")
    assert np.abs(simulated.values - plain.values).max() > 0.01
    for party, name in enumerate(NAMES):
        result = results[name]
        assert isinstance(result, Learned), result
        np.testing.assert_array_equal(result.values[0], simulated.values[party])
        assert (result.names, result.guarantee) == (simulated.names, simulated.guarantee)
        assert (result.steps[0], result.done[0]) == (simulated.steps[party], simulated.done[party])
        assert simulated.claim == f"a simulation of: {result.claim}"


def test_a_group_that_asks_before_its_turn_is_heard(tmp_path: Path) -> None:
    """Groups of a round are disjoint: all of the second say hello while the first is served."""
    names = (*NAMES, "fay")
    path = session(tmp_path, {"steps": 6}, names)
    results, failures = asyncio.run(everybody(path, names))
    assert failures == {}
    for name in names:
        result = results[name]
        assert isinstance(result, Learned), result
        assert (result.done.tolist(), result.failures) == ([3], ())


def test_a_group_goes_on_without_a_member(tmp_path: Path) -> None:
    path = session(tmp_path, {"group": 5, "steps": 2, "averager": {"colluders": 1, "missing": 1}})
    results, failures = asyncio.run(everybody(path, NAMES[:4], begin_with=4))
    assert failures == {}
    for name in NAMES[:4]:
        result = results[name]
        assert isinstance(result, Learned)
        assert result.done.tolist() == [2]


def test_a_group_that_needs_everybody_fails_and_names_who_is_missing(tmp_path: Path) -> None:
    path = session(tmp_path, {"steps": 5})
    results, failures = asyncio.run(everybody(path, NAMES[:4], begin_with=4))
    groups = GroupDraws(5, 3, 2).draw(5)
    hit = [step for step in range(5) if 4 in groups[step]]
    assert sorted(failures) == sorted(number for step in hit for number in (2 * step + 1, 2 * step + 2))
    assert all("eve" in reason for reason in failures.values())
    for party, name in enumerate(NAMES[:4]):
        result = results[name]
        assert isinstance(result, Learned)
        missed = sum(party in groups[step] for step in hit)
        assert result.done[0] == result.steps[0] - missed
        assert all("eve" in reason for reason in result.failures)
        assert bool(result.failures) == bool(missed)


def test_a_budget_too_small_is_refused_before_the_first_step(tmp_path: Path) -> None:
    path = session(tmp_path, {})
    most = NAMES[int(GroupDraws(5, 3, 2).participations(5).argmax())]
    Ledger.create(
        tmp_path / "one.ledger",
        party=most,
        dataset="d",
        relation="substitution",
        epsilon=4.0,
        delta=1e-5,
    )
    # Nobody serves: it must be refused before anything is dialled.
    with pytest.raises(PrivacyError, match=r"too small for [3-5] planned releases"):
        asyncio.run(learn(path, most, tmp_path / "inputs" / "ann.npy", ledger=tmp_path / "one.ledger"))
    assert Ledger.open(tmp_path / "one.ledger").entries() == ()


def test_an_aggregator_that_ends_is_named(tmp_path: Path) -> None:
    path = session(tmp_path, {"steps": 200})

    async def cut() -> list[Any]:
        averaged = asyncio.Event()

        def watch(event: Event) -> None:
            if event.kind == "done":
                averaged.set()

        serving = asyncio.create_task(serve_learning(path, on_event=watch))
        parties = [
            asyncio.create_task(learn(path, name, tmp_path / "inputs" / f"{name}.npy")) for name in NAMES
        ]
        await averaged.wait()
        serving.cancel()
        return await asyncio.gather(*parties, return_exceptions=True)

    for error in asyncio.run(cut()):
        assert isinstance(error, AggregatorLostError), error
        assert "aggregator: lost in request" in str(error)


# Who is in another group is never added up: the group is in the operation, and so in the run id.


def _members(path: Path, name: str, group: tuple[str, ...], role: str = "party") -> Membership:
    membership = Membership.load(path, name, role=role)
    parameters = load_session(path).checked_parameters
    assert isinstance(parameters, registry.LearnParameters)
    assert parameters.average is not None
    return membership.of_group(parameters.average.plan(3), group)


def _hello(membership: Membership) -> Envelope:
    encoding = membership.parameters.encoding
    ring_vector = np.zeros(encoding.ring_length, dtype=encoding.dtype)
    context = membership.context(1, "average")
    (hello,) = secagg.party(context, membership.parameters, membership.identity, ring_vector).handle(Start())
    return hello


def test_members_of_another_group_are_not_added_up(tmp_path: Path) -> None:
    path = session(tmp_path, {})
    ours, theirs = ("ann", "bob", "cas"), ("ann", "bob", "dan")
    served = _members(path, "aggregator", ours, "aggregator")
    aggregator = secagg.aggregator(served.context(1), served.parameters, served.identity)
    assert aggregator.handle(Message(_hello(_members(path, "dan", theirs)))) == ()
    assert aggregator.waiting_for == frozenset(ours)
    aggregator.handle(Message(_hello(_members(path, "ann", ours))))
    aggregator.handle(Message(_hello(_members(path, "cas", ours))))
    # bob has taken the request for another group's.
    with pytest.raises(TimeoutFault, match=r"bob: asks 'average of group .*the others ask 'average of group"):
        aggregator.handle(Message(_hello(_members(path, "bob", theirs))))


def test_only_members_speak_in_a_group(tmp_path: Path) -> None:
    path = session(tmp_path, {})
    context = _members(path, "ann", ("ann", "bob", "cas")).context(1)
    assert set(context.keys) == {"ann", "bob", "cas", "aggregator"}
    with pytest.raises(PeerFault, match="not in the roster"):
        context.check(_hello(_members(path, "dan", ("ann", "bob", "dan"))))


# Messages between single parties


class Gossip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Swaps, then mixes, the mean of each party's table: for tests."""

    epsilon: Annotated[float, Meta(gt=0)] | None = None

    def issues(self, parties: int) -> list[ConfigIssue]:  # noqa: ARG002
        return []

    def requirements(self, parties: int) -> Requirements:
        delta = None if self.epsilon is None else 1e-5
        return Requirements(exchange=PrivateMessages(3, 8.0, np.full(parties, 2), self.epsilon, delta))

    def check_data(self, table: Table, party: str) -> None:
        pass

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        exchange = context.exchange
        assert exchange is not None
        own = np.array([table.mean(axis=0) for table in data]).reshape(len(data), 3)
        swapped = await exchange.exchange(own, np.array([1, 0, 2, 4, 3]))
        ring = np.eye(5) / 2 + np.roll(np.eye(5), 1, axis=1) / 2
        ring[2] = [0, 0, 1, 0, 0]
        mixed = await exchange.mix(swapped, sparse.csr_array(ring))
        count = np.full(len(data), 2)
        return Learned("gossip", mixed, ("a", "b", "c"), count, count, claim=exchange.claim)


@pytest.mark.parametrize("epsilon", [None, 400.0])
def test_messages_arrive_with_and_without_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epsilon: float | None
) -> None:
    """What is mixed has the noise of the swap: it leaves the bound of 8 with a probability below 1e-9."""
    monkeypatch.setattr(registry, "LEARNERS", {"gossip": Gossip})
    given = {"learner": "gossip"} | ({} if epsilon is None else {"epsilon": epsilon})
    path = create_local_session(tmp_path, NAMES, given, protocol="learn", timeouts=TIMEOUTS)
    (tmp_path / "inputs").mkdir()
    for party, name in enumerate(NAMES):
        np.save(tmp_path / "inputs" / f"{name}.npy", table(party))
        relation, budget = "substitution", epsilon
        Ledger.create(
            tmp_path / f"{name}.ledger",
            party=name,
            dataset="d",
            relation=relation,  # type: ignore[arg-type]
            epsilon=budget,
            delta=1e-5,
        )
    results, failures = asyncio.run(everybody(path, NAMES, ledgers=True))
    assert failures == {}
    context = np.array([table(party).mean(axis=0) for party in range(5)])
    swapped = context[[1, 0, 2, 4, 3]]
    expected = (swapped + np.roll(swapped, -1, axis=0)) / 2
    expected[2] = swapped[2]
    result = np.array([results[name].values[0] for name in NAMES])  # type: ignore[union-attr]
    np.testing.assert_allclose(result, expected, atol=1e-9 if epsilon is None else 10.0)
    if epsilon is None:
        assert "NO PRIVACY" in results["ann"].claim  # type: ignore[union-attr]
        return
    assert np.abs(result - expected)[[0, 1, 3, 4]].min() > 0
    # Of the five, cas sends once: it has no partner in the swap; dan has nobody who mixes it in.
    charged = [len(Ledger.open(tmp_path / f"{name}.ledger").entries()) for name in NAMES]
    assert charged == [2, 2, 1, 1, 2]


def test_a_partner_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LEARNERS", {"gossip": Gossip})
    path = create_local_session(tmp_path, NAMES, {"learner": "gossip"}, protocol="learn", timeouts=TIMEOUTS)
    (tmp_path / "inputs").mkdir()
    for party, name in enumerate(NAMES):
        np.save(tmp_path / "inputs" / f"{name}.npy", table(party))
    results, _ = asyncio.run(everybody(path, NAMES[:4], begin_with=4))
    assert isinstance(results["dan"], TimeoutFault)
    assert results["dan"].missing == {"eve"}


# Processes


@pytest.mark.long
def test_run_starts_everybody_and_prints_what_was_learned(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = session(tmp_path, {"steps": 3}, NAMES[:4])
    done = smpc_dp("run", str(path), "--json", "--report", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["parties"]
    assert set(results) == set(NAMES[:4])
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert page.faults == page.loads == []
    with subtests.test("accessible"):
        check_accessible(tmp_path / "report.html")
    assert f"{np.mean([result['values'][0][0] for result in results.values()]):.6g}" in page.cells
    assert results["ann"]["claim"] in page.text
    assert results["ann"]["guarantee"]["assumption"] in page.cells
    assert "No learning curve" in page.text
    planned = GroupDraws(4, 3, 2).participations(3).tolist()
    assert [results[name]["done"][0] for name in NAMES[:4]] == planned
    assert [results[name]["failures"] for name in NAMES[:4]] == [[]] * 4
    assert results["ann"]["guarantee"]["epsilon"] == 5.0


def test_run_refuses_bad_data_before_it_starts(tmp_path: Path) -> None:
    path = session(tmp_path, {})
    np.save(tmp_path / "inputs" / "bob.npy", table(1)[:, 1:])
    np.save(tmp_path / "inputs" / "dan.npy", np.full((2, 3), np.nan))
    run = CliRunner().invoke(app, ["run", str(path)])
    assert isinstance(run.exception, ConfigError)
    assert "bob: has 2 columns, needs 2 features and a label" in str(run.exception)
    assert "dan: the label of point 0 is missing" in str(run.exception)
    assert "--clip" in str(CliRunner().invoke(app, ["run", str(path), "--clip"]).exception)


@pytest.mark.parametrize(("done", "steps", "code"), [(0, 3, 1), (1, 3, 0), (0, 0, 0)])
def test_who_completed_no_step_has_learned_nothing(
    done: int, steps: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    count, failures = np.array([steps]), ("the others have left",)
    learned = Learned("sgd", np.zeros((1, 1)), ("w",), count, np.array([done]), failures).to_json()
    if not code:
        report_learned({}, None, {"ann": learned}, [], as_json=True)
        return
    with pytest.raises(typer.Exit) as ended:
        report_learned({}, None, {"ann": learned}, [], as_json=True)
    assert ended.value.exit_code == code
    reported = capsys.readouterr()
    assert "ann: all 3 steps failed: the others have left" in reported.err + reported.out


def changed_header(log: Path, **change: object) -> Path:
    """Write the log with another header, and the run id that follows from it, over the same entries."""
    first, rest = log.read_bytes().split(b"\n", 1)
    header = with_run_id(replace(msgspec.json.decode(first, type=Header), **change))
    written = log.with_suffix(".changed")
    written.write_bytes(msgspec.json.encode(header) + b"\n" + rest)
    return written


def test_logs_of_verifiable_groups_are_audited(tmp_path: Path) -> None:
    names = NAMES[:4]
    averager = {"method": "gopa", "verifiable": True}
    path = session(tmp_path, {"steps": 2, "epsilon": 8.0, "averager": averager}, names)
    results, failures = asyncio.run(everybody(path, names))
    assert failures == {}
    assert all(isinstance(result, Learned) for result in results.values())
    logs = sorted((tmp_path / "board").glob("request-*.jsonl"))
    assert [log.name.split("-")[1] for log in logs] == ["2", "4"]
    for log, group in zip(logs, GroupDraws(4, 3, 2).draw(2), strict=True):
        run = json.loads(log.read_bytes().partition(b"\n")[0])["run_id"]
        report = audit(log, session=path, run=run)
        assert report.ok
        assert report.session_checked
        assert report.verdict is not None
        assert report.verdict.counted == tuple(names[party] for party in group)
        # The second auditor draws the groups and plans their noise by itself; other tests have its proofs.
        second = SecondAudit(log.read_text("utf-8").splitlines(), frozenset())
        assert tuple(second.counted) == report.verdict.counted
        assert tuple(map(float, second.average())) == report.verdict.average
        stated = (second.epsilon(), second.bias(report.verdict.tries), second.standard_error())
        verdict = report.verdict
        assert stated == pytest.approx((verdict.epsilon, verdict.bias, verdict.standard_error), rel=1e-8)
        of_group = next(path for path in log.parent.glob("group-*.jsonl") if run in path.read_text("utf-8"))
        assert SessionLog(of_group.read_text("utf-8").splitlines()).select(second, bytes.fromhex(run))[2]
    # A witness of the session knows the logs of its groups, and no others.
    loaded, listed = load_session(path), sorted((tmp_path / "board").glob("group-*.jsonl"))
    scopes = [json.loads(log.read_bytes().partition(b"\n")[0])["scope"] for log in listed]
    assert scopes
    assert all(is_scope(loaded, scope) for scope in [loaded.digest.hex(), *scopes])
    assert not is_scope(loaded, loaded.digest[::-1].hex())
    for change, fault in (
        ({"request": 3}, "request 3 is no average"),
        ({"request": 4}, "of the group of step 2"),
        ({"request": 6}, "request 6 is no average"),
        ({"operation": "average 1/1"}, "of the group of step 1"),
    ):
        report = audit(changed := changed_header(logs[0], **change))
        assert (report.line, verify(changed).line) == (1, 1)
        assert fault in report.faults[0]


def test_a_log_with_a_schedule_beyond_all_memory_is_refused(tmp_path: Path) -> None:
    """Its groups would take 149 GiB; nothing else of such a header need be right."""
    text = session_json(
        {
            "parameters": GIVEN
            | {"learner": "sgd", "steps": 1_000_000, "averager": {"method": "gopa", "verifiable": True}},
            "protocol": "learn",
            "version": 4,
            "roster": [{"role": "party"}] * 20_000,
        }
    ).decode()
    header = Header(
        format=FORMAT,
        version=VERSION,
        session=text,
        request=2,
        operation="average",
        number=1,
        runs="0" * 64,
        before="0" * 64,
        present=b"",
        root=bytes(32),
        run_id="0" * 64,
    )
    (tmp_path / "log").write_bytes(msgspec.json.encode(header) + b"\n")
    assert "too many for an audit" in audit(tmp_path / "log").faults[0]


def test_a_session_that_learns_is_no_session_of_sums(tmp_path: Path) -> None:
    path = session(tmp_path, {})
    other = create_local_session(
        tmp_path / "sum", NAMES, {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.5}
    )
    with pytest.raises(ConfigError, match="not 'learn'"):
        asyncio.run(learn(other, "ann", tmp_path / "inputs" / "ann.npy"))
    with pytest.raises(ConfigError, match="has no sums"):
        asyncio.run(serve(path))
    assert "unknown" in issues_of_session(path, 'learner = "block-gossip"', 'learner = "none"')


def issues_of_session(path: Path, old: str, new: str) -> str:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_session(path)
    return str(caught.value)


@pytest.mark.long
@pytest.mark.slow
def test_example_of_twelve_processes(capsys: pytest.CaptureFixture[str]) -> None:
    """One is killed and one late; accuracies stay within what ten simulations and two losses explain."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "gossip_processes.py"))
    outcome = asyncio.run(example["main"]())
    late, killed = example["LATE"], example["KILLED"]
    assert killed not in outcome["results"]
    assert len(outcome["results"]) == 11
    for name, result in outcome["results"].items():
        done, steps = result["done"][0], result["steps"][0]
        assert (0 < done < steps) if name == late else (steps - 2 <= done <= steps)
    # Of a hundred simulations the mean has 0.89, with a standard deviation of 0.05.
    assert outcome["processes"].mean() > 0.6
    assert abs(outcome["processes"].mean() - outcome["simulation"].mean()) < 0.3
    reported = capsys.readouterr().out
    assert "16 with missing values left out" in reported
    assert f"{killed} is killed" in reported
