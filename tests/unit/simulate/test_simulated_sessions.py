"""`simulate.run`: sessions in one process, over connections in memory and with simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp import Session, simulate
from smpc_dp.errors import Check, Code, ConfigError, LocalError, PeerFault, TimeoutFault
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import to_wire
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import Simulated
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.interfaces import PeerChannel
from smpc_dp.transport.memory_connections import MemoryChannel, MemoryConnections
from smpc_dp.wire.envelope import Envelope

PARAMETERS: dict[str, Any] = {"length": 2, "lower": 0.0, "upper": 8.0, "precision": 0.25}
ROBUST = PARAMETERS | {"dropout": 0.3, "corrupt": 0.2}
DIRECT = PARAMETERS | {"epsilon": 4.0, "delta": 1e-5, "topology": "direct"}
REPORTS: dict[str, Any] = {"kernel": "gini", "epsilon": 4.0, "fields": [{"lower": 0, "upper": 5}]}
PARTIES = [f"party-{number:05d}" for number in range(1, 6)]


def number(session: Session) -> int:
    """Return the number of a session's party, from 1 on."""
    return PARTIES.index(session.party) + 1


async def average(session: Session) -> smpc_dp.Result:
    return await session.average([number(session), 1.0])


def test_all_parties_have_the_results_of_all_their_requests() -> None:
    async def take_part(session: Session) -> list[Any]:
        first = await session.average([number(session), 1.0])
        second = await session.sum([number(session), 2.0], label="again")
        return [first.value.tolist(), second.value.tolist()]

    ended = simulate.run(take_part, 5, PARAMETERS)
    assert ended.results == {name: [[3.0, 1.0], [15.0, 10.0]] for name in PARTIES}
    assert [result.fixed_point.tolist() for result in ended.served] == [[60, 20], [60, 40]]


def test_a_result_is_that_of_a_session_over_sockets(tmp_path: Path) -> None:
    session_file = create_local_session(tmp_path, PARTIES, PARAMETERS)

    async def party(name: str) -> smpc_dp.Result:
        async with smpc_dp.connect(session_file, name) as session:
            return await average(session)

    async def over_sockets() -> smpc_dp.Result:
        serving = asyncio.ensure_future(smpc_dp.serve(session_file))
        result, *_ = await asyncio.gather(*map(party, PARTIES))
        await serving
        return result

    expected: Any = asyncio.run(over_sockets()).to_json()
    simulated: Any = simulate.run(average, 5, PARAMETERS).result().to_json()
    # What identifies the keys and the run differs.
    assert {key: value for key, value in simulated.items() if key != "evidence"} == {
        key: value for key, value in expected.items() if key != "evidence"
    }
    assert simulated["evidence"].keys() == expected["evidence"].keys()


@pytest.mark.parametrize(("protocol", "parameters"), [("secagg", ROBUST), ("gopa", DIRECT)])
def test_a_seed_determines_a_run(protocol: str, parameters: Mapping[str, object]) -> None:
    """Four runs: a second one of a seed, another seed, and none."""

    def run(seed: int | None) -> tuple[list[float], bytes]:
        ended = simulate.run(
            average, 5, parameters, protocol=protocol, kill={PARTIES[1]: 2}, seed_for_simulation=seed
        )
        result = ended.result(PARTIES[0])
        assert result.absent == (PARTIES[1],)
        return result.value.tolist(), result.evidence.run_id

    first = run(7)
    assert run(7) == first
    assert len({first[1], run(8)[1], run(None)[1]}) == 3


def test_each_request_of_a_seed_has_noise_of_its_own() -> None:
    async def take_part(session: Session) -> list[Any]:
        return [(await session.average([1.0, 1.0])).value.tolist() for _ in range(2)]

    noisy = PARAMETERS | {"epsilon": 1.0, "delta": 1e-5, "corrupt": 0.0}
    first, second = simulate.run(take_part, 3, noisy, seed_for_simulation=1).result()
    assert first != second


def _failed(ended: object) -> bool:
    return isinstance(ended, smpc_dp.SmpcError)


def test_a_killed_party_is_absent_and_the_others_go_on() -> None:
    events: list[Event] = []
    ended = simulate.run(average, 5, ROBUST, kill={PARTIES[2]: 3}, on_event=events.append)
    results = dict(ended.results)
    assert isinstance(results.pop(PARTIES[2]), TimeoutFault)
    for result in results.values():
        assert not isinstance(result, smpc_dp.SmpcError)
        assert result.absent == (PARTIES[2],)
        assert result.value.tolist() == [3.0, 1.0]
    # The others have left later, when they had their results.
    assert next(event.detail for event in events if event.kind == "lost") == PARTIES[2]


def test_too_many_killed_parties_stop_the_run() -> None:
    ended = simulate.run(average, 5, ROBUST, kill=dict.fromkeys(PARTIES[:3], 2))
    assert all(map(_failed, ended.results.values()))
    with pytest.raises(
        TimeoutFault, match=r"party-00001, party-00002 \(3 of 5 parties are left, 4 are needed"
    ):
        ended.result()


def test_the_error_of_a_killed_party_is_not_that_of_the_simulation() -> None:
    """Without an aggregator, whose error it would be."""
    lost = TimeoutFault({PARTIES[1]}, "connect", "killed")
    results = {PARTIES[0]: lost, PARTIES[1]: 5}
    assert Simulated(results, None, {PARTIES[0]: 1}).result(PARTIES[0]) == 5
    with pytest.raises(TimeoutFault, match="killed"):
        Simulated(results, None, {}).result(PARTIES[1])


def test_time_passes_while_all_wait() -> None:
    """A party that asks after the deadline is absent; the others have waited for it."""
    clocks: dict[str, float] = {}

    async def take_part(session: Session) -> smpc_dp.Result:
        if session.party == PARTIES[0]:
            await asyncio.sleep(1_000.0)
        result = await average(session)
        clocks[session.party] = asyncio.get_running_loop().time()
        return result

    ended = simulate.run(take_part, 5, ROBUST)
    results = dict(ended.results)
    late = results.pop(PARTIES[0])
    assert isinstance(late, TimeoutFault)
    assert late.code == Code.LATE
    assert all(result.absent == (PARTIES[0],) for result in results.values())  # type: ignore[union-attr]
    assert clocks.keys() == set(PARTIES[1:])
    # `gather` of a session file's defaults, and no computing time.
    assert set(clocks.values()) == {300.0}


def test_an_error_of_the_caller_is_raised() -> None:
    class OwnError(Exception):
        pass

    async def take_part(session: Session) -> smpc_dp.Result:
        if session.party == PARTIES[3]:
            raise OwnError
        return await average(session)

    with pytest.raises(OwnError) as raised:
        simulate.run(take_part, 5, PARAMETERS)
    assert raised.value.__context__ is None


def test_an_error_of_an_observer_is_raised() -> None:
    class OwnError(Exception):
        pass

    def observe(event: Event) -> None:
        if event.kind == "traffic":
            raise OwnError

    with pytest.raises(OwnError):
        simulate.run(average, 5, PARAMETERS, on_event=observe)


def test_a_party_that_waits_for_nothing_ends_the_run() -> None:
    async def take_part(session: Session) -> smpc_dp.Result:
        result = await average(session)
        if session.party == PARTIES[1]:
            await asyncio.Event().wait()
        return result

    with pytest.raises(LocalError, match=r"nothing was sent for 3600 simulated seconds.*: party-00002$"):
        simulate.run(take_part, 5, PARAMETERS)


def test_a_run_without_any_result_raises_the_error_of_a_party() -> None:
    ended = simulate.run(average, 5, DIRECT, protocol="gopa", kill=dict.fromkeys(PARTIES, 3))
    with pytest.raises(TimeoutFault):
        ended.result()


def test_a_simulation_runs_beside_an_event_loop() -> None:
    """As in a notebook; with the context of the caller."""
    chosen: ContextVar[float] = ContextVar("chosen", default=0.0)

    async def take_part(session: Session) -> smpc_dp.Result:
        return await session.average([number(session), chosen.get()])

    async def cell() -> list[float]:
        chosen.set(2.0)
        values: list[float] = simulate.run(take_part, 5, PARAMETERS).result().value.tolist()
        return values

    assert asyncio.run(cell()) == [3.0, 2.0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kill": {"bob": 1}}, r"kill\[bob\]: no party is called so"),
        ({"kill": [PARTIES[0]]}, "kill: must be a mapping"),
        ({"parties": 1}, "parties: 2 to 65535 are needed, not 1"),
        ({"parties": 2.5}, "parties: 2 to 65535 are needed"),
        ({"parties": 1 << 40}, "parties: 2 to 65535 are needed"),
        ({"parties": 2}, "^parties: "),
        ({"kill": {PARTIES[0]: 0}}, r"kill\[party-00001\]: must be an integer from 1 on, is 0"),
        ({"protocol": "mpyc"}, "protocol: a session of 'mpyc' is not simulated as a whole"),
        (
            {
                "protocol": "reports",
                "parameters": {"kernel": "gini", "epsilon": 4.0, "fields": [{"lower": 0, "upper": 5}]},
            },
            "protocol: a session of 'reports' is not simulated as a whole",
        ),
        ({"parameters": PARAMETERS | {"lower": 9.0, "sharp": 1}}, "^(?!.*parameters).*sharp: unknown"),
        ({"seed_for_simulation": -1}, "seed_for_simulation: must be an integer"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {"parties": 5, "parameters": PARAMETERS} | options
    with pytest.raises(ConfigError, match=reason):
        simulate.run(average, **given)


def test_two_parties_alone_do_not_compute_in_a_simulation() -> None:
    async def evaluate(session: Session) -> Any:
        return await session.evaluate("add64", [1], peer=PARTIES[0], role="garbler")

    for error in simulate.run(evaluate, 5, PARAMETERS).results.values():
        assert isinstance(error, ConfigError)
        assert "two parties compute nothing alone in a simulation" in str(error)


def test_a_learner_is_a_session_too() -> None:
    settings = {"learner": "gossip-clear", "statistic": "variance", "ticks": 4, "lower": 0.0, "upper": 1.0}

    async def learn(session: Session) -> Any:
        return (await session.learn(np.array([[number(session) / 8]]))).values

    ended = simulate.run(learn, 4, settings, protocol="learn")
    assert not any(map(_failed, ended.results.values()))
    assert ended.served == {}
    assert ended.result().shape == (1, 1)


# Channels


def in_memory(use: Callable[[MemoryChannel, MemoryChannel], Any]) -> Any:
    """Run a coroutine with both sides of a channel between "amy" and "ben"."""

    async def main() -> Any:
        return await use(*MemoryChannel.pair("amy", "ben", MemoryConnections()))

    return run_simulation(main)


def letter(size: int, sender: str = "amy") -> Envelope:
    return Envelope(b"", "step", sender, "ben", bytes(size), bytes(64))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 1 << 17])
def test_a_message_counts_as_it_would_over_a_socket(size: int) -> None:
    async def use(amy: MemoryChannel, ben: MemoryChannel) -> tuple[int, int]:
        await amy.send(1, letter(size))
        assert await ben.receive() == (1, letter(size))
        return amy.bytes_sent, ben.bytes_received

    expected = sum(map(len, to_wire(1, letter(size))))
    assert in_memory(use) == (expected, expected)


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_sent_before_the_end_is_received(clean: bool) -> None:
    async def use(amy: MemoryChannel, ben: MemoryChannel) -> None:
        await amy.send(1, letter(3))
        if clean:
            await amy.close()
        else:
            amy.abort()
        assert not amy.live
        assert not ben.live
        assert await ben.receive() == (1, letter(3))
        for channel in (ben, ben, amy):
            with pytest.raises(ChannelClosed) as ended:
                await channel.receive()
            assert ended.value.clean == clean
            with pytest.raises(ChannelClosed):
                await channel.send(1, letter(3))

    in_memory(use)


def test_a_message_that_is_too_long_is_the_fault_of_its_sender() -> None:
    async def use(amy: MemoryChannel, ben: MemoryChannel) -> None:
        ben.max_received = 1_000
        await amy.send(1, letter(1_000))
        with pytest.raises(PeerFault) as refused:
            await ben.receive()
        assert (refused.value.culprit, refused.value.check) == ("amy", Check.TOO_LONG)
        assert not amy.live

    in_memory(use)


def test_a_member_without_a_listener_is_not_reached() -> None:
    connections = MemoryConnections()

    async def main() -> None:
        with pytest.raises(TimeoutFault, match="ben"):
            await connections.endpoint("amy", 5.0).dial("ben")
        assert asyncio.get_running_loop().time() == 5.0
        ben = connections.endpoint("ben", 5.0)
        listener = await ben.listen("ben", 1, lambda _: None, lambda *_: None)
        with pytest.raises(ConfigError, match="accepts channels already"):
            await ben.listen("ben", 1, lambda _: None, lambda *_: None)
        channel = await connections.endpoint("amy", 5.0).dial("ben")
        assert channel.live
        await listener.close()
        with pytest.raises(TimeoutFault):
            await connections.endpoint("amy", 5.0).dial("ben")

    run_simulation(main)


def test_a_killed_member_connects_no_more() -> None:
    killed: list[Envelope] = []
    connections = MemoryConnections(kill={"amy": 2}, on_kill=killed.append)

    async def main() -> None:
        others: list[PeerChannel] = []
        await connections.endpoint("ben", 5.0).listen("ben", 1, others.append, lambda *_: None)
        amy = connections.endpoint("amy", 5.0)
        first, second = await amy.dial("ben"), await amy.dial("ben")
        await first.send(1, letter(1))
        with pytest.raises(ChannelClosed):
            await second.send(1, letter(2))
        assert killed == [letter(2)]
        assert not any(channel.live for channel in (first, second, *others))
        with pytest.raises(TimeoutFault):
            await amy.dial("ben")

    run_simulation(main)
