"""Parameters of GOPA in either topology, and their differences without an aggregator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import msgspec

from smpc_dp.capabilities.gopa.direct_messages import COORDINATED_STEPS, EVERY_PARTY_STEPS
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.capabilities.gopa.params import check_parameters as check_relay
from smpc_dp.capabilities.gopa.plan import SessionNoise, assumption, luck_of
from smpc_dp.encoding import Encoding
from smpc_dp.engine.result import Claim
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.secagg_plan import ENVELOPE, SecAggPlan

Topology = Literal["relay", "direct"]
# Each party has a channel to every other, checks a signature of each in each step, and stores all
# publications until all agree.
MAX_PARTIES = 256
MAX_PUBLISHED_BYTES = 1 << 28


class DirectParameters(GopaParameters, frozen=True):
    """Checked settings of GOPA without an aggregator; noise shared with lost parties stays in the sum."""

    seen_by: ClassVar[str] = (
        "up to {corrupt} colluding parties, the coordinator among them or not, or any single curious party "
        "see: every x_hat and the average"
    )
    left_in: ClassVar[str] = "it"

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "gopa-direct"

    @property
    def total_note(self) -> str:
        """The sentence that says which members compute the total."""
        return "each party adds it up itself"

    def largest_message(self, _servers: int) -> int:
        """Return the most bytes that any message of a run may have; servers make no difference.

        It is of one vector; or of an opening of each party, or a hash, with a proof against each corrupt one.
        """
        plan, vector = self.plan, self.encoding.ring_length * self.encoding.element_bytes
        each = 2 * plan.degree + 512 + 256 * max(plan.max_corrupt, 1)
        return (64 << 10) + vector + each * plan.parties

    @property
    def party_steps(self) -> tuple[str, ...]:
        """The names of a party's steps, in their order in a run."""
        return EVERY_PARTY_STEPS

    @property
    def traffic(self) -> tuple[int, int]:
        """Expected bytes that one party sends and receives in a run, to and from all other parties."""
        vector = self.encoding.ring_length * self.encoding.element_bytes
        letters = {*EVERY_PARTY_STEPS, *COORDINATED_STEPS}
        both = (self.plan.parties - 1) * (vector + ENVELOPE * len(letters))
        return both, both

    def claim(self, survivors: int) -> Claim:
        """Return the privacy claim of a session in which a coordinator may leave parties out of the sum."""
        relayed = super().claim(survivors)
        coordinator = (
            f"the party that coordinates may leave up to {self.plan.max_dropouts} others out, also after it "
            "has seen what they published, or stop the run"
        )
        limits = relayed.limits.without("other_sum") + NamedSentences.of(coordinator=coordinator)
        return replace(relayed, limits=limits)


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of GOPA that may set `topology`; return parameters, or None with the faults.

    "relay" is the default. With "direct" there are parties alone: at most MAX_PARTIES, whose vectors together
    have at most MAX_PUBLISHED_BYTES, and `on_dropout` is "keep".
    """
    topology = parameters.get("topology", "relay")
    checked, issues = check_relay(parameters, min(parties, MAX_PARTIES) if topology == "direct" else parties)
    if topology != "direct":
        return checked, issues
    if parties > MAX_PARTIES:
        issues.append(
            ConfigIssue(
                "roster",
                f"at most {MAX_PARTIES} parties without an aggregator, has {parties}",
                ConfigCheck.TOO_LARGE,
            )
        )
    if parameters.get("on_dropout", "keep") == "roll-back":
        issues.append(
            ConfigIssue(
                "on_dropout", "must be 'keep' in the direct topology, is 'roll-back'", ConfigCheck.CONFLICT
            )
        )
    if issues or checked is None:
        return None, issues
    if issues := size_issues(checked.encoding):
        return None, issues
    return without_relay(checked), []


def size_issues(encoding: Encoding) -> list[ConfigIssue]:
    """Return the fault of vectors too long for each party to keep all parties' vectors, or no fault."""
    size = 8 * encoding.ring_length * encoding.parties
    if size <= MAX_PUBLISHED_BYTES:
        return []
    reason = (
        f"{encoding.parties} vectors have {size} bytes, at most {MAX_PUBLISHED_BYTES} without an aggregator"
    )
    return [ConfigIssue("length", reason, ConfigCheck.TOO_LARGE)]


def without_relay(checked: GopaParameters) -> DirectParameters:
    """Return GOPA's checked parameters as those of a session without an aggregator."""
    plan, session = direct_plan(checked.plan, checked.session)
    return DirectParameters(**msgspec.structs.asdict(checked) | {"plan": plan, "session": session})


def direct_plan(plan: SecAggPlan, session: SessionNoise) -> tuple[SecAggPlan, SessionNoise]:
    """Return the plan with the quorum for runs without an aggregator, and the noise with its assumption."""
    # An aggregator signs no set. A coordinator does, so two quorums must share another honest party.
    # Where shares can be dealt, 2 D < n - 1 - c, as many still sign.
    quorum = (plan.parties + max(plan.max_corrupt, 1)) // 2 + 1
    assumed = assumption(plan, session.honest, luck_of(session.slack), "a coordinator")
    return (
        msgspec.structs.replace(plan, quorum=quorum),
        msgspec.structs.replace(session, assumption=assumed),
    )
