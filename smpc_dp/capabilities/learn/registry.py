"""Registry of the learners of a session, and the checks of their `[parameters]`.

A new learner is a frozen struct of its settings that is a `requirements.Learner`, and a line in `LEARNERS`.
Another package registers its learners in the entry-point group `smpc_dp.learners`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.block_gossip import BlockGossip
from smpc_dp.capabilities.learn.boosting import PersonalizedBoosting
from smpc_dp.capabilities.learn.data import read_source
from smpc_dp.capabilities.learn.data_owners import DataOwners
from smpc_dp.capabilities.learn.diffusion_learner import Diffusion
from smpc_dp.capabilities.learn.dual_averaging_groups import DualAveragingGroups
from smpc_dp.capabilities.learn.exchanges import PlannedMessages, plan_messages
from smpc_dp.capabilities.learn.local_global import LocalGlobal
from smpc_dp.capabilities.learn.methods import AveragerTable, PlannedAverages, plan_private, plan_public
from smpc_dp.capabilities.learn.own import OwnFunctions, OwnModel
from smpc_dp.capabilities.learn.pair_descent import DualAveraging, DualAveragingReports
from smpc_dp.capabilities.learn.pair_statistics import GossipClear, GossipReports
from smpc_dp.capabilities.learn.pairing_schedule import number_parties
from smpc_dp.capabilities.learn.personalized import Personalized
from smpc_dp.capabilities.learn.requirements import Learned, Learner, Requirements, Table
from smpc_dp.capabilities.learn.sgd import FederatedSgd, SgdSettings
from smpc_dp.capabilities.learn.token_learners import (
    RingHistogramLearner,
    RingSumLearner,
    WalkHistogramLearner,
    WalkSumLearner,
)
from smpc_dp.capabilities.learn.walk_sgd_learner import WalkSgdLearner
from smpc_dp.capabilities.learn.written import LEARN, is_verifiable
from smpc_dp.encoding import shown
from smpc_dp.engine.averaging import GroupParameters, OnShares
from smpc_dp.engine.registry import session_protocol
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.extensions import Group, describe_others, find
from smpc_dp.privacy.accountant.decimals import summed
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.settings import items, read

LEARNERS: Mapping[str, type[Any]] = {
    learner.kind: learner
    for learner in (
        FederatedSgd,
        BlockGossip,
        Diffusion,
        RingSumLearner,
        RingHistogramLearner,
        WalkSumLearner,
        WalkHistogramLearner,
        WalkSgdLearner,
        GossipClear,
        GossipReports,
        DualAveraging,
        DualAveragingGroups,
        DualAveragingReports,
        Personalized,
        PersonalizedBoosting,
        DataOwners,
        LocalGlobal,
    )
}

# Learners with a schedule of groups.
_IN_GROUPS = (SgdSettings, DualAveragingGroups, Diffusion)
# Keys of `[parameters]` that are not the learner's own settings.
_COMMON = ("learner", "averager", "columns")
OWN = "is 'own': its parties learn in Python, by session.learn(data, model=..., gradient=...)"
# Of a `requirements.Learner`.
_METHODS = ("issues", "requirements", "check_data", "run")


def unsaved_learner(parameters: Mapping[str, object]) -> str:
    """Return why a session's learner cannot resume after its process has ended; "" if it can.

    It can where its whole state is a model, a step and the number of a request; `parameters`: as written.
    """
    name = parameters.get("learner")
    kind = LEARNERS.get(name, object) if isinstance(name, str) else object
    if issubclass(kind, SgdSettings):
        return ""
    if (issubclass(kind, Diffusion) and "group" in parameters) or sends_models(parameters):
        return ""
    learner = f"the learner {shown(name)}"
    if issubclass(kind, DualAveragingGroups):
        return f"{learner} keeps the average of its models beside the model"
    if name in LEARNERS:
        return f"{learner} sends messages between parties: its state is more than a model and a step"
    return f"{learner} of another package is not saved"


def sends_models(parameters: Mapping[str, object]) -> bool:
    """Tell whether the learner of these `[parameters]` sends its model to neighbours without noise."""
    name = parameters.get("learner")
    kind = LEARNERS.get(name, object) if isinstance(name, str) else object
    return issubclass(kind, Diffusion) and "group" not in parameters and parameters.get("noise") == "none"


def has_groups(name: object) -> bool:
    """Tell whether the learner of this name averages in groups that follow from the session."""
    return isinstance(name, str) and issubclass(LEARNERS.get(name, object), _IN_GROUPS)


@dataclass(frozen=True)
class LearnParameters:
    """Checked parameters of a learning session: the learner, and its planned averages or messages.

    `origin`: the package, with its version, of a learner of another one. `columns`: names of the columns of
    every party's table, the label last; empty where the session file names none. `declared`: `[parameters]`
    as they were checked.
    """

    parties: int
    learner: Learner
    average: PlannedAverages | None
    mix: PlannedAverages | None
    exchange: PlannedMessages | None = None
    origin: str = ""
    metric: PlannedAverages | None = None
    columns: tuple[str, ...] = ()
    declared: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    def requested(self, purpose: str) -> str:
        """Return the text that describes a request for this purpose; parties compare their texts."""
        return f"{purpose} of {self.origin}" if self.origin else purpose

    def complete(self, learned: Learned) -> Learned:
        """Return a learned result with the columns' names, and the guarantee where noise is planned here."""
        named = {f"w{index}": name for index, name in enumerate(self.columns[:-1])}
        # A coordinate of softmax is called `w0 of 1`.
        split = [name.partition(" of ") for name in learned.names]
        names = tuple(f"{named.get(first, first)}{joint}{label}" for first, joint, label in split)
        result = [part.guarantee for part in (self.average, self.exchange) if part is not None]
        # A learner that both averages and sends, or adds its own noise, gives the guarantee itself.
        given = len(result) == 1 and self.learner.requirements(self.parties).own is None
        if not given:
            return replace(learned, names=names)
        guarantee = result[0]
        if guarantee is not None and self.metric is not None and self.metric.guarantee is not None:
            guarantee = _together(guarantee, self.metric.guarantee)
        return replace(learned, names=names, guarantee=guarantee)

    def read(self, source: object, party: str) -> Table:
        """Return a party's table, read from a file or taken from arrays, and checked by the learner.

        Raises:
            ConfigError: the learner is a caller's own; or the data do not fit, names party and column.
            LocalError: the file cannot be read.
        """
        if self.is_own:
            raise ConfigError.at("model", OWN, ConfigCheck.UNSUPPORTED)
        table = read_source(source, self.columns, party)
        self.learner.check_data(table, party)
        return table

    @property
    def is_own(self) -> bool:
        """Whether parties bring a model of their own, in Python."""
        return isinstance(self.learner, SgdSettings) and self.learner.model == "own"

    def own_model(
        self,
        functions: OwnFunctions,
        parties: Sequence[str],
        data: Sequence[Any],
        weights: Sequence[float | None],
    ) -> OwnModel | None:
        """Return the checked model of a caller who brings one; else None, ConfigError if one is given.

        Raises ConfigError for functions that are missing, or that the session does not take.
        """
        if not (isinstance(self.learner, SgdSettings) and self.is_own) or self.mix is None:
            functions.check_unused(weights)
            return None
        grid = self.mix.encoding(max(self.mix.plans))
        return OwnModel.check(self.learner, grid, parties, data, functions, weights)

    @property
    def groups(self) -> NDArray[np.intp] | None:
        """The parties of each private average, shape (averages, size), in order; None without groups."""
        return self.learner.groups(self.parties) if isinstance(self.learner, _IN_GROUPS) else None

    def average_of(self, request: int) -> tuple[int, int] | None:
        """Return the group and step (from 1) of the average in a request; None for others.

        In each step all groups average what is public, then what is private.
        """
        if not isinstance(self.learner, _IN_GROUPS):
            return None
        each = self.learner.groups_at_once(self.parties)
        if not each:
            return None
        step, index = divmod(request - 1, 2 * each)
        return (step * each + index - each, step + 1) if request > 0 and index >= each else None

    @property
    def on_shares(self) -> OnShares | None:
        """The functions by which servers compute the averages; None without servers."""
        return next((each.on_shares for each in self._averages), None)

    @property
    def requests(self) -> tuple[GroupParameters, ...]:
        """The parameters of each kind of request that the learner makes in its session."""
        result = [one for each in self._averages for one in each.plans.values()]
        if self.exchange is not None and self.on_shares is None:
            result.append(self.exchange.parameters)
        return tuple(result)

    @property
    def _averages(self) -> list[PlannedAverages]:
        """Return the plans of all averages of this learner: of models, of a mix, of a metric."""
        return [each for each in (self.average, self.mix, self.metric) if each is not None]


def _together(steps: PrivacyGuarantee, metric: PrivacyGuarantee) -> PrivacyGuarantee:
    """Return the guarantee of all steps and all metrics together, by basic composition."""
    return msgspec.structs.replace(
        steps,
        epsilon=summed([(steps.epsilon, 1), (metric.epsilon, 1)]),
        delta=summed([(steps.delta, 1), (metric.delta, 1)]),
        mechanism=f"{steps.mechanism}; and of a metric {metric.mechanism}",
    )


def check_learn_as(
    version: int, parameters: Mapping[str, object], names: Sequence[str]
) -> tuple[LearnParameters | None, list[ConfigIssue]]:
    """Check a learning session's `[parameters]` by a version; return them, or None with every fault."""
    numbered, issues = number_parties(parameters, names)
    if issues:
        return None, issues
    expected = session_protocol(LEARN).version
    if version != expected and not is_verifiable(parameters):
        reason = (
            f"must be true in version {version} of 'learn', which is for logs: write version = {expected}"
        )
        return None, [ConfigIssue("averager.verifiable", reason, ConfigCheck.CONFLICT)]
    return check_learn(numbered, len(names))


def check_learn(
    parameters: Mapping[str, object], parties: int
) -> tuple[LearnParameters | None, list[ConfigIssue]]:
    """Check a learning session's `[parameters]` for so many parties; return them, or None with faults."""
    name = parameters.get("learner")
    kind, origin = _kind_of(name)
    if kind is None:
        known = ", ".join(LEARNERS) + describe_others(Group.LEARNERS)
        reason = "is missing" if name is None else f"unknown: {shown(name)}"
        return None, [ConfigIssue("learner", f"{reason} (known: {known})", ConfigCheck.CHOICE)]
    given = {key: value for key, value in parameters.items() if key not in _COMMON}
    learner, issues = _read(kind, given, "")
    table, more = _averager(parameters.get("averager", {}))
    issues += more
    columns, more = _columns(parameters.get("columns"), getattr(learner, "features", None))
    issues += more
    if learner is None or table is None:
        return None, issues
    try:
        issues += learner.issues(parties)
    except PrivacyError as error:
        issues.append(ConfigIssue("epsilon", str(error), ConfigCheck.INFEASIBLE))
    if issues:
        return None, issues
    requirements = learner.requirements(parties)
    issues += _averaging_issues(table, requirements)
    if "averager" in parameters and requirements.average is None and requirements.mix is None:
        # The fault of servers is another: see below.
        reason = "is for averages, and this learner sends messages alone: these settings have no groups"
        if table.on_shares is None:
            issues.append(ConfigIssue("averager", reason, ConfigCheck.UNSUPPORTED))
    if requirements.metric is not None and table.verifiable:
        reason = "is not for verifiable averages: auditors count two requests a step"
        issues.append(ConfigIssue("metric_every", reason, ConfigCheck.UNSUPPORTED))
    if table.on_shares is not None and (requirements.average is None or requirements.exchange is not None):
        reason = f"'{table.method}' averages, and this learner sends messages, which need an aggregator"
        issues.append(ConfigIssue("averager.method", reason, ConfigCheck.UNSUPPORTED))
    if issues:
        return None, issues
    try:
        average = None if requirements.average is None else plan_private(table, requirements.average, parties)
        mix = None if requirements.mix is None else plan_public(table, requirements.mix)
        exchange = None if requirements.exchange is None else plan_messages(requirements.exchange, parties)
        metric = None if requirements.metric is None else plan_private(table, requirements.metric, parties)
    except ConfigError as error:
        return None, list(error.issues)
    except PrivacyError as error:
        return None, [ConfigIssue("epsilon", str(error), ConfigCheck.INFEASIBLE)]
    planned = LearnParameters(
        parties, learner, average, mix, exchange, origin, metric, columns, dict(parameters)
    )
    return planned, []


def _averager(given: object) -> tuple[AveragerTable | None, list[ConfigIssue]]:
    """Return the parsed `averager` table, or None, and its faults: its protocol may not be installed."""
    table, issues = _read(AveragerTable, given, "averager.")
    try:
        _ = table is None or table.averaging
    except ConfigError as error:
        return None, list(error.issues)
    return table, issues


def _averaging_issues(table: AveragerTable, requirements: Requirements) -> list[ConfigIssue]:
    """Return the faults of the `averager` table for the groups in which a learner averages."""
    averages = requirements.average or requirements.mix
    issues: list[ConfigIssue] = []
    for size in sorted(set() if averages is None else averages.sizes):
        issues += table.issues(size)
        if requirements.average is None:
            issues += table.public_issues(size)
        elif requirements.average.epsilon is None:
            issues += table.exact_issues(size)
    return issues


def _columns(given: object, features: object) -> tuple[tuple[str, ...], list[ConfigIssue]]:
    """Return the names of a table's columns, the label last, and the faults of these names."""
    if given is None:
        return (), []
    names = [name for name in given if isinstance(name, str) and name] if isinstance(given, list) else []
    if not isinstance(given, list) or not names or len(names) < len(given) or len({*names}) < len(names):
        reason = f"must be an array of different names, the label last, is {shown(given)}"
        return (), [ConfigIssue("columns", reason, ConfigCheck.TYPE)]
    if isinstance(features, int) and len(names) != features + 1:
        reason = f"names {len(names)} columns, needs features + 1 = {features + 1}: the label too"
        return (), [ConfigIssue("columns", reason, ConfigCheck.SHAPE)]
    return tuple(names), []


def keys_of(learner: str) -> list[str]:
    """Return the settings of a learner as Markdown items; raises ConfigError for an unknown learner."""
    kind, _ = _kind_of(learner)
    if kind is None:
        known = ", ".join(LEARNERS) + describe_others(Group.LEARNERS)
        raise ConfigError.at("learner", f"{learner!r} is none of {known}", ConfigCheck.CHOICE)
    return items(kind)


def _kind_of(name: object) -> tuple[type[Any] | None, str]:
    """Return a learner's settings class (None: unknown), and the package that registers it ("": none)."""
    if not isinstance(name, str) or name in LEARNERS:
        return (LEARNERS[name], "") if isinstance(name, str) else (None, "")
    result = find(Group.LEARNERS, name)
    if result is None:
        return None, ""
    kind = result.value
    frozen = isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen
    if not frozen or not all(callable(getattr(kind, method, None)) for method in _METHODS):
        raise result.unfit(f"is no frozen msgspec.Struct with the methods {', '.join(_METHODS)}")
    return kind, result.origin


def _read(kind: type[Any], given: object, where: str) -> tuple[Any, list[ConfigIssue]]:
    """Convert a TOML table to a settings object; return it, or None, and every fault by its key."""
    if not isinstance(given, Mapping):
        return None, [ConfigIssue(where.rstrip("."), f"must be a table, is {shown(given)}", ConfigCheck.TYPE)]
    good, issues = read(kind, given, where)
    return (None, issues) if issues else (kind(**good), [])
