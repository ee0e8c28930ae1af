"""What an audit of a verifiable run found."""

from __future__ import annotations

import msgspec

from smpc_dp.errors import Check


class Excluded(msgspec.Struct, frozen=True):
    """A party that has signed a false statement: the entry that shows it, what is false, and the check."""

    party: str
    sequence: int
    reason: str
    check: Check


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found.

    Attributes:
        counted: whose values are in the average.
        excluded: who signed a false statement.
        corrupt: c, so many parties are assumed to be corrupt at most.
        silent: who takes part and has no publication on the board; the relay may have withheld it.
        void_edges: pairs whose two commitments do not cancel; one of the two deviated, and neither used it.
        residual_pairs: pairs whose noise does not cancel in the total.
        average: in the unit of the session, shape (length,); None if there is none.
        standard_error: of the noise in it.
        bias: what corrupt parties can move it by, at most, in expectation; see `greatest_bias`.
        tries: runs that the bias is for; tries_listed: whether a session log lists so many, or they are
            assumed.
        epsilon, delta: of each honest party, after the exclusions; None: nothing is claimed any more.
        attested: what the quorum signed in the end, in hex; in a party's result it is
            `evidence.survivors.set_digest`, so that the party knows the log for its own run's.
        faults: what no honest run shows; each names who is at fault. Empty: everything holds.
    """

    counted: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    corrupt: int
    silent: tuple[str, ...]
    void_edges: tuple[tuple[str, str], ...]
    residual_pairs: int
    average: tuple[float, ...] | None
    standard_error: float
    bias: float | None
    tries: int
    tries_listed: bool
    epsilon: float | None
    delta: float
    attested: str
    faults: tuple[str, ...]
