"""The auditor of a pairwise statistic: reads its log in order, and repeats the draw of the matchings.

It needs the log and the session's roster alone, and no key. It shows: all paired parties committed to coins
before any coin was opened, under the signature of each; the matchings follow from these coins; the number of
draws, and the parties missing in the abandoned ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.messages import OPERATION
from smpc_dp.capabilities.pairs.ustatistic.plan import MAX_PARTNERS
from smpc_dp.capabilities.pairs.ustatistic.terms import (
    Draw,
    again_identifier,
    check_failed,
    draw,
    is_opening,
    quorum,
    run_identifier,
    start_root,
    statistic_context,
)
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.decoding import convert
from smpc_dp.engine.phases import messages as common
from smpc_dp.engine.phases.begin import check_begin, session_head
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.logs.auditing import Excluded
from smpc_dp.logs.log import Entry, Header
from smpc_dp.logs.opinion import Findings, Opinion
from smpc_dp.wire.canonical_session import is_plain, session_json
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context, decode

# Kinds of entries that the aggregator signs.
_OF_AGGREGATOR = (common.CERTIFY_BEGIN, m.TERMS, *m.AGAINS, m.OUTCOME)
# Bytes of a number in a message, at most, and of all in one with a bound of its own.
_NUMBER, _MORE = 9, 1024
WRONG_COIN = "opened a coin that is not the one it has committed to"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """Record of one drawing of pairs: how many parties were present, and whose coin was missing or false.

    `dropped`: the parties that opened a coin and are nevertheless not in the next draw.
    """

    present: int
    silent: tuple[str, ...]
    false: tuple[str, ...]
    dropped: tuple[str, ...] = ()


class StatisticVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict on a pairwise statistic's log: what the audit found; part of `smpc-dp audit --json`.

    Attributes:
        statistic: the digest of kernel, noise, budget and circuit, in hex; terms: the same as plain data.
        present: the parties whose coins made the draw; partners: P.
        attempts: the draws, of which the last one counts; run_id: of that one; beacon: the seed of its
            matchings; both in hex.
        pairs: for each matching the pairs (garbler, evaluator).
        failed: pairs missing in the estimate, with their matching, from 0.
        disputed: those of them that both parties signed as evaluated.
        unheard: participants without a report on their pairs.
        value, standard_error, noise_error: signed by the aggregator; no other member can check the value.
    """

    statistic: str
    terms: dict[str, Any]
    present: tuple[str, ...]
    partners: int
    attempts: tuple[Attempt, ...]
    run_id: str
    beacon: str
    pairs: tuple[tuple[tuple[str, str], ...], ...]
    failed: tuple[tuple[int, str, str], ...]
    disputed: tuple[tuple[int, str, str], ...]
    unheard: tuple[str, ...]
    value: float
    standard_error: float | None
    noise_error: float

    # As in the verdict on a verifiable run.
    counted: ClassVar[tuple[str, ...]] = ()
    faults: ClassVar[tuple[str, ...]] = ()
    excluded: ClassVar[tuple[Excluded, ...]] = ()
    attested: ClassVar[str] = ""

    @property
    def summary(self) -> str:
        """Phrase that says how many pairs were drawn, how many failed, and which draw it is."""
        drawn, failed = sum(map(len, self.pairs)), len(self.failed)
        who = f"{drawn} pairs were drawn from the coins of all {len(self.present)} parties, {failed} failed"
        if (given_up := len(self.attempts) - 1) > 0:
            who += f"; it is draw number {given_up + 1}, as coins were missing in those before"
        return who

    def limits(self, corrupt: int) -> str:
        """Return the sentences on what the audit cannot show, if `corrupt` parties may collude."""
        return (
            "Not detected: false records, and a false estimate. All this holds only if at most "
            f"c = {corrupt} of the parties are corrupt."
        )

    def compared(self, opinion: Opinion) -> Findings:
        """Return both auditors' findings, by field; {} if the second has none; raise if malformed."""
        if opinion.statistic is None:
            return {}
        second = convert(opinion.statistic, StatisticVerdict)
        return {name: (getattr(self, name), getattr(second, name)) for name in self.__struct_fields__}


def check_run_id(context: Context, header: Header) -> None:
    """Raise VerificationError unless a log header's run id is the hash of its session and parties.

    It needs no plan of the session, and is called before one is made.
    """
    expected = run_identifier(statistic_context(context), _plan_of(header), header.present, header.root)
    if expected.hex() != header.run_id:
        raise VerificationError(
            "the run id is not that of session, request, parties and commitments", Check.RUN_ID_DIFFERS
        )


class StatisticAuditor:
    """Auditor of the log of one pairwise statistic: checks each entry in order, then gives a verdict.

    `context` is the session's, for the request in the header, and `corrupt` its c. `check_run_id` has
    accepted the header's run id.
    """

    def __init__(self, context: Context, header: Header, corrupt: int) -> None:
        self._context = statistic_context(context)
        self.corrupt = corrupt
        self.quorum = quorum(len(context.names), corrupt)
        self._session_head = session_head(header, context.scope)
        self._begun = False
        self._aggregator = context.aggregator
        self._plan = _plan_of(header)
        self._root = header.root
        self._present = self._unpack(header.present)
        self._run_id = bytes.fromhex(header.run_id)
        self._first_count = len(self._present)
        self._terms: dict[str, Any] | None = None
        self._partners = 0
        self._hellos: dict[str, m.Hello] = {}
        self._coins: dict[str, bytes] = {}
        self._false: list[str] = []
        # All draws' parties with a wrong coin.
        self._excluded: dict[str, Excluded] = {}
        self._attempt = 1
        self._given_up: list[Attempt] = []
        self._draw: Draw | None = None
        self._dones: dict[str, frozenset[int]] = {}
        self._outcome: m.Outcome | None = None
        self._last = 0

    # As in the auditor of verifiable runs: the name of the verdict in a report, a party's entries in order.
    part: ClassVar[str] = "statistic"
    steps: ClassVar[tuple[str, ...]] = (m.HELLO, *m.COINS, m.DONE)
    proven_by: ClassVar[Mapping[str, str]] = MappingProxyType({})
    noted: ClassVar[tuple[str, ...]] = ()
    doubt: ClassVar[str] = "its end is signed by the aggregator alone"

    @property
    def expected(self) -> str:
        """Names of the kinds of log entries that may come next; "" after the last one."""
        return " or ".join(self._expected()) if self._outcome is None else ""

    @property
    def context(self) -> Context:
        """The session, request and members of the audited run."""
        return self._context

    @property
    def present(self) -> PartySet:
        """The set of parties that take part in the current drawing of pairs."""
        return self._present

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Parties that were excluded since their opened coin does not match their commitment."""
        return tuple(self._excluded.values())

    @property
    def attempt(self) -> int:
        """Number of the current drawing of pairs, from 1."""
        return self._attempt

    def settle(self) -> None:
        """Do nothing: each entry is checked when it is taken."""

    def last_run_id(self) -> str:
        """Return the run id in the verdict; raise VerificationError if the log is incomplete."""
        return self.verdict().run_id

    def longest(self, kind: str) -> int:
        """Return the greatest size in bytes that a valid log entry of this kind may have."""
        parties = len(self._context.names)
        if kind == common.CERTIFY_BEGIN:
            return common.longest_certificate(parties)
        if kind == m.TERMS:
            return m.MAX_TERMS + _MORE
        if kind == m.HELLO:
            return 4 * m.MAX_OPERATION + _MORE
        if kind == m.DONE:
            return _NUMBER * self._partners + _MORE
        if kind == m.OUTCOME:
            return 3 * _NUMBER * self._partners * (parties // 2) + _MORE
        return parties // 8 + _MORE

    def check_signature(self, entry: Entry, _index: object = None) -> None:
        """Raise VerificationError unless the member that an entry names has signed it for this run."""
        run_id = self._run_id
        if entry.kind == m.HELLO:
            run_id = self._context.session_digest
        elif entry.kind in m.AGAINS:
            # Signed under the run id that it begins.
            run_id = again_identifier(
                self._context, run_id, self._attempt + 1, decode(entry.payload, m.Again, entry.party).present
            )
        signature = bytes.fromhex(entry.signature)
        try:
            self._context.check_detached(
                run_id, entry.kind, entry.party, self._aggregator, entry.payload, signature
            )
        except PeerFault as fault:
            # It says nothing about the party: anyone may have written it.
            raise VerificationError(f"an entry '{entry.kind}' in the name of {fault}", fault.check) from None

    def take(self, entry: Entry, _head: bytes = b"", _index: object = None) -> None:
        """Check the next log entry's content and update the audit; its signature is checked before."""
        if self._outcome is not None:
            raise VerificationError("an entry after the outcome", Check.LOG_CLOSED)
        if (entry.party == self._aggregator) != (entry.kind in _OF_AGGREGATOR):
            raise VerificationError(f"'{entry.kind}' is not for '{entry.party}' to say", Check.WRONG_SENDER)
        if entry.kind not in self._expected():
            raise VerificationError(
                f"'{entry.kind}' where '{' or '.join(self._expected())}' is due", Check.UNEXPECTED_STEP
            )
        if entry.kind == common.CERTIFY_BEGIN:
            certified = decode(entry.payload, common.Certified, entry.party)
            present, head = self._present, self._session_head
            check_begin(self._context, self.quorum, self._run_id, head, present, certified)
            self._begun = True
        elif entry.kind == m.TERMS:
            self._take_terms(entry)
        elif entry.kind == m.HELLO:
            self._take_hello(entry)
        elif entry.kind in m.COINS:
            self._take_coin(entry)
        elif entry.kind in m.AGAINS:
            self._take_again(entry)
        elif entry.kind == m.DONE:
            self._take_done(entry)
        else:
            self._take_outcome(entry)

    def verdict(self, _tries: int | None = None) -> StatisticVerdict:
        """Return the audit's verdict; raise VerificationError if the log ends before the outcome."""
        outcome, result = self._outcome, self._draw
        if outcome is None or result is None or self._terms is None:
            raise VerificationError(
                "the log ends before the outcome: it was cut, or the request failed", Check.LOG_CUT
            )
        failed = [(matching, *result.pairs[matching][index]) for matching, index in outcome.failed]
        disputed = [
            each
            for each in failed
            if all(name in self._dones and each[0] not in self._dones[name] for name in each[1:])
        ]
        names = self._names(self._present)
        return StatisticVerdict(
            statistic=self._plan.hex(),
            terms=self._terms,
            present=names,
            partners=len(result.pairs),
            attempts=(*self._given_up, self._ended()),
            run_id=self._run_id.hex(),
            beacon=result.beacon.hex(),
            pairs=result.pairs,
            failed=tuple(failed),
            disputed=tuple(disputed),
            unheard=tuple(name for name in names if name not in self._dones),
            value=outcome.value,
            standard_error=outcome.error,
            noise_error=outcome.noise_error,
        )

    def _expected(self) -> tuple[str, ...]:
        """Return the kinds of log entries that may come next."""
        if not self._begun:
            return (common.CERTIFY_BEGIN,)
        if self._terms is None:
            return (m.TERMS,)
        if len(self._hellos) < self._first_count:
            return (m.HELLO,)
        if len(self._coins) == len(self._present):
            return (m.DONE, m.OUTCOME)
        further = m.AGAINS[self._attempt - 1 : self._attempt]
        return (m.COINS[self._attempt - 1], *further)

    def _take_terms(self, entry: Entry) -> None:
        """Check the logged terms of the statistic against the header, and take its settings."""
        claimed = decode(entry.payload, m.Terms, entry.party)
        if digest(Label.STATISTIC_TERMS, claimed.terms, claimed.circuit) != self._plan:
            raise VerificationError(
                "the terms are not those of the statistic that was asked for", Check.OTHER_OPERATION
            )
        try:
            terms = json.loads(claimed.terms)
            # Neither another encoding nor an infinite number, which no report can hold.
            if session_json(terms) != claimed.terms or not is_plain(terms):
                terms = None
        except (ValueError, RecursionError):
            terms = None
        partners = terms.get("partners") if isinstance(terms, dict) else None
        if not isinstance(partners, int) or isinstance(partners, bool) or not 1 <= partners <= MAX_PARTNERS:
            raise VerificationError("the terms do not say how many partners each party has", Check.OTHER_PLAN)
        self._terms, self._partners = terms, partners

    def _take_hello(self, entry: Entry) -> None:
        """Check and store a party's logged hello; raise VerificationError if it is not the next."""
        hello = decode(entry.payload, m.Hello, entry.party)
        expected = self._names(self._present)[len(self._hellos)]
        if entry.party != expected:
            raise VerificationError(
                f"the hello of '{entry.party}' where that of '{expected}' is due", Check.WRONG_ORDER
            )
        if hello.session_digest != self._context.session_digest or hello.request != self._context.request:
            raise VerificationError(
                f"the hello of '{entry.party}' is for another session or request", Check.OTHER_REQUEST
            )
        if hello.plan != self._plan:
            raise VerificationError(
                f"the hello of '{entry.party}' asks for another statistic", Check.OTHER_OPERATION
            )
        self._hellos[entry.party] = hello
        if len(self._hellos) < self._first_count:
            return
        hellos = self._hellos.values()
        public_labels = bytes(each.public_label + 1 for each in hellos)
        if start_root(b"".join(each.commitments for each in hellos), public_labels) != self._root:
            raise VerificationError(
                "the run is not that of these commitments and labels", Check.RUN_ID_DIFFERS
            )
        labelled = self._terms is not None and self._terms.get("labels") == "public"
        if any((public_label > 0) != labelled for public_label in public_labels):
            raise VerificationError(
                "a party has a public label where none is due, or none where one is", Check.LABEL_DIFFERS
            )

    def _take_coin(self, entry: Entry) -> None:
        """Store a party's logged coin; exclude the party if the coin is not the committed one."""
        party = self._in_order(entry)
        name, coin = entry.party, decode(entry.payload, m.Coin, entry.party).coin
        if party not in self._present:
            raise VerificationError(f"a coin of '{name}', who is not present", Check.NOT_PRESENT)
        commitments = self._hellos[name].commitments
        if not is_opening(self._context, self._plan, self._attempt, name, coin, commitments):
            self._false.append(name)
            self._excluded[name] = Excluded(name, entry.sequence, WRONG_COIN, Check.BAD_OPENING)
            return
        self._coins[name] = coin
        if len(self._coins) == len(self._present):
            self._match()

    def _match(self) -> None:
        """Store which parties form pairs, computed again from the logged coins."""
        names = self._names(self._present)
        public_labels = bytes(self._hellos[name].public_label + 1 for name in names)
        coins = b"".join(self._coins[name] for name in names)
        self._draw = draw(self._partners, public_labels[0] > 0, self._run_id, names, public_labels, coins)
        self._last = 0

    def _take_again(self, entry: Entry) -> None:
        """Check the logged start of a further drawing, and begin its record."""
        packed = decode(entry.payload, m.Again, entry.party).present
        left = self._unpack(packed)
        if not left <= self._present or any(name not in self._coins for name in self._names(left)):
            raise VerificationError("a further draw with a party whose coin is missing", Check.SET_DIFFERS)
        gone = self._names(party for party in self._present if party not in left)
        dropped = tuple(name for name in gone if name in self._coins)
        self._given_up.append(replace(self._ended(), dropped=dropped))
        self._attempt += 1
        self._run_id = again_identifier(self._context, self._run_id, self._attempt, packed)
        self._present, self._coins, self._false, self._last = left, {}, [], 0

    def _take_done(self, entry: Entry) -> None:
        """Check and store a party's logged report on which of its pairs failed."""
        if self._in_order(entry) not in self._present or self._draw is None:
            raise VerificationError(f"'{entry.party}' is in no pair", Check.NOT_PRESENT)
        failed = decode(entry.payload, m.Done, entry.party).failed
        check_failed(self._draw, entry.party, failed)
        self._dones[entry.party] = frozenset(failed)

    def _take_outcome(self, entry: Entry) -> None:
        """Check and store the logged outcome (estimate, failed pairs), after which no entry may come."""
        outcome = decode(entry.payload, m.Outcome, entry.party)
        if outcome.before.hex() != entry.previous:
            raise VerificationError(
                "the aggregator signed the outcome of another log: one above was changed", Check.LOG_DIFFERS
            )
        if self._draw is None:
            raise VerificationError("an outcome before the draw", Check.UNEXPECTED_STEP)
        figures = (
            outcome.value,
            outcome.error,
            outcome.low,
            outcome.high,
            outcome.level,
            outcome.noise_error,
        )
        if not all(figure is None or math.isfinite(figure) for figure in figures):
            raise VerificationError("the outcome is no number", Check.OUT_OF_RANGE)
        drawn = [
            (matching, index)
            for matching, pairs in enumerate(self._draw.pairs)
            for index in range(len(pairs))
        ]
        if outcome.failed != sorted(set(outcome.failed) & set(drawn)):
            raise VerificationError("the outcome is without pairs that were not drawn", Check.WRONG_COUNT)
        if outcome.pairs != len(drawn) - len(outcome.failed):
            raise VerificationError(
                f"the outcome counts {outcome.pairs} pairs of {len(drawn)} wrongly", Check.WRONG_COUNT
            )
        self._outcome = outcome

    def _ended(self) -> Attempt:
        """Return the record of the current drawing: parties present, silent ones and false ones."""
        names = self._names(self._present)
        false = tuple(self._false)
        silent = tuple(name for name in names if name not in self._coins and name not in false)
        return Attempt(present=len(names), silent=silent, false=false)

    def _in_order(self, entry: Entry) -> int:
        """Return and note an entry's party number; VerificationError unless above the last one."""
        try:
            party = self._context.number(entry.party)
        except ValueError:
            raise VerificationError(f"'{entry.party}' is no party", Check.NOT_PRESENT) from None
        if party <= self._last:
            raise VerificationError(
                f"'{entry.kind}' of '{entry.party}' is not in the order of the roster", Check.WRONG_ORDER
            )
        self._last = party
        return party

    def _unpack(self, packed: bytes) -> PartySet:
        """Return the set of parties in packed bits; raise an error if it is malformed or below quorum."""
        present = PartySet.unpack(packed, len(self._context.names), self._aggregator)
        if len(present) < self.quorum:
            raise VerificationError(
                f"{len(present)} parties are present, {self.quorum} are needed", Check.SET_TOO_SMALL
            )
        return present

    def _names(self, parties: Iterable[int]) -> tuple[str, ...]:
        """Return the names of parties in the order of these numbers, which count from 1."""
        return tuple(self._context.names[party - 1] for party in parties)


def auditor(context: Context, corrupt: int, header: Header, *_workers: object) -> StatisticAuditor:
    """Return the auditor of a pairwise statistic's log, if at most `corrupt` parties are assumed corrupt."""
    return StatisticAuditor(context, header, corrupt)


def _plan_of(header: Header) -> bytes:
    """Return the statistic's digest from a log's header; raise VerificationError for another kind of log."""
    text = header.operation.removeprefix(OPERATION)
    try:
        plan = bytes.fromhex(text)
    except ValueError:
        plan = b""
    if header.operation != OPERATION + plan.hex() or len(plan) != len(header.root) or len(plan) != 32:
        raise VerificationError("the log is not that of a pairwise statistic", Check.OTHER_PLAN)
    return plan
