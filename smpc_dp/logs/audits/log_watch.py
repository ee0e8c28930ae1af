"""Watches a log as it grows: audits it on a thread, and keeps what a page shows of it.

Of each entry it keeps 24 bytes, of each party 32; the log itself stays in its file.
"""

from __future__ import annotations

import functools
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Self

import msgspec
from msgspec.structs import replace

from smpc_dp.engine.phases.messages import CERTIFY_BEGIN
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.logs.auditing import Excluded, LogAuditor
from smpc_dp.logs.audits.audit import audit_stream, find_audit
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.audit_selection import Wanted
from smpc_dp.logs.audits.log_session import LogSession
from smpc_dp.logs.growing_log import open_growing
from smpc_dp.logs.log import Entry, Header
from smpc_dp.logs.store import is_begun, is_store
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context

# The kind of the entries by which parties open their coins, and the state of a party that did.
COIN, OPENED_COIN = "coin", "opened its coin, as it had committed to it"
# Seconds between two looks for a newer log in a folder.
LOOK_SECONDS = 0.5
AGGREGATOR = -1
# One log is audited at a time in a process, of those that do not wait for more: whoever looks at the pages of
# many sessions takes one processor from their runs. Seconds until another audit may have its turn, and for
# which it is then left to it.
AUDITING = threading.Semaphore(1)
SHARE_SECONDS, LEFT_SECONDS = 0.1, 0.001


class LogView:
    """Base class: how web pages present the logs of one protocol; this one shows a log without entries.

    Attributes:
        steps: by kind of a party's entries what it has done.
        rare_steps: those of these kinds that pages count only where there is one.
        meanings: by kind of an entry, without the number of a round, what it does.
        messages: by kind of an entry its message.
    """

    steps: ClassVar[Mapping[str, str]] = MappingProxyType({})
    rare_steps: ClassVar[frozenset[str]] = frozenset()
    meanings: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            CERTIFY_BEGIN: "a quorum signed that the run begins",
            COIN: "opens its coin: all coins together decide the noise, or the matchings",
        }
    )
    messages: ClassVar[Mapping[str, type[msgspec.Struct]]] = MappingProxyType({})

    def verdict(self, run: Run, report: Report) -> dict[str, str]:
        """Return the page's notice for a valid log: kind, title and text; subclasses override this."""
        raise NotImplementedError

    def result(self, report: Report) -> dict[str, object]:  # noqa: ARG002
        """Return template values that show a valid log's result on the first page; by default none."""
        return {}

    def counts(self, report: Report) -> dict[str, list[int]]:  # noqa: ARG002
        """Return by kind of entry a number for each party, known when the audit has ended; here none."""
        return {}

    def state(self, run: Run, index: int, made: Mapping[str, int]) -> tuple[str, str]:  # noqa: ARG002
        """Return a party's state in words, and the kind of notice that colours it ("" for none).

        `made`: by kind the numbers of its entries.
        """
        if run.present is None:
            return "in the roster", ""
        return "present" if index + 1 in run.present else "not present", ""


@dataclass
class Run:
    """State of one watched log for its web pages: entries so far, parties present, and the report.

    Attributes:
        path: the log. header, session: once they are read. present: indices of the parties that are present.
        parties, kinds, bytes: of each entry its author's index, the index of its kind in `kind_names`, and
            its first byte in the JSON lines.
        steps: for each kind of a party's entries the number of each party's, or 0.
        draw: of a pairwise statistic, the number of the current draw of matchings; 0 of an average.
        proven: the kinds whose proofs the audit has verified. excluded: by name.
        expected: the kind that is due next; "" after the last entry.
        report: of the audit, once it has ended. counts: of `view`, then.
        failure: why it could not go on, "" if it could.
        view: what pages show of such logs.
    """

    path: Path
    header: Header | None = None
    session: LogSession | None = None
    present: PartySet | None = None
    parties: array[int] = field(default_factory=lambda: array("i"))
    kinds: array[int] = field(default_factory=lambda: array("H"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    kind_names: list[str] = field(default_factory=list)
    steps: dict[str, array[int]] = field(default_factory=dict)
    proven: frozenset[str] = frozenset()
    excluded: dict[str, Excluded] = field(default_factory=dict)
    expected: str = ""
    context: Context | None = None
    quorum: int = 0
    draw: int = 0
    report: Report | None = None
    counts: dict[str, list[int]] = field(default_factory=dict)
    failure: str = ""
    view: LogView = field(default_factory=LogView)

    @property
    def names(self) -> Sequence[str]:
        """Names of the parties, in the roster's order; empty before the session is read."""
        if self.context is not None:
            return self.context.names
        return () if self.session is None else self.session.names

    @property
    def entries(self) -> int:
        """Number of entries that the audit has accepted so far; proofs of some may be pending."""
        return len(self.bytes)

    def begin(self, auditor: LogAuditor) -> None:
        """Record what the auditor knows before the log's first entry."""
        self.context, self.quorum = auditor.context, auditor.quorum
        count = len(self.names)
        self.present = auditor.present
        self.steps = {kind: array("i", bytes(4 * count)) for kind in auditor.steps}
        if self.header is not None and self.session is not None:
            kind = find_audit(self.header, self.session)
            self.view = self.view if kind is None else kind.view()

    def add(self, entry: Entry, byte: int, auditor: LogAuditor) -> None:
        """Record an entry that the auditor has accepted; `byte` is its offset in the log."""
        try:
            index = self.names.index(entry.party)
        except ValueError:
            index = AGGREGATOR
        if entry.kind not in self.kind_names:
            self.kind_names.append(entry.kind)
        self.parties.append(index)
        self.kinds.append(self.kind_names.index(entry.kind))
        if index != AGGREGATOR and entry.kind in self.steps:
            self.steps[entry.kind][index] = entry.sequence
        if entry.kind in auditor.proven_by:
            self.proven |= {auditor.proven_by[entry.kind]}
        self.excluded = {item.party: item for item in auditor.excluded}
        self.expected = auditor.expected
        self.present, self.draw = auditor.present, auditor.attempt
        # Last: a page that shows so many entries shows what all of them say.
        self.bytes.append(byte)

    def end(self, report: Report | None, failure: str) -> None:
        """Record the report of the finished audit, or the reason why the audit failed."""
        self.report, self.failure = report, failure
        if report is not None:
            self.counts = self.view.counts(report)

    def author(self, number: int) -> str:
        """Return the name of the member that wrote entry `number` (from 1)."""
        index = self.parties[number - 1]
        aggregator = None if self.session is None else self.session.aggregator
        return self.names[index] if index != AGGREGATOR else str(aggregator)

    def kind(self, number: int) -> str:
        """Return the kind of the log entry `number` (from 1)."""
        return self.kind_names[self.kinds[number - 1]]


class LogWatch:
    """Background thread that audits the newest log of a path as it grows, for web pages; context manager.

    Args:
        path: a log, or a folder of an aggregator's logs: a newer one takes the place of the one before.
        session: digest of the session that is expected, in hex, if it is known.
        accepts: tells which logs of the folder count, by their paths; each is asked for once it has begun.
        idle: seconds after the last call of `look` until no further log is audited; None: all are audited.

    Attributes:
        path: as given.
        lock: held while the run is read or changed.
        version: a number that grows with each change.
        run: the newest run, None if there is none yet.
    """

    def __init__(
        self,
        path: Path,
        session: str | None = None,
        accepts: Callable[[Path], bool] = lambda _path: True,
        idle: float | None = None,
    ) -> None:
        self.path, self._wanted = path, Wanted(session=session)
        self._accepts, self._idle = accepts, idle
        self._looked: float | None = None
        self.lock = threading.Lock()
        self.version = 0
        self.run: Run | None = None
        self._stopped, self._finished = threading.Event(), threading.Event()
        # When the audit has taken its turn; None while it has none.
        self._acquired: float | None = None
        self._thread = threading.Thread(target=self._watch, name="audit", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the background thread that audits the log as it grows."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the audit at the next entry, and wait until its thread has ended."""
        self._stopped.set()
        self._finished.set()
        self._thread.join()

    @property
    def stopped(self) -> bool:
        """Whether the watch has been stopped, so that no more changes come."""
        return self._stopped.is_set()

    def look(self) -> None:
        """Record that somebody looks at the log now, so that auditing goes on."""
        self._looked = time.monotonic()

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody has looked recently, so that a new log would be audited."""
        if self._idle is None:
            return True
        return self._looked is not None and time.monotonic() < self._looked + self._idle

    def newest(self) -> Path | None:
        """Return the path of the newest accepted log; None if no log has begun."""
        return newest_log(self.path, self._accepts)

    def began(self, header: Header, session: LogSession) -> None:
        """Store the header and session of a log whose audit begins (called by the audit)."""
        with self._changing() as run:
            # The session's text may be long, and the parsed one is here.
            run.header, run.session = replace(header, session=""), session

    def took(self, entry: Entry, byte: int, auditor: LogAuditor) -> None:
        """Store an entry that the auditor has accepted; LocalError, which ends the audit, once stopped."""
        if self.stopped:
            raise LocalError(f"{self.path}: is watched no longer")
        with self._changing() as run:
            if run.context is None:
                run.begin(auditor)
            run.add(entry, byte, auditor)
        if not auditor.expected:
            self._finished.set()
        if self._acquired is not None and time.monotonic() > self._acquired + SHARE_SECONDS:
            self._rest(self._stopped, LEFT_SECONDS)

    @contextmanager
    def _changing(self) -> Iterator[Run]:
        """Yield the watched run's state, locked, for a change; then raise the version for viewers."""
        with self.lock:
            if self.run is not None:
                yield self.run
            self.version += 1

    def _watch(self) -> None:
        """Audit one newest log after another until stopped: the main function of the thread."""
        followed: Path | None = None
        while not self._stopped.is_set():
            path = self.newest() if self.is_looked_at else None
            if path is not None and path != followed:
                followed = path
                self._follow(path)
            self._stopped.wait(LOOK_SECONDS)

    def _rest(self, end: threading.Event, seconds: float) -> None:
        """Let other watches audit for some seconds, or until `end` is set; then wait for the turn."""
        self._release()
        end.wait(seconds)
        self._acquire()

    def _acquire(self) -> None:
        """Wait for the turn to audit, which one watch has at a time; return at once if stopped."""
        while self._acquired is None and not self._stopped.is_set():
            if AUDITING.acquire(timeout=LOOK_SECONDS):
                self._acquired = time.monotonic()

    def _release(self) -> None:
        """Give up the turn to audit, if this watch has it, so that another watch can audit."""
        if self._acquired is not None:
            self._acquired = None
            AUDITING.release()

    def _follow(self, path: Path) -> None:
        """Audit one log while it grows, until it ends or a newer log appears; store its report or failure."""
        self._finished = threading.Event()
        with self.lock:
            self.run = Run(path)
        newer = threading.Thread(target=self._end_for_a_newer, args=(path, self._finished), daemon=True)
        newer.start()
        report, failure = None, ""
        try:
            self._acquire()
            wait = functools.partial(self._rest, self._finished)
            with open_growing(path, self._finished, wait) as stream:
                reopen = functools.partial(open_growing, path)
                report = audit_stream(stream, wanted=self._wanted, threads=1, reopen=reopen, observer=self)
        except SmpcError as error:
            failure = str(error)
        finally:
            self._release()
        superseded = self._stopped.is_set() or self.newest() not in (path, None)
        self._finished.set()
        newer.join()
        if not superseded:
            with self._changing() as run:
                run.end(report, failure)

    def _end_for_a_newer(self, path: Path, finished: threading.Event) -> None:
        """Set `finished`, which ends the audit of a log, once a newer log appears."""
        while not finished.wait(LOOK_SECONDS):
            if self.newest() not in (path, None):
                finished.set()


def newest_log(path: Path, accepts: Callable[[Path], bool] = lambda _path: True) -> Path | None:
    """Return the log at `path`, or the newest in that folder, that has begun and is accepted; else None."""

    def counts(log: Path) -> bool:
        return _has_begun(log) and accepts(log)

    if not path.is_dir():
        return path if counts(path) else None
    for suffix in ("board", "jsonl"):
        logs = sorted(path.glob(f"request-*.{suffix}"), key=_age, reverse=True)
        newest = next(filter(counts, logs), None)
        if newest is not None:
            return newest
    return None


def _has_begun(log: Path) -> bool:
    """Tell whether a log file has its header, judged without reading all of it."""
    try:
        return log.is_file() and log.stat().st_size > 0 and (not is_store(log) or is_begun(log))
    except (LocalError, OSError):
        return False


def _age(log: Path) -> tuple[int, float]:
    """Return a sort key for logs in a folder: the request number in its name, then the time written."""
    request = log.name.split("-")[1]
    try:
        return int(request) if request.isdecimal() else 0, log.stat().st_mtime
    except OSError:
        return 0, 0.0
