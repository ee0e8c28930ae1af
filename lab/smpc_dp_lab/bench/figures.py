"""The figures of a benchmark, and the runner that measures ours, the peer and the limit in turns.

A figure is not shown alone: beside it are the peer (another implementation) and the limit (the most that the
hardware can do), measured in the same run. A figure that was not measured is None, never a remembered number.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

from smpc_dp.crypto.garble import kernels
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue

Better = Literal["higher", "lower"]
Goal = Literal["ratio_to_peer", "ratio_to_limit"]


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a figure: its ratio to peer or limit (`of`) must be at least `at_least`."""

    of: Goal
    at_least: float


@dataclass(frozen=True, slots=True)
class Peer:
    """Another implementation and the median of its measurements, in the figure's unit."""

    name: str
    version: str
    median: float

    @classmethod
    def of(cls, name: str, version: str | None, values: Iterable[float]) -> Self | None:
        """Return the peer with the median of these measurements; None without a version or any of them."""
        taken = list(values)
        return cls(name, version, float(median(taken))) if version is not None and taken else None


@dataclass(frozen=True, slots=True)
class Limit:
    """The physical limit of a figure: the median of its measurements, in the figure's unit."""

    name: str
    median: float

    @classmethod
    def of(cls, name: str, values: Iterable[float]) -> Self:
        """Return a named limit whose value is the median of these measurements."""
        return cls(name, float(median(values)))


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity: name, unit, values of all runs, and its peer, limit and target.

    Attributes:
        values: one measurement a run, at least one.
        better: whether higher or lower values are better.
        note: what was measured, what bounds it, and what is an estimate.
    """

    name: str
    unit: str
    values: Sequence[float]
    better: Better
    note: str
    peer: Peer | None = None
    limit: Limit | None = None
    target: Target | None = None

    @property
    def median(self) -> float:
        """The median of the values of all runs."""
        return float(median(self.values))

    @property
    def ratio_to_peer(self) -> float | None:
        """How many times as good as the peer the figure is (above 1: better); None without a peer."""
        return None if self.peer is None else self._ratio(self.peer.median)

    @property
    def ratio_to_limit(self) -> float | None:
        """Which part of the limit the figure reaches, 1 is all of it; None without a limit."""
        return None if self.limit is None else self._ratio(self.limit.median)

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target or where its ratio could not be measured."""
        if self.target is None:
            return None
        ratio = self.ratio_to_peer if self.target.of == "ratio_to_peer" else self.ratio_to_limit
        return None if ratio is None else ratio >= self.target.at_least

    def _ratio(self, other: float) -> float | None:
        """Return how many times as good as another median the figure's is; None if it is 0."""
        above, below = (self.median, other) if self.better == "higher" else (other, self.median)
        return above / below if below else None

    def to_json(self) -> dict[str, object]:
        """Return the figure as JSON data: name, unit, median, peer, limit, ratios and target."""
        return {
            "name": self.name,
            "unit": self.unit,
            "better": self.better,
            "runs": len(self.values),
            "min": min(self.values),
            "median": self.median,
            "max": max(self.values),
            "peer": self.peer
            and {"name": self.peer.name, "version": self.peer.version, "median": self.peer.median},
            "limit": self.limit and {"name": self.limit.name, "median": self.limit.median},
            "ratio_to_peer": self.ratio_to_peer,
            "ratio_to_limit": self.ratio_to_limit,
            "target": self.target and {"of": self.target.of, "at_least": self.target.at_least},
            "met": self.met,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of one benchmark, with its environment, versions and parameters.

    Attributes:
        commit: of the measured code, "+changes" behind it where the code differs from the commit; None if
            it is unknown.
        others: processor time of other programs while this one measured, as a part of what all cores could
            give; None if it is unknown.
    """

    bench: str
    figures: Sequence[Figure]
    versions: Mapping[str, str | None]
    parameters: Mapping[str, object] = field(default_factory=dict)
    commit: str | None = None
    others: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return plain JSON data: the documented shape of `smpc-dp bench --json`."""
        return {
            "bench": self.bench,
            "commit": self.commit,
            "machine": machine(),
            "others": self.others,
            "versions": dict(self.versions),
            "parameters": dict(self.parameters),
            "figures": [figure.to_json() for figure in self.figures],
        }


def cost(name: str, unit: str, values: Iterable[float], note: str, **beside: Any) -> Figure:
    """Return a figure where lower is better; `beside` has its peer, limit and target."""
    return Figure(name, unit, [float(value) for value in values], "lower", note, **beside)


def rate(name: str, unit: str, values: Iterable[float], note: str, **beside: Any) -> Figure:
    """Return a figure where higher is better; `beside` has its peer, limit and target."""
    return Figure(name, unit, [float(value) for value in values], "higher", note, **beside)


def versions(*packages: str, **others: str | None) -> dict[str, str | None]:
    """Return versions by package: smpc-dp, Python, these packages (None if absent), and `others`."""
    known = {package: version(package) for package in packages}
    return {"smpc-dp": version("smpc-dp"), "python": platform.python_version(), **known, **others}


# Takes one measurement and returns it; None when there is nothing to measure.
Measure = Callable[[], float | None]
# What is measured, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


class Steps:
    """Callable that counts finished measurements, and reports each to a progress display if there is one."""

    def __init__(self, progress: Progress | None, name: str, whole: int) -> None:
        self._progress, self._name, self._whole, self._done = progress, name, whole, 0

    def __call__(self) -> None:
        """Report that one more measurement is done."""
        self._done += 1
        if self._progress is not None:
            self._progress(self._name, self._done, self._whole)


def within(name: str, value: int, least: int, most: int | None = None) -> list[ConfigIssue]:
    """Return a list with the fault of a number below `least` or above `most`; [] if it is in range."""
    if value >= least and (most is None or value <= most):
        return []
    bound = f"at least {least}" if most is None else f"{least:,} to {most:,}"
    return [ConfigIssue(name, f"must be {bound}, is {value}", ConfigCheck.RANGE)]


def budgets(epsilons: Sequence[float]) -> list[ConfigIssue]:
    """Return the faults of privacy parameters that are not above 0 and at most 100."""
    reason = "must be above 0 and at most 100, is"
    # Written so that NaN fails.
    return [ConfigIssue("epsilon", f"{reason} {e}", ConfigCheck.RANGE) for e in epsilons if not 0 < e <= 100]


def refuse(*issues: Sequence[ConfigIssue]) -> None:
    """Raise one ConfigError with all these faults; do nothing if there are none."""
    result = [issue for some in issues for issue in some]
    if result:
        raise ConfigError(result)


def alternate(
    runs: int, measures: Mapping[str, Measure], progress: Callable[[], None] | None = None
) -> dict[str, list[float]]:
    """Take `runs` rounds of all measurements in turns; return the values of each, by name.

    What disturbs the machine for a while then disturbs all of them alike.
    """
    names = list(measures)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for run in range(runs):
        shift = run % len(names)
        for name in names[shift:] + names[:shift]:
            value = measures[name]()
            if value is not None:
                taken[name].append(value)
        if progress is not None:
            progress()
    return taken


def machine() -> dict[str, object]:
    """Return the conditions of figures: processor, kernels in use, cores that may be used, memory, system."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "kernels": kernels()[-1],
        "openssl": os.environ.get("OPENSSL_ia32cap"),  # noqa: SIM112 (OpenSSL's name)
        "architecture": platform.machine(),
        "cores": usable,
        "memory_bytes": pages,
        "system": f"{platform.system()} {platform.release()}",
    }


def _processor() -> str:
    """Return the name of this machine's processor, as the system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def shown(value: float, unit: str) -> str:
    """Return a value with its unit as text, to three significant digits and with a prefix."""
    if unit == "B" or unit.endswith("/s"):
        for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if value >= size:
                joint = "" if unit in ("B", "B/s") else " "
                return f"{value / size:.3g} {prefix}{joint}{unit}"
    if unit == "s" and value < 1:
        return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"
    return f"{value:.3g} {unit}"
