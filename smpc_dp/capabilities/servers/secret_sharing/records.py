"""Statistics of records on shares: the servers draw one noise for all answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from smpc_dp.capabilities.servers.secret_sharing.claims import HONEST_SERVERS, ON_SHARES, with_servers
from smpc_dp.capabilities.servers.secret_sharing.params import (
    MPYC,
    Dropout,
    Program,
    Seconds,
    SharedParameters,
    party_issues,
)
from smpc_dp.encoding import Encoding
from smpc_dp.engine.result import Claim, Privacy
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.privacy.central_gaussian import GREATEST_EPSILON, WideGaussian
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.secagg_plan import default_dropout, part_of
from smpc_dp.records import parameters as records
from smpc_dp.records.parameters import (
    AskSettings,
    Delta,
    Epsilon,
    NoisyRecordParameters,
    SplitOfNoise,
    protected,
)

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.plan import Plan
    from smpc_dp.records.schema import Schema

# The deviation of the noise has about 2^12 steps: three tables of a draw, and rounding that costs little.
NOISE_BITS = 12
REFUSED = records.REFUSED | {
    "dataset": "is for exact tables with smallest_count",
    "mechanism": "is not for statistics of records: their noise is Gaussian",
    "corrupt": "is not for servers: any number of parties may be corrupt",
    "security": "is not for servers: the terms state it",
}


class SharedRecordSettings(AskSettings, frozen=True, kw_only=True):
    """The `[parameters]` table of a session file for statistics of records that servers compute."""

    epsilon: Epsilon
    delta: Delta
    split: SplitOfNoise = "range"
    dropout: Dropout = None
    seconds: Seconds = 600.0


class SharedRecordParameters(SharedParameters, NoisyRecordParameters, frozen=True):
    """Checked parameters of a request for statistics of records, computed by servers on shares.

    `noise` is drawn once for each coordinate of the sum, by the servers together; `curator_deviation` is that
    of a trusted curator's noise, in ring steps.
    """

    program: ClassVar[Program] = "records"
    encoding: Encoding
    request: Plan
    public_rows: tuple[int, ...] | None
    noise: WideGaussian
    curator_deviation: float

    def planned(self) -> str:
        """Return the noise's parameter and a digest of the scales, as text that members compare."""
        parameter = self.noise.parameter
        return f"{parameter.numerator:x}/{parameter.denominator:x} {self.scales_digest()}"

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Least and greatest integer of each coordinate of a party's vector, as servers check."""
        low, high = (end.tolist() for end in self.request.bounds)
        lowest = self.encoding.lowest
        return [(least - lowest, greatest - lowest) for least, greatest in zip(low, high, strict=True)]

    def event(self) -> Event:
        """Return the privacy event that a ledger charges for one request."""
        return replace(self.noise.event(), unit=self.schema.unit)

    def privacy(self, servers: int) -> Privacy:
        """Return the privacy claim of the opened statistics, where this many servers compute."""
        from smpc_dp.records.result import not_protected

        schema = self.schema
        guarantee = replace(
            self.request.guarantee,
            mechanism=self.noise.describe(),
            assumption=HONEST_SERVERS,
            proof="docs/proofs/servers.md: as good as a discrete Gaussian but for an explicit error",
        )
        private = (
            f"any {(servers - 1) // 2} of them together learn nothing but the sum with noise that no server "
            f"knows, in which {protected(schema, honest=False)} ({guarantee.epsilon:g}, {guarantee.delta:g})-"
            f"differentially private ({schema.relation}), whatever the other parties do"
        )
        return with_servers(
            Claim(
                guarantee=guarantee,
                clauses=NamedSentences.of(
                    shared=f"sums of rows are shared among {servers} servers", private=private
                ),
                premises=ON_SHARES,
                limits=not_protected(schema, self.request.statistics, central=True),
            )
        )


def check_records(
    parameters: Mapping[str, object], parties: int
) -> tuple[SharedRecordParameters | None, list[ConfigIssue]]:
    """Check a table of `SharedRecordSettings`; return (parameters, []), or (None, every fault found)."""
    schema, good, issues = records.read_records(
        SharedRecordSettings,
        parameters,
        parties,
        unknown=f"unknown parameter of {MPYC} with records",
        refused=REFUSED,
    )
    issues += party_issues(parties)
    if good.get("epsilon", 0.0) > GREATEST_EPSILON:
        reason = f"must be at most {GREATEST_EPSILON:g} on shares, is {good['epsilon']:g}"
        issues.append(ConfigIssue("epsilon", reason, ConfigCheck.RANGE))
    if issues or schema is None:
        return None, issues
    columns = schema
    return records.planned_or_issues(lambda: _planned(columns, good, parties))


def _planned(schema: Schema, good: Mapping[str, Any], parties: int) -> SharedRecordParameters:
    """Return checked parameters for statistics of records, with noise that the servers draw."""
    from smpc_dp.records.plan import plan_request

    bare = plan_request(
        schema,
        good["ask"],
        epsilon=good["epsilon"],
        delta=good["delta"],
        parties=parties,
        missing=parties - 1,
        weights=good["answer_weights"],
        max_bits=NOISE_BITS,
        split=good["split"],
    )
    noise = WideGaussian.calibrate(good["epsilon"], good["delta"], bare.sensitivity)
    request = bare.of_one_noise(noise.parameter)
    records.check_planned_errors(request, good, parties)
    dropout = default_dropout(parties) if good["dropout"] is None else good["dropout"]
    return SharedRecordParameters(
        parties=parties,
        fewest=max(2, parties - part_of(parties, dropout)),
        encoding=records.record_encoding(request, parties),
        epsilon=good["epsilon"],
        delta=good["delta"],
        mechanism="gaussian",
        seconds=good["seconds"],
        request=request,
        public_rows=records.public_rows(good),
        noise=noise,
        curator_deviation=math.sqrt(bare.variance),
    )
