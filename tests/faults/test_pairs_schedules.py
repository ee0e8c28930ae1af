"""The schedules of `test_fault_schedules` for a pairwise statistic, whose pairs are garbled and evaluated."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.garbled.effects import Send
from smpc_dp.capabilities.pairs.garbled.participant import Participant
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.pairs.requests.convictions import Convictions
from smpc_dp.capabilities.pairs.requests.pairwise import Keep
from smpc_dp.capabilities.pairs.requests.relay import Tunnel
from smpc_dp.capabilities.pairs.requests.statistic import PairRounds, StatisticRequest
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.logs.seen import SeenRuns, StoredRun
from smpc_dp.session.aggregator import RequestServer, log_folder
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.connection_pool import ConnectionPool
from smpc_dp.session.deadline import aggregator_run_seconds
from smpc_dp.session.events import ignore
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.transport.blocking import Halt
from tests.faults.crooks import CrookedPipe
from tests.faults.restoring import restored_if_drawn
from tests.faults.test_fault_schedules import SESSIONS, TIMEOUTS, draw_crooks
from tests.faults.virtual import WORK, Pipe, Stream, connect, run_virtually

KERNEL = kendall_tau(Field(0, 3), Field(0, 3))
NAMES = tuple(f"p{number}" for number in range(1, 6))
DATA = {name: (index % 4, (3 * index) % 4) for index, name in enumerate(NAMES)}


class Evaluations:
    """Channels between partners in memory: what `requests.evaluation` does in threads.

    `begun`: grows with the matching, the party and its partner of each evaluation that a party begins.
    """

    def __init__(
        self,
        mail: dict[tuple[str, str, str], list[bytes]],
        member: Membership,
        begun: set[tuple[str, str, str]],
    ) -> None:
        self._mail, self._own, self._begun = mail, member.name, begun
        self.convictions = Convictions(Path("none"), member.session.roster)

    def is_reachable(self, _peer: str) -> bool:
        return True

    def _arrived(self, sender: str, peer: str, label: str, others: Mapping[str, Tunnel]) -> bytes | None:
        """Return the next message of a sender if it is there."""
        if sender == peer:
            waiting = self._mail[label, peer, self._own]
            return waiting.pop(0) if waiting else None
        if others[sender]._inbox.empty():
            return None
        answer = others[sender]._inbox.get_nowait()
        if answer is None:
            raise TimeoutFault({sender}, "pair", "the connection is lost")
        return answer

    async def drive(
        self,
        role: Participant,
        _plan: object,
        peer: str,
        label: str,
        others: Mapping[str, Tunnel],
        halt: Halt,
        _keep: Keep,
        _begins: float,
    ) -> None:
        self._begun.add((label, self._own, peer))
        effects, answer = role.run(), None
        until = asyncio.get_running_loop().time() + TIMEOUTS.gather + TIMEOUTS.step
        try:
            while True:
                effect = next(effects) if answer is None else effects.send(answer)
                answer = None
                if isinstance(effect, Send):
                    content = b"".join(effect.parts)
                    if effect.to == peer:
                        self._mail[label, self._own, peer].append(content)
                    else:
                        await others[effect.to]._send(content)
                    continue
                while answer is None:
                    if halt.halted:
                        raise TimeoutFault({peer}, "pair", "the channel was cut")
                    if asyncio.get_running_loop().time() > until:
                        raise TimeoutFault({effect.sender}, "pair", "nothing came")
                    answer = self._arrived(effect.sender, peer, label, others)
                    if answer is None:
                        await asyncio.sleep(0.02)
        except StopIteration:
            return
        except SmpcError:
            effects.close()
            raise


async def execute(members: dict[str, Membership], folder: Path, seed: int, reported: dict[str, Any]) -> None:
    chooser, loop = random.Random(seed), asyncio.get_running_loop()
    crooks = reported["crooks"] = draw_crooks(chooser, NAMES, 12)
    begun: set[tuple[str, str, str]] = reported.setdefault("begun", set())
    aggregator, mail = members[AGGREGATOR], defaultdict[tuple[str, str, str], list[bytes]](list)
    connections = ConnectionPool(aggregator, ignore)
    server = RequestServer(
        aggregator,
        connections,
        ignore,
        None,
        (),
        log_folder(aggregator, folder / "session.toml", folder / f"board {seed}"),
    )
    tasks: dict[str, asyncio.Task[None]] = {}

    async def take_part(name: str, pipe: Pipe) -> None:
        member, line = members[name], AggregatorConnection(members[name], ignore)
        line.connections.welcome(pipe)  # type: ignore[arg-type]
        requested = StatisticRequest.check(
            KERNEL,
            DATA[name],
            parties=5,
            epsilon=1.0,
            delta=0.0,
            partners=1,
            noise="laplace",
            zetas=None,
            public_label=None,
            covert=2 * (seed % 2),
        )
        retained = StoredRun(SeenRuns(folder / f"seen {seed} {name}"), member.context(1).scope)
        machine = requested.machine(member.context(1), member.identity, 0, retained.seen)
        evaluations: Any = Evaluations(mail, member, begun)
        rounds = PairRounds(machine, member.identity, requested, evaluations, TIMEOUTS)
        judging: list[Convictions] = reported.setdefault("judging", [])
        judging.append(evaluations.convictions)
        try:
            await line.drive(1, machine, rounds, retained=retained).to_end()
            reported[name] = machine.result
        except SmpcError as error:
            reported[name] = error

    def enter(name: str, kind: type[Pipe]) -> None:
        near, far = connect(name, aggregator.name, chooser.uniform(0.001, 0.02), kind)
        if isinstance(near, CrookedPipe):
            near.act, near.index = crooks[name]
            near.chooser, near.context = random.Random(f"{seed} {name}"), members[name].context(1)
            near.signer, near.reconnect = members[name].identity, lambda: enter(name, Pipe)
        connections.welcome(far)
        if (before := tasks.get(name)) is not None:
            before.cancel()
        tasks[name] = loop.create_task(take_part(name, near))

    for name in NAMES:
        enter(name, CrookedPipe if name in crooks else Pipe)
    reported["hub"] = await server.request(1)
    machine = server._drive.run
    stated = aggregator_run_seconds(machine.role.most_steps(machine.member), 1, TIMEOUTS, first=True)
    # What the aggregator computes: a message of each link after a deadline, and the end of each step.
    assert loop.time() <= stated + (machine.role.most_steps(machine.member) + 1) * 14 * WORK + 0.1, (
        loop.time(),
        stated,
    )
    if honest := [tasks[name] for name in NAMES if name not in crooks]:
        await asyncio.wait(honest)
    reported["excluded"] = {
        members[AGGREGATOR].names[party - 1]: e for party, e in machine.state.inbox.excluded.items()
    }
    connections.abort()


def was_without_pairs(error: TimeoutFault, ended: object, begun: set[tuple[str, str, str]]) -> bool:
    """Tell whether a run ended, for the aggregator as for who got this error, as no pair was begun by both.

    A party that is restored when the pairs are drawn evaluates none: they might be evaluated twice.
    """
    return (
        isinstance(ended, TimeoutFault)
        and "no pair was evaluated" in str(ended)
        and error.missing == ended.missing
        and not any((label, peer, own) in begun for label, own, peer in begun)
    )


def test_every_schedule_of_a_pairwise_statistic(
    schedules: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, parameters = SESSIONS["secagg"]
    path = create_local_session(tmp_path, NAMES, parameters, protocol=kind, timeouts=TIMEOUTS)
    members = {name: Membership.load(path, name) for name in NAMES}
    members[AGGREGATOR] = Membership.load(path, AGGREGATOR, role="aggregator")
    ends: Counter[str] = Counter()
    restored = 0
    # Garbling takes ten times as long as all else.
    schedules = schedules[: 1 + len(schedules) // 6] if len(schedules) < 1000 else schedules
    for seed in schedules:
        monkeypatch.setattr(SystemRandomness, "bytes", partial(Stream.bytes, Stream(seed)))
        reported: dict[str, Any] = {}
        try:
            with restored_if_drawn(seed, tmp_path / f"saved {seed}") as processes:
                run_virtually(partial(execute, members, tmp_path, seed, reported))
            how = " restored" if processes else ""
            restored += sum(each.restored for each in processes)
            crooks, ended = reported["crooks"], reported["hub"]
            for name in [*(name for name in NAMES if name not in crooks), "hub"]:
                error = reported[name]
                if isinstance(error, PeerFault):
                    assert error.culprit in crooks, (name, error)
                if isinstance(error, TimeoutFault):
                    assert error.missing & crooks.keys() or (
                        processes and was_without_pairs(error, ended, reported["begun"])
                    ), (name, error)
            assert reported["excluded"].keys() <= crooks.keys()
            # Whatever these do to steps and channels, all who garble are honest.
            assert not any(convictions.files for convictions in reported["judging"])
            if isinstance(ended, StatisticResult):
                honest = [reported[name] for name in NAMES if name not in crooks]
                assert {result.value for result in honest} <= {ended.value}
                assert set(ended.absent) <= crooks.keys()
                ends["estimated" + how] += 1
            else:
                assert isinstance(ended, SmpcError)
                ends["stopped" + how] += 1
        except BaseException as error:
            error.add_note(f"pairs, schedule {seed}: {reported}"[:1500])
            raise
    print(f"pairs: {len(schedules)} schedules, {dict(ends)}, {restored} restored")
    assert restored
    estimated = ends["estimated"] + ends["estimated restored"]
    assert len(schedules) // 10 < estimated <= len(schedules)
