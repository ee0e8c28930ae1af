"""States as bytes: what is encoded comes back, and nothing but its one encoding does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.states import PARTY as GOPA
from smpc_dp.capabilities.gopa.verifiable.states import PARTY as VERIFIABLE
from smpc_dp.capabilities.pairs.ustatistic.states import AGGREGATOR as STATISTIC_AGGREGATOR
from smpc_dp.engine import collector
from smpc_dp.engine.codec import VERSION, Codec, Record, Sent
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.party import PartyRole, PartyState, Progress, Stopped
from smpc_dp.errors import Code, LocalError, VerificationError
from smpc_dp.secagg.states import PARTY as SECAGG
from smpc_dp.session.exchange.states import PARTY as EXCHANGE
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set


class Inner(msgspec.Struct, frozen=True):
    secret: bytes
    of: dict[int, tuple[str, bytes]]


class Rich(PartyState, frozen=True, kw_only=True, eq=False):
    array: NDArray[Any] | None = None
    members: PartySet | None = None
    inner: Inner | None = None
    keyed: Mapping[tuple[int, str], bytes] = {}
    numbers: tuple[float, ...] = ()


class WithSet(PartyState, frozen=True, kw_only=True, eq=False):
    members: set[int]


class WithAny(PartyState, frozen=True, kw_only=True, eq=False):
    inner: list[Any]


class Other(Rich, frozen=True, kw_only=True, eq=False):
    pass


CODEC = Codec([Rich, Stopped])
ENVELOPE = Envelope(b"r", "step", "alice", "hub", b"body", b"signature")


SENT = Sent(b"r", "step", "alice", "hub", 0, b"signature")


def again(state: PartyState) -> Any:
    content = CODEC.encode(state, [ENVELOPE], (b"input", b"released"))
    result, record = CODEC.decode(content)
    assert (record.messages, record.input, record.released) == ((ENVELOPE,), b"input", b"released")
    assert CODEC.encode(result, [ENVELOPE], (b"input", b"released")) == content
    return result


@pytest.mark.parametrize("kind", ["b1", "u1", "u2", "u4", "u8", "i8", "f8", ">u4"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays(kind: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    result = again(Rich(array=array)).array
    np.testing.assert_array_equal(result, array)
    assert result.dtype == array.dtype.newbyteorder("=")
    assert result.flags.writeable
    assert result.flags.c_contiguous


def test_an_array_in_another_order_of_memory() -> None:
    array = np.arange(6, dtype=np.uint32).reshape(2, 3).T
    np.testing.assert_array_equal(again(Rich(array=array)).array, array)


def given_as(content: bytes) -> Callable[[Record], bytes]:
    """Return the input for any record."""
    return lambda _: content


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_the_callers_input_is_not_in_a_state(shape: tuple[int, ...]) -> None:
    array = np.arange(6, dtype=np.uint32)
    content = CODEC.encode(Rich(array=array.reshape(shape)), given=array.tobytes())
    assert array.tobytes() not in content
    result: Any = CODEC.decode(content, given_as(array.tobytes()))[0]
    np.testing.assert_array_equal(result.array, array.reshape(shape))
    assert result.array.flags.writeable
    for other in (b"", array.tobytes()[4:]):
        with pytest.raises(VerificationError, match="malformed"):
            CODEC.decode(content, given_as(other))
    # An array has one encoding: with the input it is left out, else it is there.
    with pytest.raises(VerificationError, match="canonical"):
        CODEC.decode(CODEC.encode(Rich(array=array)), given_as(array.tobytes()))


def test_an_array_that_a_step_has_changed_is_in_the_state() -> None:
    array, before = np.arange(6, dtype=np.uint32), np.arange(6, dtype=np.uint32).tobytes()
    array[0] = 9
    assert array.tobytes() in CODEC.encode(Rich(array=array), given=before)


@given(
    st.sets(st.integers(1, 40)),
    st.dictionaries(st.integers(0, 1 << 60), st.tuples(st.text(), st.binary())),
    st.dictionaries(st.tuples(st.integers(-(1 << 60), 1 << 60), st.text()), st.binary()),
    st.lists(st.floats(allow_nan=False)),
)
def test_all_else(members: set[int], of: Any, keyed: Any, numbers: list[float]) -> None:
    packed = PartySet.unpack(pack_set(members, 40), 40, "")
    state = Rich(
        run_id=b"r",
        progress=Progress({"start": (b"h", b"s")}, ("hello",)),
        members=packed,
        inner=Inner(b"x", of),
        keyed=keyed,
        numbers=tuple(numbers),
    )
    result = again(state)
    assert result.members.packed == packed.packed
    assert result.inner == state.inner
    assert list(result.keyed.items()) == list(keyed.items())
    assert (result.progress, result.numbers) == (state.progress, state.numbers)


def test_a_tombstone() -> None:
    assert again(Stopped(run_id=b"r", code=Code.LATE)).code is Code.LATE


@pytest.mark.parametrize("role", [SECAGG, GOPA, VERIFIABLE, EXCHANGE])
def test_the_states_of_sums_can_be_saved(role: PartyRole) -> None:
    Codec.of_party(role)


@pytest.mark.parametrize("kind", [WithSet, WithAny])
def test_a_type_without_one_encoding_is_refused_at_once(kind: type[PartyState]) -> None:
    with pytest.raises(LocalError, match=f"'{kind.__name__}' cannot be saved: nothing decodes"):
        Codec([kind])


def test_a_state_of_another_table_is_not_saved() -> None:
    with pytest.raises(LocalError, match="not in the table"):
        CODEC.encode(Other())


def test_one_body_for_many_is_saved_once() -> None:
    messages = tuple(Envelope(b"r", "step", "hub", f"p{n}", bytes([n % 2]) * 10_000, b"s") for n in range(50))
    content = CODEC.encode(Rich(), messages)
    assert len(content) < 30_000
    assert CODEC.decode(content)[1].messages == messages


def test_a_field_of_another_type_does_not_come_back() -> None:
    with pytest.raises(VerificationError, match="a saved state 'Rich' is malformed"):
        CODEC.decode(CODEC.encode(Rich(numbers=("text",))))  # type: ignore[arg-type]


def record(**fields: Any) -> bytes:
    state = CODEC.decode(CODEC.encode(Rich(numbers=(1.0,))))[1]
    return msgspec.msgpack.encode(msgspec.structs.replace(state, **fields))


FIELDS = msgspec.msgpack.decode(CODEC.decode(CODEC.encode(Rich()))[1].state)
BODY = {name: FIELDS[name] for name in PartyState.__struct_fields__}
REST: dict[str, Any] = {"array": None, "members": None, "inner": None, "keyed": {}, "numbers": []}


def test_the_baseline_of_what_is_refused() -> None:
    assert CODEC.decode(record(state=msgspec.msgpack.encode({**BODY, **REST})))


@pytest.mark.parametrize(
    "state",
    [
        {**BODY, **REST, "more": 1},
        {**REST, **BODY},
        BODY,
        {**BODY, **REST, "members": [9, b"\0\xff"]},
        {**BODY, **REST, "members": [0, b"\0"]},
        {**BODY, **REST, "members": [1 << 40, b"\0"]},
        {**BODY, **REST, "array": ["<u4", [1], b"123"]},
        {**BODY, **REST, "array": ["<u4", [-1, -1], b"1234"]},
        {**BODY, **REST, "array": ["<u4", [True], b"1234"]},
        {**BODY, **REST, "array": [">u4", [1], b"1234"]},
        {**BODY, **REST, "array": ["|O", [1], b"12345678"]},
        {**BODY, **REST, "array": ["<u4", [1 << 62, 4, 0], b""]},
        {**BODY, **REST, "array": b"1234"},
        {**BODY, **REST, "numbers": [1]},
        [],
    ],
    ids=repr,
)
def test_another_state_is_refused(state: object) -> None:
    with pytest.raises(VerificationError, match="'Rich'"):
        CODEC.decode(record(state=msgspec.msgpack.encode(state)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        record()[:-1],
        record() + b"\0",
        record(version=VERSION - 1),
        record(kind="Waits"),
        record(kind="Stopped"),
        record(sent=(1,)),
        record(sent=(SENT,)),
        record(bodies=(b"body",)),
        record(bodies=(b"body", b"body"), sent=(SENT, msgspec.structs.replace(SENT, body=1))),
        record(bodies=(b"other", b"body"), sent=(msgspec.structs.replace(SENT, body=1), SENT)),
        record(state=b"\xc1"),
        msgspec.msgpack.encode([VERSION, "Rich", b""]),
        msgspec.msgpack.encode([*msgspec.msgpack.decode(record()), 1]),
    ],
)
def test_another_record_is_refused(content: bytes) -> None:
    with pytest.raises(VerificationError):
        CODEC.decode(content)


def test_errors_and_representations_say_nothing() -> None:
    assert "input" not in repr(Record(VERSION, "Rich", b"secret", (), (), b"input"))
    with pytest.raises(VerificationError) as raised:
        CODEC.decode(record(state=msgspec.msgpack.encode({**BODY, **REST, "numbers": ["hunter2"]})))
    assert "hunter2" not in str(raised.value)


def test_a_role_is_saved_only_if_its_table_says_so() -> None:
    """Each type of the sum's states has an encoding: that alone is no reason to save them."""
    with pytest.raises(LocalError, match="never saved"):
        Codec.of_party(dataclasses.replace(SECAGG, saved=False))


@pytest.mark.parametrize("role", [dataclasses.replace(STATISTIC_AGGREGATOR, saved=False)])
def test_a_collecting_role_is_saved_only_if_its_table_says_so(role: CollectorRole) -> None:
    with pytest.raises(LocalError, match="never saved"):
        Codec.of_collector(role)


def test_two_states_of_one_name_are_refused() -> None:
    with pytest.raises(LocalError, match="'Stopped' cannot be saved: another one has its name"):
        Codec([Stopped, collector.Stopped])
