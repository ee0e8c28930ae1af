"""What a computation on shares claims, against whom, and what it does not."""

from __future__ import annotations

from smpc_dp.protocols.mpyc.params import threshold_of
from smpc_dp.protocols.result import Privacy

NOT_PROTECTED = (
    "against a server that deviates: shares and openings are not checked, so it can change what is computed "
    "and so learn inputs",
    "against a server that is compromised: mpyc unpickles what its peers send, so it may run code in the "
    "others' mpyc processes",
    "a user may share a value outside of the bounds, or shares of no value at all: honest users check their "
    "own, servers cannot see it",
    "a run does not survive the loss of a server, and any server can stop it",
    "who takes part, who was left out, and public labels are visible to servers and users",
)


def claim_of(servers: int) -> tuple[str, tuple[str, ...]]:
    """Return the claim and its assumptions for so many servers."""
    threshold = threshold_of(servers)
    claim = (
        f"up to {threshold} of {servers} servers that follow the protocol and share what they see, with any "
        "users, learn what is opened and nothing else about the records of the others"
    )
    assumptions = (
        f"at least {servers - threshold} servers are honest, and none is compromised: all of them follow the "
        "protocol (curious, not malicious)",
        "computational: TLS 1.3, Ed25519; mpyc's pseudorandom sharing rests on SHAKE128",
    )
    return claim, assumptions


def privacy_of_sum(users: int, servers: int) -> Privacy:
    """Return the claim of an exact sum over so many users."""
    claim, assumptions = claim_of(servers)
    return Privacy(
        epsilon=None,
        delta=None,
        claim=f"an exact sum over {users} users, told to servers and users: {claim}",
        assumptions=assumptions,
        not_protected=(
            "the sum is exact: it has no differential privacy, and sums over two differing sets of users "
            "reveal the difference",
            *NOT_PROTECTED,
        ),
    )
