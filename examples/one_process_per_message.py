"""A sum in which each message of a party is handled by a process of its own, some of which are killed.

A process restores its party's saved state, sends again what that state has sent, handles one message, saves
the next state, sends, and ends. Processes are killed at random, before or after any write or sending; the
next one goes on. The aggregator runs in this process, which keeps each message until a party's process has
handled it. The counter of saved states is in a folder of its own. Without it (--no-counter) nothing is
restored from a party's first `attest-*` on: from there on the party keeps one process, and is lost with it.
docs/guides/restore.md has the limits. Run: python examples/one_process_per_message.py --seed 1; --runs 200
takes the seeds 1 to 200; --protocol gopa-verifiable adds noise, and audits the log. Exits with 1 if a sum is
wrong, an audit fails, or a run stops without naming the lost parties.
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

from smpc_dp.encoding import RingVector
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.log.keeping import MemoryBoard
from smpc_dp.net.audit import audit
from smpc_dp.net.transport.memory import MemoryNetwork
from smpc_dp.protocols.engine.codec import Codec
from smpc_dp.protocols.engine.counter import FileCounter
from smpc_dp.protocols.engine.events import Cancellation, Event, Message, PeersLost, Start
from smpc_dp.protocols.engine.keyring import KeyRing
from smpc_dp.protocols.engine.party import PartyRole
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.engine.saved import ATTEST, SavedRun, Saving
from smpc_dp.protocols.engine.store import Store
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.phases.key_graph import Ready
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.registry import check_gopa, make_aggregator, make_party
from smpc_dp.protocols.result import Outcome
from smpc_dp.protocols.secagg.params import check_parameters
from smpc_dp.simulate.average import with_board
from smpc_dp.simulate.drive import drive
from smpc_dp.simulate.simulated_run import AGGREGATOR, simulated_run
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, Signer, decode_envelope, encode_envelope

PARTIES = 5
LENGTH, MOST = 4, 10
PARAMETERS = {"length": LENGTH, "lower": 0, "upper": MOST, "kind": "integer", "dropout": 0.2, "corrupt": 0.0}
NOISY = PARAMETERS | {"epsilon": 8.0, "delta": 1e-3, "verifiable": True}
# What a process does after it was started: restores (advance, commit), steps (propose, swap, advance, commit)
# and sends; it can die before and after each.
POINTS = 14
WRITES = ("begin", "swap", "create", "propose", "commit", "remove", "advance")
# The process from which a party's processes are forked has loaded these, and never holds a state.
PRELOADED = ["smpc_dp.protocols.engine.saved", "smpc_dp.protocols.gopa.states", "smpc_dp.net.audit"]


@dataclass(frozen=True)
class Desk:
    """What each process of a party is started with: no part of it changes in a run."""

    context: Context
    parameters: SumParameters
    signer: Signer
    vector: RingVector
    folder: Path
    counted: bool

    def saving(self, role: PartyRole, death: "Death") -> Saving:
        """Return where the party's states are saved."""
        for part in ("store", "keys", "counter"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        counter = FileCounter(self.folder / "counter") if self.counted else None
        return Saving(
            Codec.of_party(role),
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
    first = make_party(desk.context, desk.parameters, desk.signer, desk.vector)
    saving = desk.saving(first.role, death)
    send = death.around(lambda sent: pipe.send([encode_envelope(envelope) for envelope in sent]))
    context = desk.context
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
        pipe.send(run.result.total.tolist() if run.state.outcome is not None else None)


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

    def execute(self) -> None:
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
                self._notify(PeersLost((name,)))
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
            self._notify(Message(envelope))

    def _notify(self, event: Event) -> None:
        """Let the aggregator take a step, and put what it sends into the mail."""
        try:
            sent = self._aggregator.handle(event)
        except SmpcError as error:
            self.error = str(error)
            self.blamed = [name for name, party in self.parties.items() if party.lost]
            sent = self._aggregator.handle(Cancellation(error))
        for envelope in sent:
            self.parties[envelope.receiver].mail.append(encode_envelope(envelope))


@dataclass(frozen=True)
class Session:
    """What the members of a run are made with; the board of a run with a log."""

    parameters: SumParameters
    context: Context
    signers: Mapping[str, Signer]
    ring_vector: Mapping[str, RingVector]
    board: MemoryBoard | None

    @classmethod
    def of(cls, protocol: str, seed: int) -> "Session":
        """Return a session of a protocol, with vectors that depend on the seed."""
        parameters: SumParameters | None
        if protocol == "secagg":
            parameters, faults = check_parameters(PARAMETERS, PARTIES)
        else:
            parameters, faults = check_gopa(NOISY, PARTIES)
        if parameters is None:
            raise SystemExit(f"{faults}")
        operation = parameters.planned() or "sum"
        simulated = simulated_run(PARTIES, protocol=parameters.protocol, operation=operation, remember=False)
        board = None
        if isinstance(parameters, VerifiableParameters):
            simulated, board = with_board(simulated, NOISY)
        values = random.Random(seed)  # noqa: S311 - the values are nobody's
        ring_vector = {
            name: parameters.encoding.encode([values.randint(0, MOST) for _ in range(LENGTH)], party=name)[0]
            for name in simulated.context.names
        }
        return cls(parameters, simulated.context, simulated.signers, ring_vector, board)

    def aggregator(self) -> Run[Outcome]:
        """Return the aggregator of the run."""
        return make_aggregator(self.context, self.parameters, self.signers[AGGREGATOR], board=self.board)

    def is_right(self, outcome: Outcome) -> bool:
        """Tell whether a total is the sum of the survivors' vectors, with no more noise than there can be."""
        ring_vector = [self.ring_vector[name] for name in outcome.survivors]
        total = ring_vector[0].copy()
        for others in ring_vector[1:]:
            total += others
        exact, _ = self.parameters.decode(total, len(ring_vector))
        # A party adds up at most half of its bits to each coordinate, or takes them off.
        noise = self.parameters.bits // 2 if isinstance(self.parameters, VerifiableParameters) else 0
        return bool((abs(outcome.total - exact) <= noise * len(ring_vector)).all())

    def audit(self, outcome: Outcome, folder: Path) -> int:
        """Audit the log as `smpc-dp audit` does, and return its exit code; 0 where there is no log."""
        if self.board is None:
            return 0
        digest, log, runs = self.context.session_digest, folder / "log.jsonl", folder / "session.jsonl"
        log.write_bytes(self.board.export())
        runs.write_bytes(self.board.runs(digest, self.context.scope).export())
        run_id = outcome.evidence.run_id.hex()
        report = audit(log, session=digest.hex(), session_log=runs, run=run_id)
        print(f"  audit of {report.entries} entries: exit code {report.code}")
        return report.code


def execute(protocol: str, seed: int, rate: float, *, counted: bool) -> bool:
    """Play one run with deaths and one without, print both, and return whether all is as it must be."""
    session = Session.of(protocol, seed)
    context, parameters = session.context, session.parameters
    aggregator = session.aggregator()
    with tempfile.TemporaryDirectory() as folder:
        desks = {
            name: Desk(context, parameters, session.signers[name], ring_vector, Path(folder, name), counted)
            for name, ring_vector in session.ring_vector.items()
        }
        hall = Hall(desks, aggregator, seed, rate)
        hall.execute()
        lost = [name for name, party in hall.parties.items() if party.lost]
        print(
            f"seed {seed}: {hall.processes} processes, {hall.killed} killed; "
            f"lost: {', '.join(lost) or 'nobody'}"
        )
        if hall.error:
            print(f"  stopped: {hall.error}")
            return bool(hall.blamed) and all(name in hall.error for name in hall.blamed)
        outcome = aggregator.result
        total = outcome.total.tolist()
        print(f"  sum of {len(outcome.survivors)}: {total}")
        good = session.is_right(outcome) and session.audit(outcome, Path(folder)) == 0
    good = good and all(party.total == total for party in hall.parties.values() if not party.lost)
    if not lost:
        good = good and equals_uninterrupted(protocol, seed, outcome)
        print(f"  {'equals' if good else 'DIFFERS FROM'} the uninterrupted run")
    return good


def equals_uninterrupted(protocol: str, seed: int, outcome: Outcome) -> bool:
    """Play the run in this process, and tell whether the sum is the same; noise is drawn anew."""
    session = Session.of(protocol, seed)
    aggregator = session.aggregator()
    parties = [
        make_party(session.context, session.parameters, session.signers[name], ring_vector)
        for name, ring_vector in session.ring_vector.items()
    ]
    drive([aggregator, *parties], MemoryNetwork(), AGGREGATOR)
    plain = aggregator.result
    same = session.board is not None or plain.total.tolist() == outcome.total.tolist()
    return same and session.is_right(plain) and plain.survivors == outcome.survivors


def main() -> None:
    """Play the runs that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=["secagg", "gopa-verifiable"], default="secagg")
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
    counted = not arguments.no_counter
    good = [execute(arguments.protocol, seed, arguments.kill_rate, counted=counted) for seed in seeds]
    if arguments.runs > 1:
        print(f"{sum(good)} of {len(good)} runs as they must be")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
