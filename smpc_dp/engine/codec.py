"""Encoding of saved states: strict, canonical MessagePack.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Annotated, Any, get_origin

import msgspec
import numpy as np
from msgspec import Meta, inspect
from numpy.typing import NDArray

from smpc_dp.decoding import convert, decode_msgpack
from smpc_dp.engine import collector, party, peers
from smpc_dp.engine.collector import CollectorRole, Inbox
from smpc_dp.engine.party import PartyRole
from smpc_dp.engine.peers import PeerRole
from smpc_dp.engine.saved_inbox import SavedError, SavedInbox
from smpc_dp.engine.state import State, Work
from smpc_dp.errors import Check, LocalError, PeerFault, SmpcError, VerificationError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet

# Of a record.
VERSION = 5
# Element types of arrays, little-endian, by their only names.
ARRAYS = ("|b1", "|u1", "<u2", "<u4", "<u8", "<i8", "<f8")
_PLAIN = (
    inspect.IntType,
    inspect.FloatType,
    inspect.BoolType,
    inspect.StrType,
    inspect.BytesType,
    inspect.NoneType,
    inspect.EnumType,
    inspect.LiteralType,
)


class Sent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A sent message in a saved state, with the index of its body in the state's list of bodies."""

    run_id: bytes
    step: str
    sender: str
    receiver: str
    body: Annotated[int, Meta(ge=0)]
    signature: bytes


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Decrypted content of a saved state: its type, encoded fields, messages, digests and log lines.

    Attributes:
        kind: the name of the state's type; state: its fields, without the caller's input.
        bodies: of the messages of the transition into the state, each once; sent: these messages.
        input: the digest of the caller's input, empty from its release on.
        released: the digest of the messages that released it, empty before.
        lines: what the step adds to logs.
    """

    version: int
    kind: str
    state: bytes
    bodies: tuple[bytes, ...] = ()
    sent: tuple[Sent, ...] = ()
    input: bytes = b""
    released: bytes = b""
    lines: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"Record({self.kind!r})"

    @property
    def messages(self) -> tuple[Envelope, ...]:
        """The messages that the role sends on entering the saved state."""
        return tuple(
            Envelope(one.run_id, one.step, one.sender, one.receiver, self.bodies[one.body], one.signature)
            for one in self.sent
        )


class Codec:
    """Encoder and decoder of one role's states, to save them to disk and restore them.

    Args:
        states: the types that may be saved; raises LocalError for a type with a field that cannot be saved,
            and for two types of one name.
    """

    def __init__(self, states: Iterable[type[State]]) -> None:
        self._kinds: dict[str, type[State]] = {}
        for kind in states:
            name = kind.__name__
            if self._kinds.setdefault(name, kind) is not kind:
                raise LocalError(f"a state '{name}' cannot be saved: another one has its name")
        _check_saveable(tuple(self._kinds.values()))

    @classmethod
    def of_party(cls, role: PartyRole) -> Codec:
        """Return the codec of a party's states; raise LocalError if its role is never saved."""
        _check_saved(role)
        table = (kind for row in role.rows for kind in (row.state, *row.next))
        return cls(_retained((role.first, *table, party.Stopped)))

    @classmethod
    def of_collector(cls, role: CollectorRole) -> Codec:
        """Return the codec of an aggregator's states; raise LocalError if its role is never saved."""
        _check_saved(role)
        table = (kind for row in role.rows for kind in (row.state, *row.next))
        return cls(_retained((*table, collector.Stopped)))

    @classmethod
    def of_peer(cls, role: PeerRole) -> Codec:
        """Return the codec of states of parties without aggregator; LocalError if never saved."""
        _check_saved(role)
        table = (kind for phase in role.phases for kind in (phase.state, *phase.next))
        return cls(_retained((role.first, *table, peers.Stopped)))

    def encode(
        self,
        state: State,
        messages: Iterable[Envelope] = (),
        released_input: tuple[bytes, bytes] = (b"", b""),
        lines: Iterable[bytes] = (),
        given: bytes = b"",
    ) -> bytes:
        """Return a state as bytes, with its messages and log lines; LocalError if its type is not saved.

        `given`: the caller's input, which is given again to `decode`: an array of these bytes is left out.
        Raises LocalError for a state of another table.
        """
        name = type(state).__name__
        if self._kinds.get(name) is not type(state):
            raise LocalError(f"a state '{name}' cannot be saved: it is not in the table")
        # It is not decoded again: a state that does not come back ends the runs that are restored from it, a
        # check would end all. Tests restore every role from every state.
        body = msgspec.msgpack.Encoder(enc_hook=partial(_to_builtin, given)).encode(state)
        return _ENCODER.encode(Record(VERSION, name, body, *_packed(messages), *released_input, tuple(lines)))

    def decode(
        self, content: bytes, given: Callable[[Record], bytes] = lambda _: b""
    ) -> tuple[State, Record]:
        """Return the state and record in saved bytes; raise VerificationError for other bytes.

        `given`: returns the caller's input for a record, or raises an error if it is not the record's.
        """
        record = _record(content)
        return self._state(record.kind, record.state, given(record)), record

    def _state(self, name: str, body: bytes, given: bytes) -> State:
        """Return the state of the named type in encoded bytes; VerificationError for an unknown type."""
        if (kind := self._kinds.get(name)) is None:
            raise VerificationError("a saved state is of an unknown type", Check.BAD_STATE)
        hooks = partial(_from_builtin, given), partial(_to_builtin, given)
        state: State = _decoded(body, kind, f"a saved state '{name}'", *hooks)
        return state


def messages_of(content: bytes) -> tuple[Envelope, ...]:
    """Return the messages in an encoded state of any role; raise VerificationError for other bytes."""
    return _record(content).messages


def _record(content: bytes) -> Record:
    """Return the record decoded from saved bytes, its state still encoded; VerificationError if malformed."""
    record: Record = _decoded(content, Record, "a saved record")
    if record.version != VERSION:
        reason = f"a saved record is of version {record.version}; this release reads {VERSION}"
        raise VerificationError(reason, Check.BAD_STATE)
    if any(one.body >= len(record.bodies) for one in record.sent):
        raise VerificationError("a saved record has a message without its body", Check.MALFORMED)
    if _packed(record.messages) != (record.bodies, record.sent):
        raise VerificationError("a saved record is not in its canonical encoding", Check.NOT_CANONICAL)
    return record


def _packed(messages: Iterable[Envelope]) -> tuple[tuple[bytes, ...], tuple[Sent, ...]]:
    """Return the distinct bodies of messages, and the messages with indices in place of bodies."""
    numbers: dict[bytes, int] = {}
    sent = tuple(
        Sent(
            one.run_id,
            one.step,
            one.sender,
            one.receiver,
            numbers.setdefault(bytes(one.body), len(numbers)),
            one.signature,
        )
        for one in messages
    )
    return tuple(numbers), sent


def _retained(table: Iterable[type[State]]) -> Iterable[type[State]]:
    """Return the distinct types of states of a table, in order, without those with a field `error`."""
    return [kind for kind in dict.fromkeys(table) if "error" not in kind.__struct_fields__]


def _check_saved(role: PartyRole | CollectorRole | PeerRole) -> None:
    """Raise LocalError for a role that cannot be saved."""
    if not role.saved:
        raise LocalError(f"states of a role that begins with '{role.hello}' are never saved")


def _decoded(
    content: bytes,
    kind: type[Any],
    name: str,
    back: Callable[[Any, Any], Any] | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """Decode bytes to a value of type `kind`; raise VerificationError, naming `name`, for other bytes."""
    try:
        value = decode_msgpack(content, kind, back)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # msgspec's message may contain a value of the state.
        raise VerificationError(f"{name} is malformed", Check.MALFORMED) from None
    if msgspec.msgpack.Encoder(enc_hook=convert).encode(value) != content:
        raise VerificationError(f"{name} is not in its canonical encoding", Check.NOT_CANONICAL)
    return value


def _to_builtin(given: bytes, value: Any) -> Any:
    """Return a value in MessagePack types, an array like `given` without content; or NotImplementedError."""
    match value:
        case np.ndarray():
            name = value.dtype.newbyteorder("<").str
            if name not in ARRAYS:
                raise NotImplementedError(f"no array of {value.dtype} is saved")
            content = value.astype(name, copy=False).tobytes()
            return [name, list(value.shape), None if given and content == given else content]
        case PartySet():
            return [value.parties, value.packed]
        case Inbox():
            return SavedInbox.of(value)
        case SmpcError():
            return SavedError.of(value)
        case _:
            raise NotImplementedError(f"no {type(value).__name__} is saved")


def _from_builtin(given: bytes, kind: Any, value: Any) -> Any:
    """Return the original value from its MessagePack form; raise ValueError for impossible input."""
    if (get_origin(kind) or kind) is np.ndarray:
        return _array(value, given)
    if kind is Inbox:
        return SavedInbox.read(value)
    if kind is SmpcError:
        return convert(value, SavedError).error()
    match value:
        case [int(parties), bytes(packed)] if kind is PartySet and 0 < parties < 1 << 16:
            try:
                return PartySet.unpack(packed, parties, "")
            except PeerFault as fault:
                raise ValueError(fault.reason) from None
    raise ValueError("malformed")


def _array(value: Any, given: bytes) -> NDArray[Any]:
    """Return the numpy array that an encoded (type, shape, bytes) describes; ValueError if impossible."""
    match value:
        case [_, _, None] if given:
            return _array([*value[:2], given], b"")
        case [str(name), list(shape), bytes(content)] if name in ARRAYS:
            kind = np.dtype(name)
            if not all(type(side) is int and side >= 0 for side in shape):
                raise ValueError("a shape")
            if len(content) != kind.itemsize * math.prod(shape):
                raise ValueError("a length")
            # A copy: some steps change states in place.
            return np.frombuffer(content, kind).reshape(shape).astype(kind.newbyteorder("="))
    raise ValueError("an array")


@lru_cache(maxsize=64)
def _check_saveable(kinds: tuple[type[State], ...]) -> None:
    """Raise LocalError if any of these types of states has a field that cannot be saved."""
    known: set[type] = set()
    for kind, info in zip(kinds, inspect.multi_type_info(kinds), strict=True):
        if fault := _unsaveable_type(info, known):
            raise LocalError(f"a state '{kind.__name__}' cannot be saved: {fault}")


def _unsaveable_type(kind: inspect.Type, known: set[type]) -> str:
    """Return why a type cannot be loaded once saved, "" if it can; types in `known`, which grows, can."""
    match kind:
        case (
            inspect.StructType(cls=cls, fields=fields)
            | inspect.DataclassType(cls=cls, fields=fields)
            | inspect.NamedTupleType(cls=cls, fields=fields)
        ):
            if cls in known:
                return ""
            known.add(cls)
            inner = [field.type for field in fields]
        case inspect.DictType(key_type=key, value_type=value):
            inner = [key, value]
        case inspect.UnionType(types=types):
            inner = list(types)
        case inspect.TupleType(item_types=types):
            inner = list(types)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            inner = [item]
        case inspect.CustomType(cls=cls) if cls in (np.ndarray, PartySet, Inbox, SmpcError):
            return ""
        case inspect.CustomType(cls=cls) if issubclass(cls, Work):
            # Nothing encodes it: a state is saved without it.
            return ""
        case _:
            return "" if isinstance(kind, _PLAIN) else f"nothing decodes {kind!r:.100}"
    return next((fault for one in inner if (fault := _unsaveable_type(one, known))), "")


_ENCODER = msgspec.msgpack.Encoder()
