"""Decoders of what a peer sends: messages, frames, sets, shares, points, proofs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Mapping
from types import ModuleType

import msgspec
import numpy as np
import pytest

from smpc_dp.capabilities.pairs.garbled.plan import pack_bits, unpack_bits
from smpc_dp.capabilities.servers.secret_sharing import sharing
from smpc_dp.crypto import agree, commit, merkle, seal, shamir
from smpc_dp.crypto.labels import Label
from smpc_dp.encoding import Encoding
from smpc_dp.errors import PeerFault, VerificationError
from smpc_dp.identity.keys import Identity, verify
from smpc_dp.transport import framing, handshake
from smpc_dp.transport.channel import broken
from smpc_dp.transport.difference import DescribedSession
from smpc_dp.transport.spool import SpoolFolder
from smpc_dp.transport.stream_reader import StreamReader
from smpc_dp.wire import large_fields
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_list, pack_set, unpack_list
from smpc_dp.wire.signing import decode, decode_envelope, encode, encode_envelope
from tests.fuzz.samples import samples
from tests.fuzz.target import Decoder, Target

PARTIES = 19

# By the first part of a target's name the module of its messages.
_MESSAGES = {
    "asked": "session.asked",
    "exchange": "session.exchange.messages",
    "gopa.direct_messages": "capabilities.gopa.direct_messages",
    "gopa": "capabilities.gopa.messages",
    "gopa.verifiable": "capabilities.gopa.verifiable.messages",
    "log_messages": "logs.log_messages",
    "secret_sharing": "capabilities.servers.secret_sharing.messages",
    "active": "capabilities.pairs.active.messages",
    "garbled": "capabilities.pairs.garbled.messages",
    "garbled.relay": "capabilities.pairs.garbled.relay",
    "ustatistic": "capabilities.pairs.ustatistic.messages",
    "phases": "engine.phases.messages",
    "reports": "capabilities.reports.reports",
    "abort": "wire.abort",
}


def _is_struct(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, msgspec.Struct)


def _structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    kinds = [kind for kind in vars(module).values() if _is_struct(kind)]
    return [kind for kind in kinds if kind.__module__ == module.__name__ and kind.__name__[0] != "_"]


def _fault_of(decoder: Decoder, content: bytes) -> tuple[bytes | None, str]:
    try:
        return decoder(content), ""
    except PeerFault as error:
        return None, f"{error.check}: {error}"


def _in_views(decoder: Callable[[bytes | memoryview], bytes]) -> Decoder:
    """Return a decoder that tells whether a view of a message whose large field has 16 bytes reads alike."""

    def both(content: bytes) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(large_fields, "LARGE", 16)
            viewed = _fault_of(lambda content: decoder(memoryview(content)), content)
        assert viewed == _fault_of(decoder, content)
        return decoder(content)

    return both


def _message(kind: type[msgspec.Struct]) -> Decoder:
    return _in_views(lambda content: encode(decode(content, kind, "alice")))


def _messages() -> list[Target]:
    targets = []
    for subject, name in _MESSAGES.items():
        for kind in _structs(importlib.import_module(f"smpc_dp.{name}")):
            label = f"{subject}.{kind.__name__}"
            targets.append(Target(label, _message(kind), tuple(samples(kind)), "msgpack"))
    return targets


def _envelope(content: bytes | memoryview) -> bytes:
    return encode_envelope(decode_envelope(content, "alice"))


_ENVELOPES = tuple(
    encode_envelope(Envelope(bytes([i]) * 32, "hello", "alice", "bob", bytes(i * 9), bytes(64)))
    for i in range(3)
)


def _hello(kind: str) -> Decoder:
    decoder = getattr(handshake, kind)
    # The hello's decoder is behind a connection, and has no public name of its own.
    return lambda content: msgspec.msgpack.encode(handshake._decode(content, decoder, "alice"))


_OWN_SESSION: Mapping[str, object] = {
    "protocol": "secagg",
    "version": 2,
    "parameters": {"length": 3, "lower": -1.5},
    "roster": [],
}


def _description(session: Mapping[str, object]) -> bytes:
    return DescribedSession(bytes(32), lambda: session).description()


def _shown_session(content: bytes) -> None:
    raise handshake._differing("alice", DescribedSession(bytes(32), lambda: _OWN_SESSION), content)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _frames(content: bytes) -> None:
    """Read messages off a stream until it ends."""
    _read(content, None)


def _stored_frames(content: bytes) -> None:
    """Read messages of pieces of 64 bytes and frames of 256: those in files are the ones in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "PIECE", 64)
        patch.setattr(framing, "MAX_FRAME", 256)
        read = [_read(content, folder) for folder in (None, SpoolFolder.of_system())]
    assert read[0] == read[1]


def _read(content: bytes, spools: SpoolFolder | None) -> list[bytes | memoryview | int]:
    """Return the messages of a stream, and the kinds of its control frames."""
    messages: list[bytes | memoryview | int] = []

    async def admit(total: int) -> framing.Share:
        share = framing.Share(framing.InflightBudget(1 << 20, spools=spools), total)
        await share.admit()
        return share

    async def read() -> None:
        reader = StreamReader()
        reader.feed_data(content)
        reader.feed_eof()
        while first := await reader.read(1):
            message = await framing.read_message(
                reader, first, "alice", 5000, math.inf, math.inf, admit, messages.append
            )
            messages.append(message)
            if message == framing.BYE:
                return
            assert message in framing.CONTROL if isinstance(message, int) else len(message) <= 5000

    try:
        _loop().run_until_complete(read())
    except ConnectionError as error:
        raise broken(error, "alice") from None
    return messages


def _frames_of(content: bytes) -> bytes:
    """Return the frames, of 256 bytes, of a message with a control frame inside, and a goodbye."""
    starts = range(0, len(content), 256)
    frames = [framing.HEADER.pack(len(content) - at, framing.DATA) + content[at : at + 256] for at in starts]
    return framing.control_frame(framing.PING).join(frames) + framing.control_frame(framing.BYE)


def _party_set(content: bytes) -> bytes:
    result = PartySet.unpack(content, PARTIES, "alice")
    members = list(result)
    assert len(result) == len(members)
    assert all(member in result and result.index(member) == index for index, member in enumerate(members))
    return pack_set(members, PARTIES)


def _list(content: bytes) -> bytes:
    return pack_list(unpack_list(content, PARTIES, "alice"))


def _bits(content: bytes) -> bytes:
    result = unpack_bits(content, (3, 7))
    return b"" if result is None and not content else content if result is None else pack_bits(result)


_ALICE = Identity.from_seed("alice", b"alice".ljust(32))
_FIELD = 2**61 - 1


def _shares(content: bytes) -> bytes:
    width = sharing.field_bytes(_FIELD)
    return b"".join(share.to_bytes(width, "big") for share in sharing.unpack(content, 3, _FIELD, "alice"))


_ENCODING = Encoding.plan(length=5, lower=-1.0, upper=1.0, precision=1e-4, parties=100, max_weight=9)


def _vector(content: bytes) -> bytes:
    try:
        ring_vector = _ENCODING.unpack(content)
    except ValueError:
        # The length is what its callers have checked.
        assert len(content) != _ENCODING.ring_length * _ENCODING.element_bytes
        return content
    with_weights = ring_vector.copy()
    with contextlib.suppress(VerificationError):
        _ENCODING.decode(with_weights, 100)
    return _ENCODING.pack(ring_vector)


_LEAVES = [(bytes([i]), bytes(32)) for i in range(7)]
_TREE = merkle.MerkleTree(Label.MERKLE_COMMITMENT, _LEAVES)


def _merkle(content: bytes) -> bytes:
    merkle.check_leaves(Label.MERKLE_COMMITMENT, _TREE.root, 7, {1: _LEAVES[1], 4: _LEAVES[4]}, content)
    return _TREE.prove([1, 4])


def _sealed(content: bytes) -> bytes | None:
    seal.unseal(bytes(32), content, b"context")
    return _SEALED[0]


class _Zeros:
    def bytes(self, count: int) -> bytes:
        return bytes(count)


_SEALED = (seal.seal(bytes(32), b"a message", b"context", _Zeros()),)


def _key(content: bytes) -> bytes:
    if len(content) == 32:
        agree.check_public_key(content)
        agree.agree(bytes(range(32)), content, salt=b"", info=b"")
    return content


def _signature(content: bytes) -> bytes:
    verify(_ALICE.public_key, b"a message", content)
    return _ALICE.sign(b"a message")


def _points(content: bytes) -> bytes:
    try:
        commit.check_commitments(content)
    except ValueError:
        assert len(content) % 32
    return content


def _combined(content: bytes) -> bytes:
    """Shares of a secret, at holders of two bytes each."""
    shares = {
        int.from_bytes(content[index : index + 2], "big"): content[index + 2 : index + 34]
        for index in range(0, len(content), 34)
    }
    widths = {len(share) for share in shares.values()}
    try:
        assert {len(shamir.combine(shares, max(1, len(shares))))} == widths
    except ValueError:
        assert 0 in shares or len(widths) != 1 or min(widths) % 16 or not min(widths)
    return content


def targets() -> list[Target]:
    """Return the targets of this file."""
    everyone = pack_set(range(1, PARTIES + 1), PARTIES)
    sets = (everyone, pack_set([1, 5, 19], PARTIES), pack_set([], PARTIES), pack_set(range(2, 20), PARTIES))
    hello = bytes(32)
    greeting = handshake.Greeting("smpc-dp", 3, "alice", "bob", hello)
    inquiry = handshake.Inquiry("smpc-dp", 3, "alice", "bob", hello)
    inquired = handshake.Answer("bob", hello, 1_700_000_000_000, is_connected=True)
    answers = (
        handshake.Welcome("bob", hello),
        handshake.Refusal("session", b"{}"),
        handshake.Refusal("busy", b""),
        handshake.Refusal("twice", b""),
    )
    pack = msgspec.msgpack.encode
    other = {**_OWN_SESSION, "parameters": {"length": 4}}
    session, described = map(_description, (_OWN_SESSION, other))
    frames = framing.HEADER.pack(9, framing.DATA) + b"a message"
    share = b"".join(i.to_bytes(8, "big") for i in (0, 5, _FIELD - 1))
    vector = _ENCODING.pack(_ENCODING.encode(np.zeros(5), party="alice", weight=3)[0])
    held = b"".join(i.to_bytes(2, "big") + bytes([i]) * 32 for i in (1, 2, 255))
    point = bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")
    return [
        *_messages(),
        Target("envelope", _in_views(_envelope), _ENVELOPES, "msgpack"),
        Target("hello.greeting", _hello("_FIRST"), (pack(greeting), pack(inquiry)), "msgpack"),
        Target("hello.answer", _hello("_VERDICT"), tuple(map(pack, answers)), "msgpack"),
        Target("hello.inquired", _hello("_ANSWER"), (pack(inquired), pack(answers[1])), "msgpack"),
        Target("hello.session", _hello("_OWN_SESSION"), (pack(handshake.OwnSession(session)),), "msgpack"),
        Target("hello.difference", _shown_session, (session, described), "msgpack"),
        Target("frames", _frames, (frames, framing.HEADER.pack(0, framing.BYE), frames * 2), cost=8),
        Target("frames.stored", _stored_frames, (_frames_of(b"m" * 700), _frames_of(b"m" * 65)), cost=20),
        Target("party-set", _party_set, sets),
        Target("party-list", _list, (pack_list([1, 2, 19]), b"")),
        Target("bits", _bits, (pack_bits(np.ones((3, 7), np.uint8)),)),
        Target("field-shares", _shares, (share,)),
        Target("vector", _vector, (vector,)),
        Target("merkle-proof", _merkle, (_TREE.prove([1, 4]),), cost=4),
        Target("sealed", _sealed, _SEALED),
        Target("x25519-key", _key, (agree.public_key(bytes(range(32))), bytes(32), b"\xff" * 32), cost=20),
        Target("signature", _signature, (_ALICE.sign(b"a message"),), cost=10),
        Target("points", _points, (point, bytes(32), point + bytes(32)), cost=2),
        Target("shamir-shares", _combined, (held,), cost=2),
    ]
