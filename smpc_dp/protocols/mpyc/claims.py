"""What servers that compute on shares do not protect, whatever they compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

from smpc_dp.protocols.pairwise.statistic_result import StatisticEvidence
from smpc_dp.protocols.result import Certificate, Privacy

NOT_PROTECTED = (
    "against a server that deviates: openings are not checked, so it can change what is computed and so "
    "learn records",
    "against a server that is compromised: mpyc unpickles what its peers send, so it may run code in the "
    "others' mpyc processes",
    "a run does not survive the loss of a server, and any server can stop it",
    "who takes part, who was left out, and when, are visible to servers and users",
)


def with_servers(privacy: Privacy) -> Privacy:
    """Return the statement of a program with what does not depend on the program."""
    return replace(privacy, not_protected=(*privacy.not_protected, *NOT_PROTECTED))


@dataclass(frozen=True, slots=True)
class SharedEvidence(StatisticEvidence):
    """What binds a statistic of servers to its run.

    `plan` is the digest of the terms, `beacon` of the set and `log` of the values that all servers signed:
    `included_by` and `opened_by` have their signatures.
    """

    included_by: Certificate
    opened_by: Certificate

    def to_json(self) -> dict[str, object]:
        """Return plain JSON data, bytes as hex."""
        return {
            "session_digest": self.session_digest.hex(),
            "run_id": self.run_id.hex(),
            "plan": self.plan.hex(),
            "included_by": self.included_by.to_json(),
            "opened_by": self.opened_by.to_json(),
        }
