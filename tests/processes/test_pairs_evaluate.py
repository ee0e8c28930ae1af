"""Two-party evaluations through the public API, over real sockets in one event loop."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.covert.copies import GarblerCopy
from smpc_dp.capabilities.pairs.covert.evaluator import CovertEvaluatorRole
from smpc_dp.capabilities.pairs.covert.garbler import CovertGarblerRole
from smpc_dp.capabilities.pairs.covert.terms import TABLES, Terms
from smpc_dp.capabilities.pairs.garbled.evaluation import Operation, Role
from smpc_dp.capabilities.pairs.garbled.params import Output
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.requests.audit_certificate import audit_certificate
from smpc_dp.errors import Check
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.command import smpc_dp as smpc_dp_command
from tests.signals import DEFAULT_SIGNALS

PARTIES = ("alice", "bob", "carol")
PARAMETERS: dict[str, object] = {
    "length": 1,
    "kind": "integer",
    "lower": 0,
    "upper": 100,
    "dropout": 0.3,
    "corrupt": 0.0,
}
FAST = Timeouts(connect=60.0, step=20.0, gather=20.0)


class RecordedRun:
    """A served session with everybody connected."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def __aenter__(self) -> dict[str, smpc_dp.Session]:
        self._serving = asyncio.create_task(smpc_dp.serve(self.path))
        self._connections = [smpc_dp.connect(self.path, party=name) for name in PARTIES]
        sessions = await asyncio.gather(*(each.__aenter__() for each in self._connections))
        return dict(zip(PARTIES, sessions, strict=True))

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(each.__aexit__(None, None, None) for each in self._connections))
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)


def session(folder: Path, timeouts: Timeouts = FAST, *, addresses: bool = True) -> RecordedRun:
    return RecordedRun(
        create_local_session(folder, PARTIES, PARAMETERS, addresses=addresses, timeouts=timeouts)
    )


async def ends(*requested: Awaitable[smpc_dp.Evaluation]) -> list[smpc_dp.Evaluation | BaseException]:
    return await asyncio.gather(*requested, return_exceptions=True)


async def test_evaluations_with_one_peer_run_in_the_order_of_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if an operation takes longer to make than that of a later call."""
    make = Operation.make

    def slow_if_small(circuit: str, inputs: Sequence[int], **settings: Any) -> Operation:
        time.sleep(0.3 * (inputs[0] < 2))
        return make(circuit, inputs, **settings)

    monkeypatch.setattr(Operation, "make", slow_if_small)
    sides: tuple[tuple[str, str, Role, int], ...]
    sides = (("alice", "bob", "garbler", 1), ("bob", "alice", "evaluator", 10))
    async with session(tmp_path) as at:
        summed = await asyncio.gather(
            *(
                at[name].evaluate("add32", [times * value], peer=peer, role=role)
                for name, peer, role, times in sides
                for value in range(4)
            )
        )
    assert [one.value[0] for one in summed if one.value is not None] == [0, 11, 22, 33] * 2


@pytest.mark.parametrize(
    ("output", "learn"), [("garbler", (True, False)), ("evaluator", (False, True)), ("both", (True, True))]
)
async def test_two_parties_compare(tmp_path: Path, output: Output, learn: tuple[bool, bool]) -> None:
    async with session(tmp_path) as at:
        richer, poorer = await asyncio.gather(
            at["alice"].evaluate(
                "less_u32", [1000], peer="bob", role="garbler", output=output, label="wealth"
            ),
            at["bob"].evaluate(
                "less_u32", [2000], peer="alice", role="evaluator", output=output, label="wealth"
            ),
        )
    for result, learns in zip((richer, poorer), learn, strict=True):
        assert result.value == ((1,) if learns else None)
        assert (
            result.claim == "secure against a malicious 'bob' (evaluator) and a semi-honest 'alice' (garbler)"
        )
        assert result.evidence.circuit == find("less_u32").build().digest
    assert richer.evidence == poorer.evidence


async def test_a_batch_in_every_form_of_circuit_and_input(tmp_path: Path) -> None:
    published = find("add64").build()
    file = tmp_path / "sum.txt"
    file.write_bytes(format_bristol(published))
    x, y = np.arange(300, dtype=np.uint64) << np.uint64(40), [2**63 + 7 * number for number in range(300)]
    expected = [(int(a) + b) % 2**64 for a, b in zip(x, y, strict=True)]
    async with session(tmp_path) as at:
        for circuit in ("add64", published, file, str(file)):
            given, taken = await asyncio.gather(
                at["carol"].evaluate(circuit, [x], peer="alice", role="garbler"),
                at["alice"].evaluate(circuit, [y], peer="carol", role="evaluator"),
            )
            assert given.value is not None
            assert taken.value is not None
            assert given.value[0].dtype == np.uint64
            assert given.value[0].tolist() == taken.value[0].tolist() == expected
        # FIPS 197, appendix C.1; the evaluator holds nothing and says how many instances there are.
        key, plain = 0x000102030405060708090A0B0C0D0E0F, 0x00112233445566778899AABBCCDDEEFF
        _, taken = await asyncio.gather(
            at["bob"].evaluate(
                "aes128", [[key] * 2, [plain] * 2], peer="carol", role="garbler", evaluator_inputs=[]
            ),
            at["carol"].evaluate(
                "aes128", [], peer="bob", role="evaluator", evaluator_inputs=[], instances=2
            ),
        )
        assert taken.value is not None
        assert taken.value[0].tolist() == [0x69C4E0D86A7B0430D8CDB78070B4C55A] * 2
        assert taken.to_json()["value"] == [[0x69C4E0D86A7B0430D8CDB78070B4C55A] * 2]


async def test_all_pairs_evaluate_while_all_three_sum(tmp_path: Path) -> None:
    """Everybody asks everybody at once, whoever is called is busy with another, and sums go on beside."""
    value = {"alice": 5, "bob": 9, "carol": 2}
    async with session(tmp_path) as at:

        async def with_peer(name: str, peer: str) -> None:
            role: Role = "garbler" if name < peer else "evaluator"
            for step in range(3):
                result = await at[name].evaluate(
                    "less_u16", [value[name] + step], peer=peer, role=role, label=f"{step}"
                )
                first, second = sorted((name, peer))
                assert result.value == (int(value[first] < value[second]),)

        async def add(name: str) -> None:
            for _ in range(4):
                assert (await at[name].sum([value[name]])).value.tolist() == [16]

        pairs = [(name, peer) for name in PARTIES for peer in PARTIES if name != peer]
        await asyncio.gather(*(with_peer(*pair) for pair in pairs), *(add(name) for name in PARTIES))


async def test_the_event_loop_goes_on(tmp_path: Path) -> None:
    gaps: list[float] = []

    async def tick() -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            gaps.append(loop.time() - before)

    async with session(tmp_path) as at:
        ticking = asyncio.create_task(tick())
        zeros = np.zeros(600, np.uint64)
        await asyncio.gather(
            at["alice"].evaluate("mul64", [zeros], peer="bob", role="garbler"),
            at["bob"].evaluate("mul64", [zeros], peer="alice", role="evaluator"),
        )
        ticking.cancel()
    # It is there many times, and not only before and after.
    assert len(gaps) > 5


async def test_differing_questions_are_refused_and_what_differs_is_said(tmp_path: Path) -> None:
    digests = {find(name).build().digest.hex() for name in ("add32", "add64")}
    async with session(tmp_path) as at:

        async def make(**theirs: object) -> list[str]:
            mine: dict[str, Any] = {"circuit": "add64", "inputs": [1], "role": "evaluator"} | theirs
            refused = await ends(
                at["alice"].evaluate("add64", [1], peer="bob", role="garbler"),
                at["bob"].evaluate(peer="alice", **mine),
            )
            assert all(isinstance(error, smpc_dp.ConfigError) for error in refused), refused
            assert "differs from that of 'bob'" in str(refused[0])
            assert "differs from that of 'alice'" in str(refused[1])
            return [str(error) for error in refused]

        for claimed in await make(circuit="add32"):
            assert all(digest in claimed for digest in digests)
        for claimed in await make(label="another"):
            assert "label" in claimed
        for claimed in await make(inputs=[[1, 2, 3]]):
            assert "instances" in claimed
        for claimed in await make(mode="unique", output="garbler"):
            assert "mode" in claimed
            assert "output" in claimed
        for claimed in await make(role="garbler"):
            assert "garbler" in claimed
        # And the session goes on.
        good = await asyncio.gather(
            at["alice"].evaluate("add64", [1], peer="bob", role="garbler"),
            at["bob"].evaluate("add64", [2], peer="alice", role="evaluator"),
        )
        assert [result.value for result in good] == [(3,), (3,)]


async def test_wrong_arguments_are_named_before_anybody_is_called(tmp_path: Path) -> None:
    good: dict[str, Any] = {"circuit": "add32", "inputs": [1], "peer": "bob", "role": "garbler"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"peer": "mallory"}, "peer: 'mallory' is no other party"),
        ({"peer": "alice"}, "peer: 'alice' is no other party"),
        ({"peer": "aggregator"}, "peer: 'aggregator' is no other party"),
        ({"role": "both"}, "role: 'both'"),
        ({"circuit": "add31"}, "'add31' is neither a file nor a published circuit"),
        ({"inputs": 1}, "inputs: not a list that has"),
        ({"inputs": []}, "0 values of 'alice', the circuit takes 1"),
        ({"inputs": [1, 2]}, "2 values of 'alice', the circuit takes 1"),
        ({"inputs": [1 << 32]}, r"inputs\[0\].*33 bits, more than 32"),
        ({"inputs": [-1]}, r"inputs\[0\].*negative"),
        ({"inputs": [np.array([1, -1])]}, r"inputs\[0\].*negative or has more than 32"),
        ({"inputs": [np.array([0.5])]}, r"inputs\[0\]: not integers"),
        ({"inputs": [["x"]]}, r"inputs\[0\]: not a number"),
        ({"inputs": [[]]}, "instances: 0, not between"),
        ({"instances": 2}, "instances: 2, but the inputs have 1"),
        ({"output": "aggregator"}, "output: 'aggregator' needs"),
        ({"output": "everybody"}, "output: "),
        ({"mode": "fast"}, "mode: "),
        ({"evaluator_inputs": [2]}, "evaluator_inputs: 2, but the circuit has 2"),
        ({"evaluator_inputs": [1, 0]}, "evaluator_inputs: "),
        ({"label": "x" * 201}, "label: at most 200"),
    ]
    async with session(tmp_path) as at:
        for change, claimed in wrong:
            with pytest.raises(smpc_dp.ConfigError, match=claimed):
                await at["alice"].evaluate(**(good | change))
        with pytest.raises(smpc_dp.LocalError, match="No such file"):
            await at["alice"].evaluate(**(good | {"circuit": tmp_path / "none.txt"}))


async def test_without_an_address_nobody_can_be_called(tmp_path: Path) -> None:
    async with session(tmp_path, addresses=False) as at:
        with pytest.raises(smpc_dp.ConfigError, match="neither 'alice' nor 'bob' has an address"):
            await at["alice"].evaluate("add32", [1], peer="bob", role="garbler")


@pytest.mark.parametrize(("name", "peer"), [("alice", "carol"), ("carol", "alice")])
async def test_a_peer_that_does_not_ask_is_named(tmp_path: Path, name: str, peer: str) -> None:
    """Whether it was to call us or to be called."""
    async with session(tmp_path, Timeouts(connect=60.0, step=20.0, gather=0.6)) as at:
        with pytest.raises(smpc_dp.TimeoutFault) as caught:
            await at[name].evaluate("add32", [1], peer=peer, role="garbler")
    assert caught.value.missing == {peer}
    assert caught.value.step == "connect"


async def test_whoever_is_cancelled_may_ask_again(tmp_path: Path) -> None:
    async with session(tmp_path) as at:
        for name, peer in (("alice", "bob"), ("bob", "alice")):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(at[name].evaluate("add32", [1], peer=peer, role="garbler"), 0.5)
            done = await asyncio.gather(
                at[name].evaluate("add32", [1], peer=peer, role="garbler"),
                at[peer].evaluate("add32", [2], peer=name, role="evaluator"),
            )
            assert [result.value for result in done] == [(3,), (3,)]


async def test_a_pair_sets_its_transfers_up_once_and_anew_when_one_has_lost_them(tmp_path: Path) -> None:
    async with session(tmp_path, Timeouts(connect=60.0, step=20.0, gather=5.0)) as at:

        async def level(garbler: str, evaluator: str) -> int:
            """The binary logarithm of how many transfers the claim is for, the same on both sides."""
            results = await asyncio.gather(
                at[garbler].evaluate("less_u16", [1], peer=evaluator, role="garbler"),
                at[evaluator].evaluate("less_u16", [2], peer=garbler, role="evaluator"),
            )
            assert [result.value for result in results] == [(1,), (1,)]
            claimed = [re.search(r"up to 2\^(\d+) oblivious", str(result.privacy)) for result in results]
            assert all(claimed)
            [bits] = {int(outcome[1]) for outcome in claimed if outcome}
            return bits

        # 256 indices each.
        assert [await level("alice", "bob") for _ in range(3)] == [8, 9, 10]
        # Another pair, and another direction, have their own.
        assert await level("bob", "alice") == await level("alice", "carol") == 8
        with pytest.raises(smpc_dp.TimeoutFault):
            await at["alice"].evaluate("less_u16", [1], peer="bob", role="garbler")
        assert [await level("alice", "bob") for _ in range(2)] == [8, 9]
        assert await level("bob", "alice") == 9


@pytest.mark.parametrize("gone", ["alice", "bob"])
async def test_a_peer_that_stops_half_way_is_named_at_once(tmp_path: Path, gone: str) -> None:
    zeros = np.zeros(100_000, np.uint64)
    reached = asyncio.Event()
    # It is named without a deadline.
    async with session(tmp_path, Timeouts(connect=3600.0, step=3600.0, gather=3600.0)) as at:
        at[gone]._requests.on_event = lambda event: reached.set() if event.step == "tables" else None
        roles: dict[str, Role] = {"alice": "garbler", "bob": "evaluator"}
        stays = "bob" if gone == "alice" else "alice"
        leaving = asyncio.create_task(at[gone].evaluate("mul32", [zeros], peer=stays, role=roles[gone]))
        staying = asyncio.create_task(at[stays].evaluate("mul32", [zeros], peer=gone, role=roles[stays]))
        await reached.wait()
        leaving.cancel()
        with pytest.raises((smpc_dp.TimeoutFault, smpc_dp.PeerFault), match=gone):
            await staying


class OtherTables(GarblerCopy):
    """A copy whose signed tables do not follow from its seed."""

    def digests(self, *, store: bool = False) -> dict[int, bytes]:
        return super().digests(store=store) | {TABLES: bytes(32)}


class Cheat(CovertGarblerRole):
    def _copy(self, terms: Terms, copy: int, seed: bytes) -> GarblerCopy:
        return OtherTables(terms, copy, seed)


async def test_a_garbler_that_cheats_is_convicted_refused_and_shown_by_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbles: dict[str, Any] = {"peer": "bob", "role": "garbler", "covert": 2}
    evaluates: dict[str, Any] = {"peer": "alice", "role": "evaluator", "covert": 2}
    served = session(tmp_path)
    async with served as at:
        honest = await ends(
            at["alice"].evaluate("add32", [1], **garbles), at["bob"].evaluate("add32", [2], **evaluates)
        )
        for result in honest:
            assert isinstance(result, smpc_dp.Evaluation)
            assert result.value == (3,)
            assert "with probability 1/2, and convicted unless it stops before it signs" in result.claim
        differing = await ends(
            at["alice"].evaluate("add32", [1], **garbles),
            at["bob"].evaluate("add32", [2], **{**evaluates, "covert": 3}),
        )
        assert all(isinstance(end, smpc_dp.ConfigError) and "covert" in str(end) for end in differing)
        monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.CovertGarblerRole", Cheat)
        cheated, caught = await ends(
            at["alice"].evaluate("add32", [1], **garbles), at["bob"].evaluate("add32", [2], **evaluates)
        )
        assert isinstance(cheated, smpc_dp.PeerFault)
        assert isinstance(caught, smpc_dp.PeerFault)
        assert (caught.culprit, caught.check) == ("alice", Check.CONVICTED)
        # Neither as evaluator nor as garbler, with or without copies; nothing is sent.
        for arguments in (evaluates, {"peer": "alice", "role": "garbler"}):
            with pytest.raises(smpc_dp.PeerFault, match="convicted of cheating"):
                await at["bob"].evaluate("add32", [2], **arguments)
    (file,) = (tmp_path / "keys" / "certificates").iterdir()
    async with session(tmp_path / "again", addresses=True) as at:
        # Another session, with other keys: the file convicts none of its parties.
        copy = tmp_path / "again" / "keys" / "certificates" / file.name
        copy.parent.mkdir()
        copy.write_bytes(file.read_bytes())
        monkeypatch.undo()
        results = await ends(
            at["alice"].evaluate("add32", [1], **garbles), at["bob"].evaluate("add32", [2], **evaluates)
        )
        assert all(isinstance(result, smpc_dp.Evaluation) for result in results)
    async with RecordedRun(served.path) as at:
        with pytest.raises(smpc_dp.PeerFault, match="convicted of cheating"):
            await at["bob"].evaluate("add32", [2], **evaluates)
    shown = smpc_dp_command("audit", "--certificate", str(file), "--session", str(served.path))
    assert shown.returncode == 0, shown.stderr
    assert "'alice'" in shown.stdout
    assert smpc_dp_command("audit", "--certificate", str(file)).returncode == 3
    shown = smpc_dp_command("audit", "--certificate", str(file), "--report", str(file.with_suffix(".html")))
    assert shown.returncode == 1
    assert "--certificate: with it only --session and --json" in shown.stderr
    other = str(tmp_path / "again" / "session.toml")
    shown = smpc_dp_command("audit", "--certificate", str(file), "--session", other)
    assert (shown.returncode, "nobody is convicted" in shown.stdout) == (1, True)


async def test_a_caller_that_is_cancelled_or_stopped_while_it_judges_still_convicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has what the garbler signed; the garbler has hung up, and nobody waits for the evaluation."""
    monkeypatch.setattr("smpc_dp.capabilities.pairs.roles.CovertGarblerRole", Cheat)
    loop, judging, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    check = CovertEvaluatorRole._check_copies

    def slow(*arguments: Any) -> None:
        loop.call_soon_threadsafe(judging.set)
        assert go_on.wait(60)
        check(*arguments)

    monkeypatch.setattr(CovertEvaluatorRole, "_check_copies", slow)
    async with session(tmp_path) as at:
        garbles = at["alice"].evaluate("add32", [1], peer="bob", role="garbler", covert=2)
        evaluates = at["bob"].evaluate("add32", [2], peer="alice", role="evaluator", covert=2)
        tasks = [asyncio.create_task(each) for each in (garbles, evaluates)]
        await judging.wait()
        for task in tasks:
            task.cancel()
        cheated, *_ = await asyncio.gather(tasks[0], return_exceptions=True)
        assert isinstance(cheated, asyncio.CancelledError)
        go_on.set()
        with pytest.raises(smpc_dp.PeerFault, match="cheated") as caught:
            await tasks[1]
    (file,) = (tmp_path / "keys" / "certificates").iterdir()
    assert (caught.value.culprit, caught.value.check) == ("alice", Check.CONVICTED)
    assert str(caught.value).endswith(f"; its certificate is {file}")
    assert file.read_bytes() == caught.value.evidence["certificate"]


STOPPED = """
import asyncio, os, sys, time
import smpc_dp
from smpc_dp.session.launcher import run_child
from smpc_dp.capabilities.pairs.covert.evaluator import CovertEvaluatorRole
from tests.processes.test_pairs_evaluate import Cheat, RecordedRun
import smpc_dp.capabilities.pairs.roles as roles

roles.CovertGarblerRole, check = Cheat, CovertEvaluatorRole._check_copies

def slow(*arguments):
    print("judges", flush=True)
    time.sleep(2.0)
    check(*arguments)

CovertEvaluatorRole._check_copies = slow

async def main():
    async with RecordedRun(sys.argv[1]) as at:
        await asyncio.gather(
            at["alice"].evaluate("add32", [1], peer="bob", role="garbler", covert=2),
            at["bob"].evaluate("add32", [2], peer="alice", role="evaluator", covert=2),
        )

if sys.argv[2] == "member":
    sys.exit(run_child(lambda: main(), supervised=False))
asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "number"),
    [("member", signal.SIGTERM), ("member", signal.SIGINT), ("script", signal.SIGINT)],
)
def test_a_process_that_is_told_to_stop_while_it_judges_stores_the_certificate(
    tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    path = session(tmp_path).path
    command = [sys.executable, "-c", DEFAULT_SIGNALS + STOPPED, str(path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "judges\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    (file,) = (tmp_path / "keys" / "certificates").iterdir()
    assert audit_certificate(file, path).ok, errors
