"""Runs whose receivers check the total, as vectors."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from msgspec.structs import replace

from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases.parameters import MOST_SHOWN, SumParameters
from smpc_dp.privacy.secagg_plan import check_plan, plan_secagg
from smpc_dp.secagg.noisy import NoisySumParameters
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp_lab.vectors.runs import ROWS, Scenario, real

# In squared steps: far less than any plan has.
VARIANCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedScenario(Scenario):
    """Inputs of one recorded run whose total is checked; noise variance, and limit for checks by all.

    `variance`: of each party's noise, in squared steps; `most_shown`: of more parties some check for all.
    """

    variance: int = 0
    most_shown: int = MOST_SHOWN

    @property
    def parameters(self) -> SumParameters:
        """The parameters of the roles; claims do not enter a run, and are left out."""
        if not self.variance:
            return SecAggParameters(self.encoding, self.plan, total="checked", most_shown=self.most_shown)
        return NoisySumParameters(
            encoding=self.encoding,
            plan=self.plan,
            epsilon=1.0,
            delta=1e-6,
            mechanism="discrete-gaussian",
            variance=Fraction(self.variance),
            honest=2,
            curator_deviation=0.0,
            total="checked",
        )

    @property
    def stated(self) -> dict[str, object]:
        """Further fields of the session in the test vector: that the total is checked, and noise."""
        stated: dict[str, object] = {"total": "checked"}
        if self.variance:
            stated["noise_variance"] = self.variance
        if self.parameters.has_checkers:
            stated |= {"max_corrupt": self.plan.max_corrupt, "max_dropouts": self.plan.max_dropouts}
        return stated


_FOUR = plan_secagg(4, dropout=0.25, corrupt=0.0)
_WIDE = Encoding.plan(length=2, lower=0, upper=(1 << 31) - 1, precision=None, parties=4)
SCENARIOS = (
    CheckedScenario(
        "checked",
        "Each receiver checks the total; dave dies before he sends his masked vector: of his commitment only "
        "the hash is shown.",
        real(3, 4),
        _FOUR,
        ROWS[:4],
        kill={"dave": 6},
    ),
    CheckedScenario(
        "checked-weights",
        "Each receiver checks the total, of which the sum of the weights is an element.",
        real(2, 4, max_weight=1000),
        _FOUR,
        tuple(row[:2] for row in ROWS[:4]),
        weights=(1, 1000, 0, 37),
    ),
    CheckedScenario(
        "checked-wide",
        "Each receiver checks the total of elements of five bytes, whose lanes have eight.",
        _WIDE,
        _FOUR,
        ((2147483647, 0), (2147483647, 1), (2147483647, 2147483647), (2147483646, 5)),
    ),
    CheckedScenario(
        "checked-noisy",
        "Each receiver checks the total of vectors with noise: elements are read as two's complement.",
        replace(real(3, 4), element_bytes=8),
        _FOUR,
        ((-2.0, 0.0, 2.0), (-2.0, -2.0, 1.5), (-2.0, -0.1, 0.3), (-2.0, 1.0, -2.0)),
        variance=VARIANCE,
    ),
    CheckedScenario(
        "checked-sparse",
        "Six parties that draw three neighbours each; bob drops out. The plan is far too small for security.",
        real(3, 6),
        check_plan(6, 3, 2, dropout=0.34, corrupt=0.0),
        ROWS,
        kill={"bob": 6},
    ),
    CheckedScenario(
        "checked-checkers",
        "Some of six parties check the total for all, as if they were more than 10,000: four, of whom two "
        "must attest it; bob dies before he does.",
        real(3, 6),
        plan_secagg(6, dropout=0.17, corrupt=0.17),
        ROWS,
        kill={"bob": 9},
        most_shown=5,
    ),
)
