"""The log of a pairwise statistic and its audit: what a stranger can check, and what it catches."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from smpc_dp.capabilities.pairs.garbled.effects import Receive, Send
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.kernels import Field, Kernel, kendall_tau
from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.pairs.requests.statistic import plan_maker
from smpc_dp.capabilities.pairs.statistics.compiled import operation_of, plan_statistic
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import states as states
from smpc_dp.capabilities.pairs.ustatistic.messages import OPERATION
from smpc_dp.capabilities.pairs.ustatistic.party import Evaluating
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.pairs.ustatistic.terms import (
    Draw,
    again_identifier,
    run_identifier,
    statistic_context,
)
from smpc_dp.capabilities.pairs.ustatistic.wire import PairWire
from smpc_dp.cli import app
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine import events
from smpc_dp.engine.phases import messages as common
from smpc_dp.engine.phases.begin import attestation_digest, session_head
from smpc_dp.engine.phases.messages import Attestation
from smpc_dp.engine.run import Run
from smpc_dp.errors import SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.audits import log_session
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.audit_selection import Wanted
from smpc_dp.logs.audits.log_page import LogPages
from smpc_dp.logs.audits.log_watch import LogWatch
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.logs.log import Chain, Entry, Header, decode_line, encode_line
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.canonical_session import canonical_session, session_digest, session_json
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context, decode, encode

ROOT = Path(__file__).parents[3]
AGGREGATOR = "hub"
NAMES = ("ada", "ben", "cem", "dot", "eve")
PARAMETERS = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.5, "dropout": 0.3, "corrupt": 0.0}
KERNEL = kendall_tau(Field(0, 9), Field(0, 9))


@dataclass(frozen=True)
class RecordedRun:
    """A log as it was published, and what it takes to forge one."""

    log: bytes
    session: str
    context: Context
    identities: dict[str, Identity]
    aggregator: Run[StatisticResult]
    drawn: Draw | None = None

    @property
    def lines(self) -> list[bytes]:
        return self.log.split(b"\n")[:-1]

    @property
    def entries(self) -> list[Entry]:
        return [decode_line(line, Entry) for line in self.lines[1:]]

    def relinked(self, entries: Sequence[Entry], **header: object) -> bytes:
        """Return a log with these entries, its numbers and heads made right."""
        fields = {
            name: getattr(decode_line(self.lines[0], Header), name) for name in Header.__struct_fields__
        }
        chain = Chain(Header(**{**fields, **header}))
        made = [
            chain.append(each.party, each.kind, each.payload, bytes.fromhex(each.signature))
            for each in entries
        ]
        return b"".join(encode_line(line) + b"\n" for line in (chain.header, *made))

    def signed(self, entry: Entry, payload: bytes, run_id: bytes | None = None) -> Entry:
        """Return the entry with another payload that its author signs."""
        context = statistic_context(self.context)
        statement = context.statement(
            run_id or self.aggregator.run_id,
            entry.kind,
            entry.party,
            AGGREGATOR,
            hashlib.sha256(payload).digest(),
        )
        signature = self.identities[entry.party].sign(statement).hex()
        return Entry(entry.sequence, entry.previous, entry.party, entry.kind, payload, signature)


def execute(
    *,
    withheld: Sequence[str] = (),
    wrong: Sequence[str] = (),
    unpaired: Sequence[str] = (),
    lost: str = "",
    kernel: Kernel = KERNEL,
) -> RecordedRun:
    """Play a run in memory, every gate; `withheld` and `wrong` are "NAME coin", `unpaired` do no pair,
    `lost` breaks off after that.
    """
    identities = {name: Identity.from_seed(name, name.encode().ljust(32)) for name in (*NAMES, AGGREGATOR)}
    members = [
        identities[name].entry(
            "aggregator" if name == AGGREGATOR else "party", "127.0.0.1:7" if name == AGGREGATOR else None
        )
        for name in identities
    ]
    session = session_json(canonical_session("secagg", 2, PARAMETERS, members))
    keys = {name: identity.public_key for name, identity in identities.items()}
    context = Context("secagg", 2, session_digest(session), 3, NAMES, AGGREGATOR, keys)
    plan = plan_statistic(kernel, len(NAMES), 8.0, partners=2 if kernel is KERNEL else 1)
    board = MemoryBoard(session.decode())
    source = SeededRandomnessForSimulation(1, "hub")
    aggregator = states.aggregator(context, identities[AGGREGATOR], plan_maker([]), source, board=board)
    operation = operation_of(kernel, plan, "laplace")
    parties = {
        name: states.party(
            context,
            identities[name],
            plan,
            operation,
            index % 2 if plan.bipartite else -1,
            SeededRandomnessForSimulation(index, "party"),
        )
        for index, name in enumerate(NAMES)
    }
    route = Route(context, identities, aggregator, parties, withheld, wrong, lost)
    route.deliver([envelope for party in parties.values() for envelope in party.handle(events.Start())])
    while aggregator.step in m.COINS:
        try:
            route.deliver(aggregator.handle(events.Deadline()))
        except SmpcError as error:
            aggregator.handle(events.Cancellation(error))
            return RecordedRun(board.export(), session_digest(session).hex(), context, identities, aggregator)
    drawn = aggregator.state.drawn
    failed = evaluate_pairs(aggregator, parties, plan, identities, unpaired)
    for name, party in parties.items():
        if isinstance(party.state, Evaluating):
            route.deliver(party.handle(events.Report(failed[name])))
    aggregator.handle(events.Deadline())
    return RecordedRun(board.export(), session_digest(session).hex(), context, identities, aggregator, drawn)


@dataclass(frozen=True)
class Route:
    """Brings envelopes to who they are for, with what goes wrong on the way; see `execute`."""

    context: Context
    identities: dict[str, Identity]
    aggregator: Run[StatisticResult]
    parties: dict[str, Run[StatisticResult]]
    withheld: Sequence[str]
    wrong: Sequence[str]
    lost: str

    def deliver(self, envelopes: Sequence[Envelope]) -> None:
        waiting = list(envelopes)
        while waiting:
            envelope = waiting.pop(0)
            reason = f"{envelope.sender} {envelope.step}"
            if reason in self.withheld:
                continue
            if reason in self.wrong:
                message = m.Coin(b"w" * 32)
                (envelope,) = statistic_context(self.context).write(
                    self.identities[envelope.sender], envelope.run_id, envelope.step, [AGGREGATOR], message
                )
            if envelope.receiver == AGGREGATOR:
                waiting += self.aggregator.handle(events.Message(envelope))
                if reason == self.lost:
                    waiting += self.aggregator.handle(events.PeersLost((envelope.sender,)))
            elif envelope.step != m.PAIR:
                try:
                    waiting += self.parties[envelope.receiver].handle(events.Message(envelope))
                except SmpcError:
                    continue


def evaluate_pairs(
    aggregator: Run[StatisticResult],
    parties: dict[str, Run[StatisticResult]],
    plan: StatisticPlan,
    identities: dict[str, Identity],
    unpaired: Sequence[str],
) -> dict[str, list[int]]:
    """Evaluate all pairs that were drawn; return by name the matchings in which a party did no pair."""
    failed: dict[str, list[int]] = {name: [] for name in NAMES}
    for name, party in parties.items():
        for matching, garbler, evaluator in getattr(party.state, "evaluations", ()):
            if name != garbler:
                continue
            if {garbler, evaluator} & set(unpaired):
                failed[garbler].append(matching)
                failed[evaluator].append(matching)
            else:
                evaluate(aggregator, parties, plan, identities, matching, garbler, evaluator)
    return failed


def evaluate(
    aggregator: Run[StatisticResult],
    parties: dict[str, Run[StatisticResult]],
    plan: StatisticPlan,
    identities: dict[str, Identity],
    matching: int,
    garbler: str,
    evaluator: str,
) -> None:
    """Let two roles and the aggregator's play to the end, over queues."""
    engine = plan.evaluation(garbler, evaluator)
    inboxes: dict[tuple[str, str], list[bytes]] = {}
    effects = {}
    wires = {name: PairWire(parties[name].member) for name in (garbler, evaluator)}
    for index, (name, kind) in enumerate(((garbler, GarblerRole), (evaluator, EvaluatorRole))):
        random = SeededRandomnessForSimulation(10 * matching + index, f"{name} pair")
        context = wires[name].context(aggregator.run_id, matching, engine)
        record = np.full((1, len(plan.fields)), 3 + index, np.int64)
        role = kind(context, identities[name], engine, plan.inputs(record, random), random)
        effects[name] = role.run()
    waits: dict[str, Receive | None] = dict.fromkeys(effects)
    while effects:
        moved = False
        for name in list(effects):
            run, wanted = effects[name], waits[name]
            answer = None
            if wanted is not None:
                inbox = inboxes.get((wanted.sender, name))
                if not inbox:
                    continue
                answer = inbox.pop(0)
            moved = True
            try:
                effect = next(run) if answer is None else run.send(answer)
            except StopIteration:
                del effects[name]
                continue
            waits[name] = effect if isinstance(effect, Receive) else None
            if isinstance(effect, Send) and effect.to != AGGREGATOR:
                inboxes.setdefault((name, effect.to), []).append(b"".join(effect.parts))
            elif isinstance(effect, Send):
                envelope = wires[name].write_pair(aggregator.run_id, matching, b"".join(effect.parts))
                for sent in aggregator.handle(events.Message(envelope)):
                    _, content = wires[sent.receiver].open_pair(aggregator.run_id, sent)
                    inboxes.setdefault((AGGREGATOR, sent.receiver), []).append(content)
        assert moved


@pytest.fixture(scope="module")
def honest() -> RecordedRun:
    return execute()


@pytest.fixture(scope="module")
def second_draw() -> RecordedRun:
    return execute(withheld=["cem coin"])


def judge(ran: RecordedRun, log: bytes | None = None) -> Report:
    """Audit a run's log as a party of it would; or a `log` of which only the session is known."""
    wanted = Wanted(session=ran.session)
    if log is None:
        wanted = dataclasses.replace(wanted, head=ended(ran))
    return audit_stream(io.BytesIO(ran.log if log is None else log), wanted=wanted, threads=1)


def ended(ran: RecordedRun) -> str:
    """Return the head of the log's end, from a result."""
    evidence = ran.aggregator.result.evidence
    assert evidence is not None
    assert evidence.log is not None
    return evidence.log.head.hex()


def test_a_stranger_draws_the_matchings_again(honest: RecordedRun) -> None:
    report = judge(honest)
    result = report.statistic
    assert report.ok, report.conclusion
    assert report.conclusion.startswith("Everything holds for the session and run that were given: ")
    assert (report.session, report.request) == (honest.session, 3)
    assert "4 pairs were drawn" in report.conclusion
    assert result is not None
    assert (result.present, result.partners, result.terms["kernel"]) == (NAMES, 2, "kendall_tau")
    assert honest.drawn is not None
    assert result.pairs == honest.drawn.pairs
    assert (result.failed, result.disputed, result.unheard) == ((), (), ())
    assert [(each.present, each.silent, each.false) for each in result.attempts] == [(5, (), ())]
    evidence = honest.aggregator.result.evidence
    assert evidence is not None
    assert (result.beacon, result.run_id) == (evidence.beacon.hex(), evidence.run_id.hex())
    # What every party has been told is the head of this log, and of no other one.
    chain = Chain(decode_line(honest.lines[0], Header))
    for entry in honest.entries:
        chain.follow(entry)
    assert evidence.log is not None
    assert evidence.log.head == chain.head
    assert result.value == honest.aggregator.result.value


def test_a_run_id_selects_the_last_draw_and_no_end_of_the_log(
    honest: RecordedRun, second_draw: RecordedRun
) -> None:
    """The aggregator alone signs the end: with a run id alone it could show the auditor another outcome."""
    for ran in (honest, second_draw):
        evidence = ran.aggregator.result.evidence
        assert evidence is not None
        wanted = Wanted(session=ran.session, run=evidence.run_id.hex())
        report = audit_stream(io.BytesIO(ran.log), wanted=wanted, threads=1)
        assert (report.ok, report.code) == (False, 4)
        assert "signed by the aggregator alone" in report.conclusion
        wanted = dataclasses.replace(wanted, head=ended(ran))
        assert audit_stream(io.BytesIO(ran.log), wanted=wanted, threads=1).ok
    first = decode_line(second_draw.lines[0], Header).run_id
    wanted = Wanted(session=second_draw.session, run=first, head=ended(second_draw))
    report = audit_stream(io.BytesIO(second_draw.log), wanted=wanted, threads=1)
    assert report.code == 1
    assert "the run is" in report.conclusion


def test_the_command_prints_it(second_draw: RecordedRun, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(second_draw.log)
    evidence = second_draw.aggregator.result.evidence
    assert evidence is not None
    assert evidence.log is not None
    head = evidence.log.head.hex()
    done = CliRunner().invoke(app, ["audit", str(log), "--session", second_draw.session, "--head", head])
    assert done.exit_code == 0
    assert "draw 1: 5 present; no coin: cem; a wrong one: nobody" in done.stdout
    assert "draw 2: 4 present; no coin: nobody" in done.stdout
    reported = json.loads(CliRunner().invoke(app, ["audit", str(log), "--json"]).stdout)
    assert reported["verdict"] is None
    section = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8").partition("\n### audit\n")[2]
    row = next(line for line in section.splitlines() if line.startswith("- `statistic`:"))
    assert set(reported["statistic"]) <= set(re.findall(r"`(\w+)`", row))


def test_what_was_opened_of_a_request_that_failed_is_logged() -> None:
    ran = execute(withheld=["ada coin", "ben coin", "cem coin"])
    assert [(each.kind, each.party) for each in ran.entries if each.kind in m.COINS] == [
        ("coin", "dot"),
        ("coin", "eve"),
    ]
    assert "ends before the outcome" in judge(ran, ran.log).conclusion


def test_a_session_is_not_planned(honest: RecordedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the log of a statistic follows from a plan, which may take long."""
    plans: list[object] = []
    monkeypatch.setattr(log_session, "plan_parameters", lambda *given: plans.append(given))
    assert judge(honest).ok
    report = judge(honest, honest.relinked(honest.entries, request=4))
    assert "the run id is not that" in report.conclusion
    assert plans == []


def test_without_a_session_it_says_so(honest: RecordedRun) -> None:
    report = audit_stream(io.BytesIO(honest.log))
    assert (report.ok, report.code, report.faults) == (False, 3, ())
    assert report.conclusion.startswith("Self-consistent; no session was given")


def test_draws_that_were_given_up_are_there_with_their_reason(second_draw: RecordedRun) -> None:
    report = judge(second_draw)
    assert report.ok, report.conclusion
    assert "it is draw number 2" in report.conclusion
    assert report.statistic is not None
    first, second = report.statistic.attempts
    assert (first.present, first.silent, first.false) == (5, ("cem",), ())
    assert (second.present, second.silent, second.false) == (4, (), ())
    assert report.statistic.present == ("ada", "ben", "dot", "eve")
    assert report.run_id != report.statistic.run_id


def test_who_signed_a_wrong_coin_is_named(tmp_path: Path) -> None:
    report = judge(ran := execute(wrong=["ben coin", "eve coin-2"]))
    assert report.ok, report.conclusion
    assert report.statistic is not None
    assert [(each.silent, each.false) for each in report.statistic.attempts] == [
        ((), ("ben",)),
        ((), ("eve",)),
        ((), ()),
    ]
    assert ran.aggregator.result.absent == ("ben", "eve")
    (tmp_path / "log.jsonl").write_bytes(ran.log)
    with LogWatch(tmp_path / "log.jsonl") as watch:
        end = time.monotonic() + 60
        while watch.run is None or watch.run.report is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        page = LogPages(watch, "").overview()
    assert page.count("opened a coin that is not the one it has committed to") == 4
    assert "Left out: ben, eve, who signed something false." in page
    assert "Nobody." not in page


def test_public_labels_are_part_of_the_draw() -> None:
    report = judge(execute(kernel=find_kernel("auc", Field(0, 9))))
    assert report.ok, report.conclusion
    assert report.statistic is not None
    for garbler, evaluator in report.statistic.pairs[0]:
        assert (NAMES.index(garbler) % 2, NAMES.index(evaluator) % 2) == (1, 0)


def test_pairs_that_failed_are_listed() -> None:
    report = judge(execute(unpaired=["dot"]))
    assert report.statistic is not None
    assert report.statistic.failed
    assert all("dot" in pair for _, *pair in report.statistic.failed)
    assert report.statistic.disputed == ()


def test_no_byte_can_be_changed(honest: RecordedRun) -> None:
    """Every 31st, the first of each line, and the last."""
    starts = [0, *(index + 1 for index, byte in enumerate(honest.log[:-1]) if byte == ord("\n"))]
    for index in sorted({*range(0, len(honest.log), 31), *starts, len(honest.log) - 1}):
        changed = bytearray(honest.log)
        changed[index] ^= 1
        assert judge(honest, bytes(changed)).code == 1, index


def test_it_can_be_cut_nowhere(second_draw: RecordedRun) -> None:
    for count in range(len(second_draw.lines)):
        cut = b"".join(line + b"\n" for line in second_draw.lines[:count])
        assert judge(second_draw, cut).code == 1
    assert "it was cut" in judge(second_draw, second_draw.log[:-3]).conclusion


Cheat = Callable[[RecordedRun], bytes]


def at(ran: RecordedRun, kind: str, party: str) -> int:
    return next(i for i, each in enumerate(ran.entries) if (each.kind, each.party) == (kind, party))


def without(kind: str, party: str) -> Cheat:
    def cheat(ran: RecordedRun) -> bytes:
        index = at(ran, kind, party)
        return ran.relinked(ran.entries[:index] + ran.entries[index + 1 :])

    return cheat


def exchanged(kind: str) -> Cheat:
    def cheat(ran: RecordedRun) -> bytes:
        entries, index = ran.entries, at(ran, kind, "ada")
        entries[index], entries[index + 1] = entries[index + 1], entries[index]
        return ran.relinked(entries)

    return cheat


def claimed(
    kind: str, party: str, change: Callable[[bytes, RecordedRun], bytes], *, early: bool = False
) -> Cheat:
    def cheat(ran: RecordedRun) -> bytes:
        entries, index = ran.entries, at(ran, kind, party)
        run = ran.context.session_digest if early else None
        entries[index] = ran.signed(entries[index], change(entries[index].payload, ran), run)
        return ran.relinked(entries)

    return cheat


def other_commitments(payload: bytes, _ran: RecordedRun) -> bytes:
    return encode(replace(decode(payload, m.Hello, "ada"), commitments=b"x" * 96))


def outcome(**changes: Any) -> Callable[[bytes, RecordedRun], bytes]:
    def change(payload: bytes, _ran: RecordedRun) -> bytes:
        return encode(replace(decode(payload, m.Outcome, AGGREGATOR), **changes))

    return change


def drawn_again(ran: RecordedRun) -> bytes:
    """The aggregator did not like the draw, and shuts somebody out though every coin is there."""
    entries, index = ran.entries, at(ran, m.DONE, "ada")
    left = pack_set((1, 2, 3, 4), 5)
    again = Entry(1, "0" * 64, AGGREGATOR, m.AGAINS[0], encode(m.Again(left)), "0" * 128)
    signed = ran.signed(again, again.payload, second_run(ran, left))
    return ran.relinked([*entries[:index], signed, *entries[index:]])


def second_run(ran: RecordedRun, left: bytes) -> bytes:
    first = bytes.fromhex(decode_line(ran.lines[0], Header).run_id)
    return again_identifier(statistic_context(ran.context), first, 2, left)


def with_present(ran: RecordedRun, packed: bytes) -> bytes:
    """Return a log over other parties, whose run id is theirs."""
    header = decode_line(ran.lines[0], Header)
    plan = bytes.fromhex(header.operation.removeprefix(OPERATION))
    run_id = run_identifier(statistic_context(ran.context), plan, packed, header.root)
    return ran.relinked(ran.entries, present=packed, run_id=run_id.hex())


def stolen_signature(ran: RecordedRun) -> bytes:
    entries, index = ran.entries, at(ran, "coin", "ben")
    stolen = ran.signed(Entry(1, "0" * 64, "ada", "coin", entries[index].payload, ""), entries[index].payload)
    entries[index] = Entry(1, "0" * 64, "ben", "coin", entries[index].payload, stolen.signature)
    return ran.relinked(entries)


def begun_with(terms: bytes) -> Cheat:
    """Return what begins a log of a statistic with these terms, which all agree on."""

    def forge(ran: RecordedRun) -> bytes:
        header = decode_line(ran.lines[0], Header)
        plan, context = digest(Label.STATISTIC_TERMS, terms, b"c" * 32), statistic_context(ran.context)
        run_id = run_identifier(context, plan, header.present, header.root)
        forged = replace(header, operation="pairwise-statistic " + plan.hex(), run_id=run_id.hex())
        begun, first = ran.entries[:2]
        attestation = Attestation(
            attestation_digest(context, run_id, session_head(forged, context.scope), header.present)
        )
        signatures = b"".join(
            context.write(identity, run_id, common.ATTEST_BEGIN, (AGGREGATOR,), attestation)[0].signature
            for identity in map(ran.identities.__getitem__, NAMES)
        )
        certified = common.Certified(header.present, header.present, signatures)
        entries = [
            ran.signed(begun, encode(certified), run_id),
            ran.signed(first, encode(m.Terms(terms, b"c" * 32)), run_id),
        ]
        return ran.relinked(entries, operation=forged.operation, run_id=forged.run_id)

    return forge


CHEATS: dict[str, tuple[Cheat, str]] = {
    "nothing-after-the-terms": (begun_with(b'{"partners":2}'), "ends before the outcome"),
    "infinite-terms": (begun_with(b'{"noise":NaN,"partners":2}'), "do not say how many partners"),
    "terms-with-a-space": (begun_with(b'{"partners": 2}'), "do not say how many partners"),
    "hello-dropped": (without(m.HELLO, "cem"), "the hello of 'dot' where that of 'cem' is due"),
    "coin-dropped": (without("coin", "cem"), "'pairs-done' where 'coin or again-2' is due"),
    "outcome-dropped": (without(m.OUTCOME, AGGREGATOR), "ends before the outcome"),
    "terms-dropped": (without(m.TERMS, AGGREGATOR), "'statistic-hello' where 'statistic-terms' is due"),
    "hellos-exchanged": (exchanged(m.HELLO), "the hello of 'ben' where that of 'ada' is due"),
    "coins-exchanged": (exchanged("coin"), "not in the order of the roster"),
    "dones-exchanged": (exchanged(m.DONE), "not in the order of the roster"),
    "done-dropped": (without(m.DONE, "cem"), "signed the outcome of another log"),
    "error-no-number": (claimed(m.OUTCOME, AGGREGATOR, outcome(noise_error=float("inf"))), "is no number"),
    "coin-of-another-value": (
        claimed("coin", "ada", lambda _, __: encode(m.Coin(b"c" * 32))),
        "'pairs-done' where 'coin or again-2' is due",
    ),
    "commitments-chosen-later": (
        claimed(m.HELLO, "ada", other_commitments, early=True),
        "not that of these commitments",
    ),
    "another-draw-without-a-reason": (drawn_again, "'again-2' where 'pairs-done or outcome' is due"),
    "signed-by-another": (stolen_signature, "in the name of ben"),
    "other-terms": (
        claimed(m.TERMS, AGGREGATOR, lambda _, __: encode(m.Terms(b'{"partners":2}', b"c" * 32))),
        "not those of the statistic",
    ),
    "pair-that-was-not-drawn": (claimed(m.OUTCOME, AGGREGATOR, outcome(failed=[(0, 2)])), "were not drawn"),
    "pairs-miscounted": (claimed(m.OUTCOME, AGGREGATOR, outcome(pairs=3)), "counts 3 pairs of 4 wrongly"),
    "no-number": (claimed(m.OUTCOME, AGGREGATOR, outcome(value=float("nan"))), "is no number"),
    "done-of-no-matching": (
        claimed(m.DONE, "ada", lambda _, __: encode(m.Done([7]))),
        "says of matchings that it has not",
    ),
    "another-request": (lambda ran: ran.relinked(ran.entries, request=4), "the run id is not that"),
    "fewer-present": (
        lambda ran: with_present(ran, pack_set((1, 2), 5)),
        "2 parties are present, 3 are needed",
    ),
    "another-root": (
        lambda ran: ran.relinked(ran.entries, root=b"r" * 32),
        "the run id is not that",
    ),
    "another-statistic": (
        lambda ran: ran.relinked(ran.entries, operation="pairwise-statistic " + "ab" * 32),
        "the run id is not that",
    ),
    "more-after-the-end": (
        lambda ran: ran.relinked([*ran.entries, ran.entries[-1]]),
        "an entry after the outcome",
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_are_found(cheat: str, honest: RecordedRun) -> None:
    forge, claimed = CHEATS[cheat]
    report = judge(honest, forge(honest))
    assert report.code == 1
    assert claimed in report.conclusion


def test_a_further_draw_keeps_nobody_whose_coin_is_missing(second_draw: RecordedRun) -> None:
    index = at(second_draw, "again-2", AGGREGATOR)
    entries = second_draw.entries
    left = pack_set((1, 3, 4, 5), 5)
    entries[index] = second_draw.signed(entries[index], encode(m.Again(left)), second_run(second_draw, left))
    report = judge(second_draw, second_draw.relinked(entries))
    assert "a further draw with a party whose coin is missing" in report.conclusion


def test_what_was_opened_of_a_draw_that_was_given_up_cannot_be_taken_away(second_draw: RecordedRun) -> None:
    """Or whoever publishes a log could say of anybody that it withheld its coin, without a key."""
    report = judge(second_draw, without("coin", "dot")(second_draw))
    assert report.code == 1
    assert "a further draw with a party whose coin is missing" in report.conclusion
    wrong = execute(wrong=["cem coin"])
    report = judge(wrong, without("coin", "cem")(wrong))
    assert report.code == 1
    assert "signed the outcome of another log" in report.conclusion


def test_who_is_left_out_of_a_further_draw_with_its_coin_there_is_named() -> None:
    ran = execute(withheld=["cem coin"], lost="ben coin")
    report = judge(ran)
    assert report.ok
    assert report.statistic is not None
    first, _ = report.statistic.attempts
    assert (first.silent, first.dropped) == (("cem",), ("ben",))


def test_the_head_is_that_of_the_results(honest: RecordedRun) -> None:
    evidence = honest.aggregator.result.evidence
    assert evidence is not None
    assert evidence.log is not None
    assert judge(honest).head == evidence.log.head.hex()


def test_a_log_of_strangers_has_another_session(honest: RecordedRun) -> None:
    report = audit_stream(io.BytesIO(honest.log), wanted=Wanted(session="ab" * 32))
    assert report.code == 1
    assert "the session is" in report.conclusion


def test_an_evaluated_pair_that_the_aggregator_leaves_out_is_disputed(honest: RecordedRun) -> None:
    """It can leave out what it does not like; both parties' signatures show that."""
    log = claimed(m.OUTCOME, AGGREGATOR, outcome(pairs=3, failed=[(1, 0)]))(honest)
    report = judge(honest, log)
    assert report.statistic is not None
    assert [matching for matching, *_ in report.statistic.disputed] == [1]
    # It is another log than the one whose head everybody was told.
    assert log != honest.log
