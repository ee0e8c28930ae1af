"""Verifies a log, and says what was found: the verdict, who is counted and excluded, the average."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from smpc_dp_verify.answers import Answer
from smpc_dp_verify.checkpoint import LONGEST_NOTE, check_checkpoint, witness_key
from smpc_dp_verify.encodings import LONGEST_LINE
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.log import Header, RunLog
from smpc_dp_verify.receipt import Receipt, read_receipt
from smpc_dp_verify.run import TRIES, Audit
from smpc_dp_verify.session_log import SessionLog
from smpc_dp_verify.statistic import STATISTIC, Estimate, StatisticAudit

# Everything holds for what was given; it does not hold; no session was given; nothing says which run it is.
HOLDS, FAILS, NO_SESSION, SOME_RUN = 0, 1, 3, 4
DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Wanted:
    """Arguments of an audit that the log must match: session digest, run id, head, request, files.

    Also the path of a checkpoint of it, and keys of witnesses, of whom `least` must have cosigned; the path
    of a receipt, which says session, run and head, where they are not given. Raises ValueError for what is
    none.
    """

    session: str | None = None
    run: str | None = None
    head: str | None = None
    request: int | None = None
    session_log: str | os.PathLike[str] | None = None
    checkpoint: str | os.PathLike[str] | None = None
    witnesses: tuple[str, ...] = ()
    least: int = 0
    receipt: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in ("session", "run", "head"):
            given = getattr(self, name)
            if given is not None and not DIGEST.fullmatch(given):
                raise ValueError(f"{name}: {given!r} is not 64 lower-case hex digits")
        if self.request is not None and self.request < 1:
            raise ValueError(f"request: {self.request} is not 1 or more")
        if self.checkpoint is not None and self.session_log is None:
            raise ValueError("checkpoint: it is of the session log, which is not given")
        if self.checkpoint is None and (self.witnesses or self.least):
            raise ValueError("witness: no checkpoint is given")
        if not 0 <= self.least <= len({*map(witness_key, self.witnesses)}) == len(self.witnesses):
            raise ValueError("witness: too few keys, or one twice")


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """Result of an audit of a log: exit code, reason, digests, parties counted and excluded, average.

    Attributes:
        code: 0: everything holds for the session and run that were given; 1: it does not hold, for `reason`;
            3: no session was given; 4: nothing that was given says which run it is.
        line: the first that is wrong, from 1; None: none, or the log has no end.
        session, run_id, head, session_head: digests in hex, as far as they are known.
        corrupt: c, of the session or of a learner's group; None: the log could not be read to its end.
        counted, silent, void: names. excluded: name, number of the entry, what is false.
        average: in the unit of the session, of statistics of records in steps; each is rounded once.
        answers: of statistics of records, those that are computed here; None of others.
        standard_error: of the noise in the average.
        bias: the most that cheats move it. epsilon, delta: after the exclusions; None: nothing is claimed.
        position, tries: which of how many tries the run is, if there is a session log.
        statistic: of the log of a pairwise statistic, in the place of names and average.
        receipt: whose contribution was found: party, number of the entry, whether it is counted.
    """

    code: int
    reason: str = ""
    line: int | None = None
    session: str | None = None
    run_id: str | None = None
    head: str | None = None
    session_head: str | None = None
    corrupt: int | None = None
    entries: int = 0
    counted: list[str] = field(default_factory=list)
    excluded: list[tuple[str, int, str]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    void: list[tuple[str, str]] = field(default_factory=list)
    average: list[float] = field(default_factory=list)
    answers: list[Answer] | None = None
    standard_error: float | None = None
    bias: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    position: int | None = None
    tries: int | None = None
    statistic: Estimate | None = None
    receipt: tuple[str, int, bool] | None = None


class _Lines:
    """Iterable of a file's lines as text; `number` counts the lines read; raises Refused for long ones.

    `whole`: each ends with a line feed, which the limit of a line does not count.
    """

    def __init__(self, path: str | os.PathLike[str], *, whole: bool) -> None:
        self.path, self.whole, self.number = path, whole, 0

    def __iter__(self) -> Iterator[str]:
        with open(self.path, "rb") as file:
            while line := file.readline(LONGEST_LINE + 2):
                self.number += 1
                required(len(line) <= LONGEST_LINE + self.whole, "the length of a line")
                required(line.endswith(b"\n") or not self.whole, "the log is cut")
                try:
                    yield line.removesuffix(b"\n").decode("utf-8")
                except UnicodeDecodeError:
                    raise Refused("the format") from None


def verify(
    path: str | os.PathLike[str], wanted: Wanted | None = None, executor: Executor | None = None
) -> Opinion:
    """Audit the log in a file and return what was found; raise OSError if a file cannot be read.

    `executor`: verifies proofs, as of `Audit`; it is given what stands in the log, and nothing else.
    """
    lines = _Lines(path, whole=True)
    try:
        audit = read_log(lines, executor)
    except Refused as refused:
        line = None if str(refused) == "no end" else lines.number
        return Opinion(code=FAILS, reason=str(refused), line=line)
    wanted, contribution, reason = wanted or Wanted(), None, ""
    try:
        receipt = None if wanted.receipt is None else read_receipt(wanted.receipt)
        code, position, tries, runs = _select(audit, wanted, receipt)
        if receipt is not None:
            receipt.check(audit)
            contribution = (receipt.party, receipt.index, receipt.party in getattr(audit, "counted", ()))
    except Refused as refused:
        code, position, tries, runs, reason = FAILS, None, None, None, str(refused)
    opinion = Opinion(
        code=code,
        reason=reason,
        session=audit.session.digest.hex(),
        run_id=audit.run.hex(),
        head=audit.head.hex(),
        session_head=audit.session_head.hex(),
        corrupt=audit.corrupt,
        entries=audit.entries,
        position=position,
        tries=tries,
        receipt=contribution,
    )
    if isinstance(audit, StatisticAudit):
        return replace(opinion, statistic=audit.estimate())
    return replace(
        opinion,
        counted=audit.counted,
        excluded=[
            (name, audit.shown_by[name], audit.excluded[name])
            for name in audit.names
            if name in audit.excluded
        ],
        silent=audit.silent,
        void=audit.void,
        average=[float(value) for value in audit.average()],
        answers=audit.answers(),
        standard_error=audit.standard_error(),
        bias=audit.bias(runs or TRIES),
        epsilon=audit.epsilon(),
        delta=audit.terms.noise.delta,
    )


def read_log(lines: Iterable[str], executor: Executor | None = None) -> Audit | StatisticAudit:
    """Audit a log's lines and return its auditor, of the kind that the header says, or raise Refused."""
    rest = iter(lines)
    first = next(rest, "")
    header = Header.read(first)
    is_statistic = header.fields["question"].startswith(STATISTIC) and header.session.protocol != "learn"
    lines = itertools.chain([first], rest)
    return StatisticAudit(lines) if is_statistic else Audit(lines, executor=executor)


def _select(
    audit: RunLog, wanted: Wanted, receipt: Receipt | None
) -> tuple[int, int | None, int | None, int | None]:
    """Check the arguments; return exit code, number of this try, number of tries, and number of runs."""
    session, run, head = (
        None if digest is None else bytes.fromhex(digest)
        for digest in (wanted.session, wanted.run, wanted.head)
    )
    if receipt is not None:
        session, run, head = session or receipt.session, run or receipt.run_id, head or receipt.head
    required(session in (None, audit.session.digest), "the session that was given")
    required(wanted.request in (None, audit.request), "the request that was given")
    required(run in (None, audit.run_id), "the run that was given")
    position = tries = runs = None
    if wanted.session_log is None:
        required(head in (None, audit.head, audit.session_head), "the head that was given")
        is_certain = run is not None or head is not None
    else:
        listed = SessionLog(_Lines(wanted.session_log, whole=False))
        position, tries, is_certain = listed.select(audit, run, wanted.request, head)
        runs = len(listed.runs)
        if wanted.checkpoint is not None:
            with open(wanted.checkpoint, "rb") as file:
                note = file.read(LONGEST_NOTE + 1)
            check_checkpoint(
                note, listed, audit.session.checkpoint_key, audit.number, wanted.witnesses, wanted.least
            )
    if not audit.is_one_log and head != audit.head:
        is_certain = False
    if session is None:
        return NO_SESSION, position, tries, runs
    return HOLDS if is_certain else SOME_RUN, position, tries, runs
