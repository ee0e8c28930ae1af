"""Select and calibrate the averaging protocol for each group size, with noise for all steps.

Accounting of groups: each group's average is public, and so are its members; nothing is gained from the draw
of the groups. The noise of the s - c honest members of a group suffices, c the colluders that are assumed;
each party is charged for each average that it takes part in, and its noise is planned for all of them
together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import ParticipationCounter, Rows
from smpc_dp.capabilities.learn.requirements import STEPS, PrivateAverages, PublicAverages
from smpc_dp.capabilities.learn.weighted import Weighting
from smpc_dp.capabilities.learn.written import DEFAULT, METHODS
from smpc_dp.encoding import Encoding
from smpc_dp.engine.averaging import Averaging, GroupParameters, OnShares
from smpc_dp.engine.phases.parameters import SumParameters, Total
from smpc_dp.engine.registry import checker_of, find_protocol, session_protocol
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.gaussian import gaussian_epsilon, gaussian_mu
from smpc_dp.privacy.guarantee import PrivacyGuarantee, delta_warnings
from smpc_dp.secagg.params import SAME
from smpc_dp.session.exchange.params import plan_exchange

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event


class _Releases(Protocol):
    """Interface of the parameters of one release, which a ledger charges as one event."""

    def event(self) -> Event:
        """Return the privacy event of one release, to compose with others or charge to a ledger."""


P = TypeVar("P", bound=_Releases)
Method = Literal["secagg", "gopa", "local", "pair", "mpyc"]
PUBLIC_STEPS = 1 << 40
# The same on shares: a step is far below any noise, and cheap to check.
SERVER_STEPS = 1 << 12
# The method of exact averages through the aggregator, also of public vectors where others are private.
EXACT = "secagg"
# Fewest members of an exact average.
_LEAST_EXACT = 3
# What every result of exact averages of private vectors says.
EXACT_CLAIM = (
    "NOT DIFFERENTIALLY PRIVATE: each step's average is exact. It reveals to everyone the sum of the group's "
    "vectors, and those of its weights and metrics where there are any; and with them all that "
    "follows about a party's data for someone who knows the others', "
    "or where two sums differ by one party, or from many averages together; models trained on it may reveal "
    "single records. Each average: "
)
# How often, and by which factor, the noise of one average is enlarged until that of all suffices.
_TRIALS, _SHRINK = 60, 0.999
# Least delta of one average that the noise is planned for.
_LEAST_DELTA = 1e-10


class AveragerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `averager` table of a session file: the protocol that averages for the learner, and settings."""

    method: Annotated[
        Method,
        Meta(
            description="`local`: sealed exchange of vectors, each with all of its noise; `pair`: the same "
            "between two, who share the noise if `colluders` is 0; `mpyc`: servers compute on shares, with "
            "one noise that nobody knows: the roster is that of protocol mpyc"
        ),
    ] = DEFAULT
    colluders: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="c: members of a group that may collude with all others and the aggregator; not of "
            "mpyc",
        ),
    ] = 1
    missing: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="members of a group that may be absent",
        ),
    ] = 0
    mechanism: Annotated[
        Literal["discrete-gaussian", "skellam"] | None,
        Meta(description="of secagg, as there", extra={"default": '`"discrete-gaussian"`'}),
    ] = None
    total: Annotated[
        Total | None,
        Meta(description="of secagg and of gopa, as there: of each average", extra={"default": "as there"}),
    ] = None
    verifiable: Annotated[bool, Meta(description="of gopa, as there")] = False
    on_dropout: Annotated[
        Literal["keep", "roll-back"] | None,
        Meta(description="of gopa, as there", extra={"default": '`"keep"`'}),
    ] = None

    @property
    def averaging(self) -> Averaging:
        """The averaging functions of the chosen protocol; raises ConfigError if it is not installed."""
        protocol = find_protocol(METHODS[self.method])
        if protocol is None or protocol.averaging is None:
            reason = f"'{self.method}' is not in this installation"
            raise ConfigError.at("averager.method", reason, ConfigCheck.UNSUPPORTED)
        return protocol.averaging

    @property
    def on_shares(self) -> OnShares | None:
        """The functions by which servers average; None if the members of a group average themselves."""
        return self.averaging.on_shares

    def plan(self, size: int, length: int, l2_bound: float, epsilon: float, delta: float) -> GroupParameters:
        """Return checked parameters of one private average over a group of `size` parties.

        Raises ConfigError, with faults in the names of this table's keys where they are at fault.
        """
        if self.method in ("local", "pair"):
            return plan_exchange(
                size,
                length=length,
                l2_bound=l2_bound,
                precision=l2_bound / STEPS,
                epsilon=epsilon,
                delta=delta,
                honest=size - self.colluders if self.method == "pair" else 1,
                missing=self.missing,
            )
        if self.on_shares is not None:
            precision = l2_bound / SERVER_STEPS
            grid = Encoding.plan(length=length, l2_bound=l2_bound, precision=precision, parties=size)
            return self.on_shares.plan(grid, self.missing, (epsilon, delta))
        given: dict[str, object] = self._group(size, length) | {"epsilon": epsilon, "delta": delta}
        given |= {key: value for key in sorted(self.averaging.settings) if (value := getattr(self, key))}
        # With proofs the grid follows from the noise.
        fine = {} if self.verifiable else {"precision": l2_bound / STEPS}
        given |= {"l2_bound": l2_bound} | fine
        return _checked(self.method, given, size)

    def plan_exact(self, size: int, length: int, bound: float) -> GroupParameters:
        """Return checked parameters of an exact average of bounded vectors over a group.

        Such averages are exact for public vectors, or without differential privacy.
        """
        if self.on_shares is not None:
            grid = Encoding.plan(
                length=length, lower=-bound, upper=bound, precision=bound / PUBLIC_STEPS, parties=size
            )
            return self.on_shares.plan(grid, self.missing, None)
        if self.method in ("local", "pair"):
            return plan_exchange(
                size,
                length=length,
                l2_bound=bound * math.sqrt(length),
                precision=bound / PUBLIC_STEPS,
                missing=self.missing,
            )
        given = self._group(size, length)
        # Groups differ, and so does what is averaged; without `missing` none of a group may be lost.
        given |= {"lower": -bound, "upper": bound, "precision": bound / PUBLIC_STEPS, SAME: False}
        if self.total is not None:
            given["total"] = self.total
        return _checked(EXACT, given, size)

    def _group(self, size: int, length: int) -> dict[str, object]:
        """Return the protocol parameters that all averaging protocols have in common."""
        return {"length": length, "corrupt": self.colluders / size, "dropout": self.missing / size}

    def exact_issues(self, size: int) -> list[ConfigIssue]:
        """Return the faults of the table for exact averages of private vectors over such groups.

        Of two survivors each could subtract its own vector, and read the other's.
        """
        if not self.averaging.is_exact:
            reason = f"'{self.method}' needs epsilon: without it averages are exact, of 'secagg' or 'mpyc'"
            return [ConfigIssue("averager.method", reason, ConfigCheck.CONFLICT)]
        if self.mechanism is not None:
            reason = "is of noise, which needs epsilon"
            return [ConfigIssue("averager.mechanism", reason, ConfigCheck.CONFLICT)]
        return self._least_issues(size)

    def public_issues(self, size: int) -> list[ConfigIssue]:
        """Return the faults of the table for exact averages alone, of public or unprotected vectors."""
        if self.method in ("local", "pair"):
            return []
        if not self.averaging.is_exact or self.on_shares is not None:
            reason = f"'{self.method}' is for averages of data: here it is 'secagg', or 'local' or 'pair'"
            return [ConfigIssue("averager.method", reason, ConfigCheck.CONFLICT)]
        return self._least_issues(size)

    def _least_issues(self, size: int) -> list[ConfigIssue]:
        """Return the fault that too few members may remain: of two, each reads the other's vector."""
        if size - self.missing >= _LEAST_EXACT:
            return []
        reason = (
            f"exact averages need {_LEAST_EXACT} members, here are {size} of whom {self.missing} may be "
            "missing: of two each reads the other's vector"
        )
        return [ConfigIssue("averager.missing", reason, ConfigCheck.INFEASIBLE)]

    def issues(self, size: int) -> list[ConfigIssue]:
        """Return the faults of the table for averages over groups of this size."""
        issues: list[ConfigIssue] = []
        honest = size - self.colluders - self.missing
        if self.on_shares is not None:
            if size - self.missing < 2:
                issues.append(
                    ConfigIssue(
                        "averager.missing", f"must leave 2 of {size}, is {self.missing}", ConfigCheck.RANGE
                    )
                )
        elif self.method == "pair" and (size != 2 or self.colluders > 1 or self.missing):
            issues.append(
                ConfigIssue(
                    "averager.method",
                    "'pair' is for groups of 2, with at most 1 colluder",
                    ConfigCheck.UNSUPPORTED,
                )
            )
        elif self.method in ("local", "pair"):
            if self.missing >= size:
                issues.append(
                    ConfigIssue(
                        "averager.missing", f"must be below {size}, is {self.missing}", ConfigCheck.RANGE
                    )
                )
        elif honest < 1:
            reason = f"{self.colluders} colluders and {self.missing} missing leave no honest member of {size}"
            issues.append(ConfigIssue("averager.colluders", reason, ConfigCheck.INFEASIBLE))
        elif honest == 1 or size < 3:
            reason = (
                f"{self.method} needs groups of 3 with 2 honest members, here are {size} with {honest}: "
                "that is local differential privacy, method 'local'"
            )
            issues.append(ConfigIssue("averager.method", reason, ConfigCheck.INFEASIBLE))
        settings = self.averaging.settings
        if self.mechanism is not None and "mechanism" not in settings:
            issues.append(ConfigIssue("averager.mechanism", "is for secagg", ConfigCheck.UNSUPPORTED))
        if self.total is not None and ("total" not in settings or self.verifiable):
            reason = "is for secagg, and for gopa with on_dropout = 'roll-back'"
            issues.append(ConfigIssue("averager.total", reason, ConfigCheck.UNSUPPORTED))
        if (self.verifiable or self.on_dropout is not None) and "verifiable" not in settings:
            issues.append(
                ConfigIssue(
                    "averager.method", "verifiable and on_dropout are for gopa", ConfigCheck.UNSUPPORTED
                )
            )
        return issues


def _checked(name: str, given: Mapping[str, object], size: int) -> SumParameters:
    """Return a protocol's checked parameters; raise ConfigError that names keys of the `averager` table."""
    protocol = session_protocol(name)
    own = None if protocol.averaging is None else protocol.averaging.check
    checked, issues = (own or checker_of(name, protocol.version))(given, size)
    if given.get("verifiable") and "precision" in {issue.where for issue in issues}:
        # The grid follows from the noise: precision is not a setting.
        reason = "needs more noise than verifiable averages have: raise it, take fewer steps or larger groups"
        raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
    if checked is None:
        raise ConfigError(
            [ConfigIssue(f"averager ({issue.where})", issue.reason, issue.check) for issue in issues]
        )
    return cast("SumParameters", checked)


def on_shares(parameters: GroupParameters) -> OnShares | None:
    """Return the functions by which servers average; None if members of a group average themselves."""
    averaging = session_protocol(parameters.protocol).averaging
    return None if averaging is None else averaging.on_shares


@dataclass(frozen=True)
class PlannedAverages:
    """Plan of a learner's averages: parameters for each group size, guarantee and participations.

    `guarantee` is of all averages of one party together, None for exact ones; `participations`: in how many
    averages a party may be for that; `weighting`: how weights are encoded, None where all are one. `exposes`:
    the averages are exact, and the vectors private.
    """

    plans: Mapping[int, GroupParameters]
    guarantee: PrivacyGuarantee | None = None
    participations: int = 0
    weighting: Weighting | None = None
    exposes: bool = False

    def participation_counter(self, parties: int) -> ParticipationCounter:
        """Return a counter that raises PrivacyError beyond the planned averages; never without noise."""
        return ParticipationCounter(parties, None if self.guarantee is None else self.participations)

    def plan(self, size: int) -> SumParameters:
        """Return the parameters of averages by members of such groups; raise ConfigError if unplanned."""
        planned = self.parameters(size)
        if on_shares(planned) is not None:
            raise ConfigError.at(
                "averager.method", "servers average, not the members of a group", ConfigCheck.UNSUPPORTED
            )
        return cast("SumParameters", planned)

    def plan_shared(self, size: int) -> Any:
        """Return the parameters of averages by servers; raise ConfigError if none are planned."""
        planned = self.parameters(size)
        if on_shares(planned) is None:
            raise ConfigError.at(
                "averager.method", "the members of a group average, not servers", ConfigCheck.UNSUPPORTED
            )
        return planned

    def parameters(self, size: int) -> GroupParameters:
        """Return a group's parameters, of servers or members; raise ConfigError if unplanned."""
        if size not in self.plans:
            known = ", ".join(map(str, sorted(self.plans)))
            raise ConfigError.at(
                "group", f"has {size} members, planned are groups of {known}", ConfigCheck.DIFFERS
            )
        return self.plans[size]

    def encoding(self, size: int) -> Encoding:
        """Return the fixed-point encoding of vectors in a group of this size."""
        return self.parameters(size).sum_encoding

    @property
    def on_shares(self) -> OnShares | None:
        """The functions by which servers compute these averages; None if group members do."""
        return on_shares(self._largest)

    def is_noisy(self, size: int) -> bool:
        """Tell whether an average over a group of this size has noise."""
        return self.parameters(size).privacy_of_all.guarantee is not None

    def encode_vectors(self, vector: Rows, weight: NDArray[np.float64]) -> Rows:
        """Return vectors joined with weights; as they are if no weights are planned, which must be 1."""
        if self.weighting is not None:
            return self.weighting.extend(vector, weight)
        check_weights(weight)
        return vector

    def decode_averages(self, averages: Rows, survivors: float) -> tuple[Rows, NDArray[np.float64]]:
        """Return the average vectors and total weights from averages of encoded vectors."""
        if self.weighting is None:
            return averages, np.full(len(averages), float(survivors))
        values, weights = self.weighting.split(averages)
        return values, survivors * weights

    @property
    def single(self) -> PrivacyGuarantee | None:
        """The guarantee of one average in the largest group; None for exact averages."""
        return self._largest.privacy_of_all.guarantee

    @property
    def claim(self) -> str:
        """The privacy claim of an average in the largest group, in words, with its adversary."""
        return f"{EXACT_CLAIM if self.exposes else ''}{self._largest.privacy_of_all.claim}"

    @property
    def _largest(self) -> GroupParameters:
        """The protocol's parameters for an average over the largest planned group."""
        return self.plans[max(self.plans)]


def check_weights(weight: NDArray[np.float64]) -> None:
    """Raise ConfigError unless all weights are 1: averages by other weights are not planned."""
    if np.any(weight != 1):
        reason = "must be 1: no weights are planned for these averages (PrivateAverages.weights)"
        raise ConfigError.at("weight", reason, ConfigCheck.UNSUPPORTED)


def plan_private(table: AveragerTable, required: PrivateAverages, parties: int) -> PlannedAverages:
    """Return a plan of averages that are together (epsilon, delta)-DP for a party; exact without epsilon.

    Raises:
        ConfigError: no noise can do that, or the protocol cannot serve such a group.
    """
    count = max(1, int(required.participations.max(initial=0)))
    weighting = None if required.weights is None else Weighting(*required.weights, required.l2_bound)
    length = required.length + (weighting is not None)
    if required.epsilon is None or required.delta is None:
        exact = {size: table.plan_exact(size, length, required.l2_bound) for size in required.sizes}
        return PlannedAverages(exact, None, count, weighting, exposes=True)
    epsilon, delta = required.epsilon, required.delta
    if table.on_shares is not None:
        table.on_shares.check_epsilon(epsilon)

    def planned(size: int) -> GroupParameters:
        def one(epsilon: float, delta: float) -> GroupParameters:
            return table.plan(size, length, required.l2_bound, epsilon, delta)

        return calibrate(one, epsilon, delta, count)

    plans = {size: planned(size) for size in required.sizes}
    some = next(iter(plans.values()))
    one = some.privacy_of_all.guarantee
    guarantee = total_guarantee(
        (epsilon, delta),
        parties,
        some.sum_encoding.diameter,
        f"{count} averages at most, each: {'' if one is None else one.mechanism}",
        f"{_assumption(table)}; every group's average is public, and who is in it",
        "a party's participations",
    )
    return PlannedAverages(plans, guarantee, count, weighting)


def _assumption(table: AveragerTable) -> str:
    """Return, in words, what the privacy of the averages assumes."""
    if table.method == "local" or (table.method == "pair" and table.colluders):
        return "none about others: local differential privacy"
    if table.method == "pair":
        return "the two of a pair do not look at each other's vectors, and collude with nobody"
    if table.on_shares is not None:
        return f"{table.on_shares.assumption()}; none about other parties"
    if not table.colluders:
        return "of a group at most one member looks at the averages, and colludes with nobody"
    return f"of a group at most {table.colluders} members collude with the aggregator and all others"


def plan_public(table: AveragerTable, required: PublicAverages) -> PlannedAverages:
    """Return a plan of exact averages of public vectors, by the protocol of the `averager` table."""
    return PlannedAverages(
        {size: table.plan_exact(size, required.length, required.bound) for size in required.sizes}
    )


def total_guarantee(
    budget: tuple[float, float], parties: int, diameter: float, mechanism: str, assumption: str, over: str
) -> PrivacyGuarantee:
    """Return the PrivacyGuarantee of this (epsilon, delta) over all of a party's releases.

    The vectors of neighbours are `diameter` grid steps apart.
    """
    epsilon, delta = budget
    return PrivacyGuarantee(
        epsilon=epsilon,
        delta=delta,
        relation="substitution",
        sensitivity={"l2": diameter},
        unit="grid step",
        mechanism=mechanism,
        assumption=assumption,
        proof=f"composition over {over} (privacy.accountant)",
        warnings=delta_warnings(delta, parties),
    )


def calibrate(plan: Callable[[float, float], P], epsilon: float, delta: float, count: int) -> P:
    """Return a plan of about the least noise whose `count` releases fit (epsilon, delta); or ConfigError.

    `plan` takes the epsilon and delta of one release; all `count` together are (epsilon, delta)-DP. Raises
    ConfigError if nothing suffices.
    """
    # Not at the top: a session without privacy needs no accountant.
    from smpc_dp.privacy.accountant.compose import Composition

    single = max(delta / (2 * count), _LEAST_DELTA)
    # Exactly Gaussian noise would need this much; nearly Gaussian noise needs a little more.
    each = gaussian_epsilon(single, gaussian_mu(epsilon, delta) / count**0.5)
    for _ in range(_TRIALS):
        planned = plan(each, single)
        if Composition([planned.event()] * count).epsilon(delta) <= epsilon:
            return planned
        each *= _SHRINK
    reason = f"no noise makes {count} averages ({epsilon:g}, {delta:g})-differentially private together"
    raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
