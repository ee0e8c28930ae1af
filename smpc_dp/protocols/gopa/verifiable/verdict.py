"""Verdict of an audit of a verifiable run."""

from __future__ import annotations

import msgspec

from smpc_dp.errors import Check


class Excluded(msgspec.Struct, frozen=True):
    """Party that signed a false statement: the entry that shows it, the false part, and the check."""

    party: str
    sequence: int
    reason: str
    check: Check


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of an audit.

    Attributes:
        counted: the parties whose values are in the average.
        excluded: the parties that signed a false statement.
        corrupt: c, the assumed greatest number of corrupt parties.
        silent: participants without a publication on the board; the aggregator may have withheld it.
        void_edges: pairs whose two commitments do not cancel; one of the two deviated, and neither used it.
        residual_pairs: pairs whose noise does not cancel in the total.
        average: in the unit of the session, shape (length,); None if there is none.
        standard_error: of the noise in it.
        bias: the most by which corrupt parties can move it, in expectation; see `greatest_bias`.
        tries: the number of runs assumed for the bias; tries_listed: whether a session log lists so many, or
            they are assumed.
        epsilon, delta: of each honest party, after the exclusions; None: nothing is claimed any more.
        attested: the digest that the quorum signed in the end, in hex; a party's result has it as
            `evidence.survivors.set_digest`, by which the party recognises the log of its own run.
        faults: events of no honest run; each names the members at fault. Empty: everything holds.
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
