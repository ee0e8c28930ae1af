"""Result of a pairwise statistic: estimate, error, and its privacy claim."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from smpc_dp.capabilities.pairs.active.claims import COMPUTATIONAL, STATISTICAL_BITS
from smpc_dp.capabilities.pairs.ustatistic.estimate import Estimate
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.engine.result import Claim, LoggedRun, Privacy, privacy_line
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.privacy.guarantee import PrivacyGuarantee, Relation, delta_warnings
from smpc_dp.privacy.named_sentences import NamedSentences

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

RELATION: Relation = "substitution"


@dataclass(frozen=True, slots=True)
class StatisticEvidence:
    """Hashes that bind a pairwise statistic's result to its session, run, plan and log.

    `beacon` is the seed of the matchings, `log` identifies the logged run and its last head; None where
    servers compute.
    """

    session_digest: bytes
    run_id: bytes
    plan: bytes
    beacon: bytes
    log: LoggedRun | None

    def to_json(self) -> dict[str, object]:
        """Return the evidence of a pairwise statistic as plain JSON data, bytes as hex."""
        plain: dict[str, object] = {
            name: getattr(self, name).hex() for name in ("session_digest", "run_id", "plan", "beacon")
        }
        return plain | {"log": None if self.log is None else self.log.to_json()}


@dataclass(frozen=True, slots=True)
class StatisticResult:
    """Result of a pairwise statistic: the estimated mean, its errors, who took part, and its privacy.

    Attributes:
        kernel: its name; value: the estimate, in its unit; standard_error, interval, level, noise_error,
            pairs, failed: see `Estimate`.
        parties: how many took part; partners: P, evaluations of each at most.
        survivors, absent: the parties that took part and the others, where the aggregator reports them;
            faults: the errors of failed pairs.
        evidence: None in a simulation.
        positives, auc: number of records of label 1, and the AUC, where servers computed them from private
            labels; both noisy.
        resumed: whether an earlier process of this party began the request: the record that it was given
            counts, and of pairs that it had to evaluate only those that had ended.
    """

    task = "pairs"
    schema = "pairwise"
    kernel: str
    value: float
    standard_error: float | None
    interval: tuple[float, float] | None
    level: float
    noise_error: float
    pairs: int
    failed: int
    parties: int
    partners: int
    privacy: Privacy
    evidence: StatisticEvidence | None = None
    survivors: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    positives: float | None = None
    auc: float | None = None
    resumed: bool = False

    def __str__(self) -> str:
        """Say the estimate and its error in one line."""
        error = "" if self.standard_error is None else f" +- {self.standard_error:.4g}"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.kernel}: {self.value:.6g}{error} ({self.pairs} pairs{failed})"

    def _repr_html_(self) -> str:
        """Return the estimate with its interval, privacy and evidence as HTML for notebooks."""
        # Not at the top: most results are shown by no notebook.
        from smpc_dp.report.notebook import result_html
        from smpc_dp.report.sections import pairs_section

        shown, privacy = self.to_json(), self.privacy
        evidence = None if self.evidence is None else self.evidence.to_json()
        lines = [str(self), f"over {self.parties} parties", privacy_line(privacy)]
        return result_html(lines, pairs_section(shown), privacy.to_json(), evidence)

    def z_test(self, hypothesis: float) -> tuple[float, float]:
        """Return (z, two-sided p-value) for the mean `hypothesis`; ConfigError without a standard error.

        With the standard error, which covers the noise, and the normal distribution. Raises ConfigError
        without one.
        """
        if self.standard_error is None:
            raise ConfigError.at("pairs", f"{self.pairs} are too few for a standard error", ConfigCheck.RANGE)
        z = (self.value - hypothesis) / self.standard_error
        return z, math.erfc(abs(z) / math.sqrt(2))

    def charged(self, receipt: Receipt | None) -> StatisticResult:
        """Return a copy of the result that includes the receipt of the party's privacy ledger."""
        return replace(self, privacy=replace(self.privacy, receipt=receipt))

    def to_json(self) -> dict[str, object]:
        """Return the estimate with its error, privacy and evidence as JSON data."""
        plain = ("kernel", "value", "standard_error", "level", "noise_error", "pairs", "failed")
        return {
            **{name: getattr(self, name) for name in (*plain, "parties", "partners")},
            "survivors": list(self.survivors),
            "absent": list(self.absent),
            "faults": list(self.faults),
            "interval": None if self.interval is None else list(self.interval),
            "privacy": self.privacy.to_json(),
            "evidence": None if self.evidence is None else self.evidence.to_json(),
            "positives": self.positives,
            "auc": self.auc,
            "resumed": self.resumed,
        }


def event_of(plan: StatisticPlan) -> Event:
    """Return the privacy event that a party's ledger charges: all evaluations of its record."""
    # Not at the top: loading the accountant takes a while.
    from smpc_dp.privacy.accountant.events import Event, Pure

    return Event(_mechanism(plan)[:200], RELATION, (Pure(plan.epsilon, _delta(plan)),))


def result_of(
    plan: StatisticPlan,
    result: Estimate,
    parties: int,
    how: str,
    evidence: StatisticEvidence | None = None,
) -> StatisticResult:
    """Return the user's result of an estimate; `how` is "protocol", or the fidelity of a simulation."""
    return StatisticResult(
        kernel=str(plan.terms["kernel"]),
        value=result.value,
        standard_error=result.standard_error,
        interval=result.interval,
        level=result.level,
        noise_error=result.noise_error,
        pairs=result.pairs,
        failed=result.failed,
        parties=parties,
        partners=plan.partners,
        privacy=privacy_of(plan, parties, how),
        evidence=evidence,
    )


def privacy_of(plan: StatisticPlan, parties: int, how: str) -> Privacy:
    """Return the privacy claim of a pairwise statistic: guarantee, adversary, assumptions and limits."""
    guarantee = PrivacyGuarantee(
        epsilon=plan.epsilon,
        delta=_delta(plan),
        relation=RELATION,
        sensitivity={"linf": float(plan.noise.steps)},
        unit="grid step of the kernel",
        mechanism=_mechanism(plan),
        assumption=(
            "against the aggregator and all other parties together, as far as the two-party computation "
            f"shows them nothing else: they are computationally bounded{_garblers(plan)}"
        ),
        proof="docs/proofs/statistics.md: from the coins of the circuit as they are; epsilon adds up over "
        "P pairs",
        warnings=delta_warnings(_delta(plan), parties),
    )
    return Claim(
        guarantee=guarantee,
        clauses=NamedSentences.of(
            pair=_pair(plan),
        ),
        premises=NamedSentences.of(
            garbler=None
            if plan.malicious
            else "who garbles garbles the agreed circuit and draws its random bits at random; then "
            "neither of the two knows or controls the noise",
            computational=COMPUTATIONAL
            if plan.malicious
            else "AES-128 is an ideal cipher, and computational Diffie-Hellman is hard in ristretto255",
        ),
        limits=NamedSentences.of(
            garbler=None if plan.malicious else _malicious_garbler(plan.covert),
            abort=_abort(plan) if plan.malicious else None,
            estimate="the estimate itself: any party may give a wrong record or leave, and shift it",
            draw="the draw of pairs: the aggregator can give up two draws and take the third, so what it "
            "would like is at most three times as likely as by chance, in each request and each start; it "
            "says who else takes part, too" + (", with which label" if plan.bipartite else ""),
            traffic="when messages of pairs come and how long they are: the network sees it, and of relayed "
            "pairs the aggregator; lengths depend on the circuit alone",
            visible="who takes part, who is paired with whom and which pairs failed are public"
            + (", and so are the labels" if plan.bipartite else ""),
            simulation=simulation(how),
        ),
    ).privacy()


def _delta(plan: StatisticPlan) -> float:
    """Return the delta of a party's record: the noise's, plus the chance that a cheat goes unnoticed.

    The sum is rounded up.
    """
    if not plan.statistical:
        return plan.delta
    return math.nextafter(plan.delta + plan.statistical, math.inf) if plan.delta else plan.statistical


def simulation(how: str) -> str | None:
    """Return the limit that a simulated result has, as a sentence; None for the real protocol."""
    return None if how == "protocol" else f"a simulation ('{how}'): all records were in one process"


def _pair(plan: StatisticPlan) -> str:
    """Return the sentence of a privacy claim that says against whom each pair's evaluation is secure."""
    if plan.malicious:
        return (
            "each pair: secure with abort against a malicious garbler or a malicious evaluator, each with or "
            f"without the aggregator; a cheat in it passes with probability 2^-{STATISTICAL_BITS} at most"
        )
    garbler = "covert" if plan.covert else "semi-honest"
    return (
        f"each pair: secure against a malicious evaluator and against a {garbler} garbler, each with or "
        "without the aggregator"
    )


def _abort(plan: StatisticPlan) -> str:
    """Return the sentence of a privacy claim on failed pairs: nobody is named, and each costs epsilon."""
    return (
        "a cheat that is noticed ends its pair and names nobody: a party can end its pairs as often as it "
        f"likes. Each of the {plan.partners} evaluations of a party counts, failed or not, with its epsilon "
        f"and a delta of 2^-{STATISTICAL_BITS}"
    )


def _garblers(plan: StatisticPlan) -> str:
    """Return the words on how garblers are assumed to behave; empty for malicious security."""
    if plan.malicious:
        return ""
    return ", and who garbles is semi-honest" + (_deterred(plan.covert) if plan.covert else "")


def _deterred(copies: int) -> str:
    """Return the words of a privacy claim on garblers that are deterred by conviction."""
    return (
        f", or deterred by conviction, over all of its pairs: an undetected cheat (probability 1/{copies} "
        "for each pair) loses that pair's epsilon, and is no part of delta"
    )


def _malicious_garbler(copies: int) -> str:
    """Return the sentence of a privacy claim on what a cheating garbler could still do."""
    attack = (
        "garble another circuit: with the aggregator, one without noise; alone, one that tells it a bit "
        "about its partner's record through the published estimate or through whether the pair fails, "
        "and that shifts the estimate by as much as a pair's output holds (tau of 100 parties at epsilon 1 "
        "by 1.26)"
    )
    if not copies:
        return (
            f"against a malicious garbler, which can {attack}; authenticated garbling would prevent all of it"
        )
    return (
        f"against a malicious garbler, with probability 1/{copies} for each pair that it garbles: unnoticed "
        f"it can {attack}; the pair's epsilon is lost then, and 1/{copies} is no part of delta. Else it is "
        "caught before the record is used, the pair fails, and a certificate convicts it; that deters only "
        "who can be held to account for a key. A garbler that stops before it has signed is not convicted"
    )


def _mechanism(plan: StatisticPlan) -> str:
    """Return text on the noise mechanism, its kernel and its variance, as reports print it."""
    return (
        f"{plan.terms['kernel']} of {plan.partners} pairs a party with {plan.noise.name} noise in the circuit"
        f", variance {plan.noise.variance:.6g} grid steps^2"
    )
