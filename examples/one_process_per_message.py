"""A secure sum in which each message of a party is handled by a process of its own, some of which are killed.

A process restores its party's saved state, sends again what that state has sent, handles one message, saves
the next state, sends, and ends. Processes are killed at random, before or after any write or sending; the
next one goes on. The aggregator runs in this process, which keeps each message until a party's process has
handled it. The counter of saved states is in a folder of its own. Without it (--no-counter) nothing is
restored from a party's first `attest-*` on: from there on the party keeps one process, and is lost with it.
docs/guides/restore.md has the limits. Run: python examples/one_process_per_message.py --seed 1; --runs 200
takes the seeds 1 to 200. Exits with 1 if a sum is wrong, or a run stops without naming the lost parties.
"""

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from smpc_dp.encoding import Lanes
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.codec import Codec
from smpc_dp.protocols.engine.counter import FileCounter
from smpc_dp.protocols.engine.events import Cancellation, Event, Message, PeersLost, Start
from smpc_dp.protocols.engine.keyring import KeyRing
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.engine.saved import ATTEST, SavedRun, Saving
from smpc_dp.protocols.engine.store import Store
from smpc_dp.protocols.envelope import Context, Signer, decode_envelope, encode_envelope
from smpc_dp.protocols.phases.key_graph import Ready
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.result import Outcome
from smpc_dp.protocols.secagg import states as secagg
from smpc_dp.protocols.secagg.params import check_parameters
from smpc_dp.simulate.drive import drive
from smpc_dp.simulate.stage import AGGREGATOR, set_stage
from smpc_dp.transport.memory import MemoryNetwork

PARTIES = 5
PARAMETERS = {"length": 4, "lower": 0, "upper": 1000, "kind": "integer", "dropout": 0.2, "corrupt": 0}
# What a process does after it was started: restores (advance, commit), steps (propose, swap, advance, commit)
# and sends; it can die before and after each.
POINTS = 14
WRITES = ("begin", "swap", "create", "propose", "commit", "remove", "advance")
# The process from which a party's processes are forked has loaded these, and never holds a state.
PRELOADED = ["smpc_dp.protocols.engine.saved", "smpc_dp.protocols.secagg.states", "smpc_dp.simulate.drive"]


@dataclass(frozen=True)
class Desk:
    """What each process of a party is started with: no part of it changes in a run."""

    context: Context
    parameters: SumParameters
    signer: Signer
    vector: Lanes
    folder: Path
    counted: bool

    def saving(self, death: "Death") -> Saving:
        """Return where the party's states are saved."""
        for part in ("store", "keys", "counter"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        counter = FileCounter(self.folder / "counter") if self.counted else None
        return Saving(
            Codec.of_party(secagg.PARTY),
            death.near(Store(self.folder / "store" / "states")),
            death.near(KeyRing(self.folder / "keys")),
            death.near(counter) if counter else None,
            input=self.vector.tobytes(),
        )


class Death:
    """Kills the process at one of its points, counted from 0; at None it never does."""

    def __init__(self, at: int | None) -> None:
        self.left = at

    def point(self) -> None:
        """Pass a point, or die at it: nothing is cleaned up."""
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.left is not None:
            self.left -= 1

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with a point before it and one after it."""

        def acting(*arguments: Any) -> Any:
            self.point()
            result = act(*arguments)
            self.point()
            return result

        return acting

    def near(self, part: Any) -> Any:
        """Return a part of a saving with points around everything that it writes."""
        for name in WRITES:
            if hasattr(part, name):
                setattr(part, name, self.around(getattr(part, name)))
        return part


# A process of a party


def be_party(desk: Desk, begins: bool, dies_at: int | None, pipe: Connection) -> None:
    """Restore, or begin, and handle messages until there are no more; tell `pipe` what is sent and known."""
    death = Death(dies_at)
    saving = desk.saving(death)
    send = death.around(lambda sent: pipe.send([encode_envelope(envelope) for envelope in sent]))
    context = desk.context
    first = secagg.party(context, desk.parameters, desk.signer, desk.vector)
    try:
        if begins and saving.store.find(context.scope, context.request, first.name) is None:
            run = SavedRun[Outcome].begin(first.role, first.member, first.state, saving)
        else:
            run = SavedRun[Outcome].restore(first.role, first.member, saving)
    except LocalError as error:
        pipe.send(str(error))
        return
    send(run.handle(Start()) if isinstance(run.state, Ready) else run.resend())
    while True:
        try:
            content, death.left = pipe.recv()
        except EOFError:
            return
        send(step(run, decode_envelope(content, context.aggregator)))
        pipe.send(run.result.total.tolist() if isinstance(run.state, secagg.Finished) else None)


def step(run: SavedRun[Outcome], envelope: Envelope) -> Sequence[Envelope]:
    """Take one step, or leave; return what is sent."""
    try:
        return run.handle(Message(envelope))
    except SmpcError as error:
        return run.handle(Cancellation(error))


# The aggregator, and the network


@dataclass
class Party:
    """What the network knows of a party: messages that no process has handled, and its process, if any."""

    desk: Desk
    deaths: random.Random
    mail: deque[bytes] = field(default_factory=deque)
    process: ForkServerProcess | None = None
    pipe: Connection | None = None
    begun: bool = False
    attested: bool = False
    lost: str = ""
    total: list[int] | None = None


class Hall:
    """One run: the aggregator, and parties each of whose messages is handled by another process."""

    def __init__(self, desks: Mapping[str, Desk], aggregator: Run[Outcome], seed: int, rate: float) -> None:
        self._aggregator, self._rate = aggregator, rate
        self._spawning = multiprocessing.get_context("forkserver")
        self.parties = {
            name: Party(desk, random.Random(f"{seed} {name}"))  # noqa: S311 - chooses who dies when
            for name, desk in desks.items()
        }
        self.processes = self.killed = 0
        self.error = ""
        self.blamed: Sequence[str] = ()

    def play(self) -> None:
        """Run to the end."""
        for name in self.parties:
            self._work(name, None)
        while waiting := [name for name, party in self.parties.items() if party.mail and not party.lost]:
            for name in waiting:
                self._work(name, self.parties[name].mail[0])
        for party in self.parties.values():
            self._end(party)

    def _work(self, name: str, content: bytes | None) -> None:
        """Let processes of a party handle a message until one has done it, or the party is lost."""
        party = self.parties[name]
        while not party.lost:
            dies_at = party.deaths.randrange(POINTS) if party.deaths.random() < self._rate else None
            try:
                self._start(name, party, dies_at)
                if content is None or party.pipe is None:
                    break
                party.pipe.send((content, dies_at))
                self._send(party, party.pipe.recv())
                party.total = party.pipe.recv()
            except (EOFError, ConnectionError):
                self.killed += 1
                self._end(party)
            else:
                party.mail.popleft()
                break
        if party.desk.counted or not party.attested:
            self._end(party)

    def _start(self, name: str, party: Party, dies_at: int | None) -> None:
        """Start a process, if there is none, and pass on what it sends at first."""
        if party.pipe is not None:
            return
        party.pipe, theirs = self._spawning.Pipe()
        party.process = self._spawning.Process(
            target=be_party, args=(party.desk, not party.begun, dies_at, theirs)
        )
        party.process.start()
        theirs.close()
        self.processes += 1
        match party.pipe.recv():
            case str(refusal):
                party.lost = refusal
                self._end(party)
                self._tell(PeersLost((name,)))
            case sent:
                self._send(party, sent)

    def _end(self, party: Party) -> None:
        """Close the connection to a process, which ends it if it is there, and wait until it is gone."""
        if party.pipe is not None and party.process is not None:
            party.pipe.close()
            party.process.join()
            party.pipe = party.process = None

    def _send(self, party: Party, sent: Sequence[bytes]) -> None:
        """Give the aggregator what a process has sent."""
        for content in sent:
            envelope = decode_envelope(content, party.desk.signer.name)
            party.begun = True
            party.attested = party.attested or envelope.step.startswith(ATTEST)
            self._tell(Message(envelope))

    def _tell(self, event: Event) -> None:
        """Let the aggregator take a step, and put what it sends into the mail."""
        try:
            sent = self._aggregator.handle(event)
        except SmpcError as error:
            self.error = str(error)
            self.blamed = [name for name, party in self.parties.items() if party.lost]
            sent = self._aggregator.handle(Cancellation(error))
        for envelope in sent:
            self.parties[envelope.receiver].mail.append(encode_envelope(envelope))


def play(seed: int, rate: float, *, counted: bool) -> bool:
    """Play one run with deaths and one without, print both, and return whether all is as it must be."""
    parameters, faults = check_parameters(PARAMETERS, PARTIES)
    if parameters is None:
        raise SystemExit(f"{faults}")
    stage = set_stage(PARTIES, question="sum", remember=False)
    names = stage.context.names
    values = random.Random(seed)  # noqa: S311 - the values are nobody's
    lanes = {
        name: parameters.encoding.encode([values.randrange(1001) for _ in range(4)], party=name)[0]
        for name in names
    }
    context, signers = stage.context, stage.signers
    aggregator = secagg.aggregator(context, parameters, signers[AGGREGATOR])
    with tempfile.TemporaryDirectory() as folder:
        desks = {
            name: Desk(context, parameters, signers[name], lanes[name], Path(folder, name), counted)
            for name in names
        }
        hall = Hall(desks, aggregator, seed, rate)
        hall.play()
    ends = {name: party.total for name, party in hall.parties.items() if not party.lost}
    lost = [name for name, party in hall.parties.items() if party.lost]
    print(
        f"seed {seed}: {hall.processes} processes, {hall.killed} killed; lost: {', '.join(lost) or 'nobody'}"
    )
    if hall.error:
        print(f"  stopped: {hall.error}")
        return bool(hall.blamed) and all(name in hall.error for name in hall.blamed)
    total = aggregator.result.total.tolist()
    survivors = aggregator.result.survivors
    due, _ = parameters.decode(sum_of([lanes[name] for name in survivors]), len(survivors))
    print(f"  sum of {len(survivors)}: {total}")
    good = total == due.tolist() and all(end == total for end in ends.values())
    if not lost:
        machines = [secagg.party(context, parameters, signers[name], lanes[name]) for name in names]
        hub = secagg.aggregator(context, parameters, signers[AGGREGATOR])
        drive([hub, *machines], MemoryNetwork(), AGGREGATOR)
        good = good and total == hub.result.total.tolist()
        print(f"  {'equals' if good else 'DIFFERS FROM'} the uninterrupted run")
    return good


def sum_of(lanes: Sequence[Lanes]) -> Lanes:
    """Return the sum of encoded vectors, all of one shape."""
    total = lanes[0].copy()
    for others in lanes[1:]:
        total += others
    return total


def main() -> None:
    """Play the runs that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides which processes are killed, and where")
    parser.add_argument("--runs", type=int, default=1, help="so many, with one seed after the other")
    parser.add_argument("--kill-rate", type=float, default=0.2, help="share of processes that are killed")
    parser.add_argument("--no-counter", action="store_true", help="without the counter of saved states")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error(f"--runs must be at least 1, is {arguments.runs}")
    if not 0 <= arguments.kill_rate < 1:
        parser.error(f"--kill-rate must be in [0, 1), is {arguments.kill_rate}")
    multiprocessing.set_forkserver_preload(PRELOADED)
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    good = [play(seed, arguments.kill_rate, counted=not arguments.no_counter) for seed in seeds]
    if arguments.runs > 1:
        print(f"{sum(good)} of {len(good)} runs as they must be")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
