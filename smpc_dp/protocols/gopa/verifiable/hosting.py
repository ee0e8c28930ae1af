"""Common functions of the aggregator's states in a verifiable run: logging, exclusion, certificates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from smpc_dp.crypto import proofs
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.log.keeping import Board
from smpc_dp.log.runs import SessionLog
from smpc_dp.protocols.engine.collector import Collector, CollectorState, Item
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.statements import CHECKS, FALSE, Rules, failures
from smpc_dp.protocols.phases import messages as m
from smpc_dp.protocols.phases.certified_set import Attesting
from smpc_dp.protocols.phases.certify import check_certificate, make_certificate
from smpc_dp.protocols.phases.key_graph import Watch
from smpc_dp.protocols.result import Certificate
from smpc_dp.protocols.run_log import RunLog, append
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet


@dataclass(frozen=True, slots=True)
class VerifiableAggregator(Collector[VerifiableParameters]):
    """Aggregator of a verifiable run.

    Besides the inbox its steps have one effect: they append to the board, and to the session log there. An
    entry is stored before a message refers to it.

    Attributes:
        board: the log of the run.
        runs: the session log on the board.
        threads: threads for the proofs.
        watch: called with each party's name and x_hat as it arrives, to show what an aggregator sees.
    """

    board: Board
    runs: SessionLog
    threads: int = 1
    watch: Watch | None = None

    def rules(self, run_id: bytes, combined: bytes = b"") -> Rules:
        """Return the public checks of a run; `combined` is derived from its coins."""
        return Rules(self.context, self.parameters, run_id, combined)

    def log(self, log: RunLog, kind: str, claimed: Mapping[int, Item]) -> tuple[RunLog, bytes]:
        """Append messages of parties to the board, ascending; return the log's end, and the digests."""
        signed = [(self.name_of(party), item.body, item.signature) for party, item in sorted(claimed.items())]
        return append(self.board, log, kind, signed)

    def log_own(
        self, run_id: bytes, log: RunLog, kind: str, message: msgspec.Struct
    ) -> tuple[RunLog, Envelope]:
        """Append an entry of the aggregator to the board; return the log's end, and the signed entry."""
        entry = self.write_own(run_id, kind, message)
        log, _ = append(self.board, log, kind, [(self.name, entry.body, entry.signature)])
        return log, entry


def ask_for(
    aggregator: VerifiableAggregator,
    run_id: bytes,
    log: RunLog,
    step: str,
    members: Collection[int],
    *false: bytes,
) -> Attesting:
    """Return the attestation asked of `members`: the head, the members, and the `false` ones."""
    among = PartySet.of(members, aggregator.parties)
    return Attesting(among, aggregator.rules(run_id).attestation(step, log.head, among.packed, *false))


def certify(
    aggregator: VerifiableAggregator,
    state: CollectorState,
    log: RunLog,
    attesting: Attesting,
    unchecked: Collection[int] = (),
) -> tuple[RunLog, Certificate, v.Certificate]:
    """Append a quorum's signatures on the attested head to the board.

    Returns where the log ends, the certificate as evidence, and as it is sent. `unchecked`: the parties that
    have not added up the total.
    """
    quorum, context = aggregator.parameters.plan.quorum, aggregator.context
    signatures = {
        party: item.signature for party, item in state.inbox.items.items() if party not in unchecked
    }
    if len(signatures) < quorum:
        if unchecked:
            names = map(aggregator.name_of, sorted(unchecked))
            reason = f"of the quorum of {quorum} only {len(signatures)} have added up the total"
            raise TimeoutFault(names, state.step, f"{reason}; who is named was told not to")
        raise aggregator.too_few(state, quorum)
    made = make_certificate(signatures, quorum, aggregator.parties)
    checked = check_certificate(
        context, quorum, state.run_id, state.step, attesting.digest, attesting.members, made
    )
    message = m.Certified(attesting.members.packed, made.signers, made.signatures)
    log, entry = aggregator.log_own(state.run_id, log, v.certifies(state.step), message)
    return log, checked, v.Certificate(entry.body, entry.signature)


def exclude_false(
    aggregator: VerifiableAggregator, state: CollectorState, claimed: Mapping[int, Item], batch: proofs.Batch
) -> tuple[int, ...]:
    """Exclude the authors of refused statements and of false proofs in the batch; return them, ascending."""
    false = {party: item.message for party, item in claimed.items() if item.message}
    for tag in failures(batch, aggregator.threads):
        false.setdefault(tag[0], tag[1])
    for party, kind in sorted(false.items()):
        fault = PeerFault(aggregator.name_of(party), FALSE[kind], CHECKS[kind])
        if party in state.inbox.alive:
            aggregator.exclude(state, party, fault)
        else:
            state.inbox.faults.append(str(fault))
    return tuple(sorted(false))


def as_signed(party: int, item: Item) -> m.Advertisement:
    """Return a party's signed statement, as it is forwarded."""
    return m.Advertisement(party, item.body, item.signature)
