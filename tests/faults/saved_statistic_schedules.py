"""Simulated statistics of pairs with saved states, whose members crash and are started again.

`python -m tests.faults.saved_statistic_schedules --runs 1000` plays so many in simulated time, as
`saved_session_schedules` does for sums: two statistics with a sum between them. Circuits are garbled and
evaluated; each role is driven in the event loop, in whose time its waits end.
"""

from __future__ import annotations

import asyncio
import queue
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.garbled.effects import Send
from smpc_dp.capabilities.pairs.requests import pair_requests
from smpc_dp.capabilities.pairs.requests import statistic as statistic_requests
from smpc_dp.capabilities.pairs.requests.statistic import PairRounds
from smpc_dp.capabilities.pairs.ustatistic import pairs
from smpc_dp.errors import SmpcError, TimeoutFault
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.session import Session
from tests.faults import saved_session_schedules as sums
from tests.faults.saved_session_schedules import NOISY, Crashing, Kind

PARTNERS, EPSILON = 2, 4.0
LABELS = ("first", "sum", "second")
KIND = Kind("secagg", (NOISY | {"total": "unchecked"},), 450, 70, 4)
# What it imports is replaced.
statistic: Any = statistic_requests
# Seconds of simulated time between two looks at a queue.
LOOK = 0.25


@dataclass
class CrashingStatistics(Crashing):
    """The members of one run, and the evaluations that they have begun.

    Attributes:
        begun: how often a member has begun its part in the evaluation of a pair, by run and matching.
    """

    begun: Counter[tuple[str, bytes, int, tuple[str, ...]]] = field(default_factory=Counter)

    async def calls(self, session: Session, got: list[Any]) -> None:
        """See `Crashing.calls`."""
        for label in LABELS[len(got) :]:
            if label == "sum":
                total = await session.sum([1], label=label)
                got.append((total.value.tolist(), total.survivors))
                continue
            try:
                found = await session.pairwise("collision", 1, EPSILON, PARTNERS, label=label, covert=0)
            except TimeoutFault as error:
                # Its request has no estimate; the session goes on.
                got.append(type(error))
            else:
                log = None if found.evidence is None else found.evidence.log
                head = b"" if log is None else log.head
                got.append((found.value, found.pairs, found.failed, found.survivors, head))

    def check(self) -> None:
        """Raise AssertionError unless no pair was begun twice, and all have the same results, charged."""
        shown = f"{self.crashed}: {self.results}"
        assert max(self.begun.values(), default=0) <= 1, shown
        assert len(self.results) == KIND.parties, shown
        first = next(iter(self.results.values()))
        assert len(first) == len(LABELS), shown
        assert all(got == first for got in self.results.values()), shown
        everyone = tuple(self.simulated.parties)
        assert first[1][1] == everyone, shown
        for name in everyone:
            assert len(Ledger.open(self.ledger(name)).entries()) == len(LABELS), shown
        self._check_statistics(first)

    def _check_statistics(self, results: list[Any]) -> None:
        """See `check_log`; of each statistic that has an estimate."""
        for number, result in enumerate(results, 1):
            if number != 1 + LABELS.index("sum") and result is not TimeoutFault:
                self.check_log(number, result[-1].hex())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See `Crashing.watched`; evaluate in the event loop, and count the evaluations that begin."""
        party_role, evaluation = statistic.party_role, pairs._evaluation

        def counted_role(context: Any, identity: Any, *given: Any) -> Any:
            self.begun[identity.name, context.session_digest, context.request, context.names] += 1
            return party_role(context, identity, *given)

        def counted_evaluation(aggregator: Any, state: Any, matching: int, pair: tuple[str, str]) -> Any:
            self.begun[aggregator.name, state.run_id, matching, pair] += 1
            return evaluation(aggregator, state, matching, pair)

        with super().watched(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(pair_requests, "_contexts", lambda _requests, _lacking: None)
            patch.setattr(statistic, "party_role", counted_role)
            patch.setattr(pairs, "_evaluation", counted_evaluation)
            patch.setattr(PairRounds, "_drive_pair", drive_pair)
            yield

    @property
    def became(self) -> str:
        """What became of the pairs, in words."""
        found = [one for one in next(iter(self.results.values())) if one is TimeoutFault or len(one) > 2]
        return ", ".join("no pair" if one is TimeoutFault else f"{one[2]} failed" for one in found)


async def drive_pair(rounds: Any, matching: int, garbler: str, evaluator: str, begins: float) -> None:
    """Evaluate one pair as `PairRounds._drive_pair` does, without threads."""
    engine = rounds._plan.evaluation(garbler, evaluator)
    context = rounds._pairs.context(rounds._run.run_id, matching, engine)
    randomness = statistic.SystemRandomness()
    inputs = rounds._plan.inputs(rounds._codes, randomness)
    role = statistic.party_role(context, rounds._identity, engine, inputs, randomness)
    tunnel, channel = rounds._tunnels[matching], rounds._relayed[matching]
    loop, step, failed = asyncio.get_running_loop(), rounds._timeouts.step, True
    channel.open(begins - loop.time() + step, step)
    effects, answer = role.run(), None
    try:
        while True:
            effect = next(effects) if answer is None else effects.send(answer)
            answer = None
            if not isinstance(effect, Send):
                answer = await (received(channel) if effect.sender == channel.peer else told(tunnel))
            elif effect.to == channel.peer:
                if channel._error is not None:
                    raise channel._error
                channel._outbox.append(b"".join(effect.parts))
                channel._inbound.set()
            else:
                await tunnel._send(b"".join(effect.parts))
    except StopIteration:
        failed = False
    except SmpcError as error:
        effects.close()
        for message in role.farewell(error):
            if message.to != channel.peer:
                with suppress(SmpcError):
                    await tunnel._send(b"".join(message.parts))
        raise
    finally:
        await channel.finish(failed)


async def taken(inbox: queue.Queue[Any], seconds: float, peer: str) -> Any:
    """Return the next entry of a thread's queue; raise TimeoutFault if none comes."""
    until = asyncio.get_running_loop().time() + seconds
    while inbox.empty():
        if asyncio.get_running_loop().time() > until:
            raise TimeoutFault({peer}, "pair", "nothing came")
        await asyncio.sleep(LOOK)
    return inbox.get_nowait()


async def told(tunnel: Any) -> bytes:
    """Return the next message of the aggregator."""
    content = await taken(tunnel._inbox, tunnel._patience, tunnel.peer)
    if content is None:
        raise TimeoutFault({tunnel.peer}, "pair", "the connection is lost")
    return bytes(content)


async def received(channel: Any) -> bytes:
    """Return the next message of the partner."""
    chunks, last = list[bytes](), False
    while not last:
        frame = await taken(channel._inbox, channel._patience, channel.peer)
        if isinstance(frame, SmpcError):
            channel._inbox.put(frame)
            raise frame
        chunk, last = channel._connection.open(frame)
        chunks.append(chunk)
        channel._take_one()
    channel._patience = channel._later
    return b"".join(chunks)


def play(seed: int, folder: Path) -> CrashingStatistics:
    """Play one run; raise AssertionError unless all go on, and no evaluation is begun twice."""
    return sums.play_kind(seed, folder, KIND, CrashingStatistics)


if __name__ == "__main__":
    sums.main({"statistic": play})
