"""Common functions of the aggregator's states in a verifiable run: logging, exclusion, certificates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.statements import CHECKS, FALSE, Rules, failures
from smpc_dp.crypto import proofs
from smpc_dp.engine.collector import CollectorState, Inbox
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Attesting
from smpc_dp.engine.phases.certify import check_certificate, make_certificate
from smpc_dp.engine.phases.key_graph import Watch
from smpc_dp.engine.phases.run_log import LoggingAggregator, RunLog, Statement, append, signed_by
from smpc_dp.engine.result import Certificate
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet


@dataclass(frozen=True, slots=True)
class VerifiableAggregator(LoggingAggregator[VerifiableParameters]):
    """Role of the aggregator in a verifiable run: it orders, logs and forwards signed messages.

    Attributes:
        threads: threads for the proofs.
        watch: called with each party's name and x_hat as it arrives, to show what an aggregator sees.
    """

    threads: int = 1
    watch: Watch | None = None

    def rules(self, run_id: bytes, combined: bytes = b"") -> Rules:
        """Return the public checks of a run; `combined`: hash of all coins, empty until they are open."""
        return Rules(self.context, self.parameters, run_id, combined)

    def log(
        self, inbox: Inbox, log: RunLog, kind: str, claimed: Mapping[int, Statement]
    ) -> tuple[RunLog, bytes]:
        """Write parties' messages to the run's log; return the log's new end, and the digests."""
        return append(inbox, log, kind, signed_by(self, claimed))

    def log_own(
        self, state: CollectorState, log: RunLog, kind: str, message: msgspec.Struct
    ) -> tuple[RunLog, Envelope]:
        """Write a signed entry of the aggregator to the log; return the log's end, and the entry."""
        entry = self.write_own(state.run_id, kind, message)
        log, _ = append(state.inbox, log, kind, [(self.name, entry.body, entry.signature)])
        return log, entry


def ask_for(
    aggregator: VerifiableAggregator,
    run_id: bytes,
    log: RunLog,
    step: str,
    members: Collection[int],
    *false: bytes,
) -> Attesting:
    """Return what parties are to sign: a digest of the log's hash, the remaining and the false parties."""
    among = PartySet.of(members, aggregator.parties)
    return Attesting(among, aggregator.rules(run_id).attestation(step, log.head, among.packed, *false))


def certify(
    aggregator: VerifiableAggregator,
    state: CollectorState,
    log: RunLog,
    attesting: Attesting,
    unchecked: Collection[int] = (),
) -> tuple[RunLog, Certificate, v.Certificate]:
    """Log a quorum's signatures on the log's hash; return the log's end, the certificate, and its message.

    The certificate is returned as evidence, and as it is sent. `unchecked`: the parties that
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
    log, entry = aggregator.log_own(state, log, v.certifies(state.step), message)
    return log, checked, v.Certificate(entry.body, entry.signature)


def exclude_false(
    aggregator: VerifiableAggregator,
    state: CollectorState,
    claimed: Mapping[int, Statement],
    batch: proofs.Batch,
) -> tuple[int, ...]:
    """Exclude the authors of refused statements and of false proofs; return their numbers, ascending."""
    false = {party: item.refused for party, item in claimed.items() if item.refused}
    for tag in failures(batch, aggregator.threads):
        false.setdefault(tag[0], tag[1])
    for party, kind in sorted(false.items()):
        fault = PeerFault(aggregator.name_of(party), FALSE[kind], CHECKS[kind])
        if party in state.inbox.alive:
            aggregator.exclude(state, party, fault)
        else:
            state.inbox.faults.append(str(fault))
    return tuple(sorted(false))


def as_signed(party: int, item: Statement) -> m.Advertisement:
    """Return a party's signed statement as the message in which the aggregator forwards it to others."""
    return m.Advertisement(party, item.body, item.signature)
