"""Run the demonstration: make the session, start the processes, kill one, and check the results."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp.demo.lenders import (
    DATA,
    LENDERS,
    LENGTH,
    UPPER,
    Loan,
    read_loans,
    rows,
    shards,
    statistics,
    write_loans,
)
from smpc_dp.demo.regression import Fit, Score, fit, pooled_fit, score
from smpc_dp.engine.phases.messages import PARTICIPANTS
from smpc_dp.errors import Check, ConfigCheck, ConfigError, LocalError, VerificationError
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.session.launcher import Launcher, ProcessOutcome
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.session_file import Timeouts

VICTIM = "mountain"
# The victim has dealt the shares of its keys and attested who takes part; its masked vector comes next. The
# others mask theirs against it, so that its masking key must be recovered from the shares.
KILL_STEP = PARTICIPANTS
PARAMETERS: dict[str, object] = {
    "length": LENGTH,
    "kind": "integer",
    "lower": 0,
    "upper": UPPER,
    "dropout": 1 / len(LENDERS),
    "corrupt": 2 / len(LENDERS),
}
TIMEOUTS = Timeouts(connect=30.0, step=15.0)


@dataclass(frozen=True, slots=True)
class Files:
    """The folder of one demonstration: session file, keys, shards, results, and the aggregator's view."""

    folder: Path

    @property
    def session(self) -> Path:
        """The path of the session file."""
        return self.folder / "session.toml"

    @property
    def seen(self) -> Path:
        """The path of the aggregator's view."""
        return self.folder / "aggregator.json"

    def shard(self, name: str) -> Path:
        """Return the path of a lender's loans."""
        return self.folder / "shards" / f"{name}.csv"

    def result(self, name: str) -> Path:
        """Return the path of a lender's result."""
        return self.folder / "results" / f"{name}.json"

    def prepare(self, parts: Mapping[str, Sequence[Loan]]) -> None:
        """Make the folders, and write each lender's loans; raise LocalError on failure."""
        try:
            for subfolder in ("shards", "results"):
                (self.folder / subfolder).mkdir(mode=0o700)
        except OSError as error:
            raise LocalError(f"{self.folder}: cannot make a folder ({error.strerror})") from None
        for name, loans in parts.items():
            write_loans(self.shard(name), loans)

    def lender_command(self, module: str, name: str) -> list[str]:
        """Return the command that starts a lender's process."""
        arguments = [str(self.session), name, str(self.shard(name)), "--out", str(self.result(name))]
        return [sys.executable, "-m", f"smpc_dp.demo.{module}", *arguments]

    def reported(self, name: str) -> dict[str, Any]:
        """Return the result that a lender wrote."""
        reported: dict[str, Any] = json.loads(self.result(name).read_text("utf-8"))
        return reported


@dataclass(frozen=True, slots=True)
class Scores:
    """Quality of fits on the survivors' loans, and on the loans that are not in the result.

    Attributes:
        secure: the fit from the secure sums; pooled: numpy's `lstsq` on the survivors' pooled loans.
        alone: by lender, `lstsq` on its own loans only; all three on the survivors' loans.
        unseen: the fit from the secure sums on the loans of the absent; None if nobody is absent.
    """

    secure: Score
    pooled: Score
    alone: dict[str, Score]
    unseen: Score | None


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Result of a demonstration.

    Attributes:
        exact: whether all LENGTH sums equal, as integers, those of the survivors' pooled loans.
        equal: how many of them do.
        result: a survivor's result, as `Result.to_json` gives it; all survivors have the same.
        received: by lender, the masked vector that the aggregator received. modulus_bits: of its values.
        loans: by lender, how many it holds.
        true_vectors: by lender, its vector: known to the demonstration alone, which made the shards.
        killed: the lender whose process was killed with SIGKILL, if any.
        largest_gap: largest relative difference of a coefficient from that of pooled `lstsq` in float64.
        max_corrupt: how many lenders may collude with the aggregator.
        seconds: from the first process to the last.
    """

    exact: bool
    equal: int
    result: dict[str, Any]
    fitted: Fit
    scores: Scores
    largest_gap: float
    received: dict[str, list[int]]
    modulus_bits: int
    loans: dict[str, int]
    true_vectors: dict[str, list[int]]
    killed: str | None
    max_corrupt: int
    seconds: float


async def demonstrate(
    folder: Path,
    *,
    kill: bool = True,
    on_event: OnEvent = ignore,
    on_kill: Callable[[str], None] = lambda _name: None,
) -> Demonstration:
    """Run the demonstration in an empty folder and return its result; leave its files there, keys 0600.

    Args:
        folder: an empty directory.
        kill: kill the process of `VICTIM` before it sends its masked vector.
        on_event: called with every event of every process.
        on_kill: called when the victim is killed.

    Raises:
        LocalError: a process cannot be started or ended with an error; names which, and why.
        VerificationError: the survivors have differing results, or the killed lender is in them.
    """
    files = Files(folder)
    matrices = {name: rows(part) for name, part in _prepare(files).items()}
    killed = VICTIM if kill else None
    begun = time.perf_counter()
    outcomes = await _launch(files, killed, on_event, on_kill)
    seconds = time.perf_counter() - begun
    result, seen = _collect(files, outcomes, killed)
    membership = Membership.load(files.session, AGGREGATOR, role="aggregator")
    survivors, absent = result["survivors"], result["absent"]
    pooled = np.concatenate([matrices[name] for name in survivors])
    equal = int((statistics(pooled) == np.array(result["fixed_point"], dtype=np.int64)).sum())
    fitted = fit(result["fixed_point"])
    reference = pooled_fit(pooled)
    return Demonstration(
        exact=equal == LENGTH,
        equal=equal,
        result=result,
        fitted=fitted,
        scores=Scores(
            secure=score(fitted.coefficients, pooled),
            pooled=score(reference, pooled),
            alone={name: score(pooled_fit(matrices[name]), pooled) for name in survivors},
            unseen=score(fitted.coefficients, np.concatenate([matrices[name] for name in absent]))
            if absent
            else None,
        ),
        largest_gap=max(abs(fitted.coefficients[name] / value - 1) for name, value in reference.items()),
        received=seen["received"],
        modulus_bits=membership.parameters.encoding.modulus_bits,
        loans={name: len(matrix) for name, matrix in matrices.items()},
        true_vectors={name: statistics(matrix).tolist() for name, matrix in matrices.items()},
        killed=killed,
        max_corrupt=membership.parameters.plan.max_corrupt,
        seconds=seconds,
    )


def _prepare(files: Files) -> dict[str, list[Loan]]:
    """Write shards, identities and the session file; return the shards."""
    parts = shards(read_loans(DATA))
    files.prepare(parts)
    create_local_session(files.folder, LENDERS, PARAMETERS, aggregator=AGGREGATOR, timeouts=TIMEOUTS)
    return parts


async def _launch(
    files: Files, killed: str | None, on_event: OnEvent, on_kill: Callable[[str], None]
) -> dict[str, ProcessOutcome]:
    """Run all processes to their end, and kill one at its step."""

    def follow(event: Event) -> None:
        on_event(event)
        if killed is not None and (event.party, event.kind, event.step) == (killed, "step", KILL_STEP):
            launcher.kill(killed)
            on_kill(killed)

    launcher = Launcher(follow)
    aggregator = ["smpc_dp.demo.aggregator", str(files.session), AGGREGATOR, "--out", str(files.seen)]
    commands = {AGGREGATOR: [sys.executable, "-m", *aggregator]}
    for name in LENDERS:
        commands[name] = files.lender_command("lender", name)
        commands[name] += ["--hold-at", KILL_STEP] if name == killed else []
    return await launcher.run(commands, AGGREGATOR)


def _collect(
    files: Files, outcomes: dict[str, ProcessOutcome], killed: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the one result of all survivors and the aggregator's view."""
    failed = [
        outcome
        for outcome in outcomes.values()
        if not outcome.ok and (outcome.name != killed or outcome.exit_code != -signal.SIGKILL)
    ]
    # A process that ended without a reason is the cause of the others' failures.
    for outcome in sorted(failed, key=_gave_reason):
        raise LocalError(f"the process of {outcome.name} failed: {outcome.reason}")
    seen: dict[str, Any] = json.loads(files.seen.read_text("utf-8"))
    reported = [files.reported(name) for name in LENDERS if name != killed]
    if any(
        other["fixed_point"] != seen["sum"] or other["survivors"] != reported[0]["survivors"]
        for other in reported
    ):
        raise VerificationError(
            "the lenders and the aggregator do not have the same result", Check.WRONG_RESULT
        )
    if killed is not None and killed not in reported[0]["absent"]:
        raise VerificationError(
            f"{killed} was to be killed before it sent its vector, and is in the result", Check.WRONG_RESULT
        )
    return reported[0], seen


def _gave_reason(outcome: ProcessOutcome) -> bool:
    """Return whether a process explained its failure by an event."""
    return outcome.last is not None and outcome.last.kind == "failed"


def open_folder(path: Path) -> Path:
    """Make a directory for a demonstration, or take an empty one; raise ConfigError or LocalError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError.at("--out", f"{path} is not empty", ConfigCheck.CONFLICT)
    except OSError as error:
        raise LocalError(f"{path}: not a folder that can be written ({error.strerror})") from None
    return path
