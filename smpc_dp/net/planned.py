"""What a request of a session will be charged, and how exact its answers will be, before anything is sent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from smpc_dp.net.session_file import SessionFile
from smpc_dp.net.tolerance import tolerances
from smpc_dp.privacy.guarantee import PlainStruct, Relation, Unit
from smpc_dp.privacy.secagg_plan import communication
from smpc_dp.protocols.names import REPORTS
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.phases.weighted_encoding import WeightedEncoding
from smpc_dp.protocols.records import RecordParameters
from smpc_dp.protocols.result import Noise
from smpc_dp.protocols.secret_sharing.records import SharedRecordParameters
from smpc_dp.protocols.secret_sharing.tables import TableParameters

if TYPE_CHECKING:
    from smpc_dp.statistics.report_parameters import ReportParameters

# A standard error above this share of the range is warned of.
LARGE = 0.1
# Bytes of a share, and about those of an opened integer in decimal.
SHARE_BYTES = 16
# Of a signed report in its envelope, or of its confirmation, about.
REPORT_BYTES = 350


class NoiseWarning(Warning):
    """The noise of an answer will be large beside its range."""


class PlannedAnswer(PlainStruct, frozen=True, kw_only=True):
    """The standard error of one answer, from the noise alone.

    Attributes:
        text: the answer.
        standard_error: in the unit of the answer; None where it depends on a number of rows that nobody
            has declared.
        range: the declared range of the answer: of one row for counts and sums.
        relative: the standard error over the range, for totals over that of all rows; None as above.
        of_rows: whether it is a total, so that its range grows with the rows.
        assumed: what it is stated for, "" if nothing.
    """

    text: str
    standard_error: float | None
    range: float
    relative: float | None
    of_rows: bool = False
    assumed: str = ""


class SessionPlan(PlainStruct, frozen=True, kw_only=True):
    """One request of a session, as planned.

    Attributes:
        protocol: of the session.
        parties, lost, corrupt: how many there are, may be lost, and may collude.
        unit, relation, epsilon, delta: what a ledger is charged for one request; None: an exact release.
        counted: the shares of noise that the guarantee counts on; None as above, and with servers, which draw
            one noise.
        factor: of the standard error over that of a trusted curator over the same parties, with none lost.
        answers: the standard error of each.
        sent, received: bytes of one party, about.
        steps: messages of one party, one after the other.
        warnings: what a reader must not miss.
        noise: the law of a share, None without noise or with servers.
        requests: those that are charged together, as the steps of a regression are.
    """

    protocol: str
    parties: int
    lost: int
    corrupt: int
    unit: Unit | None
    relation: Relation | None
    epsilon: float | None
    delta: float | None
    counted: int | None
    factor: float | None
    answers: tuple[PlannedAnswer, ...]
    sent: int
    received: int
    steps: int
    warnings: tuple[str, ...]
    noise: str | None = None
    requests: int = 1

    @property
    def charge(self) -> str:
        """What one request is to a ledger, in words."""
        if self.unit is None:
            return "an exact release: no differential privacy"
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g} for one {self.unit} ({self.relation})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the plan in lines, the warnings last."""
        each = "each request is" if self.requests == 1 else f"all {self.requests} requests together are"
        yield f"{each} charged: {self.charge}"
        if self.factor is not None:
            shares = f"{self.counted} of {self.parties} shares are counted on"
            shares += ", of discrete Laplace noise" if self.noise == "discrete-laplace" else ""
            drawn = "the servers draw one together" if self.counted is None else shares
            yield f"noise: {drawn}; the error is {self.factor:.3g} times that of a trusted curator"
        for answer in self.answers:
            yield answer_line(answer)
        yield f"traffic of a party: {self.sent} bytes sent, {self.received} received, in {self.steps} steps"
        yield from (f"WARNING: {line}" for line in self.warnings)


def answer_line(answer: PlannedAnswer) -> str:
    """Return the error of an answer, beside its range, as a line."""
    if answer.standard_error is None:
        return f"standard error of {answer.text}: not known without rows_expected; range {answer.range:g}"
    share = "" if answer.relative is None else f", {100 * answer.relative:.3g} % of it"
    share += " over all" if answer.of_rows and share else ""
    given = f" ({answer.assumed})" if answer.assumed else ""
    error = f"{answer.standard_error:.3g} in a range of {answer.range:g}{' a row' if answer.of_rows else ''}"
    return f"standard error of {answer.text}: {error}{share}{given}"


def session_plan(session: SessionFile) -> SessionPlan | None:
    """Return the plan of a session's requests; None for one that learns, or has servers and sums."""
    parameters = session.checked_parameters
    if session.protocol == REPORTS:
        return _of_reports(session, cast("ReportParameters", parameters))
    if isinstance(parameters, SharedRecordParameters | TableParameters):
        return _on_shares(session, parameters)
    if not isinstance(parameters, SumParameters):
        return None
    [tolerated] = tolerances(session)
    privacy = parameters.privacy(parameters.plan.parties)
    guarantee, noise = privacy.guarantee, parameters.noise(parameters.plan.parties, 0)
    answers, lines = _answers(parameters, noise)
    traffic = communication(
        parameters.plan, parameters.encoding.ring_length, parameters.encoding.element_bytes
    )
    return SessionPlan(
        protocol=session.protocol,
        parties=tolerated.parties,
        lost=tolerated.lost,
        corrupt=tolerated.corrupt,
        unit=privacy.unit,
        relation=None if guarantee is None else guarantee.relation,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        counted=None if noise is None else noise.honest,
        factor=None if noise is None else noise.total / noise.curator,
        answers=tuple(answers),
        sent=traffic["up"]["total"],
        received=traffic["down"]["total"],
        steps=len(parameters.party_steps),
        warnings=tuple(lines),
        noise=getattr(parameters, "mechanism", None),
        requests=parameters.steps if isinstance(parameters, RecordParameters) else 1,
    )


def _on_shares(session: SessionFile, parameters: SharedRecordParameters | TableParameters) -> SessionPlan:
    """Return the plan of statistics of records on shares, with one noise for all, or of exact tables."""
    [tolerated] = tolerances(session)
    answers, lines = _of_request(parameters, parameters.parties)
    exact = isinstance(parameters, TableParameters)
    length, servers = parameters.request.length, len(session.roster.servers)
    return SessionPlan(
        protocol=session.protocol,
        parties=tolerated.parties,
        lost=tolerated.lost,
        corrupt=tolerated.corrupt,
        unit=None if exact else parameters.schema.unit,
        relation=None if exact else parameters.schema.relation,
        epsilon=parameters.epsilon,
        delta=None if exact else parameters.delta,
        counted=None,
        factor=None
        if isinstance(parameters, TableParameters)
        else parameters.request.deviation(1) / parameters.curator_deviation,
        answers=tuple(answers),
        sent=length * servers * SHARE_BYTES,
        received=length * servers * SHARE_BYTES,
        steps=2,
        warnings=tuple(lines),
    )


def _of_reports(session: SessionFile, parameters: ReportParameters) -> SessionPlan:
    """Return the plan of local reports: each party draws its own noise."""
    [tolerated] = tolerances(session)
    error, assumed = parameters.error()
    answer = PlannedAnswer(
        text=parameters.kernel,
        standard_error=error,
        range=parameters.width,
        relative=error / parameters.width,
        assumed=assumed,
    )
    event, epsilon = parameters.event(), parameters.plan.privacy.epsilon
    relative = error / parameters.width
    helps = (
        f"the standard error of {answer.text} is {100 * relative:.3g} % of its range; more parties, a larger "
        "epsilon or fewer bins help, and garbled or shared statistics of pairs need less noise"
    )
    return SessionPlan(
        protocol=session.protocol,
        parties=tolerated.parties,
        lost=tolerated.lost,
        corrupt=tolerated.corrupt,
        unit=event.unit,
        relation=event.relation,
        epsilon=epsilon,
        delta=0.0,
        counted=None,
        factor=None,
        answers=(answer,),
        sent=REPORT_BYTES,
        received=REPORT_BYTES,
        steps=1,
        warnings=() if relative <= LARGE else (helps,),
    )


def _of_request(parameters: RecordParameters, parties: int) -> tuple[list[PlannedAnswer], list[str]]:
    """Return the errors of all answers of records, and what is to be warned of."""
    return [_of_records(error) for error in parameters.errors(parties)], parameters.warnings(parties)


def _answers(parameters: SumParameters, noise: Noise | None) -> tuple[list[PlannedAnswer], list[str]]:
    """Return the errors of all answers with everybody present, and what is to be warned of."""
    parties = parameters.plan.parties
    if isinstance(parameters, RecordParameters):
        return _of_request(parameters, parties)
    encoding = parameters.encoding
    error, assumed = 0.0 if noise is None else noise.total / parties, ""
    if isinstance(encoding, WeightedEncoding):
        # A ratio of two sums with noise; the smaller the weights, the larger its error.
        error, assumed, encoding = math.sqrt(2) * error, "if every weight is max_weight", encoding.given
    width = max(encoding.widths) * encoding.step
    answer = PlannedAnswer(
        text="the average, each coordinate",
        standard_error=error,
        range=width,
        relative=error / width,
        assumed=assumed,
    )
    return [answer], [] if error <= LARGE * width else [_large(answer, parties)]


def _of_records(error: Any) -> PlannedAnswer:
    rows = ""
    if error.rows is not None:
        rows = f"rows_expected = {error.rows}" if error.expected else f"{error.rows} public rows"
    return PlannedAnswer(
        text=error.text,
        standard_error=error.standard_error,
        range=error.range,
        relative=error.relative,
        of_rows=error.rows is None and error.standard_error is not None,
        assumed="; ".join(part for part in (rows, error.assumed) if part),
    )


def _large(answer: PlannedAnswer, parties: int) -> str:
    """Return what helps against noise that is large beside the range of an average over parties."""
    relative = answer.relative or 0.0
    factor = relative / LARGE
    return (
        f"the standard error of {answer.text} is {100 * relative:.3g} % of its range. It would be a "
        f"tenth with about {math.ceil(parties * factor)} parties, or {factor:.3g} times the epsilon; where "
        "vectors are made of records, statistics of records need far less noise"
    )


def warn_of_noise(session: SessionFile) -> SessionPlan | None:
    """Return the plan of a session's requests, and give a `NoiseWarning` for each of its warnings."""
    plan = session_plan(session)
    for line in () if plan is None else plan.warnings:
        warnings.warn(line, NoiseWarning, stacklevel=4)
    return plan
