"""Holder that saves each state before its messages are sent.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from msgspec.structs import replace

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.engine.codec import Codec, Record
from smpc_dp.engine.counter import Counter, Entry
from smpc_dp.engine.events import Cancellation, Event, Message
from smpc_dp.engine.keyring import Key, KeyRing
from smpc_dp.engine.run import Run
from smpc_dp.engine.seal import (
    ATTESTED,
    COUNTED,
    KEY_BYTES,
    OVER,
    RELEASED,
    TAKEN,
    Position,
    open_state,
    seal_state,
)
from smpc_dp.engine.state import State, Transition
from smpc_dp.engine.store import Row, Store
from smpc_dp.errors import LocalError
from smpc_dp.logs.log import encode_line
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, encode_envelope

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event as Release
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt

R_co = TypeVar("R_co", covariant=True)

# (run id, digest of the messages) -> the receipt, where there is a ledger: a run is charged for one digest.
Charge = Callable[[bytes, bytes], "Receipt | None"]

ATTEMPT_BYTES = NAME_BYTES = 16
ATTEST = "attest-"
# Keys of states are never drawn from a seed.
_RANDOM = SystemRandomness()


def charge_once(ledger: Ledger, release: Callable[[], Release], request: int) -> Charge:
    """Return a function that charges a run to a ledger once; again is free for equal messages, else refused.

    A second charge is free for the digest that the run was charged for, and refused for another one.
    """

    def charge(run_id: bytes, released: bytes) -> Receipt | None:
        return ledger.charge(run_id, release(), f"request {request}: {released.hex()}", resume=True)

    return charge


def _no_charge(_run_id: bytes, _released: bytes) -> None:
    """Do nothing: the charge function of a run without a ledger."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What a run needs to be saved to disk: codec, store, keys, counter, terms, input, and charge function.

    Attributes:
        codec: of the states of the role's table.
        store, keys, counter: on media of their own; without a counter nothing is restored from the first
            message `attest-*`, or the release of the input, on.
        terms: public terms of the caller, which a restored run must have been begun with.
        input: the party's input as bytes; another one is refused until it is released.
        charge: called with the digest of the messages that release the input, before they are sent.
    """

    codec: Codec
    store: Store
    keys: KeyRing
    counter: Counter | None = None
    terms: bytes = b""
    input: bytes = b""
    charge: Charge = _no_charge

    def advance(self, position: Position, after: bytes) -> None:
        """Move the counter against rollback, if there is one, to the saved state at `position`."""
        if self.counter is not None:
            before = Entry(position.counter - 1, position.predecessor) if position.counter else None
            self.counter.advance(position.attempt, before, Entry(position.counter, after))


class SavedRun(Run[R_co]):
    """A protocol role's state machine whose states are saved to disk before messages are sent.

    Made by `begin` and `restore`. After a failure to save it takes and sends nothing more, and may be
    restored. It reads and writes files: a driver with an event loop calls it in a thread.

    `final`: beginnings of the steps from which on nothing is restored without a counter; nor from the release
    on.
    """

    final: ClassVar[tuple[str, ...]] = (ATTEST,)

    def __init__(self, role: Any, member: Any, state: State, saving: Saving, row: Row, secret: bytes) -> None:
        super().__init__(role, member, state)
        self.receipt: Receipt | None = None
        self._saving = saving
        self._row = row
        # The key of the newest state; empty if it is not restored.
        self._secret = secret
        # The key that this process has proposed for the next state.
        self._following: Key | None = None
        self._messages: tuple[Envelope, ...] = ()
        # Of them those that no process has sent.
        self._unsent: tuple[Envelope, ...] = ()
        self._input = self._released = b""
        self._charged = self._broken = False
        # Whether an earlier process may have sent the release.
        self._may_be_sent = False
        # Number of events of the step that the store has beside the state: of a collecting role.
        self._entries = 0

    @classmethod
    def begin(cls, role: Any, member: Any, state: State, saving: Saving) -> Self:
        """Save the first state of a run and return the run, which waits for the event `Start`.

        Raises LocalError if a saved run of the request is open.
        """
        context: Context = member.context
        saving.store.check_none_open(context.scope, context.request, member.name)
        attempt, key, following = _RANDOM.bytes(ATTEMPT_BYTES), _new_key(), _new_key()
        committed = _digest_of_input(attempt, saving)
        position = Position(
            context.scope,
            context.request,
            member.name,
            attempt,
            0,
            state.run_id,
            state.step,
            b"",
            b"",
            _digest_of_terms(member, saving),
            0 if saving.counter is None else COUNTED,
        )
        record = saving.codec.encode(state, (), (committed, b""), given=saving.input)
        row = Row(position, key.name, seal_state(key.secret, position, record, _RANDOM))
        saving.keys.create(attempt, key, following)
        saving.store.begin(row)
        saving.advance(position, row.digest)
        run = cls(role, member, state, saving, row, key.secret)
        run._input, run._following = committed, following
        return run

    @classmethod
    def restore(cls, role: Any, member: Any, saving: Saving) -> Self:
        """Return a request's run in its newest saved state; LocalError if there is none or it is not newest.

        Raises:
            LocalError: there is none, it is not the newest, or was begun with other terms or another input.
            VerificationError: it does not open.
            PrivacyError: the member knows another set of survivors than the state's.
        """
        row, secret, reason = _newest(member, saving)
        position = row.position
        if not is_retained(position.flags):
            final = " or ".join(f"'{step}*'" for step in cls.final)
            raise LocalError(
                f"{reason} is lost: without a counter no state is restored from {final} on, or after "
                "a release"
            )
        if not row.sealed:
            raise LocalError(f"{reason} was being abandoned: abandon it again")

        def given(record: Record) -> bytes:
            if not record.input:
                return b""
            if record.input != _digest_of_input(position.attempt, saving):
                raise LocalError(f"{reason} was begun with another input")
            return saving.input

        state, record = saving.codec.decode(open_state(secret, position, row.sealed), given)
        saving.advance(position, row.digest)
        saving.keys.commit(position.attempt, row.key)
        state = state.restored(member)
        run = cls(role, member, state, saving, row, secret)
        run._messages, run._input, run._released = record.messages, record.input, record.released
        run._may_be_sent = run.has_released
        run._resume_log(record.lines)
        member.enter(state)
        return run

    @property
    def attempt(self) -> bytes:
        """The random name of this attempt at the run, under which its states are saved."""
        return self._row.position.attempt

    @property
    def is_over(self) -> bool:
        """Whether the end of the run is stored on disk."""
        return bool(self._row.position.flags & OVER)

    @property
    def is_settled(self) -> bool:
        """Whether all handled events are saved on disk: here always True, as each is saved at once."""
        return True

    def settle(self) -> None:
        """Do nothing: each event is saved at once (overridden for aggregators)."""

    @property
    def has_released(self) -> bool:
        """Whether a message that depends on the input may have been sent."""
        return bool(self._row.position.flags & RELEASED)

    def _resume_log(self, _lines: Sequence[bytes]) -> None:
        """Do nothing: a party writes no public logs (overridden for aggregators)."""

    def _repeated(self, state: State, messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        """Return the messages to send on new connections: those given, else the last; () at the end.

        Who says nothing in a state shows a collector by earlier ones that it is there again.
        """
        return messages or (() if state.over else self._messages)

    def step_from(self, state: State, event: Event) -> Sequence[Envelope]:
        """Handle an event: charge a release, save the next state; do nothing after a failed write."""
        if self._broken:
            return ()
        if not self._failed and not isinstance(event, Cancellation):
            self._charge()
        return super().step_from(state, event)

    def resend(self) -> Sequence[Envelope]:
        """Charge a release not yet charged; return messages for a new connection, () after a failure."""
        if self._broken or (self._failed and not self.is_over):
            return ()
        self._charge()
        return self._messages

    def finish(self) -> None:
        """Destroy the last key and the saved state, once the result is taken; LocalError if not over."""
        if not self.is_over or self._broken:
            raise LocalError(f"{self.name}: the run is not over")
        self._broken = self._failed = True
        _clean(_marked(self._row, self._saving), self._saving)

    def _take(self, transition: Transition, event: Event) -> Sequence[Envelope]:
        """Save the state after an event before its messages are sent; return the messages."""
        state, messages = transition
        if state.error is not None:
            # The run has failed; `Cancellation` follows, and is saved.
            self._state = state
            return ()
        # After an error the newest state is over, and not yet saved.
        if self.is_over or (state is self._state and not messages and not state.over):
            return ()
        sent = tuple(messages)
        with self._writing():
            self._save(state, sent, event)
            if state.unwritten:
                self.member.write_log(state)
        self.member.enter(state)
        self._charge()
        self._unsent = ()
        return sent

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Within the block: if writing to disk fails, this process can no longer use the run."""
        failed, self._broken, self._failed = self._failed, True, True
        yield
        self._broken, self._failed = False, failed

    def _save(self, state: State, messages: tuple[Envelope, ...], event: Event) -> None:
        """Save a state to disk with the digest of a release, move the counter, and commit its key."""
        saving, before = self._saving, self._row
        committed, released = self._input, self._released
        flags = before.position.flags | (OVER if state.over else 0)
        if state.over:
            committed = b""
        if isinstance(event, Cancellation):
            # An uncharged message is not sent any more.
            released = released if self._charged else b""
            flags = flags if self._charged or self._may_be_sent else flags & ~RELEASED
        elif not released and (
            state.entrusts or any(envelope.step in self.releases for envelope in messages)
        ):
            committed, released = b"", _digest_of(Label.SAVED_RELEASE, messages)
            flags |= RELEASED
        if released or any(envelope.step.startswith(self.final) for envelope in messages):
            flags |= ATTESTED
        received = (event.envelope,) if isinstance(event, Message) else ()
        position = replace(
            before.position,
            counter=before.position.counter + 1,
            run=state.run_id,
            step=state.step,
            predecessor=before.digest,
            received=_digest_of(Label.SAVED_RECEIVED, received) if received else b"",
            flags=flags,
        )
        key = following = None
        sealed = b""
        repeated = self._repeated(state, messages)
        if is_retained(flags):
            key, following = self._following, None if state.over else _new_key()
            if key is None:
                key = _new_key()
                saving.keys.propose(position.attempt, before.key, key)
            lines = map(encode_line, state.unwritten)
            given = saving.input if committed else b""
            record = saving.codec.encode(state.restorable, repeated, (committed, released), lines, given)
            sealed = seal_state(key.secret, position, record, _RANDOM)
        row = Row(position, key.name if key else b"", sealed)
        saving.store.swap(before, row, self._entries)
        saving.advance(position, row.digest)
        if key is not None:
            saving.keys.commit(position.attempt, key.name, following)
        elif before.sealed:
            saving.keys.end(position.attempt, before.key)
        self._entries = 0
        self._row, self._secret = row, key.secret if key else b""
        self._state, self._following = state, following
        self._messages, self._unsent = repeated, messages
        self._input, self._released = committed, released

    def _charge(self) -> None:
        """Charge the release to the ledger; on failure this process does not send its messages."""
        if not self._released or self._charged:
            return
        try:
            self.receipt = self._saving.charge(self._row.position.run, self._released)
            self._charged = True
        finally:
            if not self._charged:
                self._failed = True
                self._state = self._state.without(self._unsent)


def abandon(member: Any, saving: Saving) -> None:
    """Replace a request's saved run by an empty marker, and destroy its keys; LocalError if it is over.

    It takes the arguments of `restore` except the input. A second call continues an interrupted one. Raises
    LocalError if there is none, it is not the newest, or is over: its result may not have been taken.
    """
    row, _, reason = _newest(member, saving)
    position = row.position
    if position.flags & OVER and row.sealed:
        raise LocalError(f"{reason} is over: restore it, and finish it")
    saving.advance(position, row.digest)
    if row.sealed:
        saving.keys.commit(position.attempt, row.key)
    if not position.flags & OVER:
        ended = replace(
            position,
            counter=position.counter + 1,
            step=State.expects,
            predecessor=row.digest,
            received=b"",
            flags=position.flags | OVER,
        )
        after = Row(ended, b"", b"")
        saving.store.swap(row, after, None)
        saving.advance(ended, after.digest)
        if row.sealed:
            saving.keys.end(position.attempt, row.key)
        row = after
    _clean(_marked(row, saving), saving)


def _newest(member: Any, saving: Saving) -> tuple[Row, bytes, str]:
    """Return a request's saved row, its key (empty without a state), and words for it, or raise LocalError.

    Raises LocalError unless terms, counter and key fit.
    """
    context: Context = member.context
    row = saving.store.find(context.scope, context.request, member.name)
    if row is None:
        raise LocalError(f"{member.name}: no saved run of request {context.request}")
    reason = f"{member.name}: the saved run of request {context.request}"
    if row.position.terms != _digest_of_terms(member, saving):
        raise LocalError(f"{reason} was begun with other terms, or for another question")
    if row.position.flags & TAKEN:
        # Its end was interrupted.
        _clean(row, saving)
        raise LocalError(f"{reason} is over, and its result was taken")
    _check_counter(row, saving, reason)
    secret = saving.keys.get(row.position.attempt, row.key) if row.sealed else b""
    if secret is None:
        raise LocalError(f"{reason} has no key: the store was set back, or another process has gone on")
    return row, secret, reason


def _marked(row: Row, saving: Saving) -> Row:
    """Store a copy of a finished row flagged as no longer needed, in its place; return the copy."""
    after = replace(row, position=replace(row.position, flags=row.position.flags | TAKEN))
    saving.store.swap(row, after)
    return after


def _clean(row: Row, saving: Saving) -> None:
    """Destroy the keys of a row that is no longer needed, then its encrypted state."""
    saving.keys.remove(row.position.attempt)
    saving.store.swap(row, replace(row, sealed=b""))


def _check_counter(row: Row, saving: Saving, reason: str) -> None:
    """Raise LocalError unless a row is the newest saved state by the counter, or one step ahead."""
    position, counter = row.position, saving.counter
    if bool(position.flags & COUNTED) != (counter is not None):
        raise LocalError(f"{reason} was begun {'without' if counter else 'with'} a counter")
    if counter is None:
        return
    entry = counter.read(position.attempt)
    before = Entry(position.counter - 1, position.predecessor) if position.counter else None
    if entry not in (before, Entry(position.counter, row.digest)):
        at = "has none" if entry is None else f"is at {entry.number}"
        raise LocalError(
            f"{reason} is not the newest: it has state {position.counter}, and the counter {at}: the store "
            "was set back, or another process has gone on"
        )


def is_retained(flags: int) -> bool:
    """Tell whether a saved state with these flags can be restored."""
    return bool(flags & COUNTED) or not flags & ATTESTED


def _new_key() -> Key:
    """Return a new random key for one saved state."""
    return Key(_RANDOM.bytes(NAME_BYTES), _RANDOM.bytes(KEY_BYTES))


def _digest_of(label: Label, envelopes: Sequence[Envelope]) -> bytes:
    """Return the digest of messages, under a label."""
    return digest(label, *(sha256(encode_envelope(envelope)).digest() for envelope in envelopes))


def _digest_of_input(attempt: bytes, saving: Saving) -> bytes:
    """Return the digest of a run's input, which must be equal when the run is restored."""
    return digest(Label.SAVED_INPUT, attempt, sha256(saving.input).digest())


def _digest_of_terms(member: Any, saving: Saving) -> bytes:
    """Return the digest of request, members and terms, which must be equal when a run is restored."""
    context: Context = member.context
    return digest(
        Label.SAVED_TERMS,
        *context.bound,
        context.scope,
        encode_uint(context.request),
        context.operation.encode(),
        member.name.encode(),
        context.aggregator.encode(),
        encode_uint(len(context.names)),
        *(part for name in context.names for part in (name.encode(), context.keys[name])),
        context.keys.get(context.aggregator, b""),
        saving.terms,
    )
