"""The noise of statistics of records in secure sums, and what follows from it [docs/proofs/records.md]."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from smpc_dp_verify.answers import Sums
from smpc_dp_verify.asked import EFFECTS, LOOPS, Asked, read_loop
from smpc_dp_verify.columns import Table, number, read_budget, read_table, with_parties
from smpc_dp_verify.errors import Refused, TooMany, required
from smpc_dp_verify.estimates import Estimates, estimates, is_estimated
from smpc_dp_verify.graph import SECURITY, honest_in_sums
from smpc_dp_verify.record_noise import ABOVE, BELOW, Planned, of_range, of_ratios
from smpc_dp_verify.record_plan import Given, digest_of, ends_of, read_given, read_rows
from smpc_dp_verify.session import Session
from smpc_dp_verify.step_plan import read_step
from smpc_dp_verify.sums import Sums as SessionSums

PLANNED = re.compile(r"statistics (?:.* )?([1-9a-f][0-9a-f]*)/1 ([0-9a-f]{64})", re.DOTALL)
LOOP = re.compile(rf"\s*(?:{'|'.join((*LOOPS, EFFECTS))})\s*\(")
# Coordinates of a vector, and blocks of which a plan is made here.
MOST_COORDINATES, MOST_BLOCKS = 1 << 22, 8192
# Below it the noise depends on how an account is rounded, and is not planned here.
LEAST_EPSILON = 1e-5
# Of a result: what of its estimates and of its privacy is not computed here.
UNCHECKED_NUMBERS = ("note", "follow_up")
UNCHECKED_WORDS = ("privacy.claim", "privacy.assumptions", "privacy.not_protected")


@dataclass(frozen=True)
class Shares:
    """One party's noise in a planned session: bounds of its variance, digest of scales, shares counted.

    `least`, `most`: bounds of its variance in squared ring steps; `is_private`: tells whether one is enough.
    `digest_of`: returns the digest of all scales, of one of several requests given the numbers that it takes
    from earlier ones. `counted`: how many shares the guarantee counts on. `length`: coordinates. `unit`: that
    epsilon protects. `plan`: of answers of one request what is asked for, and its noise.
    """

    least: int
    most: int
    digest_of: Callable[[list[int]], str]
    counted: int
    length: int
    unit: str
    plan: tuple[Given, Planned] | None = None
    is_private: Callable[[int], bool] = lambda _: True

    def check(self, operation: str, begins: list[int] | None = None) -> int:
        """Return the variance in a question, or refuse the question of another plan.

        `begins`: the numbers from earlier requests that the last of several depends on; None of a single one.
        """
        asked = PLANNED.fullmatch(operation)
        required(asked is not None, "the question")
        variance, digest = int(asked[1], 16), asked[2]  # type: ignore[index]
        is_planned = self.least <= variance <= self.most and self.is_private(variance)
        required(is_planned, "the noise of the question")
        required((begins is None) == (self.plan is not None), "where the request begins")
        required(digest == self.digest_of(begins or []), "the scales of the question")
        return variance

    def rows_of(self, numbers: Sequence[int]) -> int | None:
        """Return the public number of rows of some parties, from 0; None where it is private."""
        public = None if self.plan is None else self.plan[0].public_rows
        return None if public is None else sum(public[number] for number in numbers)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What of a result's numbers and its question is not computed here."""
        if self.plan is None:
            return ("estimates", *UNCHECKED_WORDS)
        request, planned = self.plan
        others = [one.text for one in request.asked if not is_estimated(one, request.table, planned)]
        return (
            *UNCHECKED_NUMBERS,
            # nothing that is computed depends on it
            *(("level",) if len(others) == len(request.asked) else ()),
            *UNCHECKED_WORDS,
            *(f"estimates of {text}" for text in others),
        )

    @property
    def asked(self) -> dict[str, Asked] | None:
        """What is asked for, by its text, in order; None of answers that take several requests."""
        return None if self.plan is None else {one.text: one for one in self.plan[0].asked}

    def estimates(
        self, total: Sequence[int], variance: int, numbers: Sequence[int], hide: float, outside: float
    ) -> list[Estimates]:
        """Return what the ring elements of some parties' total give, of the answers that are computed.

        `hide`: a count is shown from so many deviations of its noise on. `outside`: the probability that an
        interval misses.
        """
        if self.plan is None:
            return []
        request, planned = self.plan
        lowest = len(numbers) * min(ends_of(one, request.table)[0] for one in planned.scaled)
        sums = Sums(
            request.table,
            planned.scaled,
            [value + lowest for value in total],
            lambda block: planned.of_laplace if block in planned.pure else variance,
            numbers,
            self.rows_of(numbers),
            hide,
            lambda block: len(numbers) / self.counted if planned.is_laplace(block) else None,
        )
        return [*estimates(sums, request.asked, planned, outside)]


def read_shares(sums: SessionSums) -> Shares | None:
    """Return the noise that a session with records fixes; None if not planned here; Refused if malformed."""
    session, given = sums.session, sums.session.parameters
    if session.protocol != "secagg" or "smallest_count" in given:
        return None
    if "epsilon" not in given:
        if "budget" not in given:
            _check_exact(session)
        return None
    parties, lost = len(session.names), len(session.names) - sums.least
    try:
        honest = honest_in_sums(parties, sums.corrupt, lost, number(given.get("security", SECURITY)))
        # one share is known to whoever looks, a corrupt party's or its own
        counted = honest - (sums.corrupt == 0)
        required(counted >= 1, "the parameter corrupt")
        asked = given["ask"] if isinstance(given["ask"], list) else given["ask"].split(";")
        given = with_parties(given, session.names)
        if 0 < number(given["epsilon"]) < LEAST_EPSILON:
            raise TooMany("the digits of so small an epsilon")
        if any(LOOP.match(text) for text in asked):
            return _of_steps(given, parties, counted)
        read_budget(given)
        request = read_given(given, parties, MOST_COORDINATES, MOST_BLOCKS)
        split = given.get("split", "range")
        required(split in ("range", "balanced"), "the parameter split")
        chosen = (of_range if split == "range" else of_ratios)(request, given, counted)
    except TooMany:
        return None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise Refused("the session is malformed") from None
    digest = digest_of(chosen.scaled, "secagg", 1, None if chosen.laplace is None else f"{chosen.laplace:x}")
    length, unit = sum(one.block.cells for one in chosen.scaled), _unit(request.table)
    plan = (request, chosen)
    return Shares(chosen.least, chosen.most, lambda _: digest, counted, length, unit, plan, chosen.is_private)


def _check_exact(session: Session) -> None:
    """Refuse exact sums of several requests that need the column of parties."""
    given = with_parties(session.parameters, session.names)
    try:
        table = read_table(given["records"])
        names = {name for name, column in table.columns.items() if column.is_party}
        needed = {*read_loop(given["ask"], table).columns} if names else set[str]()
    except TooMany:
        return
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise Refused("the session is malformed") from None
    for name in names & needed:
        reason = f"{name!r} is the party: each cell has records of one party, so none is shown without noise"
        raise Refused(reason)


def _unit(table: Table) -> str:
    return "person" if table.of_persons else "record"


def _of_steps(given: dict[str, Any], parties: int, counted: int) -> Shares:
    """Return the noise of a request of several."""
    step = read_step(given, parties)
    variance = step.l2**2 / (step.mu**2 * counted)
    bounds = [math.ceil(variance * (1 + part)) for part in (-BELOW, ABOVE)]
    read_rows(given, step.table, parties)
    return Shares(bounds[0], bounds[1], step.digest_of, counted, step.length, _unit(step.table))
