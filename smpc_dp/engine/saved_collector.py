"""Saved collecting roles: states are saved at the end of each step, and events between two of them.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec

from smpc_dp.crypto import seal
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.decoding import decode_msgpack
from smpc_dp.engine import events
from smpc_dp.engine.collector import CollectorState
from smpc_dp.engine.peers import PeerState
from smpc_dp.engine.saved import ATTEST, SavedRun, Saving
from smpc_dp.engine.saved_inbox import SavedError
from smpc_dp.engine.state import State, Transition
from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.wire.envelope import Envelope

R_co = TypeVar("R_co", covariant=True)

# Bodies of messages that are kept until their events are saved: a large one is a file until then.
UNSETTLED_BYTES = 16 << 20


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Stored form of a message, loss, deadline, conviction or report within a step of an aggregator's run."""

    kind: Literal["message", "lost", "deadline", "conviction", "report"]
    envelope: Envelope | None = None
    peers: tuple[str, ...] = ()
    error: SavedError | None = None
    report: bytes = b""

    @classmethod
    def of(cls, event: events.Event) -> Entry:
        """Return the stored form of an event within a step; LocalError for other events, such as `Start`."""
        match event:
            case events.Message(envelope):
                return cls("message", envelope)
            case events.PeersLost(peers):
                return cls("lost", peers=peers)
            case events.Deadline():
                return cls("deadline")
            case events.Conviction(peer, error):
                return cls("conviction", peers=(peer,), error=SavedError.of(error))
            case events.Report(bytes(result)):
                return cls("report", report=result)
            case _:
                raise LocalError(f"{type(event).__name__} does not happen within a step")

    def event(self) -> events.Event:
        """Return the event that a stored entry describes; raise VerificationError if it is invalid."""
        match self:
            case Entry("message", Envelope() as envelope):
                return events.Message(envelope)
            case Entry("lost", None, peers):
                return events.PeersLost(peers)
            case Entry("deadline", None, ()):
                return events.Deadline()
            case Entry("conviction", None, (peer,), SavedError() as error):
                return events.Conviction(peer, error.error())
            case Entry("report", None, (), None, result):
                return events.Report(result)
        raise VerificationError("an entry of a saved inbox is malformed", Check.MALFORMED)


class SavedCollection(SavedRun[R_co]):
    """An aggregator's run saved to disk: each event before it is answered, each state at a step's end.

    A collecting role draws nothing: restored at the end of a step, it takes the events since then again, in
    their order, and reaches the same state and messages.
    """

    final: ClassVar[tuple[str, ...]] = ("participants", "begin")
    # Whether events that are not answered stay in memory until `settle`, which their driver then calls.
    defers = False
    # How many of the step's reports were taken.
    _reports = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Events of the step that are not on disk, and the bytes of their messages.
        self._unsettled: list[events.Event] = []
        self._unsettled_bytes = 0

    @classmethod
    def restore(cls, role: Any, member: Any, saving: Saving) -> Self:
        """Return a request's run in its newest saved state, with the step's saved events; raise if unfit."""
        run = super().restore(role, member, saving)
        for number, sealed in enumerate(saving.store.entries(run._row)):
            state, sent = role.step(member, run._state, run._opened(number, sealed))
            if not _is_same_step(state, run._state):
                raise VerificationError(
                    f"{run.name}: a saved inbox ends the step that it is of", Check.BAD_STATE
                )
            run._state, run._messages = state, (*run._messages, *sent)
            run._entries += 1
        run._reports = len(run._state.reports)
        return run

    def _resume_log(self, lines: Sequence[bytes]) -> None:
        """Pass the saved log lines to the restored role, which continues its public logs from there."""
        self.member.resume_log(self._state, lines)

    def _take(self, transition: Transition, event: events.Event) -> Sequence[Envelope]:
        """Save an event of the step, or at the step's end its state; return the messages to send."""
        before: CollectorState | PeerState[Any] = self.state
        state, messages = transition
        if self.is_over or state.over or not _is_same_step(state, before):
            self._reports = 0
            # The next state is all that follows from them.
            self._forget()
            return super()._take(transition, event)
        if state.count == before.count and not messages:
            return ()
        lasting = self._lasting(state, event)
        reports = state.reports[self._reports :]
        for report in reports:
            self._defer(events.Report(msgspec.msgpack.encode(report)))
        if lasting is not None:
            self._defer(lasting)
        if messages or reports or not self.defers or self._unsettled_bytes >= UNSETTLED_BYTES:
            self.settle()
        self._state, self._reports = state, len(state.reports)
        if lasting is not None:
            self._messages = (*self._messages, *messages)
        return messages

    @property
    def is_settled(self) -> bool:
        """Whether all events that were handled are saved on disk."""
        return not self._unsettled

    def settle(self) -> None:
        """Append all handled events that wait in memory to the database, and empty the queue."""
        with self._writing():
            for event in self._unsettled:
                self._append(event)
        self._forget()

    def _defer(self, event: events.Event) -> None:
        """Queue an event of the step to be saved later, unless its state cannot be restored."""
        if self._secret:
            self._unsettled.append(event)
            self._unsettled_bytes += len(event.envelope.body) if isinstance(event, events.Message) else 0

    def _forget(self) -> None:
        """Empty the queue of events that wait to be saved."""
        self._unsettled.clear()
        self._unsettled_bytes = 0

    def _lasting(self, state: Any, event: events.Event) -> events.Event | None:
        """Return the event to save; for a message beside the steps its sender's exclusion, or None.

        A message beside the steps is a part of work that is not restored; an exclusion for it stays.
        """
        if not (isinstance(event, events.Message) and self.role.is_beside(event.envelope)):
            return event
        sender = event.envelope.sender
        error = state.inbox.excluded.get(self.member.context.number(sender))
        return None if error is None else events.Conviction(sender, error)

    def _append(self, event: events.Event) -> None:
        """Save an event encrypted, beside the state in which the current step began."""
        key = self._key(self._entries)
        content = msgspec.msgpack.encode(Entry.of(event))
        sealed = seal.seal(key, content, self._row.position.bound, SystemRandomness())
        self._saving.store.append(self._row, self._entries, sealed)
        self._entries += 1

    def _opened(self, number: int, sealed: bytes) -> events.Event:
        """Return a saved event, decrypted and decoded; raise VerificationError if it is not valid."""
        content = seal.unseal(self._key(number), sealed, self._row.position.bound)
        try:
            entry = decode_msgpack(content, Entry)
        except msgspec.DecodeError:
            raise VerificationError("an entry of a saved inbox is malformed", Check.MALFORMED) from None
        return entry.event()

    def _key(self, number: int) -> bytes:
        """Return the key of a saved event, derived from the key of the step's state."""
        return digest(Label.SAVED_INBOX, self._secret, self._row.digest, encode_uint(number))


def _is_same_step(state: State, before: State) -> bool:
    """Tell whether no step has ended between two states."""
    return type(state) is type(before) and state.step == before.step


class SavedPeer(SavedCollection[R_co]):
    """Run of a party without aggregator saved to disk: each message before it counts, each phase.

    Within a phase a peer draws nothing, and its messages follow from the state that began the phase.
    """

    final: ClassVar[tuple[str, ...]] = (ATTEST,)

    def _resume_log(self, _lines: Sequence[bytes]) -> None:
        """Do nothing: runs without an aggregator have no logs."""

    def _lasting(self, _state: Any, event: events.Event) -> events.Event | None:
        """Return the event unchanged: all events of parties without an aggregator are saved."""
        return event

    def _repeated(self, state: State, messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        """Return the last messages of all phases, since a restarted party may have lost those.

        Not the hello of a run that has begun; of a tombstone its own message alone.
        """
        if state.over and state.outcome is None:
            return messages
        begun = bool(state.run_id)
        earlier = (one for one in self._messages if not (begun and one.step == self.role.hello))
        return (*earlier, *messages)
