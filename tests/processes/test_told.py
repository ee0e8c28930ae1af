"""What members send, log at DEBUG and say in errors holds nothing of their data and keys, byte by byte.

Every byte that anybody sends is recorded before TLS, each record of any logger, and the text of each error of
the library. Secret values are canaries: none of the three may contain one as text, and no message as a
float64 or int64. Names and paths of a ledger and files are in errors of their own member alone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.servers.requests.computing_server import serve_shares
from smpc_dp.errors import Code
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport.blocking import BlockingChannel
from smpc_dp.transport.channel import Channel
from smpc_dp.wire.abort import LEAVE, TEXTS, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import encode

PARTIES = ("alice", "bob", "carol", "dave", "erin")
TIMEOUTS = Timeouts(connect=20.0, step=10.0, gather=5.0)
INTEGERS: dict[str, object] = {
    "kind": "integer",
    "length": 2,
    "lower": -10,
    "upper": 10,
    "dropout": 0.25,
    "corrupt": 0.0,
    "max_weight": 100,
    "same_survivors": False,
}
GOPA: dict[str, object] = {
    "length": 2,
    "lower": -10.0,
    "upper": 10.0,
    "epsilon": 1.0,
    "delta": 1e-6,
    "dropout": 0.25,
    "corrupt": 0.0,
}
TEXT, NUMBERS = "canary", (4711.25, 987654321, 31337.5, 2718281828)
HIDEOUT = "hideout"

Fail = Callable[[smpc_dp.Session], Awaitable[object]]


@pytest.fixture
def reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> Iterator[list[bytes]]:
    """All messages that channels of this process send, in order.

    In the end no canary and no key is in one of them, in a record of the log or in an error.
    """
    sent: list[bytes] = []
    errors: list[str] = []
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "smpc_dp")
    init = smpc_dp.SmpcError.__init__

    def note(error: smpc_dp.SmpcError, *texts: str) -> None:
        init(error, *texts)
        errors.append(str(error))

    monkeypatch.setattr(smpc_dp.SmpcError, "__init__", note)
    whole, blocking = Channel.send, BlockingChannel.send

    async def send(channel: Channel, *buffers: bytes) -> None:
        sent.append(b"".join(buffers))
        await whole(channel, *buffers)

    def send_blocking(channel: BlockingChannel, parts: list[bytes]) -> None:
        sent.append(b"".join(parts))
        blocking(channel, parts)

    monkeypatch.setattr(Channel, "send", send)
    monkeypatch.setattr(BlockingChannel, "send", send_blocking)
    yield sent
    records = caplog.get_records("call")
    logged = "\n".join(record.getMessage() for record in records)
    assert sent
    assert {record.levelname for record in records} >= {"DEBUG", "INFO"}
    seeds = [re.findall('seed = "(.+)"', path.read_text())[0] for path in tmp_path.rglob("*.key")]
    assert seeds
    assert errors
    for claimed in (b"\n".join(sent), logged.encode(), "\n".join(errors).encode()):
        assert_silent(claimed)
        assert not [seed for seed in seeds if seed.encode() in claimed or bytes.fromhex(seed) in claimed]
    assert HIDEOUT.encode() not in b"\n".join(sent)
    assert HIDEOUT not in logged


def assert_silent(claimed: bytes) -> None:
    """No canary is in these bytes."""
    canaries = [TEXT.encode()]
    for number in NUMBERS:
        canaries += [str(number).encode(), struct.pack("<d", number), struct.pack(">d", number)]
        if isinstance(number, int):
            canaries += [struct.pack(order + "q", number) for order in "<>"]
    assert not [canary for canary in canaries if canary in claimed]


def leaves(sent: list[bytes], name: str) -> list[bytes]:
    """Return the bodies with which a party has left its requests."""
    bodies = []
    for message in sent:
        try:
            envelope = msgspec.msgpack.decode(message[4:], type=Envelope)
        except msgspec.DecodeError:
            continue
        if (envelope.step, envelope.sender) == (LEAVE, name):
            bodies.append(envelope.body)
    return bodies


def weighted(number: float) -> Fail:
    return lambda session: session.average([1, 2], weight=number)


def unweighted(vector: object) -> Fail:
    return lambda session: session.average(np.asarray(vector))


WEIGHTED: tuple[Fail, ...] = (
    weighted(np.float64(4711.25)),
    weighted(987654321),
    weighted(float("nan")),
    weighted(float("inf")),
    weighted(True),
    lambda session: session.average([1, 987654321], weight=3),
    lambda session: session.average([1, 31337.5], weight=3),
    lambda session: session.average([TEXT, TEXT], weight=3),
    lambda session: session.average([1, 2, 2718281828], weight=3),
    lambda session: session.average([1, 2]),
)
PLAIN: tuple[Fail, ...] = (
    unweighted([1.0, 31337.5]),
    unweighted([float("nan"), 1.0]),
    unweighted([1.0, 2.0, 4711.25]),
    unweighted([TEXT, TEXT]),
    lambda session: session.average([1.0, 2.0], weight=987654321),
)


async def execute(
    path: Path, fails: tuple[Fail, ...], good: Fail, ledger: Path | None = None, *, direct: bool = False
) -> None:
    """Bob fails in one request after the other, whatever for; the others go on without him.

    Where nobody relays he coordinates the second request, which ends with what he has told.
    """
    through = asyncio.Barrier(len(PARTIES))

    async def party(name: str) -> None:
        given = ledger if name == "bob" else None
        async with smpc_dp.connect(path, party=name, ledger=given) as session:
            for number, fail in enumerate(fails, 1):
                if name == "bob":
                    with pytest.raises(smpc_dp.SmpcError) as caught:
                        await fail(session)
                    assert caught.value.code == Code.OWN
                elif direct and number == 2:
                    with pytest.raises(smpc_dp.PeerFault, match=f"bob: stopped the run: {TEXTS[Code.OWN]}"):
                        await good(session)
                else:
                    result = await good(session)
                    assert isinstance(result, smpc_dp.Result)
                    assert result.absent == ("bob",)
                # What a party says too far ahead of the others is not kept, and would be waited for.
                await through.wait()

    await asyncio.gather(*(party(name) for name in PARTIES))


@pytest.mark.parametrize(
    ("protocol", "parameters", "fails"),
    [
        ("secagg", INTEGERS, WEIGHTED),
        ("gopa", GOPA, PLAIN),
        ("gopa", GOPA | {"topology": "direct"}, PLAIN),
        pytest.param(
            "mpyc",
            {key: value for key, value in INTEGERS.items() if key not in ("corrupt", "same_survivors")},
            WEIGHTED,
            marks=pytest.mark.long,
        ),
    ],
    ids=["secagg", "gopa", "direct", "mpyc"],
)
async def test_refusals_of_own_data_are_told_by_one_code(
    tmp_path: Path,
    reported: list[bytes],
    protocol: str,
    parameters: dict[str, object],
    fails: tuple[Fail, ...],
) -> None:
    """A secret weight reached the aggregator in the text of a ConfigError, and through it all others."""
    servers = 3 if protocol == "mpyc" else 0
    path = create_local_session(
        tmp_path, PARTIES, parameters, protocol=protocol, timeouts=TIMEOUTS, servers=servers
    )
    serving: list[asyncio.Task[object]] = []
    if servers:
        serving = [
            asyncio.create_task(serve_shares(path, f"server{index}", requests=len(fails)))
            for index in range(1, servers + 1)
        ]
    elif "topology" not in parameters:
        serving = [asyncio.create_task(smpc_dp.serve(path, requests=len(fails)))]
    good = weighted(1) if "max_weight" in parameters else unweighted([1.0, 2.0])
    await execute(path, fails, good, direct="topology" in parameters)
    await asyncio.gather(*serving)
    bodies = leaves(reported, "bob")
    assert len(bodies) == len(fails) * (servers or (4 if "topology" in parameters else 1))
    assert set(bodies) == {encode(Abort(Code.OWN))}


async def test_a_ledger_is_told_by_the_same_code_as_a_vector(tmp_path: Path, reported: list[bytes]) -> None:
    """Neither its path, nor the name of its data set, nor what is spent, nor that it is damaged."""
    exact = {key: value for key, value in INTEGERS.items() if key != "max_weight"}
    path = create_local_session(tmp_path, PARTIES, exact, timeouts=TIMEOUTS)
    ledger = tmp_path / f"{HIDEOUT}.ledger"
    Ledger.create(
        ledger, party="bob", dataset=f"{HIDEOUT}s", relation="substitution", epsilon=0.5, delta=1e-5
    )

    async def spent(session: smpc_dp.Session) -> object:
        return await session.average([1, 2])

    async def damaged(session: smpc_dp.Session) -> object:
        ledger.write_text("{")
        return await session.average([1, 2])

    def outside(session: smpc_dp.Session) -> Awaitable[object]:
        return session.average([1, 987654321])

    serving = asyncio.create_task(smpc_dp.serve(path, requests=3))
    await execute(path, (outside, spent, damaged), lambda session: session.average([1, 2]), ledger)
    await serving
    bodies = leaves(reported, "bob")
    assert len(bodies) == 3
    assert set(bodies) == {encode(Abort(Code.OWN))}


async def test_a_record_that_is_refused_on_shares_is_told_by_one_code(
    tmp_path: Path, reported: list[bytes]
) -> None:
    parties = PARTIES[:4]
    sums = {
        key: value
        for key, value in INTEGERS.items()
        if key not in ("corrupt", "max_weight", "same_survivors")
    }
    path = create_local_session(tmp_path, parties, sums, protocol="mpyc", timeouts=TIMEOUTS, servers=3)
    serving = [asyncio.create_task(serve_shares(path, f"server{index}", requests=3)) for index in (1, 2, 3)]

    async def party(name: str) -> None:
        async with smpc_dp.connect(path, party=name) as session:
            for data in ((31337.5, 1.0), (2718281828 << 40, 1), (TEXT, 1)):
                if name == "bob":
                    with pytest.raises((smpc_dp.SmpcError, ValueError)):
                        await session.pairwise("kendall_tau", data, 1.0)
                else:
                    with pytest.raises(smpc_dp.SmpcError):
                        await session.pairwise("kendall_tau", (4711.25, 2.0), 1.0)

    await asyncio.gather(*(party(name) for name in parties))
    await asyncio.gather(*serving)
    assert set(leaves(reported, "bob")) == {encode(Abort(Code.OWN))}


async def test_an_input_that_an_evaluation_refuses_is_not_told(tmp_path: Path, reported: list[bytes]) -> None:
    exact = {key: value for key, value in INTEGERS.items() if key != "max_weight"}
    path = create_local_session(tmp_path, PARTIES[:3], exact, addresses=True, timeouts=TIMEOUTS)
    serving = asyncio.create_task(smpc_dp.serve(path))
    async with smpc_dp.connect(path, party="alice") as session:
        for circuit, value in itertools.product(("less_u32", str(tmp_path / HIDEOUT)), (2718281828 << 9, -1)):
            with pytest.raises(smpc_dp.SmpcError):
                await session.evaluate(circuit, [value], peer="bob", role="garbler")
    # It would wait for the others.
    serving.cancel()


@pytest.mark.long
def test_processes_say_nothing_of_anothers_ledger(tmp_path: Path) -> None:
    """Whatever the aggregator and the other parties print, it is not what one party's ledger says."""
    path = create_local_session(tmp_path, PARTIES, GOPA, protocol="gopa", timeouts=TIMEOUTS)
    folder = tmp_path / "inputs"
    folder.mkdir()
    for name in PARTIES:
        (folder / f"{name}.json").write_text("[0.5, 0.25]")
    ledger = tmp_path / f"{TEXT}.ledger"
    Ledger.create(ledger, party="bob", dataset=f"{TEXT}s", relation="substitution", epsilon=0.5, delta=1e-5)
    command = [sys.executable, "-m", "smpc_dp", "party", str(path)]

    def start(name: str, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, "--as", name, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    others = [start("aggregator", "--requests", "1")]
    others += [
        start(name, "--input", str(folder / f"{name}.json"), "--operation", "average")
        for name in PARTIES
        if name != "bob"
    ]
    bob = start(
        "bob",
        "--input",
        str(folder / "bob.json"),
        "--operation",
        "average",
        "--ledger",
        str(ledger),
    )
    own, _ = bob.communicate(timeout=300)
    assert bob.returncode != 0
    assert TEXT.encode() in own, "its own process says what is wrong"
    claimed = b"".join(process.communicate(timeout=300)[0] for process in others)
    assert [process.returncode for process in others] == [0] * 5, claimed.decode()
    assert_silent(claimed)
    assert TEXTS[Code.OWN].encode() in claimed


async def test_a_verifiable_average_shows_no_vector_whether_the_total_is_checked_or_not(
    tmp_path: Path, reported: list[bytes]
) -> None:
    """All bytes, the log's included; who does not ask for the check gets the same value, marked so."""
    parameters: dict[str, object] = {
        "length": 1,
        "lower": 4704.0,
        "upper": 4712.0,
        "precision": 0.25,
        "epsilon": 8.0,
        "delta": 1e-3,
        "corrupt": 0.0,
        "verifiable": True,
    }
    names = PARTIES[:4]
    path = create_local_session(tmp_path, names, parameters, protocol="gopa")
    serving = asyncio.create_task(smpc_dp.serve(path))

    async def party(name: str) -> smpc_dp.Result:
        async with smpc_dp.connect(path, party=name) as session:
            return await session.average(
                [4711.25], expect={"protocol": "gopa", "verifiable": True}, check_total=name != "bob"
            )

    results = dict(zip(names, await asyncio.gather(*map(party, names)), strict=True))
    await serving
    assert len({result.value.tobytes() for result in results.values()}) == 1
    checked = {name: getattr(result.evidence, "checked", None) for name, result in results.items()}
    assert checked == {"alice": True, "bob": False, "carol": True, "dave": True}
    claimed = b"".join(reported)
    steps = int(4711.25 / 0.25)
    assert not [order for order in "<>" if struct.pack(order + "q", steps) in claimed]


async def test_a_garbled_pair_statistic_shows_no_record(tmp_path: Path, reported: list[bytes]) -> None:
    """Neither a record, nor a pair's values, as text or as an integer of eight bytes."""
    parameters: dict[str, object] = {
        "length": 1,
        "lower": 0.0,
        "upper": 1.0,
        "precision": 0.01,
        "dropout": 0.3,
        "corrupt": 0.0,
    }
    path = create_local_session(tmp_path, PARTIES, parameters, addresses=True, timeouts=TIMEOUTS)
    field = Field(0, (1 << 32) - 1)
    kernel = kendall_tau(field, field)
    serving = asyncio.create_task(smpc_dp.serve(path))

    async def party(name: str) -> object:
        async with smpc_dp.connect(path, party=name) as session:
            return await session.pairwise(kernel, (987654321, 2718281828), 24.0, 2)

    await asyncio.gather(*(party(name) for name in PARTIES))
    await serving


LEARN: dict[str, object] = {
    "learner": "block-gossip",
    "features": 2,
    "steps": 4,
    "group": 3,
    "epsilon": 5.0,
    "delta": 1e-5,
    "seed": 2,
    "averager": {"method": "secagg"},
}


@pytest.mark.parametrize("bad", [TEXT, "nan"])
async def test_cells_of_a_table_are_in_nothing_that_a_learner_says(
    tmp_path: Path, reported: list[bytes], bad: str
) -> None:
    """Each party's table holds the canaries, bob's a cell that is refused too: the others learn."""
    # Bob does not come, and all wait for him once.
    timeouts = Timeouts(connect=6.0, step=10.0, gather=5.0)
    path = create_local_session(tmp_path, PARTIES, LEARN, protocol="learn", timeouts=timeouts)
    rows = f"{NUMBERS[0]},{NUMBERS[1]},0\n{NUMBERS[2]},{NUMBERS[3]},1\n"
    for name in PARTIES:
        (tmp_path / f"{name}.csv").write_text(rows + (f"{bad},1.0,1\n" if name == "bob" else ""))
    serving = asyncio.create_task(serve_learning(path))

    async def party(name: str) -> object:
        try:
            return await learn(path, name, tmp_path / f"{name}.csv")
        except smpc_dp.SmpcError as error:
            return error

    ended = dict(zip(PARTIES, await asyncio.gather(*map(party, PARTIES)), strict=True))
    await asyncio.gather(serving, return_exceptions=True)
    assert [name for name, end in ended.items() if isinstance(end, smpc_dp.SmpcError)] == ["bob"]
