"""Checks of a stored result: run, sets, certificates, the aggregator's signature, and the total in it.

Each raises VerificationError for what whoever wrote the file may have changed, and PeerFault, of the
aggregator, for what it has signed. Specification: protocols/secagg/signed-results.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases import certify, checked_total, keys, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Participation
from smpc_dp.engine.result import Certificate
from smpc_dp.engine.signed_result import RunRoots, RunStart
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.results.stored import StoredCertificate, StoredFile, StoredResult
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import Task, task_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context, decode


@dataclass(frozen=True)
class SignedTotal:
    """Stored result with an aggregator's signed total, and methods that check parts of its evidence."""

    stored: StoredFile
    result: StoredResult
    context: Context
    parameters: Any
    roots: RunRoots
    participants: PartySet
    survivors: PartySet
    task: Task
    numbers: Any

    @classmethod
    def of(cls, stored: StoredFile, result: StoredResult, session: SessionFile) -> SignedTotal:
        """Decode a stored result's sets for this session; raise VerificationError if it is of another."""
        evidence, message = result.evidence, result.evidence.signed_result
        if (evidence.protocol, evidence.version) != (session.protocol, session.version):
            reason = f"it is of '{evidence.protocol}' {evidence.version}, the session of '{session.protocol}'"
            raise VerificationError(f"{reason} {session.version}", Check.OTHER_SESSION)
        parameters = _parameters_of(session)
        if (evidence.checked, message.roots.values_root is not None, evidence.survivors is not None) != (
            parameters.is_checked or None,
            parameters.is_checked,
            parameters.deals_shares,
        ):
            raise VerificationError("it has other evidence than runs of the session have", Check.OTHER_PLAN)
        roster, task = session.roster, task_of(session)
        numbers = task.read_numbers(stored.fields)
        context = Context(
            protocol=session.protocol,
            version=session.version,
            session_digest=session.digest,
            request=message.request,
            names=roster.party_names,
            aggregator="" if roster.aggregator is None else roster.aggregator.name,
            keys=roster.keys,
            operation=message.operation,
        )
        with _of_file():
            present, advertised = (
                PartySet.unpack(bytes.fromhex(packed), len(context.names), "")
                for packed in (message.start.present, message.roots.advertised)
            )
        bound = message.start
        start = RunStart(
            present, bytes.fromhex(bound.root), bytes.fromhex(bound.nonce), bytes.fromhex(bound.named)
        )
        values = bytes.fromhex(message.roots.values_root or "")
        return cls(
            stored=stored,
            result=result,
            context=context,
            parameters=parameters,
            roots=RunRoots(start, advertised, bytes.fromhex(message.roots.root), values),
            participants=_in_order(context, evidence.participating),
            survivors=_in_order(context, result.survivors),
            task=task,
            numbers=numbers,
        )

    @property
    def run_id(self) -> bytes:
        """Run id that the result file states."""
        return bytes.fromhex(self.result.evidence.run_id)

    @property
    def receiver(self) -> str:
        """Name of the party for which the aggregator signed the total."""
        return self.result.evidence.signed_result.receiver

    @property
    def body(self) -> bytes:
        """Bytes of the message that the aggregator signed."""
        return bytes.fromhex(self.result.evidence.signed_result.body)

    def check_names(self) -> None:
        """Raise VerificationError unless all names are parties, and absent ones are the rest."""
        context, evidence = self.context, self.result.evidence
        named = [evidence.signed_result.receiver, *self.result.absent]
        for certificate in (evidence.participants, evidence.survivors):
            if certificate is not None:
                named += certificate.signatures
                named += [] if certificate.sample is None else certificate.sample.signers
        for name in named:
            _number(context, name)
        given = {*self.result.survivors}
        if self.result.absent != [name for name in context.names if name not in given]:
            raise VerificationError(
                "the absent parties are not those that are no survivors", Check.SET_DIFFERS
            )

    def check_run_id(self) -> None:
        """Raise VerificationError unless the run id is the hash of session, request, operation and start."""
        start, operation = self.roots.start, self.context.operation
        run_id = keys.run_identifier(
            self.context, operation, start.present.packed, start.root, start.following
        )
        if run_id != self.run_id:
            raise VerificationError("the run id is not that of what it binds", Check.RUN_ID_DIFFERS)

    def check_sets(self) -> None:
        """Raise VerificationError unless sets shrink, enough survive, and the receiver is a survivor."""
        sets = (self.survivors, self.participants, self.roots.advertised, self.roots.start.present)
        names = ("survivors", "participants", "parties that advertised", "parties present")
        for index in range(3):
            if not sets[index] <= sets[index + 1]:
                reason = f"the {names[index]} are not all among the {names[index + 1]}"
                raise VerificationError(reason, Check.SET_GREW)
        least = self.parameters.plan.min_survivors
        if len(self.survivors) < least:
            reason = f"{len(self.survivors)} survivors, the session's runs have {least} or more"
            raise VerificationError(reason, Check.SET_TOO_SMALL)
        if self.context.number(self.receiver) not in self.survivors:
            raise VerificationError(f"its receiver {self.receiver} is no survivor", Check.NOT_INCLUDED)

    def check_digests(self) -> Participation:
        """Check the digests of the sets of parties; return the participants, or VerificationError."""
        context, evidence, run_id = self.context, self.result.evidence, self.run_id
        advertised = self.roots.advertised.packed
        own = keys.merkle_commitment_digest(context, run_id, advertised, *self.roots.roots)
        participants = keys.participants_digest(context, run_id, own, self.participants.packed)
        survivors = keys.survivors_digest(context, run_id, participants, self.survivors.packed)
        shown = [("Merkle commitment", evidence.merkle_commitment, own)]
        shown.append(("participants", evidence.participants.set_digest, participants))
        if evidence.survivors is not None:
            shown.append(("survivors", evidence.survivors.set_digest, survivors))
        for name, given, expected in shown:
            if given != expected.hex():
                raise VerificationError(f"the digest of the {name} is another one", Check.OTHER_STATEMENT)
        certificate = Certificate(participants, {})
        return Participation(own, self.participants, certificate, self.roots)

    def check_certificates(self) -> None:
        """Raise VerificationError unless the certificates of participants and survivors are valid."""
        evidence = self.result.evidence
        self._check_certificate(m.ATTEST_PARTICIPANTS, evidence.participants, self.participants)
        if evidence.survivors is not None:
            self._check_certificate(m.ATTEST_SURVIVORS, evidence.survivors, self.survivors)

    def _check_certificate(self, step: str, stored: StoredCertificate, members: PartySet) -> None:
        """Raise VerificationError unless a step's certificate of a quorum of `members` is valid."""
        context, sample = self.context, stored.sample
        shown = sorted(stored.signatures, key=context.number)
        signers = list(stored.signatures) if sample is None else sample.signers
        message = m.Certificate(
            _in_order(context, signers).packed,
            b"".join(bytes.fromhex(stored.signatures[name]) for name in shown),
            b"" if sample is None else bytes.fromhex(sample.root),
            b"" if sample is None else bytes.fromhex(sample.proof),
        )
        with _of_file():
            result = certify.check_certificate(
                context,
                self.parameters.plan.quorum,
                self.run_id,
                step,
                bytes.fromhex(stored.set_digest),
                members,
                message,
            )
        if list(result.signatures) != list(stored.signatures):
            reason = f"the certificate of '{step}' shows signatures of other parties than are due"
            raise VerificationError(reason, Check.BAD_CERTIFICATE)

    def check_signature(self) -> None:
        """Raise VerificationError unless the aggregator signed the total's message for the receiver."""
        context, message = self.context, self.result.evidence.signed_result
        envelope = Envelope(
            self.run_id,
            self.parameters.total_step,
            context.aggregator,
            message.receiver,
            self.body,
            bytes.fromhex(message.signature),
        )
        with _of_file():
            context.check(envelope)

    def _decoded(self) -> tuple[Any, RingVector]:
        """Decode the signed message and its total; PeerFault against the aggregator if malformed."""
        context, parameters = self.context, self.parameters
        message: Any = decode(self.body, parameters.kinds.result, context.aggregator)
        try:
            return message, parameters.encoding.unpack(message.total)
        except ValueError as error:
            reason = f"malformed {type(message).__name__}: {error}"
            raise PeerFault(context.aggregator, reason, Check.MALFORMED) from None

    def check_commitments(self) -> None:
        """Raise PeerFault, of the aggregator, if a checked total does not open the commitments.

        With checkers the check is that enough of them have attested the total. Raises PeerFault also for a
        malformed message.
        """
        context, parameters = self.context, self.parameters
        message, total = self._decoded()
        if not parameters.is_checked:
            return
        evidence, run_id = self.result.evidence, self.run_id
        with self._of_aggregator():
            if parameters.has_checkers and evidence.survivors is not None:
                survivors = bytes.fromhex(evidence.survivors.set_digest)
                digest = checked_total.attested_digest(context, run_id, survivors, message)
                checked_total.check_attested(context, parameters, run_id, digest, self.survivors, message)
                return
            participants = bytes.fromhex(evidence.participants.set_digest)
            certified = checked_total.Certified(self.roots, participants, self.survivors)
            checked_total.check_commitments(context, parameters, run_id, certified, message, total)

    def check_numbers(self, participation: Participation) -> None:
        """Raise VerificationError unless the signed total gives the file's numbers; PeerFault if impossible.

        Raises PeerFault, of the aggregator, or VerificationError.
        """
        context, parameters = self.context, self.parameters
        message, total = self._decoded()
        if parameters.survivors_in(message) not in (None, self.survivors.packed):
            # No certificate binds those of the file.
            raise VerificationError("the signed average is over other survivors", Check.SET_DIFFERS)
        with self._of_aggregator():
            pairs = parameters.residual_pairs(message, len(self.participants), self.survivors)
            outcome = outcomes.outcome(
                context,
                parameters,
                self.run_id,
                total,
                participation,
                survivors=self.survivors,
                residual_pairs=pairs,
            )
        if self.result.residual_pairs != pairs:
            raise _wrong("residual_pairs", self.result.residual_pairs, pairs)
        kind = context.operation.split(" ")[0]
        if self.result.kind != kind:
            raise _wrong("kind", self.result.kind, kind)
        self.task.check_numbers(self.numbers, parameters, outcome, context.operation, context.names)

    @contextmanager
    def _of_aggregator(self) -> Iterator[None]:
        """Turn a failed check in the block into a PeerFault against the aggregator, who signed."""
        try:
            yield
        except VerificationError as error:
            raise PeerFault(self.context.aggregator, str(error), error.check) from None


@contextmanager
def _of_file() -> Iterator[None]:
    """Turn a PeerFault in the block into a VerificationError: anybody may have written the file."""
    try:
        yield
    except PeerFault as fault:
        raise VerificationError(fault.reason, fault.check) from None


def _parameters_of(session: SessionFile) -> Any:
    """Return the session's parameters for sums; VerificationError if its totals are not signed."""
    requests, described = session.checked_parameters.requests, session.described
    is_signed = described.is_sum and session.topology == "aggregator" and not session.is_logged
    # A session of an earlier release was audited by its logs alone.
    if not (is_signed and requests and session.version in described.versions):
        raise VerificationError("the session's runs have no signed result", Check.OTHER_PLAN)
    return requests[0]


def _number(context: Context, name: str) -> int:
    """Return the number of the party with this name; raise VerificationError for an unknown name."""
    try:
        return context.number(name)
    except ValueError:
        raise VerificationError(f"{name} is no party of the session", Check.NOT_IN_ROSTER) from None


def _in_order(context: Context, names: Sequence[str]) -> PartySet:
    """Return names in roster order as a set of parties; VerificationError for another order."""
    numbers = [_number(context, name) for name in names]
    if numbers != sorted({*numbers}):
        raise VerificationError("parties are not named once each in roster order", Check.WRONG_ORDER)
    with _of_file():
        return PartySet.unpack(pack_set(numbers, len(context.names)), len(context.names), "")


def _wrong(name: str, given: object, expected: object) -> VerificationError:
    """Return the VerificationError for a value in a file that differs from the signed total's."""
    return VerificationError(f"{name} is {given}, of the signed total {expected}", Check.WRONG_RESULT)
