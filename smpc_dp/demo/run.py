"""Run the demonstration: make the session, start the processes, kill one, and check the results."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp.demo.lenders import LENDERS, LENGTH, UPPER, read_loans, rows, statistics, write_shards
from smpc_dp.demo.regression import Fit, Score, fit, pooled_fit, score
from smpc_dp.engine.phases.messages import PARTICIPANTS
from smpc_dp.errors import Check, ConfigCheck, ConfigError, LocalError, VerificationError
from smpc_dp.session.events import OnEvent, ignore
from smpc_dp.session.launcher import Launcher
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
    """Paths in the folder of one demonstration: session file, keys, lenders' loans and results."""

    folder: Path

    @property
    def session(self) -> Path:
        """The path of the demonstration's session file."""
        return self.folder / "session.toml"

    def shard(self, name: str) -> Path:
        """Return the path of the CSV file with a lender's loans."""
        return self.folder / "shards" / f"{name}.csv"

    def result(self, name: str) -> Path:
        """Return the path of the JSON file with the result that a lender has written."""
        return self.folder / "results" / f"{name}.json"

    def prepare(self, parameters: Mapping[str, object], protocol: str, timeouts: Timeouts) -> None:
        """Write the session file, all keys, and each lender's loans; raise LocalError on failure."""
        create_local_session(
            self.folder, LENDERS, parameters, protocol=protocol, aggregator=AGGREGATOR, timeouts=timeouts
        )
        try:
            for subfolder in ("shards", "results"):
                (self.folder / subfolder).mkdir(mode=0o700)
        except OSError as error:
            raise LocalError(f"{self.folder}: cannot make a folder ({error.strerror})") from None
        write_shards(self.folder / "shards")

    def reported(self, name: str) -> dict[str, Any]:
        """Read the JSON result that a lender's process has written."""
        reported: dict[str, Any] = json.loads(self.result(name).read_text("utf-8"))
        return reported


async def run_members(
    commands: Mapping[str, Sequence[str]], on_event: OnEvent, expected: Collection[tuple[str, int]]
) -> None:
    """Start a process for each member and wait; LocalError for a failure not in `expected` (name, code).

    Raises LocalError if another one fails, or cannot be started; names it, and why.
    """
    outcomes = await Launcher(on_event).run(commands, AGGREGATOR)
    failed = [one for one in outcomes.values() if not one.ok and (one.name, one.exit_code) not in expected]
    # A process that ended without a reason is the cause of the others' failures.
    for one in sorted(failed, key=lambda one: one.last is not None and one.last.kind == "failed"):
        raise LocalError(f"the process of {one.name} failed: {one.reason}")


@dataclass(frozen=True, slots=True)
class Scores:
    """Quality of the secure, pooled and single lenders' models on the survivors' and other loans.

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
    """Result of the whole demonstration: secure sums beside true ones, fitted models and their quality.

    Attributes:
        equal: how many of the LENGTH sums equal, as integers, those of the survivors' pooled loans.
        result: a survivor's result, as `Result.to_json` gives it; all survivors have the same.
        received: by lender, the masked vector that the aggregator received. modulus_bits: of its values.
        loans: by lender, how many it holds.
        true_vectors: by lender, its vector: known to the demonstration alone, which made the shards.
        killed: the lender whose process was killed with SIGKILL, if any.
        largest_gap: largest relative difference of a coefficient from that of pooled `lstsq` in float64.
        seconds: from the first process to the last.
    """

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
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether each secure sum equals the plain sum of the survivors' pooled loans."""
        return self.equal == LENGTH


async def demonstrate(folder: Path, *, kill: bool = True, on_event: OnEvent = ignore) -> Demonstration:
    """Run the whole demonstration with real processes in an empty folder; return its result.

    Args:
        folder: an empty directory.
        kill: kill the process of `VICTIM` before it sends its masked vector.
        on_event: called with every event of every process.

    Raises:
        LocalError: a process cannot be started or ended with an error; names which, and why.
        VerificationError: the survivors have differing results, or the killed lender is in them.
    """
    files, view = Files(folder), folder / "aggregator.json"
    files.prepare(PARAMETERS, "secagg", TIMEOUTS)
    killed = VICTIM if kill else None
    program = [sys.executable, "-m", "smpc_dp.demo.member", str(files.session)]
    commands = {AGGREGATOR: [*program, AGGREGATOR, "--out", str(view)]}
    for name in LENDERS:
        commands[name] = [*program, name, "--out", str(files.result(name)), "--loans", str(files.shard(name))]
    if killed is not None:
        commands[killed] += ["--crash-at", KILL_STEP]
    begun = time.perf_counter()
    await run_members(commands, on_event, {(VICTIM, -signal.SIGKILL)} if kill else ())
    seconds = time.perf_counter() - begun
    seen: dict[str, Any] = json.loads(view.read_text("utf-8"))
    result = _collect(files, seen["sum"], killed)
    matrices = {name: rows(read_loans(files.shard(name), name)) for name in LENDERS}
    survivors, absent = result["survivors"], result["absent"]
    pooled = np.concatenate([matrices[name] for name in survivors])
    fitted, reference = fit(result["fixed_point"]), pooled_fit(pooled)
    return Demonstration(
        equal=int((statistics(pooled) == np.array(result["fixed_point"], dtype=np.int64)).sum()),
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
        modulus_bits=Membership.load(files.session, LENDERS[0]).encoding.modulus_bits,
        loans={name: len(matrix) for name, matrix in matrices.items()},
        true_vectors={name: statistics(matrix).tolist() for name, matrix in matrices.items()},
        killed=killed,
        seconds=seconds,
    )


def _collect(files: Files, total: list[int], killed: str | None) -> dict[str, Any]:
    """Return the survivors' common result; raise VerificationError unless all agree with `total`."""
    first, *others = (files.reported(name) for name in LENDERS if name != killed)
    agreed = [(one["fixed_point"], one["survivors"]) for one in (first, *others)]
    if any(one != (total, first["survivors"]) for one in agreed):
        raise VerificationError(
            "the lenders and the aggregator do not have the same result", Check.WRONG_RESULT
        )
    if killed is not None and killed not in first["absent"]:
        raise VerificationError(
            f"{killed} was to be killed before it sent its vector, and is in the result", Check.WRONG_RESULT
        )
    return first


def open_folder(path: Path) -> Path:
    """Create a folder, or take an empty one; ConfigError if it holds anything, LocalError if unusable."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError.at("--out", f"{path} is not empty", ConfigCheck.CONFLICT)
    except OSError as error:
        raise LocalError(f"{path}: not a folder that can be written ({error.strerror})") from None
    return path
