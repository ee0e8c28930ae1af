"""Limits of the protection by servers, common to all their programs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from smpc_dp.capabilities.pairs.ustatistic.result import StatisticEvidence
from smpc_dp.engine.result import WHOLE_PARTY, Certificate, Claim, Privacy
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.named_sentences import NamedSentences

NOT_PROTECTED = NamedSentences.of(
    deviating_server="against a server that deviates: openings are not checked, so it can change what is "
    "computed and so learn records",
    lost_server="a run does not survive the loss of a server, and any server can stop it",
    visible="who takes part, who was left out, and when, are visible to servers and parties",
)


HONEST_SERVERS = (
    "fewer than half of the servers pool what they see, and every server runs the agreed program: one that "
    "deviates may learn records"
)


ON_SHARES = NamedSentences.of(
    random_bits="shared random bits come from SHAKE128 as a pseudorandom function",
    openings="masked openings show servers less than 2^-40 of each sum, as a statistical distance: not in "
    "delta",
)
# What an exact result assumes: it has no guarantee, whose assumption the first would be.
EXACT_ON_SHARES = NamedSentences.of(honest_servers=HONEST_SERVERS) + ON_SHARES


def vector_privacy(guarantee: PrivacyGuarantee | None) -> Privacy:
    """Return the privacy claim of a sum that servers compute; `guarantee` is None for an exact sum."""
    shared, learned = "vectors are shared among servers", "fewer than half of them together learn nothing but"
    if guarantee is None:
        return with_servers(
            Claim(
                clauses=NamedSentences.of(shared=shared, learned=f"{learned} the exact sum"),
                premises=EXACT_ON_SHARES,
                limits=NamedSentences.of(exact="what the exact sum itself gives away"),
            )
        )
    private = (
        f"each party's vector is ({guarantee.epsilon:g}, {guarantee.delta:g})-differentially private in it "
        f"({WHOLE_PARTY}), whatever the other parties do"
    )
    return with_servers(
        Claim(
            guarantee=guarantee,
            clauses=NamedSentences.of(
                shared=shared, learned=f"{learned} the sum with noise that no server knows", private=private
            ),
            premises=ON_SHARES,
            limits=NamedSentences.of(
                any_vector="a party may give any vector whose coordinates are in bounds"
            ),
        )
    )


def with_servers(claim: Claim) -> Privacy:
    """Return the privacy statement of a claim, with the limits of all computations on shares added."""
    return replace(claim, limits=claim.limits + NOT_PROTECTED).privacy()


@dataclass(frozen=True, slots=True)
class SharedEvidence(StatisticEvidence):
    """Hashes and signatures that bind a result on shares to its session, run and terms.

    `plan` is the digest of the terms, `beacon` of the set that all servers signed; `included_by` and
    `opened_by` have their signatures under it and under the values.
    """

    included_by: Certificate
    opened_by: Certificate

    def to_json(self) -> dict[str, object]:
        """Return the evidence of a result on shares as plain JSON data, bytes as hex."""
        return {
            "session_digest": self.session_digest.hex(),
            "run_id": self.run_id.hex(),
            "plan": self.plan.hex(),
            "included_by": self.included_by.to_json(),
            "opened_by": self.opened_by.to_json(),
        }
