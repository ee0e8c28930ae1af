"""Both auditors, on logs that were changed before they were signed, and on what is given beside a log.

They must find the same: the same exit code, and of a log that neither refuses the same of everything.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import msgspec

from smpc_dp._core import tuple_hash
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.versions import EARLIER_VERSION, VERSION
from smpc_dp.capabilities.pairs.kernels import Field
from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.pairs.ustatistic.terms import statistic_context
from smpc_dp.crypto import proofs
from smpc_dp.engine.registry import protocol_in, session_protocol
from smpc_dp.engine.result import Result
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.audits import audit as first_audit
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_selection import FAILS, CheckpointPolicy, read_session_log
from smpc_dp.logs.audits.audit_selection import Wanted as First
from smpc_dp.logs.audits.log_session import LogSession, parse_session_text
from smpc_dp.logs.audits.second import differences
from smpc_dp.logs.checkpoint import log_key
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.logs.log import Entry, Header, decode_line, read_header
from smpc_dp.logs.opinion import Opinion
from smpc_dp.logs.receipt import read_receipt
from smpc_dp.logs.signed_note import COSIGNATURE, NoteKey
from smpc_dp.wire.canonical_session import canonical_session, session_digest, session_json
from smpc_dp.wire.signing import Context, group_operation
from smpc_dp_lab.vectors import verifiable_runs as lab
from smpc_dp_lab.vectors.verifiable_openings import OPEN_2, THIRD, to_something_else, too_far_out
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, OTHER, at, flip_last, instead, off_by_one
from smpc_dp_verify import (
    Wanted,
    certificate,
    ristretto,
    run,
    session,
    session_log,
    statistic,
    terms,
    verify,
)
from smpc_dp_verify import log as second_log
from smpc_dp_verify.encodings import read_line
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.receipt import read_receipt as read_second_receipt
from smpc_dp_verify.verify import _Lines
from tests.audits import ONE
from tests.fuzz.drafts import (
    NO_DRAFT,
    Case,
    Draft,
    DraftBeside,
    DraftNote,
    Runs,
    Signed,
    StatisticCase,
    draft_of,
    encode,
    note_bytes,
    receipt_bytes,
    session_log_of,
)
from tests.fuzz.files import file_of
from tests.fuzz.target import Decoder, Target
from tests.unit.pairs import test_statistic_audit as statistics

RECORDS: dict[str, Any] = {
    "verifiable": True,
    "epsilon": 8.0,
    "delta": 1e-3,
    "corrupt": 0.2,
    "dropout": 0.2,
    "ask": "count",
    "records": {"max_rows": 1, "columns": {"age": {"lower": 0.0, "upper": 4.0, "step": 1.0}}},
}
LEARNER: dict[str, Any] = {
    "learner": "block-gossip",
    "group": 4,
    "steps": 1,
    "model": "own",
    "length": 1,
    "clip": 1.0,
    "epsilon": 60.0,
    "delta": 1e-2,
    "averager": {"method": "gopa", "verifiable": True},
}
VERSIONS = {"gopa": VERSION, "learn": EARLIER_VERSION}


# What both say

# Coins of the longest proofs that are verified in Python as well, where the core refuses them.
FEW_COINS = 16


def _checked_by_the_core(add: str, verified: Callable[..., None], width: int) -> Callable[..., None]:
    """Return a verifier of proofs that asks the core, and `verified` of short ones that it refuses.

    Other tests verify right proofs in Python, which takes a hundred times as long. `width`: which argument
    says how long a proof is.
    """

    @functools.lru_cache(1 << 12)
    def is_right(*statement: Any) -> bool:
        batch = proofs.Batch()
        getattr(batch, add)((1,), *statement)
        with suppress(proofs.ProofFailure):
            batch.verify(1)
            return True
        if statement[width] <= FEW_COINS:
            with suppress(Refused):
                verified(*statement)
                raise AssertionError(f"the core refuses what the second auditor takes: {statement}")
        return False

    def check(*statement: Any) -> None:
        if not is_right(*statement):
            raise Refused(add)

    return check


_PROOFS = {
    "verify_noise": _checked_by_the_core("add_noise", run.verify_noise, 4),
    "verify_range": _checked_by_the_core("add_range", run.verify_range, 2),
    "verify_norm": _checked_by_the_core("add_norm", run.verify_norm, 2),
}
_HASHING = (certificate, run, second_log, session, session_log, statistic, terms)
# Values that many changed logs share: pure functions of both auditors, with their modules.
_SHARED: dict[str, tuple[Any, ...]] = {
    "has_small_order": (second_log,),
    "read_session": (second_log,),
    "decode": (ristretto,),
    "encode": (ristretto,),
    "times": (ristretto,),
    "parse_session_text": (first_audit,),
}


@functools.cache
def _memory() -> tuple[Any, ...]:
    """Return the patches that let both auditors remember such values."""
    patches: list[Any] = [patch.object(run, name, check) for name, check in _PROOFS.items()]
    # That of the core takes a hundredth of the time; other tests compare it with pycryptodome's.
    patches += [patch.object(module, "tuple_hash", _tuple_hash) for module in _HASHING]
    for name, modules in _SHARED.items():
        remembered = functools.lru_cache(1 << 14)(getattr(modules[0], name))
        patches += [patch.object(module, name, remembered) for module in modules]
    plan, plans = LogSession.planned, dict[Any, object]()

    def planned(own: LogSession, known: bytes | None = None) -> object:
        if (own.digest, known) not in plans:
            plans[own.digest, known] = plan(own, known)
        return plans[own.digest, known]

    return (*patches, patch.object(LogSession, "planned", planned))


def _tuple_hash(label: str, *parts: bytes) -> bytes:
    return tuple_hash(f"smpc-dp/1/{label}".encode(), list(parts))


def judge(
    log: bytes, given: Mapping[str, Any], witnesses: Sequence[str] = (), least: int | None = None
) -> int | None:
    """Return the exit code of both auditors for a log and what is `given`, by the names of `audit`.

    None: the first has none. `least` of these witnesses must have cosigned a checkpoint; None: all. Raises
    AssertionError where the auditors do not find the same.
    """
    path, beside = file_of("log", log), dict(given)
    report, opinion = None, None
    with ExitStack() as stack:
        for each in _memory():
            stack.enter_context(each)
        with suppress(SmpcError):
            if "checkpoint" in beside:
                beside["checkpoint"] = CheckpointPolicy.of(beside["checkpoint"], witnesses, least)
            first = First.of(**beside)
            try:
                report = audit_stream(io.BytesIO(log), wanted=first, threads=1)
            except LocalError:
                # It plans no long work for a session that anybody may have written.
                assert first.session is None
                return None
        # What is no argument.
        with suppress(ValueError):
            most = len(witnesses) if least is None else least
            wanted = Wanted(**given, witnesses=tuple(witnesses), least=most)
            said = json.dumps(dataclasses.asdict(verify(path, wanted)))
            opinion = msgspec.json.decode(said, type=Opinion)
    if report is None or opinion is None:
        codes = (report.code if report else FAILS, opinion.code if opinion else FAILS)
        assert codes == (FAILS, FAILS), (codes, report and report.conclusion, opinion and opinion.reason)
        return FAILS
    found = differences(report, opinion)
    assert not found, found
    # A report of any text can be written.
    msgspec.json.encode(report)
    return report.code


def wanted_of(signed: Signed, given: Sequence[Any]) -> dict[str, Any]:
    """Return what a party gives of session, run, head and request: True stands for that of the log."""
    right = {"session": signed.session, "run": signed.run, "head": signed.head, "request": signed.request}
    return {
        name: right[name] if one is True else one
        for name, one in zip(right, given, strict=False)
        if one is True or type(one) is type(right[name])
    }


# Runs


def _session(
    protocol: str, parameters: Mapping[str, object], names: Sequence[str]
) -> tuple[str, Context, dict[str, Identity]]:
    """Return the text of a session of these parties, the context of its runs, and the keys of all.

    The aggregator's key of checkpoints has the name `SIGNER`.
    """
    identities = {name: _identity(name) for name in (lab.RELAY, *names)}
    members = [
        msgspec.structs.replace(
            identity.entry("aggregator", "relay.example:1"), checkpoint_key=_identity(SIGNER).public_key
        )
        if name == lab.RELAY
        else identity.entry()
        for name, identity in identities.items()
    ]
    text = session_json(canonical_session(protocol, VERSIONS[protocol], parameters, members))
    keys = {name: identity.public_key for name, identity in identities.items()}
    context = Context("gopa", VERSIONS[protocol], session_digest(text), 1, tuple(names), lab.RELAY, keys)
    return text.decode("ascii"), context, identities


SIGNER, WITNESS = "signer", "witness"


def _identity(name: str) -> Identity:
    return Identity.from_seed(name, name.encode().ljust(32, b"."))


def _play(
    text: str, context: Context, identities: dict[str, Identity], checked: Any, values: Sequence[float]
) -> tuple[Case, list[bytes]]:
    """Play an average of equal vectors; return its session, and the log."""
    inputs: dict[str, Any] = dict.fromkeys(context.names, values)
    ran = lab.run_protocol(context, checked, identities, inputs, MemoryBoard(text), lab.Deviations())
    return Case(text, context, identities), ran.lines


def play_learner() -> tuple[Case, list[bytes]]:
    """Play the first average of a learner's group; return its session, and the log."""
    text, context, identities = _session("learn", LEARNER, [f"party-{number}" for number in range(5)])
    planned: Any = parse_session_text(text).planned(context.session_digest)
    group = [context.names[int(party)] for party in planned.groups[0]]
    checked = planned.average.plan(len(group))
    asked = group_operation(f"average {checked.planned()}", group)
    context = dataclasses.replace(context, names=tuple(group), operation=asked, request=2, grouped=True)
    return _play(text, context, identities, checked, (0.25,) * checked.encoding.length)


def play_records(parameters: dict[str, Any] = RECORDS) -> tuple[Case, list[bytes]]:
    """Play a request for statistics of records; return its session, and the log."""
    text, context, identities = _session("gopa", parameters, lab.PARTIES)
    checked: Any = parse_session_text(text).planned(context.session_digest)
    context = dataclasses.replace(context, operation=f"{checked.operations[0]} {checked.planned()}")
    return _play(text, context, identities, checked, (1,) * checked.encoding.length)


def play_average(setting: lab.Setting, tampers: Mapping[str, lab.Tamper]) -> tuple[Case, list[bytes]]:
    """Play a run of the lab; return its session, and the log."""
    ran = lab.execute(tampers, setting=setting)
    return Case(ran.header.session, ran.context, ran.identities), ran.lines


def play_statistic(**given: Any) -> tuple[StatisticCase, list[bytes]]:
    """Play a pairwise statistic; return its session, and the log."""
    ran = statistics.execute(**given)
    text = decode_line(ran.lines[0], Header).session
    return StatisticCase(text, statistic_context(ran.context), ran.identities), ran.lines


# Drafts


@dataclass(frozen=True)
class Judged:
    """Drafts of logs of a session, or of what is given beside one log, `signed`, with keys of checkpoints."""

    case: Case
    signed: Signed | None = None
    keys: Mapping[str, tuple[NoteKey, Identity]] = field(default_factory=dict)

    def __call__(self, content: bytes) -> None:
        """Judge a draft."""
        self.judge(content)

    def judge(self, content: bytes) -> int | None:
        """Return the exit code of both auditors for a draft, None for what is none."""
        signed, least = self.signed, None
        try:
            if signed is None:
                draft = msgspec.msgpack.decode(content, type=Draft)
                signed = self.case.sign(draft)
                given = wanted_of(signed, draft.given)
            else:
                beside = msgspec.msgpack.decode(content, type=DraftBeside)
                given = wanted_of(signed, beside.given) | self._files(signed, beside)
                least = beside.least
        except NO_DRAFT:
            return None
        witnesses = []
        if least is None or "checkpoint" not in given:
            least = None
        else:
            witnesses.append(str(self.keys[WITNESS][0]))
        return judge(signed.log, given, witnesses, least)

    def _files(self, signed: Signed, draft: DraftBeside) -> dict[str, Any]:
        """Write what is given beside the log; return the paths."""
        runs, note, receipt = Runs(b"", []), draft.note, draft.receipt
        files = {}
        if draft.runs is not None:
            if isinstance(draft.runs, bytes):
                runs = Runs(draft.runs, [])
            else:
                runs = session_log_of(self.case, signed, draft.runs)
            files["session_log"] = runs.content
        if note is not None:
            files["checkpoint"] = note if isinstance(note, bytes) else note_bytes(note, runs, self.keys)
        if receipt is not None:
            files["receipt"] = receipt if isinstance(receipt, bytes) else receipt_bytes(receipt)
        return {name: file_of(name, content) for name, content in files.items()}


Made = tuple[Decoder, tuple[bytes, ...]]


@functools.cache
def _beside() -> dict[str, Made]:
    """Return decoders and seeds of what is given beside a log, the second of its session, and of lines."""
    text, context, identities = _session("gopa", ONE.declared, lab.PARTIES)
    checked: Any = parse_session_text(text).planned(context.session_digest)
    asked = f"average {checked.planned()}"
    board = MemoryBoard(text)
    played = []
    for request in (1, 2):
        context = dataclasses.replace(context, operation=asked, request=request)
        ran = lab.run_protocol(context, checked, identities, ONE.inputs, board, lab.Deviations(), request)
        played.append((ran, _signed_as(ran)))
    (_, earlier), (ran, signed) = played
    keys = {
        "log": (log_key(context.session_digest.hex(), _identity(SIGNER).public_key), _identity(SIGNER)),
        WITNESS: (NoteKey(WITNESS, COSIGNATURE, _identity(WITNESS).public_key), _identity(WITNESS)),
    }
    judged = Judged(Case(text, context, identities), signed, keys)
    present = ran.header.present
    certificate = [context.protocol, context.version, present, present, None]
    runs = [
        ["smpc-dp session log", 1, None, None],
        [1, 1, bytes.fromhex(earlier.run), bytes(32)],
        [1, *certificate],
        [2, 2, None, bytes.fromhex(earlier.head)],
        [2, *certificate],
        [3, 2, b"3" * 32, None],
        [3, "pairwise-statistic", 3, present, present, None],
        True,
    ]
    signatures = [[None, "log", 0], [None, WITNESS, 1_800_000_000], ["someone", "AAAAAAAA", 0]]
    note = [None, None, None, None, "", signatures]
    receipt = Result.of(ran.parties["ann"].result, "average").receipt
    assert receipt is not None
    fields = [
        [name, [*map(list, value.items())] if isinstance(value, dict) else value]
        for name, value in receipt.to_json().items()
    ]
    given, nothing = [True] * 4, [None] * 4
    seeds: list[list[Any]] = [
        [runs, note, fields, given, 1],
        [runs, None, None, [True, None, signed.head, True], None],
        [runs, note, None, given, 0],
        [None, None, fields, nothing, None],
    ]

    def with_note(content: bytes) -> None:
        judged(encode([runs, content, *seeds[0][2:]]))

    written = session_log_of(judged.case, signed, runs)
    noted = note_bytes(msgspec.convert(note, DraftNote), written, keys)
    header, *entries = signed.log.split(b"\n")[:-1]
    return {
        "beside": (judged, tuple(map(encode, seeds))),
        "checkpoint": (with_note, (noted,)),
        "session-log": (_same(_runs, _second_runs), (written.content,)),
        "receipt": (_same(_receipt, _second_receipt), (receipt_bytes(fields),)),
        "header": (_same(_header, _second_header), (header,)),
        "entry": (_same(_entry, _second_entry), tuple(entries[-5:])),
    }


def _signed_as(ran: lab.RecordedRun) -> Signed:
    """Return the log of a run as it was signed."""
    log = b"".join(line + b"\n" for line in ran.lines)
    report = audit_stream(io.BytesIO(log), threads=1)
    return Signed(log, report.session or "", ran.header.run_id, report.head or "", ran.header.request)


# Readers of one line, or of one file


def _same(first: Callable[[bytes], object], other: Callable[[bytes], object]) -> Decoder:
    """Return a decoder that demands that two readers take the same, and read the same in it."""

    def decoder(content: bytes) -> None:
        read, again = _Refusal, _Refusal
        with suppress(SmpcError):
            read = first(content)
        with suppress(Refused):
            again = other(content)
        assert read == again, (read, again)

    return decoder


_Refusal: object = None


def _runs(content: bytes) -> object:
    log = read_session_log(file_of("session_log", content))
    numbers = range(1, len(log.tree) + 1)
    return log.first.session, [log.head_at(number) for number in numbers], log.certified is None


def _second_runs(content: bytes) -> object:
    log = session_log.SessionLog(_Lines(file_of("session_log", content), whole=False))
    return log.session.hex(), log.heads_at, log.certified is None


def _receipt(content: bytes) -> object:
    receipt = read_receipt(file_of("receipt", content))
    return receipt.party, receipt.entry, receipt.signatures


def _second_receipt(content: bytes) -> object:
    receipt = read_second_receipt(file_of("receipt", content))
    return receipt.party, receipt.entry.hex(), {name: one.hex() for name, one in receipt.signatures.items()}


def _header(content: bytes) -> object:
    header = read_header(content)
    return header.operation, parse_session_text(header.session).digest


def _second_header(content: bytes) -> object:
    header = second_log.Header.read(_text(content))
    if protocol_in(header.session.protocol, header.session.version) is None:
        # The first auditor refuses it with the header, the second one with the terms of either kind.
        with suppress(Refused):
            return terms.read_terms(header.session, header.fields["request"], header.fields["question"])
        return terms.corrupt_of(header.session)
    return header.fields["question"], header.session.digest


def _entry(content: bytes) -> object:
    return decode_line(content, Entry).payload


def _second_entry(content: bytes) -> object:
    entry = read_line(_text(content), second_log.ENTRY)
    # Where there is a whole log, the numbers count from 1.
    required(entry["sequence"] >= 1, "the chain of heads")
    return entry["payload"]


def _session_terms(content: bytes) -> None:
    """Both read and plan the same session, or refuse it: c of its statistics, and the noise of averages."""
    try:
        document = msgspec.msgpack.decode(content, type=dict[str, Any])
        text = session_json(document).decode("ascii")
    except (*NO_DRAFT, RecursionError):
        return
    first, second = None, None
    with suppress(SmpcError):
        first = parse_session_text(text)
    with suppress(Refused):
        second = session.read_session(text)
    corrupt, other, asked = None, None, f"average {lab.parameters(ONE).planned()}"
    with suppress(SmpcError):
        corrupt = None if first is None else first.most_corrupt()
    with suppress(Refused):
        other = None if second is None else terms.corrupt_of(second)
    assert corrupt == other, (corrupt, other)
    planned: Any = None
    try:
        if first is not None and session_protocol(first.protocol).is_logged(first.parameters):
            planned = first.planned()
            asked = asked if planned is None else f"average {planned.planned()}"
    except LocalError:
        # It would take long.
        return
    except SmpcError:
        planned = None
    read = None
    with suppress(Refused):
        read = None if second is None else terms.read_terms(second, 1, asked)
    assert (planned is None) == (read is None), (planned, read)
    if planned is not None and read is not None:
        assert (planned.bits, planned.plan.max_corrupt) == (read.bits, read.corrupt)
        assert (planned.highest, planned.centre) == (read.highest, read.centre)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refused("no text") from None


# Of what a message of the fastest decoder takes.
COST = 2000


# Runs of the parties of the vectors, and of nine.
FALSE: tuple[Mapping[str, lab.Tamper], ...] = (
    {},
    {CHEAT: instead(v.COMMIT, range_proof=flip_last)},
    {CHEAT: instead(v.PUBLISH, noise_proof=flip_last)},
)
ROUNDS: tuple[Mapping[str, lab.Tamper], ...] = (
    {CHEAT: off_by_one, OTHER: at(v.OPEN, to_something_else)},
    {CHEAT: off_by_one, OTHER: at(v.OPEN, too_far_out), THIRD: at(OPEN_2, to_something_else)},
)
STATISTICS: tuple[dict[str, Any], ...] = (
    {},
    {"wrong": ["ben coin", "eve coin-2"]},
    {"withheld": ["cem coin"], "lost": "ben coin"},
    {"unpaired": ["dot"]},
)


def _drafts(*played: tuple[Case, list[bytes]]) -> Made:
    """Return the judge of drafts of logs, of one session, and the drafts of those that were played."""
    return Judged(played[0][0]), tuple(encode(draft_of(lines, case)) for case, lines in played)


_MAKE: dict[str, Callable[[], Made]] = {
    "average": lambda: _drafts(*(play_average(ONE, tampers) for tampers in FALSE)),
    "average.rounds": lambda: _drafts(*(play_average(lab.NINE, tampers) for tampers in ROUNDS)),
    "average.norm": lambda: _drafts(play_average(lab.BALL, {})),
    "average.box": lambda: _drafts(play_average(lab.BOX, {})),
    "average.drawn": lambda: _drafts(play_average(lab.SPARSE, {})),
    "average.records": lambda: _drafts(play_records()),
    "average.group": lambda: _drafts(play_learner()),
    "statistic": lambda: _drafts(*(play_statistic(**given) for given in STATISTICS)),
    "statistic.labels": lambda: _drafts(play_statistic(kernel=find_kernel("auc", Field(0, 9)))),
    "session": lambda: (_session_terms, _sessions()),
    **{
        name: functools.partial(lambda name: _beside()[name], name)
        for name in ("beside", "checkpoint", "session-log", "receipt", "header", "entry")
    },
}
MADE = {name: functools.cache(make) for name, make in _MAKE.items()}
"""Decoders and seeds by name, made when they are asked for."""
# Inputs that are words; all others are drafts.
WORDS = {"checkpoint": COST, "session-log": 20, "receipt": 20, "header": 20, "entry": 20}
# Those that cost more than `COST`, also before the first input.
MORE = {"average.rounds": 2, "average.norm": 2, "average.records": 2, "average.group": 2}
MORE |= {"statistic.labels": 2, "average.box": 3, "average.drawn": 50}


def targets() -> list[Target]:
    """Return the targets of this file, none of which has played a run yet."""
    return [
        Target(
            f"audits.{name}",
            functools.partial(_decode, made),
            functools.partial(_seeds_of, made),
            "text" if name in WORDS else "draft",
            WORDS.get(name, COST * MORE.get(name, 1)),
        )
        for name, made in MADE.items()
    ]


def _decode(made: Callable[[], Made], content: bytes) -> bytes | None:
    return made()[0](content)


def _seeds_of(made: Callable[[], Made]) -> tuple[bytes, ...]:
    return made()[1]


def _sessions() -> tuple[bytes, ...]:
    """Return sessions of averages, and of statistics."""
    texts = [_session("gopa", ONE.declared, lab.PARTIES)[0], lab.honest(ball=True).header.session]
    documents = [json.loads(text) for text in texts]
    documents.append(documents[0] | {"protocol": "secagg", "version": 2, "parameters": statistics.PARAMETERS})
    # Of these c follows from the version.
    unsaid = {key: value for key, value in ONE.declared.items() if key not in ("dropout", "corrupt")}
    documents += [documents[0] | {"version": version, "parameters": unsaid} for version in (3, 4, 5)]
    documents.append(documents[3] | {"version": 3})
    return tuple(map(encode, documents))
