"""Encoding of saved states: strict, canonical MessagePack.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, get_origin

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
    """`Envelope` with the number of its body among those of the record."""

    run_id: bytes
    step: str
    sender: str
    receiver: str
    body: Annotated[int, Meta(ge=0)]
    signature: bytes


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Encrypted content of one saved state.

    Attributes:
        kind: the name of the state's type; state: its fields, without the caller's input.
        bodies: of the messages of the transition into the state, each once; sent: these messages.
        input: the digest of the caller's input, empty from its release on.
        released: the digest of the messages that released it, empty before.
        lines: what the step adds to logs.
    """

    version: Literal[4]
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
        """The messages of the transition into the state."""
        return tuple(
            Envelope(one.run_id, one.step, one.sender, one.receiver, self.bodies[one.body], one.signature)
            for one in self.sent
        )


class Codec:
    """Encoding of the states of one role.

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
        """Return the codec of a party's states; raise LocalError if they are never saved."""
        _check_saved(role)
        table = (kind for row in role.rows for kind in (row.state, *row.next))
        return cls(_retained((role.first, *table, party.Stopped)))

    @classmethod
    def of_collector(cls, role: CollectorRole) -> Codec:
        """Return the codec of a collecting role's states; raises as `of_party`."""
        _check_saved(role)
        table = (kind for row in role.rows for kind in (row.state, *row.next))
        return cls(_retained((*table, collector.Stopped)))

    @classmethod
    def of_peer(cls, role: PeerRole) -> Codec:
        """Return the codec of a peer's states; raises as `of_party`."""
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
        """Return a state with what is sent on the way into it, and the other fields of its `Record`.

        `given`: the caller's input, which is given again to `decode`: an array of these bytes is left out.
        Raises LocalError, before anything is saved, if it would not be decoded again.
        """
        name = type(state).__name__
        if self._kinds.get(name) is not type(state):
            raise LocalError(f"a state '{name}' cannot be saved: it is not in the table")
        converted: list[tuple[Any, Any]] = []

        def convert(value: Any) -> Any:
            converted.append((value, _to_builtin(given, value)))
            return converted[-1][1]

        body = msgspec.msgpack.Encoder(enc_hook=convert).encode(state)
        try:
            _check_decoded(body, type(state), given, converted)
        except VerificationError as error:
            raise LocalError(f"a state '{name}' cannot be saved: {error}") from None
        return _ENCODER.encode(Record(4, name, body, *_packed(messages), *released_input, tuple(lines)))

    def decode(
        self, content: bytes, given: Callable[[Record], bytes] = lambda _: b""
    ) -> tuple[State, Record]:
        """Decode a state; raise VerificationError, without any of the content, for other bytes.

        `given`: returns the caller's input for a record, or raises an error if it is not the record's.
        """
        record = _record(content)
        return self._state(record.kind, record.state, given(record)), record

    def _state(self, name: str, body: bytes, given: bytes) -> State:
        """Decode a state of a named type."""
        if (kind := self._kinds.get(name)) is None:
            raise VerificationError("a saved state is of an unknown type", Check.BAD_STATE)
        hooks = partial(_from_builtin, given), partial(_to_builtin, given)
        state: State = _decoded(body, kind, f"a saved state '{name}'", *hooks)
        return state


def messages_of(content: bytes) -> tuple[Envelope, ...]:
    """Return the messages of an encoded state, of whatever role; raises as `Codec.decode`."""
    return _record(content).messages


def _record(content: bytes) -> Record:
    """Decode a record, but for its state."""
    record: Record = _decoded(content, Record, "a saved record")
    if any(one.body >= len(record.bodies) for one in record.sent):
        raise VerificationError("a saved record has a message without its body", Check.MALFORMED)
    if _packed(record.messages) != (record.bodies, record.sent):
        raise VerificationError("a saved record is not in its canonical encoding", Check.NOT_CANONICAL)
    return record


def _packed(messages: Iterable[Envelope]) -> tuple[tuple[bytes, ...], tuple[Sent, ...]]:
    """Return the bodies of messages, each once, and the messages: an aggregator sends one body to all."""
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
    """Return the types that are saved: a tombstone is saved in place of a state with an error."""
    return [kind for kind in dict.fromkeys(table) if "error" not in kind.__struct_fields__]


def _check_saved(role: PartyRole | CollectorRole | PeerRole) -> None:
    """Raise LocalError for a role whose states are never saved."""
    if not role.saved:
        raise LocalError(f"states of a role that begins with '{role.hello}' are never saved")


def _check_decoded(body: bytes, kind: type[State], given: bytes, converted: list[tuple[Any, Any]]) -> None:
    """Raise VerificationError unless an encoded state is decoded again.

    `converted`: its arrays, sets and the like, in order, and what they were converted to. They are not made
    anew where that is what is decoded.
    """
    left = iter(converted)
    known = {id(value): builtin for value, builtin in converted}

    def back(kind: Any, builtin: Any) -> Any:
        value, expected = next(left, (None, None))
        return value if builtin == expected else _from_builtin(given, kind, builtin)

    def again(value: Any) -> Any:
        return known[id(value)] if id(value) in known else _to_builtin(given, value)

    _decoded(body, kind, f"a saved state '{kind.__name__}'", back, again)


def _decoded(
    content: bytes,
    kind: type[Any],
    name: str,
    back: Callable[[Any, Any], Any] | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """Decode a value of a type, with the hooks `back` and `convert`; VerificationError for other bytes."""
    try:
        value = decode_msgpack(content, kind, back)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # msgspec's message may contain a value of the state.
        raise VerificationError(f"{name} is malformed", Check.MALFORMED) from None
    if msgspec.msgpack.Encoder(enc_hook=convert).encode(value) != content:
        raise VerificationError(f"{name} is not in its canonical encoding", Check.NOT_CANONICAL)
    return value


def _to_builtin(given: bytes, value: Any) -> Any:
    """Convert a value to types that MessagePack has."""
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
    """Convert a value back from `_to_builtin`; raise ValueError for an impossible one."""
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
    """Return the array of an encoded one."""
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
    """Raise LocalError for a type with a field that cannot be saved."""
    known: set[type] = set()
    for kind, info in zip(kinds, inspect.multi_type_info(kinds), strict=True):
        if fault := _unsaveable(info, known):
            raise LocalError(f"a state '{kind.__name__}' cannot be saved: {fault}")


def _unsaveable(kind: inspect.Type, known: set[type]) -> str:
    """Return a type below `kind` without a unique encoding; "" if there is none."""
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
    return next((fault for one in inner if (fault := _unsaveable(one, known))), "")


_ENCODER = msgspec.msgpack.Encoder()
