"""Pages that show a log as it grows: parties, entries, what is proven, the verdict and what is not proven.

It is made from a `LogWatch`. Names and values of the log are text: escaped, visible and cut by the templates.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from smpc_dp.decoding import decode_json
from smpc_dp.errors import LocalError, SmpcError, VerificationError
from smpc_dp.files import read_bounded
from smpc_dp.logs.audits.audit_receipt import check_end, check_entry, check_log
from smpc_dp.logs.audits.audit_selection import NO_SESSION, SOME_RUN
from smpc_dp.logs.audits.log_watch import LogWatch, Run
from smpc_dp.logs.growing_log import read_line
from smpc_dp.logs.log import MAX_LINE_BYTES, Entry, decode_line
from smpc_dp.logs.receipt import FORMAT, VERSION, LogReceipt
from smpc_dp.logs.signed_note import MAX_BYTES, SignedNote
from smpc_dp.report.pages import environment
from smpc_dp.wire.signing import decode

# Rows of a table that goes on, and of one on the first page.
ROWS, FIRST_ROWS = 100, 15
MOST_VALUES = 20
# Bytes of a receipt that a page takes, and of a payload and its fields that it shows.
MOST_RECEIPT = 1 << 20
MOST_PAYLOAD, MOST_FIELD = 4_096, 256
NOT_PROVEN = (
    "That a value is true: a party can lie within the bounds.",
    "Whose fault it is that a message is missing: the aggregator may have withheld it.",
    "That this log is that of your run: compare its run id and head with your own result.",
)
_HOST = re.compile(r"[A-Za-z0-9.\-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


class LogPages:
    """Renderer of HTML pages about a log that is watched and audited; used by threads at once."""

    def __init__(self, watch: LogWatch, address: str, root: str = "") -> None:
        """`address`: the URL below which the pages are; `root`: the path in it, where that is fixed."""
        self._watch, self._address, self._root = watch, address, root
        self._environment = environment()
        # As a global: also templates that are imported have it.
        self._environment.globals["root"] = root

    def overview(self, host: str = "") -> str:
        """Return the HTML overview page: verdict, its limits, parties and last entries of the log."""
        with self._watch.lock:
            run = self._watch.run
            if run is None:
                return self._render("board.html", verdict=waiting(), run=None)
            count = run.entries
            given: dict[str, Any] = {
                "verdict": verdict(run),
                "run": _facts(run),
                "excluded": [*run.excluded.values()][:ROWS],
                "out": len(run.excluded),
                # Of a log that does not hold, the rest was not verified.
                "ended": run.report is not None and verdict(run)["kind"] != "bad",
                "parties": [_party(run, index) for index in range(min(FIRST_ROWS, len(run.names)))],
                "count": len(run.names),
                "entries": [_entry(run, at) for at in range(count, max(0, count - FIRST_ROWS), -1)],
                "limits": _limits(run, self._cosigners(run)),
                "command": self._command(run, host),
                "selects": "head" if run.draw else "run id",
                "checkpoint": self.file_beside(run, "checkpoint"),
            }
            if run.report is not None and not run.report.faults:
                given |= run.view.result(run.report)
        return self._render("board.html", **given)

    def parties(self, first: int = 1, name: str = "") -> str:
        """Return the HTML page of ROWS parties at most, from number `first` or with this start of a name."""
        with self._watch.lock:
            run = self._watch.run or Run(self._watch.path)
            names = run.names
            if name:
                named = (index for index in range(len(names)) if names[index].startswith(name))
                shown = [index for index, _ in zip(named, range(ROWS), strict=False)]
            else:
                shown = [*range(max(first - 1, 0), min(first - 1 + ROWS, len(names)))]
            rows, steps = [_party(run, index) for index in shown], _pages(first, len(names))
        return self._render("board_parties.html", rows=rows, pages=() if name else steps, name=name)

    def entries(self, first: int = 1) -> str:
        """Return the HTML page of at most ROWS log entries, from number `first` on."""
        with self._watch.lock:
            run = self._watch.run or Run(self._watch.path)
            last = min(first + ROWS - 1, run.entries)
            rows, steps = (
                [_entry(run, at) for at in range(max(first, 1), last + 1)],
                _pages(first, run.entries),
            )
        return self._render("board_entries.html", rows=rows, pages=steps)

    def entry(self, number: int) -> str | None:
        """Return the HTML page of log entry `number`, from 1; None if there is no such entry."""
        line, run = self.line(number)
        if line is None or run is None:
            return None
        read = decode_line(line, Entry)
        with self._watch.lock:
            index = run.names.index(read.party) if read.party in run.names else None
            party = None if index is None else _party(run, index)
        return self._render(
            "board_entry.html",
            entry=read,
            digest=read.digest().hex(),
            meaning=_meaning(run, read.kind),
            party=party,
            fields=_fields(run, read),
            payload=read.payload[:MOST_PAYLOAD].hex(" ", 4),
            more=max(0, len(read.payload) - MOST_PAYLOAD),
        )

    def line(self, number: int) -> tuple[bytes | None, Run | None]:
        """Return the raw line of log entry `number` (from 1), or None, and the watched run, or None."""
        with self._watch.lock:
            run = self._watch.run
            if run is None or not 1 <= number <= run.entries:
                return None, run
            path, byte = run.path, run.bytes[number - 1]
        return read_line(path, number, byte, MAX_LINE_BYTES + 1), run

    def receipt(self, text: str | None = None) -> str:
        """Return the HTML page where a receipt is checked, with the result for a given receipt."""
        result = None if text is None else self.find(text)
        with self._watch.lock:
            run = self._watch.run
            command = "" if run is None else self._command(run, "", receipt=True)
        return self._render("board_receipt.html", result=result, command=command, most=MOST_RECEIPT)

    def find(self, text: str) -> dict[str, object]:
        """Look up a receipt (JSON) in the log: return "found" with facts about it, or with a "reason"."""
        try:
            receipt = decode_json(text.encode("utf-8", "surrogatepass"), LogReceipt)
            if (receipt.format, receipt.version) != (FORMAT, VERSION):
                raise ValueError("another format")
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return {"found": False, "reason": f"This is no receipt: {error}."}
        line, run = self.line(receipt.index)
        try:
            if run is None or run.session is None or run.header is None:
                return {"found": False, "reason": "No log has been read yet."}
            check_log(receipt, run.session.digest.hex(), run.header.run_id)
            if line is None:
                reason = (
                    f"The log has {run.entries} entries so far, and the receipt is of entry {receipt.index}."
                )
                return {"found": False, "reason": reason}
            check_entry(receipt, decode_line(line, Entry))
            with self._watch.lock:
                report, context, quorum, count = run.report, run.context, run.quorum, run.entries
                judged = verdict(run)
            if judged["kind"] == "bad":
                return {"found": False, "reason": judged["text"]}
            whole = None if report is None else report.verdict
            if report is not None and whole is not None and context is not None:
                check_end(receipt, context, quorum, whole.attested, report.head or "", count)
        except SmpcError as error:
            return {"found": False, "reason": f"This log does not have it: {error}."}
        with self._watch.lock:
            party = _party(run, run.names.index(receipt.party))
        return {"found": True, "receipt": receipt, "party": party, "ended": whole is not None}

    def file_beside(self, run: Run, kind: str) -> bool:
        """Tell if the log's folder has a file of this kind: session log ("jsonl") or its checkpoint."""
        path = self._beside(run, kind)
        return path is not None and path.is_file()

    def beside(self, kind: str) -> Path | None:
        """Return the path of the watched log's session log or checkpoint file; None if missing."""
        with self._watch.lock:
            run = self._watch.run
            return self._beside(run, kind) if run is not None and self.file_beside(run, kind) else None

    @staticmethod
    def _beside(run: Run, kind: str) -> Path | None:
        """Return the path that a run's session log or checkpoint file has; None before the run is known."""
        context = run.context
        if context is None:
            return None
        name = "session" if context.scope == context.session_digest else "group"
        return run.path.with_name(f"{name}-{context.scope.hex()[:16]}.{kind}")

    def _cosigners(self, run: Run) -> Sequence[str]:
        """Return up to 16 names in the checkpoint beside the log, unchecked; () if there is none."""
        path = self._beside(run, "checkpoint")
        try:
            note = (
                SignedNote.parse(read_bounded(path, "the checkpoint", MAX_BYTES))
                if path is not None and path.is_file()
                else None
            )
        except (LocalError, VerificationError):
            return ()
        return () if note is None else [name for name, _, _ in note.signatures[1:17]]

    def _command(self, run: Run, host: str, *, receipt: bool = False) -> str:
        """Return the shell command with which a reader of the page can audit the log."""
        address = f"http://{host}" if not self._root and _HOST.fullmatch(host) else self._address
        command = ["smpc-dp", "audit", f"{address}/board.jsonl"]
        if receipt:
            return shlex.join([*command, "--receipt", "receipt.json"])
        command += ["--session", "session.toml"]
        if run.draw:
            # Of a statistic a run id selects no log: the end is signed by the aggregator alone.
            head = None if run.report is None else run.report.head
            return shlex.join([*command, "--head", head or "HEAD"])
        return shlex.join([*command, "--run", "" if run.header is None else run.header.run_id])

    def _render(self, template: str, **given: object) -> str:
        """Return an HTML page from a named template and its values."""
        given = {"live": not self._watch.stopped, **given}
        return self._environment.get_template(template).render(**given)


def waiting() -> dict[str, str]:
    """Return the notice (kind, title, text) of a page before the first run has a log."""
    return {
        "kind": "",
        "title": "No run has begun",
        "text": "There is no log yet. This page shows it when there is.",
    }


def verdict(run: Run) -> dict[str, str]:
    """Return the verdict on a run in plain words: kind ("good", "warning", "bad" or ""), title and text."""
    report = run.report
    if run.failure:
        return {"kind": "bad", "title": "The log cannot be read", "text": run.failure}
    if report is None:
        return _unfinished(run)
    if report.code not in (0, NO_SESSION, SOME_RUN):
        return {"kind": "bad", "title": "This log does not hold", "text": report.conclusion}
    return run.view.verdict(run, report)


def _unfinished(run: Run) -> dict[str, str]:
    """Return the notice of a log that still grows: what it has so far, and what comes next."""
    if run.header is None:
        return {"kind": "", "title": "A log begins", "text": "Its header is being read."}
    following = f"; next is '{run.expected}'" if run.expected else ""
    text = f"{run.entries} entries hold so far{following}. There is no result yet"
    text += ", and if nothing more comes, the run has failed or the log was cut."
    if run.excluded:
        text += f" Shown to have signed something false: {listed([*run.excluded])}."
    return {"kind": "warning", "title": "The run is under way", "text": text}


def listed(names: Sequence[str]) -> str:
    """Return some names as one line of text: the first ones, and the number of others."""
    more = f" and {len(names) - MOST_VALUES} more" if len(names) > MOST_VALUES else ""
    return ", ".join(names[:MOST_VALUES]) + more


def _limits(run: Run, cosigners: Sequence[str]) -> list[str]:
    """Return sentences for the page on what the log does not prove."""
    limits = [
        "That this page tells the truth: it is the word of whoever runs this server. An audit on your own "
        "machine proves what it says.",
        *NOT_PROVEN,
    ]
    report = run.report
    if report is not None and report.code == NO_SESSION:
        limits.append(
            "That this is the session that the parties agreed on: this server was given none to compare, so "
            "names, bounds and epsilon are what the log says."
        )
    if cosigners:
        limits.append(
            f"That the session log is right. Its checkpoint has cosignatures of {listed(cosigners)}, not "
            "verified here; a cosignature means that the log was only appended to."
        )
    return limits


def _facts(run: Run) -> dict[str, object]:
    """Return facts about a run for the top of its page: request, run id, session, entries, steps."""
    header, session = run.header, run.session
    parameters = "" if session is None else json.dumps(dict(session.parameters), ensure_ascii=False, indent=1)
    return {
        "request": "" if header is None else header.request,
        "run_id": "" if header is None else header.run_id,
        "operation": "" if header is None else header.operation,
        "session": "" if session is None else session.digest.hex(),
        "parameters": parameters,
        "entries": run.entries,
        "present": len(run.present) if run.present is not None else "",
        "head": "" if run.report is None or run.report.head is None else run.report.head,
        "steps": [(run.view.steps[kind].capitalize(), done) for kind, done in _done(run)],
    }


def _done(run: Run) -> list[tuple[str, int]]:
    """Return, for each step, how many parties have done it; rare steps only if a party did."""
    done = [(kind, sum(map(bool, made))) for kind, made in run.steps.items()]
    return [(kind, count) for kind, count in done if count or kind not in run.view.rare_steps]


def _party(run: Run, index: int) -> dict[str, object]:
    """Return template values for a party's row: number, name, state, its colour, and entries by step."""
    name = run.names[index]
    made = {kind: steps[index] for kind, steps in run.steps.items() if steps[index]}
    state, kind = _state(run, name, index, made)
    return {"number": index + 1, "name": name, "state": state, "kind": kind, "steps": made}


def _state(run: Run, name: str, index: int, made: Mapping[str, int]) -> tuple[str, str]:
    """Return words for a party's state in a run, and the CSS class that colours the state."""
    if name in run.excluded:
        return f"excluded: {run.excluded[name].reason}", "bad"
    return run.view.state(run, index, made)


def _entry(run: Run, number: int) -> dict[str, object]:
    """Return template values for a log entry: its number, author, kind and meaning."""
    kind = run.kind(number)
    return {"number": number, "author": run.author(number), "kind": kind, "meaning": _meaning(run, kind)}


def _meaning(run: Run, kind: str) -> str:
    """Return words for what a log entry of this kind does; a round number in `kind` is ignored."""
    return run.view.meanings.get(re.sub("-[0-9]+$", "", kind), "")


def _fields(run: Run, entry: Entry) -> list[tuple[str, int, str]]:
    """Return a payload's fields: name, length in bytes, start in hex or text; [] for unknown kinds."""
    message = run.view.messages.get(entry.kind)
    if message is None:
        return []
    try:
        fields = msgspec.structs.asdict(decode(entry.payload, message, entry.party))
    except SmpcError:
        return []
    shown = []
    for name, value in fields.items():
        content = value if isinstance(value, bytes) else str(value).encode()
        text = content[:MOST_FIELD].hex() if isinstance(value, bytes) else str(value)[:MOST_FIELD]
        shown.append((name, len(content), text + ("…" if len(content) > MOST_FIELD else "")))
    return shown


def _pages(first: int, count: int) -> list[tuple[str, int]]:
    """Return (word, first row) of those links to first, previous, next and last rows that lead elsewhere."""
    last = max(1, (count - 1) // ROWS * ROWS + 1)
    others = [("first", 1), ("previous", max(1, first - ROWS)), ("next", first + ROWS), ("last", last)]
    return [(word, at) for word, at in others if at != first and at <= max(count, 1)]
