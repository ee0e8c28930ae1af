"""State of a session in folders: what outlives the process of a member, and who may use it.

Specification: protocols/saved-states/sessions.md.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from smpc_dp.decoding import decode_json, decode_msgpack
from smpc_dp.engine.codec import Codec, messages_of
from smpc_dp.engine.counter import Entry, FileCounter
from smpc_dp.engine.keyring import KeyRing
from smpc_dp.engine.peers import PeerRole
from smpc_dp.engine.phases.last_results import Held, SentResults
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.run import Run
from smpc_dp.engine.saved import SavedRun, Saving, is_retained
from smpc_dp.engine.saved_collector import SavedCollection, SavedPeer
from smpc_dp.engine.saved_inbox import SavedError
from smpc_dp.engine.seal import OVER, open_state
from smpc_dp.engine.store import Store
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.files import read_bounded, replace_file
from smpc_dp.session.member import Membership
from smpc_dp.session.progress import SavedProgress
from smpc_dp.session.refusals import StoredResult
from smpc_dp.session.session_state import LostRunError, SessionState, check_can_save
from smpc_dp.session.stored_requests import Requests
from smpc_dp.session.tasks import BESIDE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from smpc_dp.crypto.randomness import Randomness
    from smpc_dp.engine.store import Row
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt
    from smpc_dp.wire.envelope import Envelope
    from smpc_dp.wire.signing import Context

OWNER, LOCK, REQUESTS, STATES, KEYS = "owner", "lock", "requests", "states", "keys"
PROGRESS = "progress"
FORMAT: Literal["smpc-dp state of a session"] = "smpc-dp state of a session"
VERSION = 2
MOST_OWNER = 1 << 12
# Names in the file of requests, beside those of last results.
_ENDED, _CHARGED, _TARGET, _EXCLUDED, _HELD = "/ended", "/charged", "/target", "/excluded/", "/held"
# The request with which all of a learner's messages were charged.
_ONCE = "/once"
# The last two requests beside the session's, with the steps that ask for them.
_BESIDE = "/beside"


class _Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file that says which member and session a state folder belongs to."""

    format: Literal["smpc-dp state of a session"]
    version: int
    session: str
    member: str
    counter: bool
    pair: str


class SavedResult(StoredResult):
    """A party's last result, stored in the session's file of requests."""

    def __init__(self, path: Path, key: bytes, requests: Requests, scope: bytes) -> None:
        super().__init__(path, key)
        self._requests, self._scope = requests, scope
        stored = requests.last_results(scope).get(_HELD)
        self.held = None if stored is None else decode_msgpack(stored, Held)

    def hold(self, held: Held) -> None:
        """Store a result that the party has accepted, then keep it in memory."""
        self._requests.keep_last_results(self._scope, {_HELD: msgspec.msgpack.encode(held)})
        super().hold(held)


class SavedSessionState(SessionState):
    """A member's state of one session in a folder, locked while open, from which runs resume.

    It reads and writes files: call it in a thread beside an event loop.
    """

    saves: ClassVar[bool] = True

    def __init__(
        self,
        membership: Membership,
        folder: str | os.PathLike[str],
        counter: str | os.PathLike[str] | None = None,
        *,
        answers: bool = True,
    ) -> None:
        """`answers`: whether a result counts as taken when the session is closed; else `answer_last` says so.

        Raises:
            ConfigError: the session's requests are not saved; a folder is of another session or member.
            LocalError: a folder cannot be used, another process uses it, or it does not go with the other.
        """
        super().__init__()
        check_can_save(membership.session)
        self.folder, self.answers = Path(folder), answers
        self.counter_folder = None if counter is None else Path(counter)
        self._member, self._scope = membership.name, membership.session.digest
        # Of the group of a learner's newest request, or the session's.
        self._newest_scope = self._scope
        self._is_direct = membership.session.topology == "direct"
        self._ledger: Ledger | None = None
        self._event: Callable[[], Event] = membership.event
        self._counts, self._once = True, False
        _make(self.folder)
        _make(self.folder / KEYS)
        # The folder is this process's own, by its lock; that of the counter may be of copies of it too.
        self._store, self._keys = Store(self.folder / STATES, alone=True), KeyRing(self.folder / KEYS)
        self._counter = None if self.counter_folder is None else FileCounter(self.counter_folder)
        beside = self.folder if self.counter_folder is None else self.counter_folder
        self._requests = Requests(beside / REQUESTS, alone=self.counter_folder is None)
        self._lock: int | None = _locked(self.folder, membership.name)
        try:
            pair = self._check_owner()
            self.number, self.operation = self._requests.last(self._scope)
            self.progress = SavedProgress(self.folder / PROGRESS, pair)
            stored = self._stored()
            self._ended = _number(stored.get(_ENDED))
            if _CHARGED in stored:
                self._counted, self.charged = decode_msgpack(stored[_CHARGED], tuple[int, int])
            # Of which request the caller of this process has the result.
            self._answered = self._ended
            self._has_result = self._interrupted = False
            self._check_requests()
            # The newest two may still be asked for.
            requests = sorted({request for _, request, _ in self._attempts()})
            self._remove(requests[-2] - 1 if len(requests) > 1 else 0, is_interrupted=True)
        except OSError as error:
            self.close()
            raise LocalError(f"{error.filename or self.folder}: cannot be used ({error.strerror})") from None
        except BaseException:
            self.close()
            raise

    @property
    def notice(self) -> str:
        """Text for the member on where its state is saved, and from which steps it can resume."""
        if self.counter_folder is not None:
            goes_on = f", counter in {self.counter_folder}: goes on from any step"
        else:
            goes_on = (
                " without a counter: goes on until the first attestation of a request; a process that ends "
                "later is lost from that request"
            )
        return f"state in {self.folder}{goes_on}. It has keys: in no backup"

    # From one request to the next

    def fixed(self, parties: int) -> FixedSurvivors:
        """Return the stored set of survivors over which all exact sums of the session are taken."""
        return self._requests.fixed(self._scope, parties)

    def sent(self, random: Randomness) -> SentResults:  # noqa: ARG002 - of the operating system
        """Return the stored record of the results that the aggregator has sent last."""
        return self._requests.sent(self._scope)

    def held(self, path: Path, key: bytes) -> StoredResult:
        """Return the stored last result of a party, and its refusal if there is one."""
        return SavedResult(path, key, self._requests, self._scope)

    def exclusions(self) -> dict[str, SmpcError]:
        """Return the parties that the aggregator has excluded for good: the error, by name."""
        return {
            name.removeprefix(_EXCLUDED): decode_msgpack(content, SavedError).error()
            for name, content in self._stored().items()
            if name.startswith(_EXCLUDED)
        }

    def keep_exclusions(self, errors: Mapping[str, SmpcError]) -> None:
        """Store the parties that are excluded from all later requests, with the reasons."""
        known = self._stored()
        added = {
            _EXCLUDED + name: msgspec.msgpack.encode(SavedError.of(error))
            for name, error in errors.items()
            if _EXCLUDED + name not in known
        }
        if added:
            self._keep(added)

    # A party's calls

    @property
    def is_under_way(self) -> bool:
        """Whether the newest request has neither ended nor been answered to the caller."""
        return self.number > max(self._ended, self._answered)

    def following(self, number: int) -> int:  # noqa: ARG002 - the stored one counts
        """Return the number for a call without one: of the request to resume, else the next."""
        return self.number if self.is_under_way else self.number + 1

    def following_call(self, label: str, steps: int) -> int:
        """Return a call's first request number, to resume or new; ConfigError if another is open.

        Raises ConfigError while a request of another call is under way.
        """
        if steps == 1:
            return self.following(self.number)
        progress, newest = self.progress, self.number
        has_failed, last = progress.has_failed, progress.first + steps - 1
        if progress.first > newest and not has_failed:
            # No request of it has begun.
            return progress.first
        is_in = 0 < progress.first <= newest <= last and not has_failed
        if is_in and progress.call == label and (newest < last or self.is_under_way):
            return progress.first
        if self.is_under_way and self.is_open(newest):
            raise self._under_way(newest)
        return (max(newest, progress.first) + steps - 1) // steps * steps + 1

    def least(self, number: int) -> int:  # noqa: ARG002 - the stored one counts
        """Return the smallest number that a call may give: that of the newest request, or 1."""
        return max(1, self.number)

    def is_open(self, number: int, scope: bytes = b"") -> bool:
        """Return whether a request's run is saved and has not ended."""
        flags = self._store.flags(scope or self._newest_scope, number, self._member)
        return flags is not None and not flags & OVER

    def begin_call(self, number: int, operation: str, *, chosen: bool, scope: bytes = b"") -> int:
        """Begin or resume a request; return its number, one later if it is over; or ConfigError."""
        newest = self.number
        self._newest_scope = scope or self._scope
        if number < newest:
            raise self._conflict(f"request {number} was given up, or answered: the newest is {newest}")
        flags = self._store.flags(self._newest_scope, newest, self._member) if newest else None
        if number == newest and operation == self.operation:
            if flags is None and not self.is_under_way:
                raise self._conflict(f"request {number} was answered, and its result is not there any more")
            return number
        if number == newest and (chosen or not (flags is None or flags & OVER)):
            raise self._under_way(newest)
        if number == newest:
            # Its result counts as taken.
            number += 1
        self._give_up(newest)
        self._requests.begin(self._scope, number, operation)
        self.number, self.operation = number, operation
        return number

    def _under_way(self, number: int) -> ConfigError:
        """Return the error for a number that was used to ask for something else."""
        state = "is under way" if self.is_under_way else "was"
        return self._conflict(
            f"request {number} {state} for '{self.operation}': ask for that, or give a later number"
        )

    def _conflict(self, reason: str) -> ConfigError:
        """Return the ConfigError for a request's number, with this reason."""
        return ConfigError.at("number", f"{self._member}: {reason}", ConfigCheck.CONFLICT)

    def _give_up(self, number: int) -> None:
        """Mark a request as ended for good, and destroy its saved state."""
        if number:
            self._end(number)
            # What a party without an aggregator has said may be needed until the next request ends.
            flags = self._store.flags(self._scope, number, self._member) if self._is_direct else None
            self._remove(number - 1 if flags is not None and flags & OVER else number)

    def count_charge(self, number: int) -> None:
        """Count a request as charged, unless it was counted last, and store the count."""
        super().count_charge(number)
        self._keep({_CHARGED: msgspec.msgpack.encode((self._counted, self.charged))})

    def charge_to(
        self, ledger: Ledger | None, event: Callable[[], Event], *, counts: bool = True, once: bool = False
    ) -> None:
        """Set the ledger, and the event to charge, for the saved runs that follow."""
        self._ledger, self._event, self._counts, self._once = ledger, event, counts, once

    def party_run(self, run: Run[Any], given: NDArray[Any] | None) -> tuple[Run[Any], bool]:
        """Return (the party's run, restored or new with its input saved; whether it was restored)."""
        is_peer = isinstance(run.role, PeerRole)
        kind: type[SavedRun[Any]] = SavedPeer if is_peer else SavedRun
        codec = Codec.of_peer(run.role) if is_peer else Codec.of_party(run.role)
        content = b"" if given is None else given.tobytes()
        saving = self._saving(codec, run.member.context.request, content)
        row = self._row(run)
        if row is None:
            self._check_not_begun(run.member.context.request)
            begun = kind.begin(run.role, run.member, run.state, saving)
            self._take(begun.member.context.request, begun.attempt)
            return begun, False
        self._check_retained(row)
        self._take(row.position.request, row.position.attempt)
        # A run whose first state alone is saved has not begun.
        return kind.restore(run.role, run.member, saving), row.position.counter > 0

    def earlier_messages(self) -> tuple[int, Sequence[Envelope]]:
        """Return (last ended request, this party's messages in it); (0, ()) if not retained."""
        number = self.number - self.is_under_way
        row = self._store.find(self._scope, number, self._member) if self._is_direct and number > 0 else None
        if row is None or self._counter is None or not row.position.flags & OVER:
            return 0, ()
        position = row.position
        secret = self._keys.get(position.attempt, row.key)
        # Nothing leaves of a state that the counter has not moved to.
        is_confirmed = self._counter.read(position.attempt) == Entry(position.counter, row.digest)
        if not (secret and row.sealed and is_confirmed):
            return 0, ()
        return number, messages_of(open_state(secret, position, row.sealed))

    def answer(self, number: int, *, with_result: bool) -> None:
        """Note that the caller got a result or error; stored at the next call, or the end."""
        self._answered, self._has_result = max(number, self._answered), with_result

    def interrupt(self) -> None:
        """Note that the caller's program fails, so that its last result may be lost and is kept."""
        self._interrupted = True

    def end_session(self) -> bool:
        """Store that the caller has its results, if so; return whether a run is left to resume."""
        if self.answers and not (self._interrupted and self._has_result):
            self.answer_last()
        return self.is_under_way and self.is_open(self.number)

    def answer_last(self) -> None:
        """Store that the caller has all that this process has returned."""
        if self._answered > self._ended:
            self._end(self._answered)

    # An aggregator's requests

    def first_request(self) -> int:
        """Return the number of the first request that this process serves or resumes."""
        return self.number if self.is_under_way else self.number + 1

    def skip_to(self, number: int) -> None:
        """Store that the aggregator serves no request before this number: earlier ones have ended."""
        if number > self.number + 1:
            self._requests.begin(self._scope, number - 1, "")
            self.number = number - 1
        self._end(number - 1)

    def last_request(self, count: int) -> int:
        """Return the number of the last of `count` requests, stored so that a restart keeps it."""
        target = _number(self._stored().get(_TARGET))
        if target < self.first_request():
            target = self.first_request() + count - 1
            self._keep({_TARGET: msgspec.msgpack.encode(target)})
        return target

    def beside(self, number: int) -> str:
        """Return the kind (its first step) of a saved request that is no sum; "" for a sum."""
        return self._beside().get(number, "")

    def _beside(self) -> dict[int, str]:
        """Return the stored kinds of requests that are no sums, by request number."""
        stored = self._stored().get(_BESIDE)
        return {} if stored is None else decode_msgpack(stored, dict[int, str])

    def _keep_beside(self, number: int, step: str) -> None:
        """Store the kind of a request (the step of its hello) before it begins."""
        before = self._beside()
        others = sorted(before.keys() - {number})[-1:]
        after = {one: before[one] for one in others} | ({number: step} if step in BESIDE else {})
        if after.get(number) != before.get(number):
            self._keep({_BESIDE: msgspec.msgpack.encode(after)})

    def restored_collection(self, run: Run[Any]) -> Run[Any] | None:
        """Return the aggregator's restored run, None if it was not begun; LocalError if its state is lost."""
        row, number = self._row(run), run.member.context.request
        if row is None:
            if number > self._ended:
                self._check_not_begun(number)
            return None
        saving = self._saving(Codec.of_collector(run.role), number)
        self._check_retained(row)
        if number == self.number:
            self._take(number, row.position.attempt)
        restored: SavedCollection[Any] = SavedCollection.restore(run.role, run.member, saving)
        restored.defers = True
        return restored

    def begin_collection(self, run: Run[Any], operation: str = "") -> Run[Any]:
        """Store that a request begins; return its run, from now on saved at each step."""
        number = run.member.context.request
        if number > self.number:
            if self.number:
                self._end(self.number)
            self._requests.begin(self._scope, number, operation)
        elif operation != self.operation:
            self._requests.ask(self._scope, number, operation)
        self.number, self.operation = number, operation
        # Before the first state, which is restored as what this says.
        self._keep_beside(number, run.role.hello)
        saving = self._saving(Codec.of_collector(run.role), number)
        begun: SavedCollection[Any] = SavedCollection.begin(run.role, run.member, run.state, saving)
        self._take(number, begun.attempt)
        begun.defers = True
        return begun

    def end_collection(self, number: int) -> None:
        """Note a request as answered; destroy the saved states of those before it."""
        self._answered = max(number, self._answered)
        self._remove(number - 1)

    def end_command(self) -> None:
        """Store that all requests of the aggregator's command are served."""
        # Until its result is taken, the command started again is for the last request alone.
        self._keep({_TARGET: msgspec.msgpack.encode(self.number)})
        if self.answers:
            self.answer_last()

    def close(self) -> None:
        """Close the state's files and release the lock for other processes."""
        self._store.close()
        self._requests.close()
        if self._lock is not None:
            with suppress(OSError):
                # Closing alone would leave it to a child that the process has forked.
                fcntl.flock(self._lock, fcntl.LOCK_UN)
                os.close(self._lock)
            self._lock = None

    # Media

    def _row(self, run: Run[Any]) -> Row | None:
        """Return the saved state of a run from the database; None if there is none."""
        context: Context = run.member.context
        return self._store.find(context.scope, context.request, run.name)

    def _saving(self, codec: Codec, number: int, given: bytes = b"") -> Saving:
        """Return the settings that save a run: store, keys, counter, input, and charging function."""

        def charge(run_id: bytes, released: bytes) -> Receipt | None:
            receipt = None
            if self._ledger is not None and not (self._once and self._charged_before(number)):
                label = f"request {number}: {released.hex()}"
                receipt = self._ledger.charge(run_id, self._event(), label, resume=True)
                if self._once:
                    self._keep({_ONCE: msgspec.msgpack.encode(number)})
            if self._counts:
                # Also of a request that fails later: it may have released what it was charged for.
                self.count_charge(number)
            return receipt

        return Saving(codec, self._store, self._keys, self._counter, input=given, charge=charge)

    def _charged_before(self, number: int) -> bool:
        """Return whether a single charge for all requests was made in an earlier request."""
        return 0 < _number(self._stored().get(_ONCE)) < number

    def _check_not_begun(self, number: int) -> None:
        """Raise LocalError if a run of this request was begun before, without a saved state."""
        if self._requests.has_begun(self._scope, number):
            raise self._other_attempt(number)

    def _take(self, number: int, attempt: bytes) -> None:
        """Store which run of a request is this member's; raise LocalError if another one is stored."""
        if not self._requests.take_attempt(self._scope, number, attempt):
            raise self._other_attempt(number)

    def _other_attempt(self, number: int) -> LocalError:
        """Return the LocalError for a saved run that another process has continued."""
        return LocalError(
            f"{self._member}: the saved run of request {number} is not in {self._store.path}: the store was "
            "set back, or another process has gone on"
        )

    def _check_retained(self, row: Row) -> None:
        """Give up a saved run and raise LostRunError if it cannot be restored, having no counter."""
        if is_retained(row.position.flags):
            return
        number = row.position.request
        ended = "ended" if row.position.flags & OVER else "was under way"
        self._give_up(number)
        self._answered = max(number, self._answered)
        raise LostRunError(
            f"{self._member}: request {number} {ended} when the process ended, and is not restored without a "
            "counter; the run may have ended, and what it gave may be in a result that others have"
        )

    def _stored(self) -> dict[str, bytes]:
        """Return all named contents that are stored for this member."""
        return self._requests.last_results(self._scope)

    def _keep(self, contents: Mapping[str, bytes]) -> None:
        """Store contents by name for this member, so that they survive a crash."""
        self._requests.keep_last_results(self._scope, contents)

    def _end(self, number: int) -> None:
        """Store that a request has ended, so that it is never resumed."""
        if number > self._ended:
            self._keep({_ENDED: msgspec.msgpack.encode(number)})
            self._ended = number

    def _attempts(self) -> list[tuple[bytes, int, bytes]]:
        """Return the stored (scope, request, attempt) of this member's saved runs."""
        return self._store.attempts(self._member)

    def _remove(self, number: int, *, is_interrupted: bool = False) -> None:
        """Destroy the saved states of ended requests up to this number.

        `is_interrupted`: and of those whose removal an earlier process has begun.
        """
        for scope, request, attempt in self._attempts():
            last = self._ended if is_interrupted and not self._keys.has(attempt) else number
            if request <= min(last, self._ended):
                self._keys.remove(attempt)
                if self._counter is not None:
                    self._counter.remove(attempt)
                self._store.remove(scope, request, self._member, attempt)

    def _check_requests(self) -> None:
        """Raise LocalError if a saved run is newer than the newest stored request."""
        attempts = self._attempts()
        if attempts and (newest := attempts[-1][1]) > self.number:
            raise LocalError(
                f"{self._requests.path}: is at request {self.number}, and a run of request {newest} is saved "
                f"in {self._store.path}: the file was set back"
            )

    def _check_owner(self) -> str:
        """Return the state folders' common identifier; mark empty ones; raise an error for others'.

        Returns what only these folders have.
        """
        own, counter = self.folder, self.counter_folder
        if counter is not None:
            if not counter.is_dir():
                reason = f"{counter} is no folder: make it once, on what is never restored"
                raise ConfigError.at("counter", reason, ConfigCheck.MISSING)
            _check_mode(counter)
            if counter.resolve().is_relative_to(own.resolve()):
                reason = f"{counter} is within {own}: set back with it, it counts nothing"
                raise ConfigError.at("counter", reason, ConfigCheck.CONFLICT)
        known, counted = read_owner(own), None if counter is None else read_owner(counter)
        for folder, one in ((own, known), (counter, counted)):
            if one is not None and (one.session, one.member) != (self._scope.hex(), self._member):
                reason = (
                    f"{folder} is of {one.member} in the session {one.session[:16]}…, here is {self._member} "
                    f"in {self._scope.hex()[:16]}…: give another folder, or the session file of then"
                )
                raise ConfigError.at("state", reason, ConfigCheck.CONFLICT)
        if known is not None:
            if known.counter != (counter is not None):
                begun = "with a counter: give its folder" if known.counter else "without a counter: give none"
                reason = f"{own} was begun {begun}, or another folder for the state"
                raise ConfigError.at("counter", reason, ConfigCheck.CONFLICT)
            if counter is not None and (counted is None or counted.pair != known.pair):
                raise LocalError(f"{own}: its counter is not in {counter}: it was lost or set back")
            return known.pair
        if (own / STATES).exists() or (own / REQUESTS).exists():
            raise LocalError(f"{own}: has states, and no file '{OWNER}' that says whose they are")
        if counter is not None and _newest_in(counter / REQUESTS, self._scope):
            raise LocalError(f"{counter}: its states are not in {own}: they were lost or set back")
        owner = counted or _Owner(
            FORMAT, VERSION, self._scope.hex(), self._member, counter is not None, secrets.token_hex(16)
        )
        # The counter's first: a process that ends in between finds it, and no state.
        if counter is not None and counted is None:
            _write_owner(counter, owner)
        _write_owner(own, owner)
        return owner.pair


def _newest_in(path: Path, scope: bytes) -> int:
    """Return the newest request number that a file of requests holds for a session, 0 if none."""
    return Requests(path).last(scope).number if path.exists() else 0


def _number(content: bytes | None) -> int:
    """Decode a stored request number; 0 if nothing is stored."""
    return 0 if content is None else decode_msgpack(content, int)


def _make(folder: Path) -> None:
    """Make a folder if it is missing, for its owner alone; raise LocalError if any user may write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"{folder}: cannot make the folder ({error.strerror})") from None
    _check_mode(folder)


def _check_mode(folder: Path) -> None:
    """Raise LocalError if any user may write to the folder, and so replace its files."""
    mode = folder.stat().st_mode & 0o777
    if mode & 0o002:
        raise LocalError(f"{folder}: mode {mode:04o} lets others replace its files: run chmod 700 on it")


def _locked(folder: Path, member: str) -> int:
    """Lock a state folder and return the file descriptor; LocalError if another process has it."""
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LocalError(f"{path}: cannot open the lock ({error.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise LocalError(f"{folder}: another process uses this state of {member}") from None
        reason = f"{folder}: cannot be locked ({error.strerror}): use a file system with locks"
        raise LocalError(reason) from None
    return descriptor


def read_owner(folder: Path) -> _Owner | None:
    """Return the member and session of a state folder, None if no file says so; LocalError if damaged."""
    path = folder / OWNER
    try:
        if not path.exists():
            return None
    except OSError as error:
        raise LocalError(f"{path}: cannot read the owner of a state ({error.strerror})") from None
    try:
        owner: _Owner = decode_json(
            read_bounded(path, "the owner of a state", MOST_OWNER, regular=True), _Owner
        )
    except msgspec.DecodeError:
        raise LocalError(f"{path}: is damaged, or no state of a session") from None
    if owner.version != VERSION:
        raise LocalError(f"{path}: is a state of version {owner.version}; this release reads {VERSION}")
    return owner


def _write_owner(folder: Path, owner: _Owner) -> None:
    """Write into a state folder which member and session it belongs to; LocalError if that fails."""
    content = msgspec.json.encode(owner)
    try:
        replace_file(folder / OWNER, lambda file: file.write(content), 0o600)
    except OSError as error:
        raise LocalError(f"{folder / OWNER}: cannot be written ({error.strerror})") from None
