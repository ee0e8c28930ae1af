"""Messages with a large field are encoded and decoded without a copy, to the same bytes and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.capabilities.gopa.messages import Average, Published
from smpc_dp.engine.collector import Item
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault
from smpc_dp.session.member import from_wire, to_wire
from smpc_dp.wire import large_fields
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.large_fields import MessageBuffer, bin_header
from smpc_dp.wire.signing import decode, encode
from tests.examples import examples

# Messages with a large field, and two that have none.
KINDS: tuple[type[msgspec.Struct], ...] = (
    Envelope,
    m.Masked,
    m.CheckedMasked,
    m.Result,
    m.CheckedResult,
    m.CertifiedResult,
    Published,
    Average,
    m.Deal,
    m.Advertise,
)
SMALL = 16
SIGNATURE = bytes(range(64))


@pytest.fixture(autouse=True, scope="module")
def small() -> Any:
    """Let a byte string of more than 16 bytes be a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_fields, "LARGE", SMALL)
        yield


def reference(body: bytes, kind: type[Any]) -> Any:
    """Decode a message as its specification says: another encoding than the only one is refused."""
    try:
        message = msgspec.msgpack.decode(body, type=kind, strict=True)
    except (msgspec.DecodeError, ValueError) as error:
        raise PeerFault("eve", f"malformed {kind.__name__}: {error}", Check.MALFORMED) from None
    if msgspec.msgpack.encode(message) != body:
        reason = f"malformed {kind.__name__}: not the canonical encoding"
        raise PeerFault("eve", reason, Check.NOT_CANONICAL)
    return message


def fault_of(decoding: Callable[[], Any]) -> tuple[Any, tuple[str, ...] | None]:
    """Return what is decoded, or None and the error as text."""
    try:
        return decoding(), None
    except PeerFault as fault:
        return None, (str(fault), fault.check, fault.culprit, fault.code)


def both(body: bytes, kind: type[Any]) -> Any:
    """Return the message, or None for bytes that both decoders refuse with the same error."""
    expected = fault_of(lambda: reference(body, kind))
    decoded = fault_of(lambda: decode(memoryview(body), kind, "eve"))
    assert decoded == expected
    message, _ = decoded
    if message is not None:
        assert type(message) is kind
        assert encode(message) == body
    return message


def certificate(size: int) -> m.Certificate:
    return m.Certificate(bytes(size), bytes(64))


def bytes_of(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


def messages(size: int) -> list[msgspec.Struct]:
    """Return messages whose large field has `size` bytes."""
    large, b32 = bytes_of(size), bytes(32)
    return [
        Envelope(b"run", "masked", "eve", "hub", large, SIGNATURE),
        m.Masked(large, b"\1\0"),
        m.CheckedMasked(large, b"", b32, b32, SIGNATURE),
        m.Result(large),
        m.CheckedResult(large, b32, bytes(96), b""),
        m.CertifiedResult(large, b32, certificate(3)),
        Published(large),
        Average(large, b"\3", 7),
        m.Deal(b32, [large]),
    ]


SIZES = [SMALL - 3, SMALL - 2, SMALL - 1, SMALL, SMALL + 1, 255, 256, (1 << 16) - 1, 1 << 16]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("index", range(len(messages(0))))
def test_a_large_field_is_a_view_of_the_message(size: int, index: int) -> None:
    message = messages(size)[index]
    body = encode(message)
    decoded = both(body, type(message))
    assert decoded == message
    name = {Envelope: "body", Published: "x_hat"}.get(type(message))
    name = name or ("vector" if isinstance(message, m.Masked) else "total")
    field = getattr(decoded, name, None)
    if isinstance(field, memoryview):
        assert field.obj is body
        assert field.readonly
    # With its header it is larger than SMALL.
    is_view = field is not None and size + len(bin_header(size)) > SMALL and len(body) > SMALL
    assert isinstance(field, memoryview) == is_view
    assert type(getattr(decode(body, type(message), "eve"), name, b"")) is bytes


@pytest.mark.parametrize(
    ("length", "header"),
    [
        (0, "c400"),
        (255, "c4ff"),
        (256, "c50100"),
        ((1 << 16) - 1, "c5ffff"),
        (1 << 16, "c600010000"),
        ((1 << 32) - 1, "c6ffffffff"),
    ],
)
def test_headers_of_byte_strings(length: int, header: str) -> None:
    assert bin_header(length).hex() == header


def headers(length: int) -> list[bytes]:
    """Return all headers of strings that say `length`, of bytes and of text, and some of other types."""
    forms = [(0xC4, 1), (0xC5, 2), (0xC6, 4), (0xD9, 1), (0xDA, 2), (0xDB, 4), (0xDC, 2), (0xDE, 2)]
    forms += [(0xC7, 1), (0xC8, 2), (0xC9, 4)]
    found = [bytes([first]) + length.to_bytes(size, "big") for first, size in forms if length < 1 << 8 * size]
    return [*found, bytes([0xC0]), bytes([0xA0 | length % 32]), bytes([0x90 | length % 16])]


@pytest.mark.parametrize("size", [20, 31, 255, 256, (1 << 16) - 1, 1 << 16])
@pytest.mark.parametrize("index", range(8))
def test_other_headers_of_the_large_field(size: int, index: int) -> None:
    """Longer headers, those of text and of other types, and those with another length."""
    message = messages(size)[index]
    body = encode(message)
    large = bytes(index % 251 for index in range(size))
    start = body.index(large) - len(bin_header(size))
    accepted = 0
    for length in (size - 1, size, size + 1):
        for header in headers(length):
            accepted += (
                both(body[:start] + header + body[start + len(bin_header(size)) :], type(message)) is not None
            )
    # The one that it has. A field behind may be the shorter for it, which its own header refuses.
    assert accepted == 1


@pytest.mark.parametrize("index", range(9))
def test_arrays_of_another_length_and_trailing_bytes(index: int) -> None:
    message = messages(40)[index]
    body, kind = encode(message), type(message)
    count = body[0] & 15
    items = [msgspec.msgpack.encode(item) for item in msgspec.msgpack.decode(body)]
    other = [
        body + b"\0",
        body + body,
        body[:-1],
        body[1:],
        b"",
        b"\xdc" + count.to_bytes(2, "big") + body[1:],
        b"\xdd" + count.to_bytes(4, "big") + body[1:],
        bytes([0x90 | count + 1]) + body[1:],
        bytes([0x90 | count - 1]) + body[1:],
        bytes([0x80 | count]) + body[1:],
        bytes([0x90 | count + 1]) + body[1:] + b"\xc0",
        bytes([0x90 | count - 1]) + b"".join(items[:-1]),
        bytes([0x90 | count - 1]) + b"".join(items[1:]),
        bytes([0x91]) * 40 + body,
        b"\x91" * 100_000,
    ]
    assert all(both(changed, kind) is None for changed in other)
    assert both(body, kind) == message


@pytest.mark.parametrize("place", range(6))
def test_a_large_byte_string_in_any_place_of_an_envelope(place: int) -> None:
    """Only the body may be one: a run id has a longest length, and names are text."""
    fields: list[Any] = [b"run", "masked", "eve", "hub", b"", SIGNATURE]
    for item in (bytes(100), "x" * 100, [bytes(100)], {b"": bytes(100)}, None, 1 << 40):
        body = msgspec.msgpack.encode([*fields[:place], item, *fields[place + 1 :]])
        assert (both(body, Envelope) is not None) == (place == 4 and isinstance(item, bytes))


@st.composite
def changed(draw: st.DrawFn) -> tuple[type[Any], bytes]:
    """Return a type, and the encoding of a message with some bytes changed, put in or left out."""
    message = draw(st.sampled_from(messages(draw(st.sampled_from([0, 9, 17, 40, 255, 256])))))
    body = bytearray(encode(message))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(body)) | st.integers(0, min(12, len(body))))
        end = start + draw(st.integers(0, 3))
        body[start:end] = draw(st.binary(max_size=4) | st.sampled_from(headers(draw(st.integers(0, 300)))))
    kind = draw(st.just(type(message)) | st.sampled_from(KINDS))
    return kind, bytes(body)


@settings(max_examples=examples(1000), deadline=None)
@given(changed())
def test_changed_messages(case: tuple[type[Any], bytes]) -> None:
    both(case[1], case[0])


@settings(max_examples=examples(500), deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(
        st.recursive(
            st.none() | st.binary(max_size=40) | st.text(max_size=40) | st.integers(-(2**63), 2**64 - 1),
            lambda inner: st.lists(inner, max_size=3),
        ),
        max_size=18,
    ),
)
def test_arrays_of_anything(kind: type[Any], items: list[Any]) -> None:
    both(msgspec.msgpack.encode(items), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_large_arrays_of_small_items_are_no_messages(kind: type[Any]) -> None:
    """Of any number of items, that of the large field's place among them."""
    for count in range(18):
        both(msgspec.msgpack.encode([bytes(8)] * count), kind)


def test_a_buffer_that_may_change_is_copied() -> None:
    """A channel of two parties uses its memory again."""
    message = m.Result(bytes(100))
    memory = bytearray(encode(message))
    decoded = decode(memoryview(memory), m.Result, "eve")
    memory[-1] = 1
    assert decoded == message
    assert type(decoded.total) is bytes


def test_an_envelope_and_its_body_are_views_of_what_was_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_fields, "LARGE", 1 << 20)
    message = m.Masked(bytes(2 << 20), b"\1\0")
    envelope = Envelope(b"run", "masked", "eve", "hub", encode(message), SIGNATURE)
    received = b"".join(to_wire(7, envelope))
    request, decoded = from_wire(received, "eve")
    assert (request, decoded) == (7, envelope)
    assert isinstance(decoded.body, memoryview)
    vector = decode(decoded.body, m.Masked, "eve").vector
    assert isinstance(vector, memoryview)
    assert vector.obj is received
    # What a collecting role keeps of a body keeps no file.
    assert type(Item(None, decoded.body, SIGNATURE).body) is bytes
    # What it is sent on in is the same again, and its text names no byte of it.
    assert b"".join(to_wire(7, decoded)) == received
    assert repr(decoded) == repr(envelope)
    with pytest.raises(PeerFault, match="in the name of 'eve'"):
        from_wire(received, "mallory")


def longer(item: bytes) -> bytes | None:
    """Return an item of less than 256 bytes or 16 items with a longer header, None where it has none."""
    match item[0]:
        case 0xC4:
            return b"\xc5\0" + item[1:]
        case first if first in range(0xA0, 0xC0):
            return bytes([0xD9, first - 0xA0]) + item[1:]
        case 0xD9:
            return b"\xda\0" + item[1:]
        case first if first in range(0x90, 0xA0):
            return bytes([0xDC, 0, first - 0x90]) + item[1:]
        case first if first < 0x80:
            return bytes([0xCC, first])
    return None


@pytest.mark.parametrize("index", range(9))
def test_longer_headers_of_the_other_fields(index: int) -> None:
    message = messages(300)[index]
    body, kind = encode(message), type(message)
    items = [msgspec.msgpack.encode(item) for item in msgspec.msgpack.decode(body)]
    assert both(body[:1] + b"".join(items), kind) == message
    for place, item in enumerate(items):
        if (other := longer(item)) is not None:
            changed = body[:1] + b"".join([*items[:place], other, *items[place + 1 :]])
            assert msgspec.msgpack.decode(changed, type=kind) == message
            assert both(changed, kind) is None


def in_buffer(content: bytes) -> memoryview:
    """Return a field's value in a buffer."""
    buffer = MessageBuffer.of(len(content) + 3)
    view = buffer.content(len(content))
    view[:] = content
    return view


@settings(deadline=None)
@given(st.binary(min_size=0, max_size=300), st.binary(max_size=300))
def test_a_message_in_a_buffer_has_the_same_bytes(large: bytes, behind: bytes) -> None:
    view: Any = in_buffer(large)
    body: Any = encode(m.Masked(view, behind))
    assert body == msgspec.msgpack.encode(m.Masked(large, behind))
    assert isinstance(body, memoryview) == (len(large) > SMALL)
    # Nothing but the bytes around the field was written.
    assert view == large
    assert (memoryview(body).obj is view.obj) == (len(large) > SMALL)


@pytest.mark.parametrize("size", [SMALL + 1, 255, 256, (1 << 16) - 1, 1 << 16])
@pytest.mark.parametrize("index", range(1, 8))
def test_every_message_with_a_large_field_has_the_same_bytes_in_a_buffer(index: int, size: int) -> None:
    message: Any = messages(size)[index]
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    in_buffers = {name: in_buffer(value) for name, value in fields.items() if value == bytes_of(size)}
    assert len(in_buffers) == 1
    body = encode(msgspec.structs.replace(message, **in_buffers))
    assert isinstance(body, memoryview)
    assert body.readonly
    assert body == msgspec.msgpack.encode(message)


def test_a_message_without_large_fields_is_copied_from_a_buffer() -> None:
    view: Any = in_buffer(bytes_of(300))
    body = encode(m.Certificate(view, SIGNATURE))
    assert type(body) is bytes
    assert body == msgspec.msgpack.encode(m.Certificate(bytes_of(300), SIGNATURE))


@pytest.mark.parametrize(("before", "behind"), [(100, 0), (0, 5000)])
def test_a_message_whose_other_fields_have_no_room_in_the_buffer_is_copied(before: int, behind: int) -> None:
    class Long(msgspec.Struct, frozen=True, array_like=True):
        first: bytes
        large: bytes
        last: bytes

    # A field of more than 16 bytes is large here, but not in a buffer.
    first, last, large = bytes(before), bytes(behind), bytes(range(100))
    view: Any = in_buffer(large)
    body = encode(Long(first, view, last))
    assert isinstance(body, bytes)
    assert body == encode(Long(first, large, last))
    assert view == large
