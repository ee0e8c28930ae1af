"""Agreement of parties and servers on a run, and the member named when one of them differs."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec

from smpc_dp.capabilities.servers.secret_sharing.messages import LeftOut, Output, Start
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.engine import events
from smpc_dp.engine.result import Certificate
from smpc_dp.errors import (
    Check,
    Code,
    LocalError,
    PeerFault,
    SmpcError,
    TimeoutFault,
    VerificationError,
)
from smpc_dp.identity.keys import verify
from smpc_dp.wire.abort import LACKS, TEXTS, Abort, equivocation, error_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context, Signer, decode

# (operation, number of parties, their public labels or none, 32 bytes derived from all hellos) -> the terms;
# ConfigError for an impossible operation.
MakeTerms = Callable[[str, int, tuple[int, ...], bytes], ProgramTerms]

T = TypeVar("T", bound=Hashable)

NO_SURVIVAL = "a computation on shares does not survive the loss of a server"


@dataclass(frozen=True, slots=True)
class Opened:
    """Result of a computation on shares: the opened integers, whose records they include, and signatures.

    Attributes:
        values: the opened integers.
        present: the parties whose hello reached all servers; included: those whose shares are in the values;
            roster order.
        faults: errors that did not prevent the result; each names a party.
        included_by, opened_by: all servers' signatures on that set, and on the values.
    """

    # Of what `to_json` returns: no field.
    schema = "opened"
    terms: ProgramTerms
    run_id: bytes
    values: tuple[int, ...]
    present: tuple[str, ...]
    included: tuple[str, ...]
    faults: tuple[str, ...]
    included_by: Certificate
    opened_by: Certificate

    def to_json(self) -> dict[str, object]:
        """Return the opened integers and who is included as plain JSON data, a server's output."""
        return {
            "kind": self.terms.kind,
            "opened": [str(value) for value in self.values],
            "included": list(self.included),
            "faults": list(self.faults),
            "run_id": self.run_id.hex(),
            "included_by": self.included_by.to_json(),
            "opened_by": self.opened_by.to_json(),
        }

    def __str__(self) -> str:
        """Say what was computed over whom in one line."""
        return f"{self.terms.kind}: opened {len(self.values)} values over {len(self.included)} parties"


class Member(ABC):
    """Base class of the roles of a party and a server in one run on shares: states and messages."""

    # As of `Run`.
    releases: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, context: Context, servers: Sequence[str], identity: Signer) -> None:
        self._context = context
        self._identity = identity
        self._run_id = b""
        self._over = False
        self._outcome: Opened | None = None
        self._servers = tuple(servers)
        self._seen: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        # What servers say that have stopped the run and saw no fault of a member.
        self._reports: dict[str, Abort] = {}
        # Servers lost since the first report.
        self._gone: set[str] = set()
        # For errors, in which parties and servers are named alike.
        self._everybody = dataclasses.replace(context, names=(*context.names, *servers))

    @property
    def name(self) -> str:
        """Name of the party or server that the role acts for."""
        return self._identity.name

    @property
    @abstractmethod
    def waiting_for(self) -> frozenset[str]:
        """The names of members whose messages of this step are still missing; subclasses implement it."""

    @property
    def waiting_count(self) -> int:
        """How many members' messages of this step are still missing."""
        return len(self.waiting_for)

    @property
    def run_id(self) -> bytes:
        """Identifier of the run; empty until the servers agree on the participants."""
        return self._run_id

    @property
    def finished(self) -> bool:
        """Whether the run has ended at this member, with a result or an error."""
        return self._over

    @property
    def result(self) -> Opened:
        """Result of the run; raises LocalError while there is none."""
        if self._outcome is None:
            raise LocalError(f"{self.name}: the run has no result")
        return self._outcome

    @property
    def has_enough(self) -> bool:
        """Always false here: a step needs the messages of all expected members."""
        return False

    def _name_of(self, party: int) -> str:
        """Return the name of the party with this number."""
        return self._context.names[party - 1]

    def handle(self, event: events.Event) -> Sequence[Envelope]:
        """Pass an event (message, loss, deadline) to the role, and return the messages to send."""
        match event:
            case events.Start():
                return self._on_start()
            case events.Message(envelope):
                return self._on_message(envelope)
            case events.PeersLost(peers):
                return self._on_lost(peers)
            case events.Deadline():
                return self._on_deadline()
            case events.Cancellation(error):
                return self._on_cancelled(error)
            case events.Report(result):
                return self._on_report(result)
            case events.Conviction():
                return ()

    @abstractmethod
    def _on_start(self) -> Sequence[Envelope]:
        """Return the messages that begin the run; subclasses implement this."""

    @abstractmethod
    def _on_message(self, envelope: Envelope) -> Sequence[Envelope]:
        """Return the answers to a received message; subclasses implement this."""

    @abstractmethod
    def _on_lost(self, peers: Sequence[str]) -> Sequence[Envelope]:
        """Return the messages to send after these peers were lost; subclasses implement this."""

    @abstractmethod
    def _on_deadline(self) -> Sequence[Envelope]:
        """Return the messages to send after the step's deadline; subclasses implement this."""

    def _on_report(self, result: Any) -> Sequence[Envelope]:  # noqa: ARG002
        """Return no messages: a party's holder reports no work; a server overrides this."""
        return ()

    @abstractmethod
    def _on_cancelled(self, error: SmpcError) -> Sequence[Envelope]:
        """Return the messages to send when the run is cancelled; subclasses implement this."""

    def _write(self, step: str, names: Sequence[str], message: msgspec.Struct) -> list[Envelope]:
        """Return the signed envelopes of one message, one for each of the named members."""
        run_id = self._run_id or self._context.session_digest
        return self._context.write(self._identity, run_id, step, names, message)

    def _is_new(self, envelope: Envelope) -> bool:
        """Return False for a repeated message; raise PeerFault if misdirected, unsigned or contradictory."""
        if envelope.receiver != self.name:
            raise PeerFault(
                envelope.sender, f"sent a message for {envelope.receiver!r}", Check.WRONG_RECEIVER
            )
        body_hash = self._context.check(envelope)
        key = (envelope.sender, envelope.step)
        if key in self._seen:
            earlier, signature = self._seen[key]
            if earlier == body_hash:
                return False
            raise equivocation(envelope, self._context, envelope.run_id, earlier, signature)
        self._seen[key] = (body_hash, envelope.signature)
        return True

    def _check_run(self, envelope: Envelope, early: bool) -> None:
        """Raise PeerFault if a message is of another run, or, if `early`, of another session."""
        expected = self._context.session_digest if early else self._run_id
        if envelope.run_id != expected:
            raise PeerFault(envelope.sender, f"sent '{envelope.step}' of another run", Check.OTHER_RUN)

    def _take_report(self, envelope: Envelope) -> None:
        """Note why a server has stopped; raise the error that explains the end of the run, if any does.

        It does not where it names servers from which nothing came, or says that another one has stopped: a
        server that is silent towards one may itself wait for a third. All are heard then.
        """
        sender = envelope.sender
        abort = decode(envelope.body, Abort, sender)
        names = abort.names()
        silent = abort.code in LACKS and set() < names <= set(self._servers)
        if not abort.is_sound or not (silent or abort.code == Code.STOPPED):
            raise error_of(abort, dataclasses.replace(self._everybody, aggregator=sender))
        self._reports[sender] = abort

    def _unexplained(self, step: str, done: Collection[str] = ()) -> TimeoutFault:
        """Return the TimeoutFault of a run that servers have stopped, with what each has said.

        A server that is neither in the reports nor in `done` has fallen silent.
        """
        silent = [name for name in self._servers if name not in self._reports and name not in done]
        missing = {name for abort in self._reports.values() for name in abort.names()}.union(silent)
        codes = {abort.code for abort in self._reports.values()} - {Code.STOPPED}
        reports = [_report_text(name, abort) for name, abort in sorted(self._reports.items())]
        reports += [f"{name} has not said why" for name in silent]
        return TimeoutFault(
            missing or set(self._servers) - {self.name},
            next((abort.step for abort in self._reports.values() if abort.step), step),
            "; ".join([*reports, "the cause is not known", NO_SURVIVAL]),
            code=codes.pop() if len(codes) == 1 and not silent else Code.MISSING,
        )

    def _check_signature(self, shower: str, signer: str, statement: bytes, signature: bytes) -> None:
        """Raise PeerFault that blames `shower` unless the signature it shows is valid."""
        try:
            verify(self._context.keys[signer], statement, signature)
        except VerificationError:
            whose = "its" if signer == shower else f"its copy of {signer}'s"
            reason = f"{whose} signature on the set of parties or on the output is not valid"
            raise PeerFault(shower, reason, Check.BAD_SIGNATURE) from None

    def _reported(self, fault: LeftOut) -> str:
        """Return the text that says which party a server left out, and why."""
        server = self._servers[fault.server - 1]
        return f"{self._name_of(fault.party)}: left out by {server}: {TEXTS[fault.code]}"

    def _open(self, terms: ProgramTerms, start: Start, outputs: Mapping[str, Output]) -> Opened:
        """Return the integers that all servers report as opened; raise VerificationError if they differ.

        Raises PeerFault naming a server whose output does not hold by itself, VerificationError where they
        differ: a wrong share of any server can make another one open another value.
        """
        for name, out in outputs.items():
            digest = output_statement(self._run_id, out.included, out.values, out.faults)
            self._check_signature(name, name, digest, out.signature)
            if len(out.seals) != len(self._servers):
                reason = "has not shown every server's signature on the set of parties"
                raise PeerFault(name, reason, Check.BAD_CERTIFICATE)
            # It computes on a set that all have signed.
            for signer, seal in zip(self._servers, out.seals, strict=True):
                self._check_signature(name, signer, shared_set_statement(self._run_id, out.included), seal)
        values, included, faults = common(
            {name: (tuple(out.values), out.included, tuple(out.faults)) for name, out in outputs.items()},
            "opened other values, or over other parties,",
        )
        parties = len(self._context.names)
        members = PartySet.unpack(included, parties, self._servers[0])
        present = PartySet.unpack(start.present, parties, self._servers[0])
        if not members <= present:
            raise PeerFault(
                self._servers[0], "opened a value over parties who were not there", Check.NOT_PRESENT
            )
        set_digest = shared_set_statement(self._run_id, included)
        if not all(
            1 <= fault.party <= parties and 1 <= fault.server <= len(self._servers) for fault in faults
        ):
            raise PeerFault(
                self._servers[0], "left out somebody who is not in the roster", Check.NOT_IN_ROSTER
            )
        out_digest = output_statement(self._run_id, included, values, faults)
        signed = {name: out.signature for name, out in outputs.items()}
        sealed = dict(zip(self._servers, outputs[self._servers[0]].seals, strict=True))
        try:
            integers = tuple(int(value) for value in values)
        except ValueError:
            raise PeerFault(self._servers[0], "opened what is no integer", Check.OUT_OF_RANGE) from None
        return Opened(
            terms=terms_of(terms, present, members),
            run_id=self._run_id,
            values=integers,
            present=tuple(map(self._name_of, present)),
            included=tuple(map(self._name_of, members)),
            faults=tuple(map(self._reported, faults)),
            included_by=Certificate(set_digest, sealed),
            opened_by=Certificate(out_digest, signed),
        )


def _report_text(name: str, abort: Abort) -> str:
    """Return a sentence that says what a server has not received."""
    if not abort.missing:
        return f"{name} was stopped by another server"
    others = [other for other, _ in abort.missing if other != name]
    of = [f"from {', '.join(others)}"] if others else []
    of += ["from its own mpyc"] if len(others) < len(abort.missing) else []
    how = f" ({TEXTS[abort.code]})" if abort.code == Code.LOST else ""
    return f"{name} had nothing {' and '.join(of)}{how}"


def terms_of(planned: ProgramTerms, present: PartySet, included: PartySet) -> ProgramTerms:
    """Return the program's terms for the parties included, with the noise planned for those present.

    A record moves a sum, or a sum over pairs, of fewer parties by no more.
    """
    public_labels = dict(zip(present, planned.public_labels, strict=False))
    left = tuple(public_labels[party] for party in included) if public_labels else ()
    return msgspec.structs.replace(planned, parties=len(included), public_labels=left)


def run_identifier(context: Context, start: Start) -> bytes:
    """Return the 32-byte id of a run on shares: a hash of session, participants and terms."""
    return digest(
        Label.SHARED_RUN_ID,
        *context.bound,
        context.session_digest,
        encode_uint(context.request),
        start.present,
        start.hellos,
        start.public_labels,
        start.terms,
    )


def shared_set_statement(run_id: bytes, included: bytes) -> bytes:
    """Return the bytes that servers sign to agree whose shares all of them hold."""
    return digest(Label.SHARED_SET, run_id, included)


def output_statement(
    run_id: bytes, included: bytes, values: Sequence[str], faults: Sequence[LeftOut]
) -> bytes:
    """Return the bytes that servers sign to confirm the opened values and who is included."""
    texts = [text.encode() for text in values]
    left_out = [
        part
        for fault in faults
        for part in (encode_uint(fault.party), encode_uint(fault.server), fault.code.encode())
    ]
    return digest(Label.SHARED_OUTPUT, run_id, included, encode_uint(len(values)), *texts, *left_out)


def common(claimed: Mapping[str, T], field: str) -> T:
    """Return the value that all members claim; raise VerificationError that names who differs.

    None is at fault for that alone: one server can tell the others different things.
    """
    most, times = Counter(claimed.values()).most_common(1)[0]
    if times == len(claimed):
        return most
    differing, others = (
        ", ".join(name for name, value in claimed.items() if (value == most) == same)
        for same in (False, True)
    )
    reason = f"{differing} {field} than {others}: one of them, or of those who told them so, is at fault"
    raise VerificationError(f"{reason}, and nothing shows which", Check.DISAGREES)


def hellos_digest(hellos: Sequence[bytes]) -> bytes:
    """Return one digest of the hashes of all parties' hellos, in roster order."""
    return digest(Label.SHARED_HELLOS, *hellos)
