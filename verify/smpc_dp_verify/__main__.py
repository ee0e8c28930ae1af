"""`smpc-dp-verify LOG` or RESULT: verify a log, or the result of a party, a second time, by other code."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import io
import json
import os
import re
import resource
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from smpc_dp_verify.errors import printable
from smpc_dp_verify.result import (
    NOTHING_SIGNED,
    SOME_RUN,
    TWO_RESULTS,
    ResultOpinion,
    audit_result,
    compare_results,
)
from smpc_dp_verify.verify import FAILS, HOLDS, NO_SESSION, Opinion, Wanted, verify
from smpc_dp_verify.workers import MOST_WORKERS, default_workers, open_processes

# Of a verifier that had no more memory.
NO_MEMORY = 7
# MiB that it takes at most: a log may be anybody's, and so may what is planned for it.
MEMORY = 1024
# More MiB than a limit of the system can be.
MOST = 1 << 40
RESULTS = {
    HOLDS: "What was checked holds.",
    FAILS: "It does not hold:",
    NO_SESSION: "No session file was given: nothing was checked.",
    SOME_RUN: "It holds, and nothing that was given says which run this is.",
    NOTHING_SIGNED: "There is no signed total to check or to compare.",
    TWO_RESULTS: "Two totals:",
}
CONCLUSIONS = {HOLDS: "Everything holds.", NO_SESSION: "Self-consistent; no session was given to compare."}


def main(arguments: list[str] | None = None) -> int:
    """Run the command `smpc-dp-verify` with these arguments; print the result and return its exit code."""
    parser = argparse.ArgumentParser(prog="smpc-dp-verify", description=__doc__)
    parser.add_argument("log", help="the log, a file of JSON lines, or a party's result, a file of JSON")
    parser.add_argument("--compare", help="another party's result of the same run")
    parser.add_argument("--session", help="of a log the session digest that a party gave; else the file")
    parser.add_argument("--run", help="the run id from a party's result")
    parser.add_argument("--head", help="a head from a party's result")
    parser.add_argument("--request", type=int, help="the number of the request")
    parser.add_argument("--session-log", help="the aggregator's session log, a file")
    parser.add_argument("--checkpoint", help="a signed checkpoint of the session log, a file")
    parser.add_argument("--witness", action="append", default=[], help="the key of a witness")
    parser.add_argument("--witnesses", type=int, default=0, help="how many of them must have cosigned it")
    parser.add_argument("--receipt", help="a party's receipt, a file: the log must have its entry")
    parser.add_argument(
        "--memory",
        type=int,
        metavar="MIB",
        default=MEMORY,
        help=f"memory to take at most, {MEMORY} if not given",
    )
    parser.add_argument(
        "--workers",
        type=int,
        help="processes that verify proofs, each with so much memory; if not given one for each processor, "
        "and no more than this machine has memory for",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of columns may have characters that the encoding does not have.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if given.compare is not None or is_result(given.log):
            return _of_result(given)
        wanted = Wanted(
            given.session,
            given.run,
            given.head,
            given.request,
            given.session_log,
            given.checkpoint,
            tuple(given.witness),
            given.witnesses,
            given.receipt,
        )
        if not 1 <= given.memory < MOST:
            parser.error(f"--memory must be between 1 and {MOST - 1}, is {given.memory}")
        workers = default_workers(given.memory) if given.workers is None else given.workers
        if not 1 <= workers <= MOST_WORKERS:
            parser.error(f"--workers must be between 1 and {MOST_WORKERS}, is {workers}")
        # Before processes start: the one file of a release removes what they need as soon as it ends.
        with open(given.log, "rb"):
            pass
        with _bounded_memory(given.memory << 20), open_processes(workers) as executor:
            opinion = verify(given.log, wanted, executor)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        if error.errno in (errno.ENOMEM, errno.EAGAIN):
            # No process could be started. It says nothing of the log.
            print(f"error: no process can be started within --memory ({given.memory} MiB)", file=sys.stderr)
            return NO_MEMORY
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILS
    except MemoryError:
        print(f"error: more memory is needed than --memory allows ({given.memory} MiB)", file=sys.stderr)
        return NO_MEMORY
    except BrokenProcessPool:
        print("error: a process that verifies was killed, or had too little memory", file=sys.stderr)
        return NO_MEMORY
    print(_json("verify-log", opinion) if given.json else _text(opinion))
    return opinion.code


def is_result(path: str) -> bool:
    """Tell whether a file looks like a stored result (one JSON object) and not like a log."""
    if path.endswith(".jsonl") or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        first = file.read(64).lstrip()
    return bool(re.match(rb'\{\s*"(?!format")', first))


def _of_result(given: argparse.Namespace) -> int:
    """Audit a stored result, or compare two, and print what was found; return the exit code."""
    of_logs = (given.head, given.session_log, given.checkpoint, given.receipt)
    if any(one is not None for one in of_logs) or (given.compare and (given.run or given.request)):
        raise ValueError("an option that is for logs, or for an audit")
    with _bounded_memory(given.memory << 20):
        if given.compare is not None:
            opinion = compare_results(given.compare, given.log, given.session)
        else:
            opinion = audit_result(given.log, given.session, given.run, given.request)
    print(_json("verify-result", opinion) if given.json else result_text(opinion))
    return opinion.code


def _json(schema: str, opinion: Opinion | ResultOpinion) -> str:
    """Return an opinion as one line of JSON, with the name and version of its JSON schema."""
    return json.dumps({"schema": schema, "schema_version": 1, **dataclasses.asdict(opinion)})


def result_text(opinion: ResultOpinion) -> str:
    """Return an opinion on one or two stored results as lines of text."""
    lines = []
    if opinion.unchecked:
        lines += [f"Not checked here: {', '.join(opinion.unchecked)}; nor what is no evidence."]
    lines += [RESULTS[opinion.code]]
    if opinion.code == HOLDS and opinion.checked is False:
        lines[-1] = "The signatures hold."
    if opinion.code == HOLDS and opinion.checked is None:
        lines[-1] = "One total: the aggregator has signed the same for both; each is to be audited."
    if opinion.reason:
        check = "" if opinion.check is None else f" ({opinion.check})"
        lines[-1] += f" {printable(opinion.reason)}{check}"
    # Of a body that is malformed the aggregator is at fault in any case.
    of_body = opinion.culprit is not None and opinion.check in ("malformed", "not-canonical")
    if opinion.checked is not None:
        word = "checked against the commitments"
        if not opinion.checked:
            word = "the aggregator's word, which was not checked"
        if opinion.checkers is not None:
            word = f"{opinion.checkers} survivors or more have checked it for all, and signed that"
        lines += [f"the total over {', '.join(opinion.survivors)}: {word}"]
    if opinion.corrupt is not None and not of_body:
        lines += [f"With more than c = {opinion.corrupt} corrupt parties this proves nothing."]
    if opinion.culprit is not None:
        lines += [f"signed by {opinion.culprit}"]
    shown = {"session": opinion.session, "run": opinion.run_id, "question": opinion.operation}
    lines += [f"{name}: {printable(value)}" for name, value in shown.items() if value is not None]
    lines += [f"signed for: {name}" for name in opinion.receivers]
    return "\n".join([*lines, *(f"SHA-256 of what was signed: {digest}" for digest in opinion.digests)])


@contextmanager
def _bounded_memory(size: int) -> Iterator[None]:
    """Context manager that limits this process's memory to `size` bytes, unless it has less."""
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    least = min([size, *(limit for limit in (before, most) if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (least, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def _text(opinion: Opinion) -> str:
    """Return an opinion on a log as lines of text, with untrusted texts made printable."""
    where = "" if opinion.line is None else f"line {opinion.line}: "
    text = CONCLUSIONS.get(opinion.code, "It holds, and nothing that was given says which run this is.")
    if opinion.reason:
        lines = [f"This log does not hold: {where}{opinion.reason}"]
    else:
        false = "values within their bounds" if opinion.statistic is None else "records, and a false estimate"
        lines = [
            f"Not detected: false {false}. All this holds only if at most c = {opinion.corrupt} of the "
            f"parties are corrupt. {text}"
        ]
    if opinion.run_id is not None:
        lines += [f"{opinion.entries} entries"]
        lines += [f"counted: {', '.join(opinion.counted)}"]
        lines += [f"excluded: {name}, entry {entry}: {reason}" for name, entry, reason in opinion.excluded]
        lines += [f"void: {one} and {other}" for one, other in opinion.void]
        if (drawn := opinion.statistic) is not None:
            lines[2:] = [f"draws: {len(drawn.attempts)}, pairs: {sum(map(len, drawn.pairs))}"]
            lines += [f"failed: {len(drawn.failed)}, estimate: {drawn.value}"]
        elif opinion.answers is not None:
            lines += [f"sums over the parties, in steps: {opinion.average}"]
            lines += [f"{printable(one.statistic)}: {one.values} +- {one.errors}" for one in opinion.answers]
        else:
            lines += [f"average: {opinion.average}"]
        if opinion.receipt is not None:
            party, index, counted = opinion.receipt
            lines += [f"receipt: entry {index} of {party}, {'counted' if counted else 'not counted'}"]
        lines += [f"session: {opinion.session}", f"run: {opinion.run_id}", f"head: {opinion.head}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
