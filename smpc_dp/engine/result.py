"""The one result type: a value with its privacy and its evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from smpc_dp.encoding import Encoding
from smpc_dp.engine.signed_result import SignedResult
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.fixed_point import GridTotal
from smpc_dp.privacy.accountant.receipt import Receipt, SpentBudget
from smpc_dp.privacy.guarantee import PrivacyGuarantee, Unit
from smpc_dp.privacy.named_sentences import NO_SENTENCES, NamedSentences
from smpc_dp.summary import SHOWN_VALUES, spent_text, value_text
from smpc_dp.when_read import WhenRead, compute_when_read, unread

if TYPE_CHECKING:
    from smpc_dp.engine.weighted_encoding import WeightedEncoding
    from smpc_dp.logs.receipt import LogReceipt
    from smpc_dp.privacy.noise_bounds import Part
    from smpc_dp.trees import Leaf, Tree


@dataclass(frozen=True, slots=True)
class Privacy:
    """The privacy statement of a release for readers: guarantee, assumptions, and what is not protected.

    `epsilon` and `delta` are None for an exact release: it has no differential privacy. `guarantee` has all
    values that they depend on, `receipt` the cost to this party's ledger, where there is one.
    """

    epsilon: float | None
    delta: float | None
    claim: str
    assumptions: tuple[str, ...]
    not_protected: tuple[str, ...]
    guarantee: PrivacyGuarantee | None = None
    receipt: Receipt | None = None
    budget: SpentBudget | None = None

    @property
    def unit(self) -> Unit | None:
        """The unit that epsilon and delta protect; None for an exact release."""
        return None if self.guarantee is None else self.guarantee.protects

    def to_json(self) -> dict[str, object]:
        """Return the privacy statement (guarantee, assumptions, limits) as JSON data."""
        return {
            "unit": self.unit,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "claim": self.claim,
            "assumptions": list(self.assumptions),
            "not_protected": list(self.not_protected),
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
            "receipt": None if self.receipt is None else self.receipt.to_json(),
            "budget": None if self.budget is None else self.budget.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Privacy of a release as named sentences, from which claims of other protocols are composed.

    Raises LocalError without a clause, and where the last one ends with a colon.

    Attributes:
        clauses: of the claim.
        premises: what it assumes, and limits: what is not protected, both besides the sentences of the
            guarantee.
        guarantee: None for an exact release.
    """

    clauses: NamedSentences
    premises: NamedSentences = NO_SENTENCES
    limits: NamedSentences = NO_SENTENCES
    guarantee: PrivacyGuarantee | None = None

    def __post_init__(self) -> None:
        # A colon says that the next clause belongs to it.
        if not self.clauses.items or self.clauses.sentences[-1].endswith(":"):
            raise LocalError("a claim needs a clause, and its last one does not end with a colon")

    def privacy(self) -> Privacy:
        """Return the claim as a statement for readers, with the guarantee's assumption and warnings first.

        A blank follows a clause that ends with a colon, a semicolon any other.
        """
        clauses = [one + (" " if one.endswith(":") else "; ") for one in self.clauses.sentences]
        claim = "".join(clauses).removesuffix("; ")
        stated, premises, limits = self.guarantee, self.premises.sentences, self.limits.sentences
        if stated is None:
            return Privacy(None, None, claim, premises, limits)
        assumptions, not_protected = (stated.assumption, *premises), (*stated.warnings, *limits)
        return Privacy(stated.epsilon, stated.delta, claim, assumptions, not_protected, stated)


# Of an interval that is shown.
LEVEL = 0.95
WHOLE_PARTY = (
    "substitution of the whole vector: the whole party is protected as one, and not each record or person "
    "that its data are about"
)


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise in a sum, as standard deviations of each coordinate in the caller's unit.

    Attributes:
        total: of all noise in it: each survivor's own, and `residual_pairs` terms that do not cancel.
        curator: of the noise that a trusted curator would have added to the sum over the honest parties, at
            the same epsilon and delta.
        honest: the number of those parties.
        bias: the most by which corrupt parties can move each coordinate, up or down, by selecting the
            remaining noise, in expectation. None where they may add any value.
    """

    total: float
    curator: float
    honest: int
    residual_pairs: int
    bias: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval for each coordinate of a result: lower and upper bounds, level, what it covers.

    With probability `level` at least, over the noise alone, a coordinate of what `covers` names is within
    [lower, upper]: each coordinate by itself, not all of them together.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    level: float
    covers: str


@dataclass(frozen=True, slots=True)
class Sample:
    """Evidence that many parties signed a set, of which only a random sample of signatures is shown.

    `root` is of the Merkle tree over all their signatures, and determines the sample; `proof` shows that the
    tree has the signatures of the sample.
    """

    signers: tuple[str, ...]
    root: bytes
    proof: bytes

    def to_json(self) -> dict[str, object]:
        """Return the evidence of a sample of signatures as JSON data, bytes as hex."""
        return {"signers": list(self.signers), "root": self.root.hex(), "proof": self.proof.hex()}


@dataclass(frozen=True, slots=True)
class Certificate:
    """Evidence that parties signed a set of parties: its 32-byte digest, and signatures by party name.

    They are a quorum's, or with `sample` those of a sample of its signers.
    """

    set_digest: bytes
    signatures: Mapping[str, bytes]
    sample: Sample | None = None

    def to_json(self) -> dict[str, object]:
        """Return the certificate (digest and signatures by party) as JSON data, bytes as hex."""
        return {
            "set_digest": self.set_digest.hex(),
            "signatures": {name: signature.hex() for name, signature in self.signatures.items()},
            "sample": None if self.sample is None else self.sample.to_json(),
        }


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """The place of a result's run in the session's public logs, by which an auditor finds the run.

    Attributes:
        number: of its line in the session log.
        session_head: of the session log after that line; head: the last one of the run's own log. Either
            selects the run in an audit (`--head`).
    """

    number: int
    session_head: bytes
    head: bytes

    def to_json(self) -> dict[str, object]:
        """Return the place of the run in the public logs as JSON data, bytes as hex."""
        return {"number": self.number, "session_head": self.session_head.hex(), "head": self.head.hex()}


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """Evidence of a party's own entry in a public log: author, number, and hash in the chain."""

    party: str
    index: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hashes, signatures and certificates that bind a result to its run, for later checks.

    `participating` are the parties of the certified set of participants, in roster order; `merkle_commitment`
    is the digest of the Merkle commitment, which the participants' digest binds beside that set. `survivors`
    is None where nothing secret depends on the set of survivors, `log` where no log is kept. `checked`:
    whether this member has checked the total: against commitments to all vectors, by a certificate of more
    parties that did than may be corrupt, or as the sum of the publications under the certified head; None
    where that is impossible. `entry`: its own publication in the log, for its receipt. `signed_result`: the
    message with the total; None where no aggregator signs one for this member alone.
    """

    protocol: str
    version: int
    session_digest: bytes
    run_id: bytes
    merkle_commitment: bytes
    participating: tuple[str, ...]
    participants: Certificate
    survivors: Certificate | None
    log: LoggedRun | None = None
    checked: bool | None = None
    entry: LoggedEntry | None = None
    signed_result: SignedResult | None = None

    def to_json(self) -> dict[str, object]:
        """Return the hashes and signatures that bind a result to its run as JSON data, bytes as hex."""
        return {
            "protocol": self.protocol,
            "version": self.version,
            "session_digest": self.session_digest.hex(),
            "run_id": self.run_id.hex(),
            "roll": self.merkle_commitment.hex(),
            "participating": list(self.participating),
            "participants": self.participants.to_json(),
            "survivors": None if self.survivors is None else self.survivors.to_json(),
            "log": None if self.log is None else self.log.to_json(),
            "checked": self.checked,
            "signed_result": None if self.signed_result is None else self.signed_result.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a role's run: the sum on the integer grid with its weight, survivors, claim and evidence.

    `total` may be given as a `GridTotal`, which is decoded where it is first read.
    """

    total: NDArray[np.int64]
    weight: int
    encoding: Encoding
    survivors: tuple[str, ...]
    absent: tuple[str, ...]
    faults: tuple[str, ...]
    privacy: Privacy
    evidence: Evidence
    noise: Noise | None = None

    @property
    def grid(self) -> GridTotal:
        """The sum on the integer grid, in a form that is decoded in parts."""
        given = unread(self, "total")
        return given if isinstance(given, GridTotal) else GridTotal.of(given)


compute_when_read(Outcome, "total")

_HONEST_NOISE = (
    "if every survivor drew its noise as the protocol says; not what a corrupt party adds, nor how far the "
    "survivors stand for others"
)


def privacy_line(privacy: Privacy) -> str:
    """Return one line with epsilon, delta and whom they protect, or that a release is exact."""
    if privacy.epsilon is None:
        return "privacy: exact, no differential privacy"
    unit = "honest party" if privacy.unit in (None, "party") else privacy.unit
    return f"privacy: epsilon {privacy.epsilon:g}, delta {privacy.delta:g} of each {unit}"


def _check_level(level: float) -> None:
    """Raise ConfigError unless a confidence level lies between 0 and 1."""
    if not 0 < level < 1:
        raise ConfigError.at("level", f"must be between 0 and 1, is {level}", ConfigCheck.RANGE)


def noise_reach(distributions: tuple[Part, ...], deviation: float, step: float, level: float) -> float:
    """Return the half-width of an interval that holds a sum's noise with probability `level` at least.

    From its distributions in grid steps, else from its standard deviation alone.
    """
    # Not at the top: most results are read without an interval.
    from smpc_dp.privacy.noise_bounds import half_width, half_width_of_any

    return half_width(distributions, level) * step if distributions else half_width_of_any(deviation, level)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a request for a caller: a sum or an average over the survivors, with privacy and evidence.

    Attributes:
        value: shape (length,), in the caller's unit; float64, or int64 for a sum of integers.
        kind: "sum" or "average".
        fixed_point: the exact sum on the grid, int64, shape (length,); value times 1/step.
        step: distance between grid points.
        weight: the sum of the survivors' weights, or their number without weights.
        survivors: whose input is in the value; absent: whose is not.
        noise: the noise in the sum; None for an exact release.
        distributions: of the noise's independent terms in each coordinate, in grid steps, with the number of
            each; empty where its standard deviation alone is known, or there is none.
        noisy_weight: whether the weight has noise too; `weighted`: the encoding of vectors with private
            weights, whose `fixed_point` has one number more (`WeightedEncoding`).
        tree: the average of trees, like the caller's own; None for vectors. leaves: its arrays, in the order
            of `value`, with the step and the bytes of each.
        clipped: how many of the caller's own values were clipped to the bounds (0 unless asked for).
        faults: what went wrong on the way without spoiling the result; each names a party.
        resumed: whether an earlier process of this party began the request: its vector counts, also if this
            call has another one.
    """

    # Names of the task in `smpc_dp.session.tasks`, and of the schema in `smpc_dp.console.schemas`: no fields.
    task = "vector"
    schema = "average"
    value: NDArray[np.float64] | NDArray[np.int64]
    kind: str
    fixed_point: NDArray[np.int64]
    step: float
    weight: int
    survivors: tuple[str, ...]
    absent: tuple[str, ...]
    privacy: Privacy
    evidence: Evidence
    clipped: int = 0
    faults: tuple[str, ...] = field(default=())
    noise: Noise | None = None
    distributions: tuple[Part, ...] = ()
    noisy_weight: bool = False
    weighted: WeightedEncoding | None = None
    tree: Any = None
    leaves: tuple[Leaf, ...] = ()
    resumed: bool = False

    @property
    def standard_error(self) -> float:
        """Standard deviation of the noise in each coordinate of `value`; 0 for an exact release.

        With private weights the greatest of all coordinates, to first order.
        """
        if self.noise is None:
            return 0.0
        if self.weighted is not None:
            return self.weighted.error(self.fixed_point, len(self.survivors), self.noise.total)
        return self.noise.total / (self.weight if self.kind == "average" else 1)

    @property
    def curator_standard_error(self) -> float:
        """Standard error of a trusted curator over the honest parties; 0 if exact."""
        if self.noise is None:
            return 0.0
        if self.weighted is not None:
            return self.weighted.error(self.fixed_point, len(self.survivors), self.noise.curator)
        return self.noise.curator / (self.noise.honest if self.kind == "average" else 1)

    @property
    def bias(self) -> float | None:
        """The most by which corrupt parties can move a coordinate; None without a bound, or if exact."""
        if self.noise is None or self.noise.bias is None:
            return None
        return self.noise.bias / (self.weight if self.kind == "average" else 1)

    def interval(self, level: float = 0.95) -> Interval:
        """Return a confidence interval for each coordinate of `value`, from the distribution of the noise.

        Where only the standard deviation is known it is Chebyshev's, and wide. With private weights it is
        Fieller's, of normal noise, within the bounds. Raises ConfigError for a level that is not between 0
        and 1, and for an average on shares whose weight has noise too.
        """
        if self.weighted is not None and self.noise is not None:
            _check_level(level)
            low, high = self.weighted.interval(self.fixed_point, len(self.survivors), self.noise.total, level)
            covers = f"the weighted average of the survivors' vectors, {_HONEST_NOISE}"
            return Interval(low, high, level, covers)
        reach = self._reach(level)
        value = self.value.astype(np.float64)
        covers = f"the {self.kind} of the survivors' vectors, rounded to the grid"
        if self.noise is None:
            covers += ": there is no noise"
        else:
            covers += f", {_HONEST_NOISE}"
        return Interval(value - reach, value + reach, level, covers)

    def _reach(self, level: float) -> float:
        """Return the interval's half-width at this level; 0 if exact, ConfigError if weights have noise."""
        _check_level(level)
        if self.noise is None:
            return 0.0
        if self.noisy_weight and self.kind == "average":
            reason = "the weight has noise too: the distribution of the quotient is not known"
            raise ConfigError.at("interval", reason, ConfigCheck.UNSUPPORTED)
        width = noise_reach(self.distributions, self.noise.total, self.step, level)
        return width / (self.weight if self.kind == "average" else 1)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks: text lines, a picture with intervals, privacy and evidence.

        It says nothing that is the caller's own, since notebooks are passed on.
        """
        # Not at the top: most results are shown by no notebook.
        from smpc_dp.report.chart import MOST_INTERVALS
        from smpc_dp.report.notebook import result_html
        from smpc_dp.report.sections import vector_section

        shown = {
            "kind": self.kind,
            "value": self.value[:MOST_INTERVALS].tolist(),
            "standard_error": self.standard_error,
            "step": self.step,
            "weight": self.weight,
            "survivors": self.survivors,
            "residual_pairs": 0 if self.noise is None else self.noise.residual_pairs,
            "bias": self.bias,
        }
        known = self.noise is not None and self.weighted is None and not self.noisy_weight
        own = vector_section(shown, (self._reach(LEVEL), LEVEL) if known else None)
        lines = replace(self, clipped=0, resumed=False)._lines()
        if self.value.size > MOST_INTERVALS:
            lines.append(f"below: the first {MOST_INTERVALS} of {self.value.size:,} values")
        return result_html(lines, own, self.privacy.to_json(), self.evidence.to_json())

    def _lines(self) -> list[str]:
        """Return the result as at most five lines of text."""
        survivors, absent = len(self.survivors), len(self.absent)
        values = self.value[:SHOWN_VALUES].tolist()
        shown = value_text(
            values, self.value.size, self.kind, self.standard_error, self.step / (self.weight or 1)
        )
        lines = [f"{self.kind} over {survivors} of {survivors + absent} parties: {shown}"]
        missing = f"without: {', '.join(self.absent)}" if absent else "nobody was missing"
        missing += "; resumed: with the vector of an earlier process" if self.resumed else ""
        faults = f"; faults: {len(self.faults)}" if self.faults else ""
        clipped = f"; {self.clipped} values of this party were clipped" if self.clipped else ""
        lines.append(missing + faults + clipped)
        privacy = self.privacy
        if self.weighted is not None:
            lines.append(f"noise: standard error {self.standard_error:.2g} at most; the weight has noise too")
        elif self.noise is not None and not self.noisy_weight:
            lines.append(f"noise: ±{self._reach(LEVEL):.2g} in each coordinate, with probability 95 %")
        lines.append(privacy_line(privacy))
        if privacy.receipt is not None:
            lines.append(spent_text(privacy.receipt.to_json()))
        return lines

    @property
    def receipt(self) -> LogReceipt | None:
        """The party's receipt, with which an audit finds its entry in the log; None if the run has no log."""
        log, entry, signed = self.evidence.log, self.evidence.entry, self.evidence.survivors
        if log is None or entry is None or signed is None:
            return None
        # Not at the top: only a verifiable run has a log.
        from smpc_dp.logs.receipt import LogReceipt

        return LogReceipt(
            session=self.evidence.session_digest.hex(),
            run_id=self.evidence.run_id.hex(),
            party=entry.party,
            index=entry.index,
            entry=entry.digest.hex(),
            head=log.head.hex(),
            attested=signed.set_digest.hex(),
            signatures={name: signature.hex() for name, signature in signed.signatures.items()},
        )

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        kind: str,
        clipped: int = 0,
        receipt: Receipt | None = None,
        distributions: Callable[[int, int], tuple[Part, ...]] | None = None,
        tree: Tree | None = None,
        *,
        resumed: bool = False,
    ) -> Result:
        """Return the "sum" or "average" that a run's outcome gives; an average needs a positive weight.

        `value` and `fixed_point` are computed where they are first read. `distributions`: of the noise, as
        `SumParameters.noise_distributions` gives them. `tree`: whose average is the result's tree. `resumed`:
        as the attribute.
        """
        noise = outcome.noise
        encoding = outcome.encoding
        weight, weighted = outcome.weight, None
        # Not at the top: it imports parameters, which import this module.
        from smpc_dp.engine.weighted_encoding import WeightedEncoding

        if isinstance(encoding, WeightedEncoding):
            weighted, weight = encoding, encoding.total_weight(outcome.total, len(outcome.survivors))
        # Each field gets an array of its own: a caller may change one before the other is read.
        grid = outcome.grid
        value, restored = WhenRead(lambda: encoding.real(grid[:])), None
        if kind == "average":
            averages = encoding.averages(grid, outcome.weight, noisy=noise is not None)
            value = WhenRead(lambda: averages[:])
            restored = None if tree is None else tree.restore(averages, exact=noise is None)
        elif encoding.integer:
            value = WhenRead(lambda: grid[:])
        return cls(
            value=cast("Any", value),
            kind=kind,
            fixed_point=cast("Any", WhenRead(lambda: grid[:])),
            step=encoding.step,
            weight=weight,
            weighted=weighted,
            survivors=outcome.survivors,
            absent=outcome.absent,
            privacy=replace(outcome.privacy, receipt=receipt),
            evidence=outcome.evidence,
            clipped=clipped,
            faults=outcome.faults,
            noise=noise,
            distributions=()
            if noise is None or distributions is None
            else distributions(len(outcome.survivors), noise.residual_pairs),
            # Sums on shares alone have noise and weights.
            noisy_weight=weighted is None and noise is not None and encoding.max_weight > 0,
            tree=restored,
            leaves=() if tree is None else tree.leaves,
            resumed=resumed,
        )

    def to_json(self) -> dict[str, object]:
        """Return plain JSON data: the documented shape of `--json` outputs of runs."""
        return {
            "kind": self.kind,
            "value": self.value.tolist(),
            "fixed_point": self.fixed_point.tolist(),
            "step": self.step,
            "weight": self.weight,
            "survivors": list(self.survivors),
            "absent": list(self.absent),
            "clipped": self.clipped,
            "resumed": self.resumed,
            "faults": list(self.faults),
            "standard_error": self.standard_error,
            "curator_standard_error": self.curator_standard_error,
            "bias": self.bias,
            "residual_pairs": 0 if self.noise is None else self.noise.residual_pairs,
            "privacy": self.privacy.to_json(),
            "evidence": self.evidence.to_json(),
            "receipt": None if self.receipt is None else self.receipt.to_json(),
        }


compute_when_read(Result, "value", "fixed_point")
