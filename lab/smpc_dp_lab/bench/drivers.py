"""Peers in programs compiled elsewhere: emp-tool, emp-ot, emp-sh2pc, emp-ag2pc, and crates of range proofs.

`benchmarks/emp/` and `benchmarks/bulletproofs/` have the drivers' sources. A driver takes one measurement
each time it is run, checks what it has computed and prints one JSON object: `name`, `version`, `checksum`,
and `figures`, each with `unit` and `value`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec

from smpc_dp.errors import LocalError, printable
from smpc_dp_lab.bench.figures import Peer

DRIVERS = {
    "emp_garbling": "emp-tool",
    "emp_ot": "emp-ot",
    "emp_sh2pc": "emp-sh2pc",
    "emp_circuit": "emp-sh2pc",
    "emp_ag2pc": "emp-ag2pc",
    "emp_ag2pc_dev": "emp-ag2pc-dev",
    "bulletproofs_plus": "tari_bulletproofs_plus",
    "bulletproofs": "bulletproofs",
}
DRIVER_SECONDS = 120


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure that a peer's compiled driver printed: unit, and value above 0."""

    unit: str
    value: Annotated[float, msgspec.Meta(gt=0)]


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON output of a peer's compiled driver: name, version, checksum and figures."""

    name: str
    version: str
    checksum: str
    figures: dict[str, _Value]


class DriverPeers:
    """The compiled drivers in a folder; without a folder no peer is measured.

    `versions` has the version of each package whose driver has been run, None for the others.
    """

    def __init__(self, folder: str | None, drivers: Sequence[str]) -> None:
        """Check the folder; raise LocalError if one of `drivers` is not in it or cannot be run."""
        self.versions: dict[str, str | None] = {DRIVERS[driver]: None for driver in drivers}
        self._programs: dict[str, Path] = {}
        if folder is not None:
            self._programs = {driver: Path(folder).resolve() / driver for driver in drivers}
        for driver, program in self._programs.items():
            if not (program.is_file() and os.access(program, os.X_OK)):
                raise LocalError(f"{folder}: no program '{driver}'; benchmarks/README.md says what it is")

    def trial(self, driver: str, *arguments: str | int) -> Trial:
        """Return a trial that runs `driver` with these arguments each time it is called."""
        return Trial(self, driver, [str(argument) for argument in arguments])

    def run(self, driver: str, arguments: Sequence[str]) -> _Answer | None:
        """Run a driver once, and return its output; None if no folder of drivers was given.

        Raises LocalError if the driver cannot be run, fails, takes more than 120 s or prints something else.
        """
        program = self._programs.get(driver)
        if program is None:
            return None
        name = " ".join([driver, *arguments])
        answer = _decode(name, _output(name, [str(program), *arguments]))
        if answer.name != DRIVERS[driver]:
            raise LocalError(f"{name}: measured '{printable(answer.name)}', not {DRIVERS[driver]}")
        self.versions[answer.name] = answer.version
        return answer


class Trial:
    """A driver with its arguments; each call runs it once and stores the output."""

    def __init__(self, peers: DriverPeers, driver: str, arguments: Sequence[str]) -> None:
        self._peers, self._driver, self._arguments = peers, driver, arguments
        self._answers: list[_Answer] = []

    def __call__(self) -> None:
        """Take one measurement. Raises LocalError as `DriverPeers.run` does."""
        answer = self._peers.run(self._driver, self._arguments)
        if answer is not None:
            self._answers.append(answer)

    def peer(
        self, figure: str, unit: str, how: str, scale: Callable[[float], float] = lambda value: value
    ) -> Peer | None:
        """Return the median of one figure, each value converted to our unit by `scale`; None if not measured.

        Args:
            unit: what the driver says its unit is.
            how: what distinguishes the peer's work from ours; it stands beside the peer's name.

        Raises LocalError if a driver gave no such figure, or in another unit.
        """
        values = []
        for answer in self._answers:
            result = answer.figures.get(figure)
            if result is None or result.unit != unit:
                name = " ".join([self._driver, *self._arguments])
                raise LocalError(f"{name}: gave no figure '{figure}' in {unit}")
            values.append(scale(result.value))
        if not values:
            return None
        return Peer(f"{self._answers[-1].name}, {how}", self._answers[-1].version, float(median(values)))


def _output(name: str, command: Sequence[str]) -> bytes:
    """Run a command and return its output; raise LocalError if it fails."""
    try:
        # A session of its own: a driver has a second process, and both are ended together.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise LocalError(f"{name}: cannot be run ({error.strerror})") from None
    try:
        output, errors = process.communicate(timeout=DRIVER_SECONDS)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise LocalError(f"{name}: no answer within {DRIVER_SECONDS} s") from None
        raise
    if process.returncode:
        printed = errors.decode(errors="replace").strip().splitlines() or ["no message"]
        raise LocalError(f"{name}: failed: {printable(printed[-1])}")
    return output


def _decode(name: str, output: bytes) -> _Answer:
    """Decode a driver's JSON output; raise LocalError if it is no measurement."""
    try:
        return msgspec.json.decode(output, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LocalError(f"{name}: printed no measurement ({printable(str(error))})") from None
