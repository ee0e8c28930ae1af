"""What servers that compute on shares do not protect, whatever they compute."""

from __future__ import annotations

from dataclasses import replace

from smpc_dp.protocols.result import Privacy

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
