"""Whom members of a computation on shares name: a server for what it sent, and nobody for being silent."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

import smpc_dp
from smpc_dp.capabilities.servers.requests.computing_server import serve_shares
from smpc_dp.capabilities.servers.requests.engine import Engine
from smpc_dp.capabilities.servers.requests.wiring import FRAME, MAX_PAYLOAD, PeerFrames
from smpc_dp.capabilities.servers.secret_sharing import messages as m
from smpc_dp.engine.events import Cancellation, Deadline, Message, PeersLost, Report
from smpc_dp.errors import Check, Code, LocalError, PeerFault, SmpcError, TimeoutFault, VerificationError
from smpc_dp.session.local import create_local_session
from smpc_dp.session.requests import ends_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import decode, encode
from tests.faults.test_servers import IDENTITIES, PARTIES, SERVERS, SimulatedRun, context, resign

UNKNOWN = "the cause is not known; a computation on shares does not survive the loss of a server"


class Stopped(SimulatedRun):
    """A run whose computation stops: `stop` says what happens where all servers compute."""

    def __init__(self, stop: Callable[[Stopped], None], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.stop = stop
        self.heard: dict[str, Abort] = {}
        self.began = False

    def run(self) -> Stopped:
        super().run()
        return self

    def compute(self) -> None:
        if not self.began and all(self.servers[name].job for name in SERVERS):
            self.began = True
            self.stop(self)

    def give(self, name: str, event: object) -> None:
        self.act(name, lambda: self.machines[name].handle(event))  # type: ignore[arg-type]

    def act(self, name: str, act: Callable[[], Sequence[Envelope]]) -> None:
        super().act(name, act)
        for envelope in self.queue:
            if envelope.step == ABORT:
                self.heard.setdefault(envelope.sender, decode(envelope.body, Abort, envelope.sender))

    def look_back(self, silent: Mapping[str, Sequence[str]]) -> None:
        """Let each server that was stopped end its mpyc, and say from whom nothing has come."""
        self.deliver()
        for name, others in silent.items():
            if self.servers[name].looks_back:
                self.give(name, Report(TimeoutFault(others, m.COMPUTE) if others else None))
        self.deliver()

    def texts(self) -> set[str]:
        return {str(error) for error in self.errors.values()}


OTHERS = {name: [other for other in SERVERS if other != name] for name in SERVERS}


def test_all_hear_who_was_silent_towards_whom_and_that_nobody_knows_why() -> None:
    """The mpyc of the third server hangs: each server waits for both others."""

    def stop(run: Stopped) -> None:
        run.give("server1", Report(TimeoutFault(OTHERS["server1"], m.COMPUTE, "server1: canary")))
        run.look_back(OTHERS)

    run = Stopped(stop).run()
    assert set(run.errors) == {*PARTIES, *SERVERS}
    assert run.texts() == {
        "missing in step 'compute': server1, server2, server3 (server1 had nothing from server2, server3; "
        f"server2 had nothing from server1, server3; server3 had nothing from server1, server2; {UNKNOWN})"
    }
    for error in run.errors.values():
        assert isinstance(error, TimeoutFault)
        assert ends_session(error, SERVERS)
    # The text of the first server's own error stays there.
    assert "canary" not in str(run.heard)


def test_a_server_whose_mpyc_ends_is_not_said_to_be_at_fault() -> None:
    """Bytes of another server may have ended it, and the others have heard everybody."""

    def stop(run: Stopped) -> None:
        run.give("server2", Report(TimeoutFault(["server2"], m.COMPUTE)))
        run.look_back({"server1": [], "server3": ["server2"]})

    run = Stopped(stop).run()
    assert run.texts() == {
        "missing in step 'compute': server2 (server1 was stopped by another server; "
        f"server2 had nothing from its own mpyc; server3 had nothing from server2; {UNKNOWN})"
    }


def test_a_server_that_does_not_say_is_waited_for_and_then_listed() -> None:
    def stop(run: Stopped) -> None:
        run.give("server1", Report(TimeoutFault(["server3"], m.COMPUTE)))
        run.look_back({"server2": ["server3"]})
        assert not run.errors
        assert run.servers["server1"].step == m.STOPPING
        assert run.servers["server1"].waiting_for == {"server3"}
        run.servers["server3"]._end()
        for name in SERVERS[:2]:
            run.give(name, Deadline())
        for name in PARTIES:
            run.give(name, PeersLost(("server1", "server2", "server3")))

    run = Stopped(stop).run()
    assert run.texts() == {
        "missing in step 'compute': server3 (server1 had nothing from server3; server2 had nothing from "
        f"server3; server3 has not said why; {UNKNOWN})"
    }


def test_a_server_that_has_opened_is_not_waited_for() -> None:
    """The third server's output reaches the second server alone, which finishes."""

    def change(envelope: Envelope) -> Envelope | None:
        lost = (envelope.step, envelope.sender) == (m.OUTPUT, "server3") and envelope.receiver != "server2"
        return None if lost else envelope

    run = SimulatedRun(change)
    run.run()
    assert run.servers["server2"].result.values == (6, 4)
    assert str(run.errors["server1"]) == (
        "missing in step 'output': server3 (server1 had nothing from server3; server3 has not said why; "
        f"{UNKNOWN})"
    )


def test_a_lost_connection_is_told_as_that_of_two_servers() -> None:
    """The first and the third server lose each other; the second is connected to both."""

    def stop(run: Stopped) -> None:
        run.change = lambda envelope: (
            None if {envelope.sender, envelope.receiver} == {"server1", "server3"} else envelope
        )
        run.give("server1", PeersLost(("server3",)))
        run.give("server3", PeersLost(("server1",)))
        run.look_back({"server2": []})

    run = Stopped(stop).run()
    for name in PARTIES:
        assert str(run.errors[name]) == (
            "missing in step 'compute': server1, server3 (server1 had nothing from server3 (not connected); "
            "server2 was stopped by another server; server3 had nothing from server1 (not connected); "
            f"{UNKNOWN})"
        )
        assert run.errors[name].code == Code.LOST


@pytest.mark.parametrize("first", ["server1", "server2"])
def test_who_is_blamed_by_one_is_not_blamed_by_those_that_it_told(first: str) -> None:
    """Each member's error names the accuser, whichever server's message comes first."""

    def stop(run: Stopped) -> None:
        run.give("server2", Cancellation(PeerFault("server3", "canary", Check.MALFORMED)))
        told = [envelope for envelope in run.queue if envelope.receiver == "server1"]
        run.queue = [envelope for envelope in run.queue if envelope.receiver != "server1"]
        for envelope in told:
            run.give("server1", Message(envelope))
        run.queue.sort(key=lambda envelope: envelope.sender != first)
        run.errors["server2"] = PeerFault("server3", "seen here", Check.MALFORMED)

    run = Stopped(stop).run()
    assert run.heard["server1"] == Abort(Code.STOPPED)
    assert run.heard["server2"] == Abort(Code.FAULT, "server3")
    for name in (*PARTIES, "server1", "server3"):
        error = run.errors[name]
        assert isinstance(error, PeerFault)
        assert (error.culprit, error.accuser, error.check) == ("server3", "server2", Check.REPORTED)


def test_a_server_that_its_own_machine_stopped_says_so_itself() -> None:
    def stop(run: Stopped) -> None:
        run.give("server2", Cancellation(LocalError("server2: mpyc's process ended (signal 9)")))

    run = Stopped(stop).run()
    for name in (*PARTIES, "server1", "server3"):
        error = run.errors[name]
        assert isinstance(error, PeerFault)
        assert (error.culprit, error.check) == ("server2", Check.REPORTED)
        assert "machine" in error.reason
    assert run.heard["server1"] == run.heard["server3"] == Abort(Code.STOPPED)


def test_a_server_that_accuses_another_to_the_parties_alone_has_its_word_beside_the_result() -> None:
    """The others finish: their outputs are there, and the error says who said what."""

    def change(envelope: Envelope) -> Envelope | None:
        if (envelope.step, envelope.sender) != (m.OUTPUT, "server1") or envelope.receiver not in PARTIES:
            return envelope
        silent = Abort(Code.MISSING, "", [("server2", Code.MISSING)], m.COMPUTE)
        (written,) = context().write(
            IDENTITIES["server1"], envelope.run_id, ABORT, (envelope.receiver,), silent
        )
        return written

    run = SimulatedRun(change).run()
    for name in PARTIES:
        assert str(run.errors[name]) == (
            f"missing in step 'compute': server2 (server1 had nothing from server2; {UNKNOWN})"
        )
    assert not run.errors.keys() & set(SERVERS)


@pytest.mark.parametrize("step", [m.PRESENT, m.HELD])
def test_a_server_that_tells_two_others_different_things_gets_neither_of_them_blamed(step: str) -> None:
    """What it says decides what they say: they differ, and each is honest."""

    def change(envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.sender, envelope.receiver) != (step, "server3", "server1"):
            return envelope
        fewer = pack_set((1, 2, 3), len(PARTIES))
        if step == m.HELD:
            return resign(envelope, encode(m.Held(fewer, [m.Refused(4, Code.LATE)])))
        present = decode(envelope.body, m.Present, "server3")
        body = encode(m.Present(fewer, present.hellos[:96]))
        (written,) = context().write(
            IDENTITIES["server3"], envelope.run_id, step, ("server1",), decode(body, m.Present, "server3")
        )
        return msgspec.structs.replace(written, body=body)

    run = SimulatedRun(change).run()
    # As seen from an honest member: no error names an honest server.
    for name, error in run.errors.items():
        assert not isinstance(error, PeerFault) or error.culprit not in SERVERS, (name, error)
    differ = [error for error in run.errors.values() if getattr(error, "check", None) == Check.DISAGREES]
    assert differ
    assert all("nothing shows which" in str(error) for error in differ)


def test_whoever_shows_a_wrong_signature_of_another_is_named() -> None:
    def change(envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.sender) != (m.OUTPUT, "server1"):
            return envelope
        output = decode(envelope.body, m.Output, "server1")
        seals = [output.seals[0], bytes(64), output.seals[2]]
        changed = msgspec.structs.replace(output, seals=seals)
        (written,) = context().write(
            IDENTITIES["server1"], envelope.run_id, m.OUTPUT, (envelope.receiver,), changed
        )
        return written

    for name, error in SimulatedRun(change).run().errors.items():
        assert isinstance(error, PeerFault), name
        assert error.culprit == "server1"


def test_disagreeing_servers_serve_no_further_request() -> None:
    assert ends_session(VerificationError("differ", Check.DISAGREES), SERVERS)
    assert ends_session(VerificationError("said", Check.REPORTED), SERVERS)
    assert not ends_session(VerificationError("own", Check.OUT_OF_BOUNDS), SERVERS)


class BlamedError(Exception):
    """Raised in the place of the end of a child."""


def frames() -> PeerFrames:
    def blame(peer: int, reason: str) -> NoReturn:
        raise BlamedError(f"{peer} {reason}")

    return PeerFrames(2, blame)


def frame(number: int, payload: bytes) -> bytes:
    return FRAME.pack(number, len(payload)) + payload


async def test_frames_of_the_due_lengths_are_taken_whatever_their_order_and_pieces() -> None:
    peer = frames()
    content = frame(5, b"five!") + frame(-7, b"") + frame(6, b"six")
    early = peer.receive(6, 3)
    for index in range(len(content)):
        peer.feed(content[index : index + 1])
    assert isinstance(early, asyncio.Future)
    assert await early == b"six"
    assert peer.receive(5, 5) == b"five!"
    assert peer.receive(-7, 0) == b""


@pytest.mark.parametrize("length", [0, 1, 4, 6, MAX_PAYLOAD])
async def test_a_frame_of_another_length_blames_its_sender_before_and_after_it_is_due(length: int) -> None:
    announced = struct.pack("<qI", 9, length)
    waiting = frames()
    waiting.receive(9, 5)
    with pytest.raises(BlamedError, match=f"^2 sent {length} bytes of shares where 5 are due$"):
        waiting.feed(announced)
    begun = frames()
    begun.feed(announced + b"xyz" if length > 3 else announced + bytes(length))
    with pytest.raises(BlamedError, match=f"^2 sent {length} bytes of shares where 5 are due$"):
        begun.receive(9, 5)


async def test_what_no_memory_holds_and_what_comes_twice_blames_its_sender() -> None:
    with pytest.raises(BlamedError, match="announced 1073741825 bytes"):
        frames().feed(struct.pack("<qI", 9, MAX_PAYLOAD + 1))
    with pytest.raises(BlamedError, match="two messages of one number"):
        frames().feed(frame(9, b"a") + frame(9, b"a"))


@pytest.mark.long
@pytest.mark.parametrize("stopped", SERVERS)
async def test_a_stopped_mpyc_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    """Over real processes: every member's error says who heard nothing of whom."""
    pids: dict[str, int] = {}
    start = Engine._start

    async def starts(engine: Engine, control: object, handed: Sequence[int]) -> object:
        process = await start(engine, control, handed)  # type: ignore[arg-type]
        pids[engine._own] = process.pid
        return process

    monkeypatch.setattr(Engine, "_start", starts)
    path = create_local_session(
        tmp_path,
        PARTIES,
        {"length": 2, "lower": -100, "upper": 100, "kind": "integer", "dropout": 0.25},
        protocol="mpyc",
        servers=3,
        timeouts=Timeouts(connect=60.0, step=12.0, gather=60.0),
    )

    async def take_part(name: str) -> object:
        try:
            async with smpc_dp.connect(path, party=name) as session:
                return await session.sum([1, 1])
        except SmpcError as error:
            return error

    async def hang() -> None:
        while len(pids) < len(SERVERS):
            await asyncio.sleep(0.02)
        os.kill(pids[stopped], signal.SIGSTOP)

    serving = [asyncio.create_task(serve_shares(path, name, requests=1)) for name in SERVERS]
    hanging = asyncio.create_task(hang())
    answers = await asyncio.gather(*map(take_part, PARTIES))
    served = [end for task in serving for end in await task]
    await hanging
    for error in (*answers, *served):
        assert isinstance(error, TimeoutFault), error
        for name in SERVERS:
            assert f"{name} had nothing from {', '.join(OTHERS[name])}" in str(error)
        assert UNKNOWN in str(error)
