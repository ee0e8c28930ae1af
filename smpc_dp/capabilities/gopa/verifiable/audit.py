"""The auditor of a verifiable run: reads the entries of a board in order, and returns a verdict.

It needs no key and keeps no secret. An entry that no honest aggregator would have accepted is a fault of the
log; a false signed statement of a party that is excluded for it is none. Specification:
protocols/gopa/verifiable.md.
"""

from __future__ import annotations

import array
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.disk_store import (
    COIN_BYTES,
    Sequences,
    StoredBytes,
    StoredCommits,
    flags_of,
)
from smpc_dp.capabilities.gopa.verifiable.edges import EdgeAudit
from smpc_dp.capabilities.gopa.verifiable.openings import OpeningAudit
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.signatures import SignatureAudit
from smpc_dp.capabilities.gopa.verifiable.statements import (
    BOUNDS_BEFORE,
    CHECKS,
    COMMIT_MALFORMED,
    FALSE,
    Rules,
    failures_among,
)
from smpc_dp.capabilities.gopa.verifiable.verdict import Verdict
from smpc_dp.crypto import proofs
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.begin import check_begin, session_head
from smpc_dp.engine.phases.certify import check_certificate
from smpc_dp.errors import Check, PeerFault, SmpcError, VerificationError
from smpc_dp.logs.auditing import CHANGED, Again, Excluded
from smpc_dp.logs.log import Entry, Header
from smpc_dp.wire.batch_verifier import Position, Workers, raise_first
from smpc_dp.wire.sets import PartySet, pack_list
from smpc_dp.wire.signing import Context, decode, group_operation

# Most proofs that are verified together, and bytes of them.
BATCH, BATCH_BYTES = 512, 1 << 22
# Ratio of memory to published bytes: a value of 8 bytes becomes a scalar.
_OPENED = 5


def check_run_id(context: Context, header: Header) -> None:
    """Raise VerificationError unless a log header's run id follows from session, parties and nonces.

    It needs no plan of the session, and is called before one is made.
    """
    expected = keys.run_identifier(context, context.operation, header.present, header.root)
    if expected.hex() != header.run_id:
        raise VerificationError(
            "the run id is not that of this session, its parties and their nonces", Check.RUN_ID_DIFFERS
        )


class Auditor:
    """Auditor of a verifiable run's public log: takes its entries one by one, then gives a verdict.

    Args:
        context: of the run; its `names`, `aggregator` and `keys` are the roster's.
        parameters: checked, of the session.
        header: of the log, without its session; `check_run_id` has accepted its run id.
        again: reads the log again, which must not have changed; needed after a fault.
        workers: run expensive work; by default it is done when it comes.

    `settle` raises later faults of earlier entries: a signature or a malformed point.

    Raises:
        VerificationError, PeerFault: the header is wrong, or from `take` an entry that ends the audit.
    """

    def __init__(
        self,
        context: Context,
        parameters: VerifiableParameters,
        header: Header,
        again: Again,
        workers: Workers | None = None,
    ) -> None:
        self._run_id = run_id = bytes.fromhex(header.run_id)
        self._context, self._parameters, self.context = context, parameters, context
        self.quorum, self.corrupt = parameters.plan.quorum, parameters.plan.max_corrupt
        self._session_head = session_head(header, context.scope)
        self._relay, self._parties = context.aggregator, len(context.names)
        self._present = PartySet.unpack(header.present, self._parties, self._relay)
        planned = parameters.planned()
        # The operation names the parties of a group.
        ends = (f" {planned}", f" {group_operation(planned, context.names)}")
        if not f" {context.operation}".endswith(ends):
            raise VerificationError(
                f"the parties asked for {context.operation!r}, the parameters plan {planned}",
                Check.OTHER_OPERATION,
            )
        self._rules = Rules(context, parameters, run_id)
        self._workers = workers = workers or Workers()
        self._again = again
        self._signatures = SignatureAudit(context, run_id, workers)
        self._edges = EdgeAudit(context.names, workers, self._commits_again)
        self._batch, self._batched, self._batched_bytes = proofs.Statements(), 0, 0
        self._results: list[Callable[[], Sequence[tuple[Any, ...]]]] = []
        self._phase = 0
        self._last = 0
        self._excluded: dict[int, Excluded] = {}
        self._sequences = Sequences(self._parties)
        self._commits = StoredCommits(self._parties)
        self._coins = StoredBytes(self._parties, COIN_BYTES)
        self._published = array.array("H")
        ring_vector = parameters.encoding.ring_length
        self._openings = OpeningAudit(self._rules, self._edges, self._parties, ring_vector)
        self._order = list(v.ORDER)
        # Excluded parties known to all: a round of openings is about the others.
        self._known_false: set[int] = set()
        self._total = np.zeros(ring_vector, dtype=np.uint64)
        self._x_hat = StoredBytes(self._parties, self._total.nbytes)
        self._closed = False
        self._tally: v.Tally | None = None

    def check_signature(self, entry: Entry, position: Position) -> None:
        """Queue the check that an entry is signed for this run by the party that the entry names."""
        self._signatures.add(position, entry)

    def settle(self) -> None:
        """Wait for the queued checks of single entries; raise EarlierFault for the first wrong entry."""
        raise_first(self._signatures.checks, self._edges.checks)

    # Name of its verdict in a report; kinds of a party's entries, in order; 0: nothing is drawn again.
    part: ClassVar[str] = "verdict"
    steps: ClassVar[tuple[str, ...]] = (v.COMMIT, v.COIN, v.PUBLISH)
    attempt: ClassVar[int] = 0
    # Certificates and the tally are taken when the proofs before them are verified.
    proven_by: ClassVar[Mapping[str, str]] = MappingProxyType(
        {v.CERTIFY_COMMITMENTS: v.COMMIT, "certify-exclusions": v.PUBLISH, v.TALLY: v.PUBLISH}
    )

    @property
    def present(self) -> PartySet:
        """The set of parties that, by the log's header, are present in the run."""
        return self._present

    @property
    def doubt(self) -> str:
        """The reason why a second, different log of this run may exist; "" if there is none."""
        if len(self._excluded) <= self.corrupt:
            return ""
        return f"more than c = {self.corrupt} parties signed something false"

    def last_run_id(self) -> str:
        """Return the id, in hex, of the run that the audited log belongs to so far."""
        return self._run_id.hex()

    def longest(self, kind: str) -> int:
        """Return the greatest length in bytes that a valid log entry of this kind may have."""
        return self._parameters.longest_entry(kind)

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Parties found so far to have signed something false, in the order of the roster."""
        return tuple(item for _, item in sorted(self._excluded.items()))

    @property
    def expected(self) -> str:
        """The kind of the next log entry, or of an alternative to it; "" after the last entry."""
        return "" if self._closed else self._order[min(self._phase, len(self._order) - 1)]

    @property
    def noted(self) -> tuple[str, ...]:
        """False statements found so far, with authors; their signatures hold once checks are settled."""
        return tuple(f"{item.party}: {item.reason}" for item in self.excluded)

    def take(self, entry: Entry, head: bytes, position: Position) -> None:
        """Check the next log entry, raise an error if it is wrong; `head` is the log's hash before it."""
        self._index = position
        if self._closed:
            raise VerificationError(
                "an entry after the last one: the board was closed above", Check.LOG_CLOSED
            )
        if entry.kind == self._openings.kinds[0] and self._order[self._phase + 1 :][:1] == [v.TALLY]:
            self._order[self._phase + 1 : self._phase + 1] = self._openings.kinds
        if entry.kind not in self._order:
            raise VerificationError(
                f"kind {entry.kind!r} is unknown, or not due in this run", Check.UNEXPECTED_STEP
            )
        phase = self._order.index(entry.kind)
        if phase < self._phase or any(map(v.is_of_the_relay, self._order[self._phase : phase])):
            raise VerificationError(
                f"'{entry.kind}' where '{self._order[self._phase]}' is due", Check.UNEXPECTED_STEP
            )
        if phase != self._phase:
            self._phase, self._last = phase, 0
        if v.is_of_the_relay(entry.kind):
            if entry.party != self._relay:
                raise PeerFault(
                    entry.party, f"has an entry '{entry.kind}', which is the aggregator's", Check.WRONG_SENDER
                )
            self._of_the_relay(entry, head)
            self._phase += 1
        else:
            party = self._number(entry.party)
            if party is None:
                raise PeerFault(
                    entry.party, f"has an entry '{entry.kind}', which is a party's", Check.WRONG_SENDER
                )
            if party <= self._last:
                raise VerificationError(
                    f"entries '{entry.kind}' are not in the order of the roster", Check.WRONG_ORDER
                )
            self._last = party
            self._sequences[party, entry.kind] = entry.sequence
            parties = {v.COMMIT: self._commit, v.COIN: self._coin, v.PUBLISH: self._publish}
            parties.get(entry.kind, self._open)(party, entry)

    def _of_the_relay(self, entry: Entry, head: bytes) -> None:
        """Check a log entry of the aggregator, and go to the next step of the audit."""
        if entry.kind == v.TALLY:
            self._check_tally(decode(entry.payload, v.Tally, entry.party))
            return
        certified = decode(entry.payload, m.Certified, entry.party)
        if entry.kind == m.CERTIFY_BEGIN:
            quorum = self._parameters.plan.quorum
            check_begin(self._context, quorum, self._run_id, self._session_head, self._present, certified)
            return
        if entry.kind == v.CERTIFY_COMMITMENTS:
            self._begin(certified, head)
        elif entry.kind == v.CERTIFY_COINS:
            self._combine()
        members, false = self._participants, list[bytes]()
        if entry.kind == self._openings.kinds[0]:
            members, *false = self._begin_round(certified)
        step = entry.kind.replace("certify", "attest", 1)
        if certified.members != members.packed:
            raise PeerFault(entry.party, f"certificate of '{step}' is of another set", Check.BAD_CERTIFICATE)
        self._attested = self._rules.attestation(step, head, members.packed, *false)
        check_certificate(
            self._context,
            self._parameters.plan.quorum,
            self._run_id,
            step,
            self._attested,
            members,
            m.Certificate(certified.signers, certified.signatures),
        )
        self._closed = entry.kind == v.CERTIFY_TALLY

    # parties

    def _commit(self, party: int, entry: Entry) -> None:
        """Check and store a party's logged commitments; exclude the party if they are malformed."""
        if party not in self._present:
            raise PeerFault(entry.party, "commits, and was not present", Check.NOT_PRESENT)
        try:
            message = self._rules.read_commit(party, entry.payload, entry.party)
        except PeerFault:
            self._exclude(party, entry, COMMIT_MALFORMED)
            return
        self._edges.add(self._index, party, message)
        self._commits[party] = message
        self._rules.add_commit(self._batch, party, entry.party, message)
        self._count(1, len(message.range_proof))

    def _coin(self, party: int, entry: Entry) -> None:
        """Store a party's logged coin; raise PeerFault unless the party committed to it before."""
        coin = decode(entry.payload, v.Coin, entry.party).coin
        if party not in self._participants:
            raise PeerFault(entry.party, "opens a coin, and does not take part", Check.NOT_PRESENT)
        if self._rules.coin_commitment(entry.party, coin) != self._commits[party].coin:
            raise PeerFault(entry.party, "opened another coin than it has committed to", Check.BAD_OPENING)
        self._coins[party] = coin

    def _publish(self, party: int, entry: Entry) -> None:
        """Queue the proofs of a party's logged noisy vector; exclude the party if it is malformed."""
        if party not in self._participants:
            raise PeerFault(entry.party, "publishes, and does not take part", Check.NOT_PRESENT)
        message = self._rules.read_publish(entry.payload, entry.party)
        self._published.append(party)
        if isinstance(message, str):
            self._exclude(party, entry, message)
            return
        self._rules.add_publish(
            self._batch, party, entry.party, message, self._commits[party], [self._edges.sum_of(party)]
        )
        self._count(2, _OPENED * len(message.x_hat) + len(message.noise_proof))
        self._x_hat[party] = message.x_hat

    def _open(self, party: int, entry: Entry) -> None:
        """Check a party's logged opening of noise with excluded neighbours; exclude the party if false."""
        if party not in self._good:
            raise PeerFault(
                self._relay, f"has an opening of {entry.party}, whose value is not counted", Check.NOT_PRESENT
            )
        try:
            false = self._openings.take(party, entry.payload, entry.party)
        except ValueError:
            raise PeerFault(
                self._relay, f"has an opening of {entry.party}, who has none to make", Check.NOT_PRESENT
            ) from None
        if false:
            self._exclude(party, entry, false)

    def _exclude(self, party: int, entry: Entry, false: str) -> None:
        """Record that a log entry is false, so that its author is excluded from the audited total."""
        self._excluded[party] = Excluded(entry.party, entry.sequence, FALSE[false], CHECKS[false])

    def _count(self, proofs_more: int, size: int) -> None:
        """Count queued proofs; pass them to the workers once they reach the size of a batch."""
        self._batched += proofs_more
        self._batched_bytes += size
        if self._batched >= BATCH or self._batched_bytes >= BATCH_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        """Pass the waiting proofs to the workers that verify proofs."""
        if self._batched:
            self._results.append(self._workers.shard("proofs of the log", failures_among, self._batch))
            self._batch, self._batched, self._batched_bytes = proofs.Statements(), 0, 0

    def _settle(self, kind: str) -> None:
        """Wait for the verification of a step's proofs, and exclude the authors of false proofs."""
        self._hand_over()
        for result in self._results:
            for tag in result():
                party, which = tag[0], tag[1]
                self._excluded.setdefault(
                    party,
                    Excluded(self._name(party), self._sequences[party, kind], FALSE[which], CHECKS[which]),
                )
        self._results = []

    # stages

    def _begin(self, certified: m.Certified, head: bytes) -> None:
        """Exclude authors of false commitments, check the participants, and find the edges that count."""
        self.settle()
        for party in self._edges.malformed:
            position = self._sequences[party, v.COMMIT]
            self._excluded[party] = Excluded(
                self._name(party), position, FALSE[COMMIT_MALFORMED], CHECKS[COMMIT_MALFORMED]
            )
        self._settle(v.COMMIT)
        self._packed, self._known_false = certified.members, {*self._excluded}
        self._participants = PartySet.unpack(certified.members, self._parties, self._relay)
        good = [party for party in self._commits if party not in self._excluded]
        self._same(self._participants, good, "takes part", "has committed to what is proven")
        if len(self._participants) < self._parameters.least_left(len(self._excluded)):
            raise PeerFault(self._relay, "lets too few parties take part", Check.SET_TOO_SMALL)
        self._commits_head = head
        self._void = self._edges.begin(self._participants)

    def _commits_again(self) -> Iterator[tuple[int, v.Commit]]:
        """Yield (party, commitments) from the log file again; raise VerificationError if it changed."""
        with contextlib.closing(self._again()) as entries:
            for entry, head in entries:
                if entry.kind == m.CERTIFY_BEGIN:
                    continue
                if entry.kind != v.COMMIT:
                    if head != self._commits_head:
                        break
                    return
                if (party := self._number(entry.party)) is None:
                    break
                if party in self._commits:
                    yield party, decode(entry.payload, v.Commit, entry.party)
        raise VerificationError(CHANGED, Check.LOG_DIFFERS)

    def _settle_round(self) -> set[int]:
        """Verify the queued publications; return newly false authors; PeerFault if too few remain."""
        self._settle(v.PUBLISH)
        fresh = self._excluded.keys() - self._known_false
        self._known_false |= fresh
        self._good = {*self._published} - self._excluded.keys()
        if len(self._good) < self._parameters.least_left(len(self._excluded)):
            names = ", ".join(item.party for item in self._excluded.values())
            raise PeerFault(
                self._relay,
                f"counts too few parties, after {names} signed something false",
                Check.SET_TOO_SMALL,
            )
        return fresh

    def _begin_round(self, certified: m.Certified) -> tuple[PartySet, bytes]:
        """Begin to audit a round of openings; return the remaining parties, and newly false ones, packed."""
        fresh = self._settle_round()
        if not fresh:
            raise PeerFault(
                self._relay, "has edges opened, and nobody signed anything false", Check.FALSE_ACCUSATION
            )
        members = PartySet.unpack(certified.members, self._parties, self._relay)
        self._same({*members}, self._good, "goes on", "has signed nothing false")
        self._openings.begin(self._good, fresh)
        return members, pack_list(sorted(fresh))

    def _combine(self) -> None:
        """Check that all participants opened coins; derive the noise's public random bits from these."""
        self._same(self._coins, self._participants, "opens a coin", "takes part")
        ordered = b"".join(self._coins[party] for party in self._participants)
        combined = self._rules.combine_coins(self._packed, ordered)
        self._rules = replace(self._rules, combined=combined)

    def _same(self, shown: Iterable[int], expected: Iterable[int], one: str, other: str) -> None:
        """Raise PeerFault against the aggregator unless its set of parties equals the expected set."""
        is_shown, is_expected = (flags_of(parties, self._parties) for parties in (shown, expected))
        for party in np.flatnonzero(is_shown != is_expected).tolist():
            has, lacks = (one, other) if is_shown[party] else (other, one)
            raise PeerFault(self._relay, f"{self._name(party)} {has}, and not: {lacks}", Check.SET_DIFFERS)

    def _check_tally(self, tally: v.Tally) -> None:
        """Raise PeerFault unless the aggregator's total, parties and residual pairs are as recomputed."""
        if fresh := self._settle_round():
            names = ", ".join(map(self._name, sorted(fresh)))
            raise PeerFault(
                self._relay, f"has no edges opened to {names}, who signed something false", Check.NOT_SHOWN
            )
        counted = PartySet.unpack(tally.counted, self._parties, self._relay)
        good = sorted(self._good)
        self._same({*counted}, good, "is counted", "has signed nothing false")
        for party in good:
            self._total += self._rules.ring_vector(self._x_hat.pop(party), "")
        left = self._openings.left(self._good)
        self._total -= left.opened
        if tally.total != self._parameters.encoding.pack(self._total):
            raise PeerFault(self._relay, "the total is not the sum of what was published", Check.WRONG_TOTAL)
        silent = {*self._participants} - {*self._published}
        self._residual = len(left.unopened) + self._edges.around(self._good, (), silent)[1]
        self._unopened = sorted({party for party, _ in left.unopened})
        if tally.residual_pairs != self._residual:
            raise PeerFault(
                self._relay,
                f"counts {tally.residual_pairs} residual pairs, not {self._residual}",
                Check.WRONG_COUNT,
            )
        self._counted = good
        self._tally = tally

    def verdict(self, tries: int | None) -> Verdict:
        """Return the verdict of the audit; raise VerificationError if the log has not ended.

        `tries`: the number of runs that a session log lists.
        """
        if not self._closed or self._tally is None:
            raise VerificationError(
                f"the log ends where '{self.expected}' is due: it was cut, or the run was not finished",
                Check.LOG_CUT,
            )
        parameters, count = self._parameters, len(self._counted)
        faults = [
            f"{item.party} {item.reason}: its exclusion proves nothing"
            for item in self.excluded
            if item.reason == FALSE[BOUNDS_BEFORE]
        ]
        silent = sorted(set(self._participants) - set(self._published))
        if self._residual:
            faults.append(
                f"the board has {self._lacks(silent)}: {self._residual} pairwise terms do not cancel, and "
                "are in the average"
            )
        average: tuple[float, ...] | None = None
        answers: dict[str, Any] | None = None
        try:
            total, weight = parameters.decode(self._total, count)
            grid = total.values
            average = tuple(parameters.encoding.average(grid, weight, noisy=True).tolist())
            numbers = [party - 1 for party in self._counted]
            answers = parameters.audited_answers(grid, numbers, self._residual)
        except SmpcError as error:
            faults.append(str(error))
        # Not at the top: few need scipy.
        from smpc_dp.privacy.gopa.verifiable import TRIES

        noise = parameters.noise(count, self._residual, len(self._excluded), tries or TRIES)
        epsilon = parameters.epsilon_without(len(self._excluded))
        return Verdict(
            counted=tuple(map(self._name, self._counted)),
            excluded=self.excluded,
            corrupt=parameters.plan.max_corrupt,
            silent=tuple(map(self._name, silent)),
            void_edges=tuple((self._name(one), self._name(two)) for one, two in self._void),
            residual_pairs=self._residual,
            average=average,
            answers=answers,
            standard_error=noise.total / count,
            bias=None if noise.bias is None else noise.bias / count,
            tries=tries or TRIES,
            tries_listed=tries is not None,
            epsilon=epsilon if math.isfinite(epsilon) else None,
            delta=parameters.session.delta,
            attested=self._attested.hex(),
            faults=tuple(faults),
        )

    def _lacks(self, silent: Sequence[int]) -> str:
        """Return the text that names parties whose publications or openings the log lacks.

        A log does not show whether a party withheld its publication, or the aggregator.
        """
        missing = (("publication", silent), ("opening", self._unopened))
        return " and ".join(
            f"no {reason} of {', '.join(map(self._name, parties))}" for reason, parties in missing if parties
        )

    def _number(self, name: str) -> int | None:
        """Return the number of the party with this name; None if the member is no party."""
        try:
            return self._context.names.index(name) + 1
        except ValueError:
            return None

    def _name(self, party: int) -> str:
        """Return the name of the party with this number."""
        return self._context.names[party - 1]


auditor = Auditor
