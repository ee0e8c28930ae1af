"""Requirements of a learner, stated before it runs, and the context that it is given for them.

A learner of another package imports what it needs from here and from `smpc_dp.errors`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import FAILURES, Averaged, Averager, PeerExchange, Rows
from smpc_dp.capabilities.learn.step_progress import NoProgress, StepProgress
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event, Gaussian
    from smpc_dp.privacy.sampling import NoiseSource

__all__ = [
    "FAILURES",
    "STEPS",
    "AverageEvidence",
    "Averaged",
    "Averager",
    "Learned",
    "Learner",
    "LearnerContext",
    "LocalModel",
    "PeerExchange",
    "PrivateAverages",
    "PrivateMessages",
    "PublicAverages",
    "Requirements",
    "Step",
    "Table",
]

# A step of the grid of averages is this fraction of the bound of a vector.
STEPS = 1 << 16
# A party's data: shape (points, columns).
Table = NDArray[np.float64]


def bound_issues(lower: float, upper: float) -> list[ConfigIssue]:
    """Return the faults of settings `lower` and `upper`, such as infinite or in the wrong order."""
    if math.isfinite(upper - lower) and lower < upper:
        return []
    return [ConfigIssue("upper", f"must be above lower and both finite: {lower}, {upper}", ConfigCheck.RANGE)]


@dataclass(frozen=True)
class PrivateAverages:
    """A learner's requirement: number, length, bound and privacy of averages of vectors on data.

    Attributes:
        length: coordinates of a vector.
        l2_bound: of the norm of a vector.
        sizes: of the groups that are averaged.
        participations: shape (n,): in how many averages each party is.
        epsilon, delta: for each party, all of its participations together; None: the averages are exact,
            without differential privacy.
        weights: the least and the greatest weight, where vectors have weights; they are as private as the
            vectors. None: all count alike.
    """

    length: int
    l2_bound: float
    sizes: frozenset[int]
    participations: NDArray[np.intp]
    epsilon: float | None
    delta: float | None
    weights: tuple[float, float] | None = None


@dataclass(frozen=True)
class PublicAverages:
    """A learner's requirement: exact averages of vectors that are public, or that it does not protect."""

    length: int
    bound: float
    sizes: frozenset[int]


@dataclass(frozen=True)
class PrivateMessages:
    """A learner's requirement: messages between parties that depend on data, locally private with `epsilon`.

    Attributes:
        length, l2_bound: of a vector.
        participations: shape (n,): how many vectors each party sends; one that goes to several parties is
            one.
        epsilon, delta: for each party, all of its vectors together; None where nothing is protected.
    """

    length: int
    l2_bound: float
    participations: NDArray[np.intp]
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Requirements:
    """All communication that a learner needs: averages and messages; None for kinds not needed.

    `own`: the guarantee of a party's messages in all steps together, where the learner adds the noise itself;
    `own_by_party`: of each party, where they differ. `metric`: averages of a metric, with a budget of their
    own beside that of `average`.
    """

    average: PrivateAverages | None = None
    mix: PublicAverages | None = None
    exchange: PrivateMessages | None = None
    own: Event | None = None
    own_by_party: tuple[Event, ...] = ()
    metric: PrivateAverages | None = None

    def own_of(self, party: int) -> Event | None:
        """Return the privacy event of all of a party's messages if the learner adds the noise, else None."""
        return self.own_by_party[party] if self.own_by_party else self.own


@dataclass(frozen=True)
class Step:
    """Report of a learner to its caller after a step: its number, metric and failures.

    Attributes:
        number: from 1. steps: how many there are.
        failures: why it failed; empty where it did not.
        absent: parties of the group that were missing in the average, where there are processes.
        metric: the average of the group's metrics after it; None where none was planned, or it failed.
    """

    number: int
    steps: int
    failures: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    metric: float | None = None

    def __str__(self) -> str:
        """Return the step as one line of text."""
        metric = "" if self.metric is None else f", metric {self.metric:.6g}"
        absent = f", without {', '.join(self.absent)}" if self.absent else ""
        failed = f", failed: {'; '.join(self.failures)}" if self.failures else ""
        return f"step {self.number} of {self.steps}{metric}{absent}{failed}"


OnStep = Callable[[Step], None]


def ignore_step(_step: Step) -> None:
    """Do nothing after a step: the default for callers that do not watch the learner."""


class LocalModel(Protocol):
    """Interface of the local parties' model and data for gradient descent: start, gradients, metric."""

    @property
    def start(self) -> NDArray[np.float64]:
        """The model that all parties begin with, shape (length,)."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model's coordinates, in their order."""
        ...

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """The weight of each local party; None if all count alike, or by their numbers of points."""
        ...

    async def gradient(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return the gradients of the local parties `rows` at their models, unclipped."""
        ...

    async def metric(self, models: Rows, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the metric of the models of these parties, each on the party's own rows."""
        ...


def run_event(claim: PrivacyGuarantee, known: Gaussian | None = None) -> Event:
    """Return the privacy event of a whole run, charged to a ledger once, before the first message.

    `known`: the run as a Gaussian mechanism for every observer; None: only the claim's epsilon and delta are
    known.
    """
    # Not at the top: scipy.
    from smpc_dp.privacy.accountant.events import Event, Pure

    return Event(claim.mechanism, claim.relation, (known or Pure(claim.epsilon, claim.delta),))


@dataclass(frozen=True)
class LearnerContext:
    """Means of communication handed to a learner's run: averagers, exchange, noise source, progress.

    `source` is the operating system's randomness, except in a simulation with a seed. `own`: the model of a
    caller who brings one. `on_step` is called after each step that a local party is in, at an aggregator
    after every step. `progress` keeps the steps of learners whose runs are saved.
    """

    average: Averager | None = None
    mix: Averager | None = None
    exchange: PeerExchange | None = None
    source: NoiseSource = field(default_factory=NoiseSource.system)
    metric: Averager | None = None
    own: LocalModel | None = None
    on_step: OnStep = ignore_step
    progress: StepProgress = field(default_factory=NoProgress)

    @property
    def peers(self) -> PeerExchange:
        """The object that exchanges messages between parties; raises ConfigError if there is none."""
        if self.exchange is None:
            raise ConfigError.at("exchange", "is needed to meet other parties", ConfigCheck.MISSING)
        return self.exchange


@dataclass(frozen=True)
class AverageEvidence:
    """Numbers of averages that parties took, and of those whose total they checked.

    `checked`: of how many they have checked the total, as `evidence.checked` of the result of a sum.
    """

    averages: int
    checked: int

    def to_json(self) -> dict[str, int]:
        """Return, as JSON data, the number of averages and how many of their totals were checked."""
        return {"averages": self.averages, "checked": self.checked}

    @classmethod
    def of_all(cls, given: Iterable[Self | None]) -> Self | None:
        """Return the sum of several parties' numbers; None if no party has any."""
        known = [one for one in given if one is not None]
        if not known:
            return None
        return cls(sum(one.averages for one in known), sum(one.checked for one in known))


@dataclass(frozen=True)
class Learned:
    """Result of a learner for the local parties: models, steps done, failures, and privacy.

    All of it is public, except for values that are `confidential`.

    Attributes:
        learner: its name.
        values: shape (rows, length): what each local party has learned.
        names: of the coordinates.
        steps: how many steps each party was to take part in, shape (rows,); done: in how many it did.
        failures: why the others failed, each text once.
        guarantee: of all steps together, for each party; None where nothing is protected.
        claim: the privacy of the steps, and against whom it holds, in words.
        confidential: the values are each party's own, and the guarantee does not hold against whoever sees
            them.
        metrics: the number of a step, from 1, and the average of its group's metrics after it.
        model: of a caller's own model what the first local party has learned, in the form of the one that it
            began with.
        graph: shape (rows, n): weights between each local party and all parties, where the graph was learned.
        evidence: of the local parties' averages in a session; None where there are none.
        resumed: whether an earlier process of this party began the run.
    """

    task = "learner"
    schema = "learned"
    learner: str
    values: Rows = field(repr=False)
    names: tuple[str, ...]
    steps: NDArray[np.intp]
    done: NDArray[np.intp]
    failures: tuple[str, ...] = ()
    guarantee: PrivacyGuarantee | None = None
    claim: str = ""
    confidential: bool = False
    metrics: tuple[tuple[int, float], ...] = ()
    model: Any = field(default=None, repr=False)
    graph: Rows | None = field(default=None, repr=False)
    evidence: AverageEvidence | None = None
    resumed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the learned models with their privacy and evidence as JSON data."""
        return {
            "learner": self.learner,
            "values": self.values.tolist(),
            "names": list(self.names),
            "steps": self.steps.tolist(),
            "done": self.done.tolist(),
            "failures": list(self.failures),
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
            "claim": self.claim,
            "confidential": self.confidential,
            "metrics": [{"step": step, "value": value} for step, value in self.metrics],
            "graph": None if self.graph is None else self.graph.tolist(),
            "evidence": None if self.evidence is None else self.evidence.to_json(),
            "resumed": self.resumed,
        }

    def __str__(self) -> str:
        """Return the result in at most six lines."""
        lines = [f"{self.learner}: {int(self.done.sum())} of {int(self.steps.sum())} steps"]
        if self.resumed:
            lines.append("resumed: with the steps of an earlier process")
        if self.metrics:
            step, value = self.metrics[-1]
            lines.append(f"metric after step {step}: {value:.6g}")
        if self.failures:
            lines.append(f"failed: {self.failures[0]}")
        if self.evidence is not None:
            lines += checked_lines([self.evidence.to_json()])
        guarantee = None if self.guarantee is None else self.guarantee.to_json()
        return "\n".join([*lines, privacy_text(guarantee, self.claim)])


def checked_lines(evidence: Iterable[Mapping[str, int] | None]) -> list[str]:
    """Return a line on how many totals of averages parties checked; no line if they checked none.

    `evidence`: of each party, as JSON data.
    """
    given = [one for one in evidence if one is not None]
    averages, checked = (sum(one[key] for one in given) for key in ("averages", "checked"))
    return [f"totals checked: {checked} of {averages} averages"] if checked else []


def privacy_text(guarantee: Mapping[str, Any] | None, claim: str) -> str:
    """Return a line on the privacy of what was learned, from the guarantee as JSON data."""
    if guarantee is None:
        return f"privacy: none; {claim}"
    unit = "party's data" if guarantee["protects"] == "party" else f"{guarantee['protects']} of a party"
    return (
        f"privacy: ({guarantee['epsilon']:g}, {guarantee['delta']:g})-differentially private for each "
        f"{unit}, all steps together; {guarantee['assumption']}"
    )


class Learner(Protocol):
    """Interface of a learner: its settings from `[parameters]` of a session file, and how it runs."""

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings in a network of this many parties."""
        ...

    def requirements(self, parties: int) -> Requirements:
        """Return all communication that the learner needs; it must not communicate in other ways."""
        ...

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        ...

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Learn from the local parties' tables, in order; return models, with a guarantee if it adds noise.

        It is also called at the aggregator, which has no local parties. Everywhere it makes the same calls
        with the same groups and partners, also after one that raised PeerFault or TimeoutFault: requests are
        counted so.
        """
        ...
