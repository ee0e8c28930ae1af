"""Blocking channels between two members of a real session, in two threads."""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.requests import pairwise
from smpc_dp.capabilities.pairs.requests.pairwise import PairwiseMember, create_pairwise_session
from smpc_dp.errors import ConfigError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.identity.address import split_address
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport import blocking, handshake
from smpc_dp.transport import connect as connecting
from smpc_dp.transport.blocking import DEPTH, SEND_BYTES, BlockingChannel, Halt, await_any
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.endpoint import Endpoint
from smpc_dp.transport.framing import DATA, HEADER, MAX_FRAME
from smpc_dp.transport.strangers import STRANGERS

TIMEOUTS = Timeouts(connect=3.0, step=1.0)


def session(folder: Path, mode: str = "tile") -> Path:
    return create_pairwise_session(folder, {"circuit": "add32", "mode": mode}, timeouts=TIMEOUTS)


def connect(first: PairwiseMember, second: PairwiseMember) -> list[BlockingChannel | SmpcError]:
    def one(member: PairwiseMember) -> BlockingChannel | SmpcError:
        try:
            return next(iter(member.connect().values()))
        except SmpcError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, (first, second)))


def test_the_system_ends_connections_that_are_not_acknowledged(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    for end in pair:
        sock = end._stream._socket
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[BlockingChannel, BlockingChannel]]:
    path = session(tmp_path)
    ends = connect(PairwiseMember.load(path, "garbler"), PairwiseMember.load(path, "evaluator"))
    garbler, evaluator = (end for end in ends if isinstance(end, BlockingChannel))
    yield garbler, evaluator
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(BlockingChannel.close, (garbler, evaluator)))


def test_messages_of_every_size_arrive_whole_and_in_order(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    garbler, evaluator = pair
    sizes = [0, 1, 5000, MAX_FRAME - 1, MAX_FRAME, MAX_FRAME + 1, 3 * MAX_FRAME + 7, 2, MAX_FRAME]
    messages = [secrets.token_bytes(size) for size in sizes]

    def send() -> None:
        for part in messages:
            garbler.send([part[:1], part[1:]])

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        for left, message in zip(range(len(sizes) - 1, -1, -1), messages, strict=True):
            assert bytes(evaluator.receive(4 * MAX_FRAME, left)) == message
        sending.result()
    evaluator.send([b"back"])
    assert bytes(garbler.receive(4)) == b"back"
    assert evaluator.bytes_received == garbler.bytes_sent == sum(sizes)


def test_a_message_may_be_in_many_pieces(pair: tuple[BlockingChannel, BlockingChannel]) -> None:
    """Each is small, and together they are more than is encrypted at once."""
    garbler, evaluator = pair
    for size, count in ((4095, 60), (1, 3000), (4097, 300)):
        pieces = [secrets.token_bytes(size) for _ in range(count)]
        garbler.send(pieces)
        assert bytes(evaluator.receive(2 * MAX_FRAME)) == b"".join(pieces)


def test_a_message_stays_as_it_is_while_later_ones_are_read(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    """Of any size, in any order, as many as are read ahead."""
    garbler, evaluator = pair
    random = Random(1)
    sizes = [random.choice([0, 7, 1000, 70_000, MAX_FRAME // 2, MAX_FRAME]) for _ in range(60)]
    messages = [bytes([number]) * size for number, size in enumerate(sizes)]

    def send() -> None:
        for message in messages:
            garbler.send([message])

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        for left, message in zip(range(len(sizes) - 1, -1, -1), messages, strict=True):
            came = evaluator.receive(MAX_FRAME, left)
            # While it is used the queue fills, and one more is being read.
            while evaluator._messages.qsize() < min(left, DEPTH):
                time.sleep(0.001)
            time.sleep(0.001)
            assert came == message
        sending.result()


def test_a_message_above_the_limit_names_its_sender(pair: tuple[BlockingChannel, BlockingChannel]) -> None:
    garbler, evaluator = pair
    garbler.send([bytes(101)])
    with pytest.raises(PeerFault, match="garbler: announced a message of 101 bytes, the limit is 100"):
        evaluator.receive(100)


def test_last_words_arrive_while_the_other_still_sends(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    garbler, evaluator = pair
    garbler.send([bytes(1000)])
    evaluator.close([b"last words"])
    assert bytes(garbler.receive(100)) == b"last words"
    with pytest.raises(ChannelClosed) as closed:
        garbler.receive(100)
    assert closed.value.clean


def test_a_silent_peer_is_named(pair: tuple[BlockingChannel, BlockingChannel]) -> None:
    with pytest.raises(TimeoutFault, match="evaluator"):
        pair[0].receive(100)
    with pytest.raises(TimeoutFault, match="evaluator"):
        pair[0].send([b"too late"])


def test_a_wait_for_any_message_ends_with_what_came_beside_the_last_one(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    garbler, evaluator = pair
    garbler.send([b"one"])
    garbler.send([b"two"])
    # Both are in the socket, and leave it together.
    while (
        len(evaluator._stream._socket.recv(1 << 10, socket.MSG_PEEK)) < len("onetwo") + 2 * HEADER.size + 34
    ):
        time.sleep(0.01)
    assert bytes(evaluator.receive(3)) == b"one"
    for _ in range(2):
        await_any([evaluator], 1)
    assert bytes(evaluator.receive(3)) == b"two"


def test_a_wait_for_any_message_takes_nothing_of_it(pair: tuple[BlockingChannel, BlockingChannel]) -> None:
    garbler, evaluator = pair
    message = secrets.token_bytes(MAX_FRAME + 5)
    garbler.send([message])
    await_any([evaluator], 1)
    assert bytes(evaluator.receive(len(message))) == message


def test_a_wait_for_any_message_names_all_that_are_silent(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    _, evaluator = pair
    with pytest.raises(TimeoutFault, match=r"garbler \(nothing came in 2.0 s\)"):
        await_any([evaluator], 2)


@pytest.mark.parametrize("how", ["close", "cut"])
def test_a_wait_for_any_message_ends_with_a_connection(
    pair: tuple[BlockingChannel, BlockingChannel], how: str
) -> None:
    garbler, evaluator = pair
    evaluator._stream.wait(7200.0)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(garbler.close if how == "close" else garbler._stream.cut)
        await_any([evaluator], 1)
        with pytest.raises(ChannelClosed):
            evaluator.receive(1)
        ending.result()


def test_an_absent_peer_is_named(tmp_path: Path) -> None:
    path = session(tmp_path)
    with pytest.raises(TimeoutFault) as absent:
        PairwiseMember.load(path, "garbler").connect()
    assert absent.value.missing == {"evaluator"}


def test_an_interrupt_while_listening_closes_the_connections_made_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Opened:
        def close(self) -> None:
            closed.append("aggregator")

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pairwise, "dial_blocking", lambda *_arguments: Opened())
    monkeypatch.setattr(pairwise, "accept_blocking", interrupted)
    parameters = {"circuit": "add32", "output": "aggregator"}
    path = create_pairwise_session(tmp_path, parameters, timeouts=TIMEOUTS)
    with pytest.raises(KeyboardInterrupt):
        PairwiseMember.load(path, "garbler").connect()
    assert closed == ["aggregator"]


def test_differing_sessions_are_refused_and_the_difference_is_shown(tmp_path: Path) -> None:
    path = session(tmp_path)
    first = PairwiseMember.load(path, "garbler")
    path.write_text(path.read_text("utf-8").replace('"tile"', '"unique"'), "utf-8")
    for end in connect(first, PairwiseMember.load(path, "evaluator")):
        assert isinstance(end, ConfigError)
        assert "parameters.mode" in str(end)


def test_a_large_session_of_a_caller_is_refused_by_its_length(tmp_path: Path) -> None:
    path = session(tmp_path)
    garbler, evaluator = (PairwiseMember.load(path, name) for name in ("garbler", "evaluator"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(garbler.connect)
        reach(garbler).close()
        stream, _ = connecting._call(
            evaluator._endpoint,
            split_address(str(garbler.session.roster.member("garbler").address)),
            3.0,
        )
        greeting = handshake.Greeting("smpc-dp", 3, "evaluator", "garbler", bytes(32))
        stream.write([msgspec.msgpack.encode(greeting)])
        assert len(stream.read(MAX_FRAME)) < handshake.MAX_GREETING
        stream._send([HEADER.pack(16 << 20, DATA)], blocking._Limit(TIMEOUTS.step))
        with pytest.raises(PeerFault, match="evaluator: announced a message of 16777216 bytes"):
            waiting.result()
        stream.close()


def reach(member: PairwiseMember) -> socket.socket:
    """Connect to where `member` is about to listen."""
    address = member.session.roster.member(member.identity.name).address
    assert address is not None
    for _ in range(6000):
        try:
            return socket.create_connection(split_address(address), timeout=2)
        except OSError:
            time.sleep(0.01)
    raise AssertionError(f"nobody listens at {address}")


def probe(garbler: PairwiseMember, folder: Path) -> None:
    reach(garbler).close()


def garbage(garbler: PairwiseMember, folder: Path) -> None:
    with reach(garbler) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")


def forger(garbler: PairwiseMember, folder: Path) -> None:
    """TLS with a certificate in the evaluator's name, but of another key."""
    other = Identity.generate("evaluator")
    path = folder / "other.pem"
    path.write_bytes(other.private_key_pem() + ssl.DER_cert_to_PEM_cert(other.certificate).encode())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(path)
    with reach(garbler) as stranger, contextlib.suppress(OSError), context.wrap_socket(stranger) as tls:
        assert tls.recv(1) == b""


@pytest.mark.parametrize("stranger", [probe, garbage, forger])
def test_a_stranger_does_not_keep_the_peer_away(
    tmp_path: Path, stranger: Callable[[PairwiseMember, Path], None]
) -> None:
    path = session(tmp_path)
    garbler, evaluator = (PairwiseMember.load(path, name) for name in ("garbler", "evaluator"))
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(garbler.connect)
        for _ in range(3):
            stranger(garbler, tmp_path)
        dialling = pool.submit(evaluator.connect)
        ends = [*waiting.result().values(), *dialling.result().values()]
        assert [end.peer for end in ends] == ["evaluator", "garbler"]
        list(pool.map(BlockingChannel.close, ends))


def test_a_silent_stranger_does_not_keep_the_peer_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "HANDSHAKE_SECONDS", 0.3)
    path = session(tmp_path)
    garbler, evaluator = (PairwiseMember.load(path, name) for name in ("garbler", "evaluator"))
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(garbler.connect)
        with reach(garbler):
            dialling = pool.submit(evaluator.connect)
            ends = [*waiting.result().values(), *dialling.result().values()]
        assert [end.peer for end in ends] == ["evaluator", "garbler"]
        list(pool.map(BlockingChannel.close, ends))


def test_who_does_not_come_is_named_and_not_the_stranger_who_did(tmp_path: Path) -> None:
    garbler = PairwiseMember.load(session(tmp_path), "garbler")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(garbler.connect)
        garbage(garbler, tmp_path)
        with pytest.raises(TimeoutFault, match="TLS failed") as absent:
            waiting.result()
    assert absent.value.missing == {"evaluator"}


def test_silent_strangers_side_by_side_do_not_delay_the_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be silent for longer than anybody waits for the peer."""
    monkeypatch.setattr(connecting, "HANDSHAKE_SECONDS", 10 * TIMEOUTS.connect)
    path = session(tmp_path)
    garbler, evaluator = (PairwiseMember.load(path, name) for name in ("garbler", "evaluator"))
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as strangers:
        waiting = pool.submit(garbler.connect)
        for number in range(STRANGERS - 1):
            stranger = strangers.enter_context(reach(garbler))
            # The beginning of a TLS record, for every other one.
            stranger.sendall(b"\x16\x03\x01"[: 3 * (number % 2)])
        dialling = pool.submit(evaluator.connect)
        ends = [*waiting.result().values(), *dialling.result().values()]
        assert [end.peer for end in ends] == ["evaluator", "garbler"]
        list(pool.map(BlockingChannel.close, ends))


def test_more_strangers_than_there_is_room_for_delay_the_peer_until_they_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setattr(connecting, "STRANGERS", 4)
    path = session(tmp_path)
    garbler, evaluator = (PairwiseMember.load(path, name) for name in ("garbler", "evaluator"))
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as strangers:
        waiting = pool.submit(garbler.connect)
        for _ in range(9):
            strangers.enter_context(reach(garbler))
        dialling = pool.submit(evaluator.connect)
        ends = [*waiting.result().values(), *dialling.result().values()]
        assert [end.peer for end in ends] == ["evaluator", "garbler"]
        list(pool.map(BlockingChannel.close, ends))


def test_contexts_of_a_larger_roster_do_not_let_its_other_members_in(tmp_path: Path) -> None:
    """Another member of the session listens at the garbler's address; TLS itself takes its certificate."""
    parameters = {"circuit": "add32", "output": "aggregator"}
    path = create_pairwise_session(tmp_path, parameters, timeouts=TIMEOUTS)
    evaluator, third = (PairwiseMember.load(path, name) for name in ("evaluator", "aggregator"))
    assert evaluator.contexts is not None
    assert third.contexts is not None
    server_context = third.contexts.server
    pair = [evaluator.session.roster.member(name) for name in ("garbler", "evaluator")]
    endpoint = Endpoint(
        identity=evaluator.identity,
        roster=Roster(pair, requires_aggregator=False),
        session_digest=evaluator.session.digest,
        session=evaluator.session.canonical,
        connect_timeout=3.0,
        frame_timeout=1.0,
        prepared=evaluator.contexts,
    )
    shaken: list[str | None] = []
    with socket.create_server(split_address(str(pair[0].address))) as server:

        def answer() -> None:
            raw, _ = server.accept()
            with raw, contextlib.suppress(OSError), server_context.wrap_socket(raw, server_side=True) as tls:
                shaken.append(tls.version())
                tls.recv(1)

        with ThreadPoolExecutor(1) as pool:
            answering = pool.submit(answer)
            with pytest.raises(PeerFault, match="its certificate is not in the roster"):
                connecting.dial_blocking(endpoint, "garbler")
            answering.result()
    assert shaken == ["TLSv1.3"]


def test_both_ends_may_send_at_the_same_time_more_than_the_sockets_hold(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    big, count = secrets.token_bytes(8 * MAX_FRAME), 3

    def talk(channel: BlockingChannel) -> None:
        for _ in range(count):
            channel.send([big])
        for left in range(count - 1, -1, -1):
            assert channel.receive(len(big), left) == big

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(talk, pair))


@pytest.fixture
def small_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sockets of new connections hold less than a message that is sent at once."""
    monkeypatch.setattr(connecting, "SOCKET_BYTES", 1 << 14)


def test_both_ends_may_send_short_messages_at_the_same_time_more_than_the_sockets_hold(
    small_sockets: None, pair: tuple[BlockingChannel, BlockingChannel]
) -> None:
    """They arrive in the order of the calls, the short ones and the long one."""
    sizes = [SEND_BYTES - HEADER.size, SEND_BYTES - 100, SEND_BYTES, SEND_BYTES - 101, 1]
    messages = [secrets.token_bytes(size) for size in sizes]

    def talk(channel: BlockingChannel) -> None:
        for _ in range(3):
            for message in messages:
                channel.send([message[:1], message[1:]])
            for message in messages:
                assert channel.receive(SEND_BYTES) == message

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(talk, pair))


def test_short_messages_need_no_thread(pair: tuple[BlockingChannel, BlockingChannel]) -> None:
    for number in range(3):
        for one, other in (pair, pair[::-1]):
            one.send([bytes([number])])
            assert other.receive(1) == bytes([number])
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"to evaluator", "from evaluator", "to garbler", "from garbler"}


def test_a_slow_peer_has_the_time_limit_for_each_frame(
    small_sockets: None, pair: tuple[BlockingChannel, BlockingChannel]
) -> None:
    """It takes longer for all of them together, of one message and of several."""
    garbler, evaluator = pair
    read = evaluator._stream._header

    def wait_and_read() -> tuple[int, int]:
        time.sleep(TIMEOUTS.step / 4)
        return read()

    evaluator._stream._header = wait_and_read  # type: ignore[method-assign]
    messages = [bytes([size]) * (size * MAX_FRAME) for size in (3, 1, 1, 1)]
    for message in messages:
        garbler.send([message])
    for message in messages:
        assert evaluator.receive(3 * MAX_FRAME) == message
    evaluator.send([b"done"])
    assert bytes(garbler.receive(4)) == b"done"


def drip(channel: BlockingChannel, content: bytes, ended: threading.Event) -> int:
    """Send the encrypted `content` a byte at a time; return how many bytes were sent before `ended`."""
    stream = channel._stream
    encrypted = np.empty(len(content) + 4096, np.uint8)
    size = stream._tls.encrypt([np.frombuffer(content, np.uint8)], encrypted)
    for index in range(size):
        if ended.wait(TIMEOUTS.step / 20):
            return index
        with contextlib.suppress(OSError):
            stream._socket.send(encrypted.data[index : index + 1])
    return size


@pytest.mark.parametrize("whole", [0, 1])
def test_who_sends_a_byte_at_a_time_has_the_time_limit_for_a_frame(
    pair: tuple[BlockingChannel, BlockingChannel], whole: int
) -> None:
    """Each byte comes long before the limit; of the header, or of the payload after a whole header."""
    garbler, evaluator = pair
    header, payload = HEADER.pack(200, DATA), bytes(200)
    if whole:
        evaluator._stream._send([header], blocking._Limit(TIMEOUTS.step))
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        dripping = pool.submit(drip, evaluator, payload if whole else header + payload, ended)
        with pytest.raises(TimeoutFault, match="evaluator") as late:
            garbler.receive(1000)
        ended.set()
        assert dripping.result() < len(payload)
    assert late.value.step == "receive"


def test_who_reads_little_at_a_time_has_the_time_limit_for_a_frame(
    small_sockets: None, pair: tuple[BlockingChannel, BlockingChannel]
) -> None:
    """It takes each part long before the limit."""
    garbler, evaluator = pair
    raw, buffer, taken = evaluator._stream._socket, bytearray(SEND_BYTES // 4), 0
    garbler.send([bytes(8 * MAX_FRAME)])
    while garbler._error is None and taken < 8 * MAX_FRAME:
        with contextlib.suppress(BlockingIOError):
            taken += raw.recv_into(buffer)
        time.sleep(TIMEOUTS.step / 10)
    with pytest.raises(TimeoutFault, match="evaluator") as late:
        garbler.send([b"too late"])
    assert late.value.step == "send"
    assert taken < 4 * MAX_FRAME


class PausedOnce:
    """A wait during which this process is stopped for longer than the time limit, the first time."""

    def __init__(self, ready: select.poll) -> None:
        self._ready = ready
        self.pauses = 0

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        if not self.pauses:
            self.pauses += 1
            time.sleep(1.2 * TIMEOUTS.step)
        return self._ready.poll(milliseconds)


def test_an_own_pause_inside_a_frame_is_not_the_peers_lateness(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    """The rest of the frame comes after the pause."""
    garbler, evaluator = pair
    content = secrets.token_bytes(200)
    paused = PausedOnce(garbler._stream._readable)
    garbler._stream._readable = paused  # type: ignore[assignment]
    evaluator._stream._send([HEADER.pack(200, DATA) + content[:100]], blocking._Limit(TIMEOUTS.step))
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(garbler.receive, 200)
        while not paused.pauses:
            time.sleep(0.001)
        time.sleep(1.3 * TIMEOUTS.step)
        evaluator._stream._send([content[100:]], blocking._Limit(TIMEOUTS.step))
        assert receiving.result() == content


def test_an_own_pause_while_a_peer_reads_is_not_its_lateness(
    small_sockets: None, pair: tuple[BlockingChannel, BlockingChannel]
) -> None:
    garbler, evaluator = pair
    content = secrets.token_bytes(MAX_FRAME)
    paused = PausedOnce(garbler._stream._writable)
    garbler._stream._writable = paused  # type: ignore[assignment]
    garbler.send([content])
    while not paused.pauses:
        time.sleep(0.001)
    time.sleep(1.3 * TIMEOUTS.step)
    assert evaluator.receive(MAX_FRAME) == content


def test_records_without_content_do_not_extend_the_time_limit(
    pair: tuple[BlockingChannel, BlockingChannel],
) -> None:
    """They come faster than they are read, so that the reader never waits."""
    garbler, evaluator = pair

    class Endless:
        """A connection on which bytes come that hold nothing."""

        def receive(self, _socket: int, _out: NDArray[np.uint8], have: int) -> tuple[int, bool]:
            time.sleep(0.01)
            return have, False

    garbler._stream._tls = Endless()  # type: ignore[assignment]
    evaluator.send([b"beyond"])
    with pytest.raises(TimeoutFault, match="evaluator"):
        garbler.receive(100)


def test_a_halt_ends_waits_of_the_caller_for_a_message_and_for_room(
    small_sockets: None, pair: tuple[BlockingChannel, BlockingChannel]
) -> None:
    """They would last longer than the test."""
    evaluator, halt = pair[1], Halt()
    for channel in pair:
        channel._stream.wait(1000.0)
        halt.watch(channel._stream)

    def send_without_end() -> None:
        while True:
            evaluator.send([bytes(SEND_BYTES // 2)])

    with ThreadPoolExecutor(3) as pool:
        sending = pool.submit(send_without_end)
        while evaluator._outgoing.qsize() < DEPTH:
            time.sleep(0.001)
        receiving = pool.submit(evaluator.receive, 1)
        time.sleep(0.05)
        halt.now()
        for waiting in (sending, receiving):
            with pytest.raises(ChannelClosed):
                waiting.result()


@pytest.mark.parametrize("ahead", [0, DEPTH])
def test_what_a_peer_sent_before_it_hung_up_is_read_after_a_send_has_failed(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[BlockingChannel, BlockingChannel], ahead: int
) -> None:
    garbler, evaluator = pair
    monkeypatch.setattr(blocking, "CLOSE_SECONDS", 0.1)
    evaluator.send([b"answer"])
    evaluator.close([b"reason"])
    while garbler._error is None:
        garbler.send([b"more"])
    assert bytes(garbler.receive(6, ahead)) == b"answer"
    assert bytes(garbler.receive(6)) == b"reason"
    for _ in range(2):
        with pytest.raises(ChannelClosed) as closed:
            garbler.receive(6)
        assert not closed.value.clean
    with pytest.raises(ChannelClosed):
        garbler.send([b"more"])


def test_a_break_during_the_handshake_is_tried_again(tmp_path: Path) -> None:
    path = session(tmp_path)
    garbler, evaluator = (PairwiseMember.load(path, name) for name in ("garbler", "evaluator"))
    address = split_address(str(garbler.session.roster.member("garbler").address))
    with ThreadPoolExecutor(2) as pool:
        with socket.create_server(address) as server:
            dialling = pool.submit(evaluator.connect)
            server.accept()[0].close()
        ends = [*garbler.connect().values(), *dialling.result().values()]
        assert [end.peer for end in ends] == ["evaluator", "garbler"]
        list(pool.map(BlockingChannel.close, ends))


def test_who_answers_a_byte_at_a_time_does_not_hold_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "ATTEMPT_SECONDS", 0.5)
    evaluator = PairwiseMember.load(session(tmp_path), "evaluator")
    record = b"\x16\x03\x03\x02\x00" + bytes(300)
    taken: list[int] = []

    def answer(server: socket.socket) -> None:
        raw, _ = server.accept()
        with raw, contextlib.suppress(OSError):
            for index in range(len(record)):
                raw.sendall(record[index : index + 1])
                taken.append(index)
                time.sleep(0.05)

    address = split_address(str(evaluator.session.roster.member("garbler").address))
    with socket.create_server(address) as server, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer, server)
        with pytest.raises(TimeoutFault, match="garbler"):
            evaluator.connect()
        answering.result()
    assert len(taken) < len(record)
