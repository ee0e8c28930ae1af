"""A sum in which each message is handled by a process of its own, some of which are killed.

It shows internals, which may change in any release.

A process restores its member's saved state, sends again what that state has sent, handles one message, saves
the next state, sends, and ends. Processes are killed at random, before or after any write or sending; the
next one goes on. So do the parties and the aggregator, which writes its log in between. This process is the
network: it keeps each message until a process has handled it, and delivers the same bytes once. The counter
of saved states is in a folder of its own. Without it (--no-counter) nothing is restored from a party's first
`attest-*` on: from there on the party keeps one process, and is lost with it; the aggregator has a counter.
protocols/saved-states/README.md has the limits. Run:
python examples/one_process_per_message.py --seed 1; --runs 200
takes the seeds 1 to 200; --protocol gopa-verifiable adds noise, and audits the log. Exits with 1 if a sum is
wrong, an audit fails, or a run stops without naming the parties that were lost before it stopped.
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

from smpc_dp import audit
from smpc_dp.capabilities.gopa.check import check_gopa
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.encoding import RingVector
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.counter import FileCounter
from smpc_dp.engine.events import Cancellation, Event, Message, PeersLost, Start
from smpc_dp.engine.keyring import KeyRing
from smpc_dp.engine.phases.key_graph import Ready
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import make_aggregator, make_party
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.saved import ATTEST, SavedRun, Saving
from smpc_dp.engine.saved_collector import SavedCollection
from smpc_dp.engine.store import Store
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.logs.board import BoardFolder
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.secagg.params import check_parameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR, simulated_run, with_board
from smpc_dp.transport.memory import MemoryNetwork
from smpc_dp.wire.signing import Context, Signer, decode_envelope, encode_envelope

PARTIES = 5
LENGTH, MOST = 4, 10
PARAMETERS = {"length": LENGTH, "lower": 0, "upper": MOST, "kind": "integer", "dropout": 0.2, "corrupt": 0.0}
NOISY = PARAMETERS | {"epsilon": 8.0, "delta": 1e-3, "verifiable": True}
# What a process does after it was started: restores (advance, commit), steps (propose, swap, advance,
# commit), writes a log (keep, begin, append) and sends; it can die before and after each.
POINTS = {"party": 14, "aggregator": 20}
WRITES = ("begin", "swap", "create", "propose", "commit", "remove", "advance", "append", "keep")

Mail = tuple[str, bytes | None]
"""What the network delivers: a sender with a message, or None: it is lost."""
Result = tuple[Outcome | None, str]
"""What a process has: the outcome, and why the run has stopped."""


@dataclass(frozen=True)
class Desk:
    """What each process of a member is started with: no part of it changes in a run.

    `vector`: of the aggregator None, which has a `board` if the protocol logs.
    """

    context: Context
    parameters: SumParameters
    signer: Signer
    vector: RingVector | None
    folder: Path
    counted: bool
    session: str = ""

    @property
    def name(self) -> str:
        """The member's name."""
        return self.signer.name

    @property
    def board(self) -> BoardFolder | None:
        """The folder of the aggregator's logs."""
        return BoardFolder(self.folder / "board", self.session) if self.session else None

    def open(self, death: "Death", *, begins: bool) -> SavedRun[Outcome]:
        """Return the run as it was saved, or a new one; raise LocalError if it cannot be restored."""
        kind: type[SavedRun[Outcome]]
        if self.vector is not None:
            first = make_party(self.context, self.parameters, self.signer, self.vector)
            kind, codec = SavedRun, Codec.of_party(first.role)
        else:
            board = death.near(self.board)
            first = make_aggregator(self.context, self.parameters, self.signer, board=board)
            kind, codec = SavedCollection, Codec.of_collector(first.role)
            if board is not None:
                death.near(first.member.runs)
        saving = self._saving(codec, death)
        if begins and saving.store.find(self.context.scope, self.context.request, self.name) is None:
            return kind.begin(first.role, first.member, first.state, saving)
        return kind.restore(first.role, first.member, saving)

    def _saving(self, codec: Codec, death: "Death") -> Saving:
        for part in ("store", "keys", "counter"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        counter = FileCounter(self.folder / "counter") if self.counted else None
        return Saving(
            codec,
            death.near(Store(self.folder / "store" / "states")),
            death.near(KeyRing(self.folder / "keys")),
            death.near(counter) if counter else None,
            input=b"" if self.vector is None else self.vector.tobytes(),
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


# A process of a member


def be_member(desk: Desk, begins: bool, dies_at: int | None, pipe: Connection) -> None:
    """Restore, or begin, and handle messages until there are no more; tell `pipe` what is sent and known."""
    death = Death(dies_at)
    send = death.around(lambda sent: pipe.send([encode_envelope(envelope) for envelope in sent]))
    try:
        run = desk.open(death, begins=begins)
    except LocalError as error:
        pipe.send(str(error))
        return
    send(run.handle(Start()) if isinstance(run.state, Ready) else run.resend())
    while True:
        try:
            received, death.left = pipe.recv()
        except EOFError:
            return
        reason = ""
        try:
            sent = run.handle(event_of(*received))
        except SmpcError as error:
            sent, reason = run.handle(Cancellation(error)), str(error)
        send(sent)
        result: Result = (run.result if run.state.outcome is not None else None, reason)
        pipe.send(result)


def event_of(sender: str, content: bytes | None) -> Event:
    """Return the event of what the network delivers: a message, or the loss of a member."""
    return PeersLost((sender,)) if content is None else Message(decode_envelope(content, sender))


# The network


@dataclass
class Seat:
    """What the network knows of a member: messages that no process has handled, and its process, if any.

    `missed`: whose loss its processes handled before its run stopped.
    """

    desk: Desk
    deaths: random.Random
    mail: deque[Mail] = field(default_factory=deque)
    delivered: set[bytes] = field(default_factory=set)
    process: ForkServerProcess | None = None
    pipe: Connection | None = None
    begun: bool = False
    attested: bool = False
    lost: str = ""
    missed: list[str] = field(default_factory=list)
    outcome: Outcome | None = None
    error: str = ""


class Hall:
    """One run of members each of whose messages is handled by another process."""

    def __init__(self, desks: Mapping[str, Desk], seed: int, rate: float) -> None:
        self._rate = rate
        self._spawning = multiprocessing.get_context("forkserver")
        self.seats = {
            name: Seat(desk, random.Random(f"{seed} {name}"))  # noqa: S311 - chooses who dies when
            for name, desk in desks.items()
        }
        self.processes = self.killed = 0

    @property
    def aggregator(self) -> Seat:
        """The aggregator's."""
        return self.seats[AGGREGATOR]

    @property
    def parties(self) -> list[Seat]:
        """The parties'."""
        return [seat for name, seat in self.seats.items() if name != AGGREGATOR]

    def execute(self) -> None:
        """Run to the end."""
        for seat in self.seats.values():
            self._work(seat, None)
        while waiting := [seat for seat in self.seats.values() if seat.mail and not seat.lost]:
            for seat in waiting:
                self._work(seat, seat.mail[0])
        for seat in self.seats.values():
            self._end(seat)

    def _work(self, seat: Seat, received: Mail | None) -> None:
        """Let processes of a member handle a message until one has done it, or the member is lost."""
        points = POINTS["party" if seat.desk.vector is not None else "aggregator"]
        while not seat.lost:
            dies_at = seat.deaths.randrange(points) if seat.deaths.random() < self._rate else None
            try:
                self._start(seat, dies_at)
                if received is None or seat.pipe is None:
                    break
                seat.pipe.send((received, dies_at))
                self._send(seat, seat.pipe.recv())
                seat.outcome, error = seat.pipe.recv()
                if received[1] is None and not seat.error:
                    seat.missed.append(received[0])
                # A run that has stopped takes later messages without a word.
                seat.error = error or seat.error
            except (EOFError, ConnectionError):
                self.killed += 1
                self._end(seat)
            else:
                seat.mail.popleft()
                break
        if seat.desk.counted or not seat.attested:
            self._end(seat)

    def _start(self, seat: Seat, dies_at: int | None) -> None:
        """Start a process, if there is none, and pass on what it sends at first."""
        if seat.pipe is not None:
            return
        seat.pipe, theirs = self._spawning.Pipe()
        seat.process = self._spawning.Process(
            target=be_member, args=(seat.desk, not seat.begun, dies_at, theirs)
        )
        seat.process.start()
        theirs.close()
        self.processes += 1
        match seat.pipe.recv():
            case str(refusal):
                seat.lost = refusal
                self._end(seat)
                self.aggregator.mail.append((seat.desk.name, None))
            case sent:
                self._send(seat, sent)

    def _end(self, seat: Seat) -> None:
        """Close the connection to a process, which ends it if it is there, and wait until it is gone."""
        if seat.pipe is not None and seat.process is not None:
            seat.pipe.close()
            seat.process.join()
            seat.pipe = seat.process = None

    def _send(self, seat: Seat, sent: Sequence[bytes]) -> None:
        """Put what a process has sent into the mail."""
        for content in sent:
            envelope = decode_envelope(content, seat.desk.name)
            seat.begun = True
            seat.attested = seat.attested or envelope.step.startswith(ATTEST)
            receiver = self.seats[envelope.receiver]
            if content not in receiver.delivered:
                receiver.delivered.add(content)
                receiver.mail.append((seat.desk.name, content))


@dataclass(frozen=True)
class Session:
    """What the members of a run are made with; `text` is the session as a log has it, if there is one."""

    parameters: SumParameters
    context: Context
    signers: Mapping[str, Signer]
    ring_vector: Mapping[str, RingVector]
    text: str

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
        text = ""
        if isinstance(parameters, VerifiableParameters):
            simulated, board = with_board(simulated, NOISY)
            text = board.session
        values = random.Random(seed)  # noqa: S311 - the values are nobody's
        ring_vector = {
            name: parameters.encoding.encode([values.randint(0, MOST) for _ in range(LENGTH)], party=name)[0]
            for name in simulated.context.names
        }
        return cls(parameters, simulated.context, simulated.signers, ring_vector, text)

    def desks(self, folder: Path, *, counted: bool) -> dict[str, Desk]:
        """Return the members' desks; without `counted` the parties have no counter."""
        aggregator = Desk(
            self.context,
            self.parameters,
            self.signers[AGGREGATOR],
            None,
            folder / AGGREGATOR,
            True,
            self.text,
        )
        return {AGGREGATOR: aggregator} | {
            name: Desk(self.context, self.parameters, self.signers[name], vector, folder / name, counted)
            for name, vector in self.ring_vector.items()
        }

    def is_right(self, outcome: Outcome) -> bool:
        """Tell whether a total is the sum of the survivors' vectors, with no more noise than there can be."""
        ring_vector = [self.ring_vector[name] for name in outcome.survivors]
        total = ring_vector[0].copy()
        for others in ring_vector[1:]:
            total += others
        exact, _ = self.parameters.decode(total, len(ring_vector))
        # A party adds up at most half of its bits to each coordinate, or takes them off.
        noise = self.parameters.bits // 2 if isinstance(self.parameters, VerifiableParameters) else 0
        return bool((abs(outcome.total - exact.values) <= noise * len(ring_vector)).all())

    def audit(self, outcome: Outcome, board: BoardFolder | None) -> int:
        """Audit the log as `smpc-dp audit` does, and return its exit code; 0 where there is no log."""
        if board is None:
            return 0
        digest, run_id = self.context.session_digest, outcome.evidence.run_id.hex()
        board.resume(board.runs(digest, self.context.scope).lines[-1])
        board.close()
        [log], [runs] = board.folder.glob("request-*.jsonl"), board.folder.glob("session-*.jsonl")
        report = audit(log, session=digest.hex(), session_log=runs, run=run_id)
        print(f"  audit of {report.entries} entries: exit code {report.code}")
        return report.code


def execute(protocol: str, seed: int, rate: float, *, counted: bool) -> bool:
    """Play one run with deaths and one without, print both, and return whether all is as it must be."""
    session = Session.of(protocol, seed)
    with tempfile.TemporaryDirectory() as folder:
        desks = session.desks(Path(folder), counted=counted)
        hall = Hall(desks, seed, rate)
        hall.execute()
        lost = [seat.desk.name for seat in hall.parties if seat.lost]
        print(
            f"seed {seed}: {hall.processes} processes, {hall.killed} killed; "
            f"lost: {', '.join(lost) or 'nobody'}"
        )
        outcome, error = hall.aggregator.outcome, hall.aggregator.error or hall.aggregator.lost
        if outcome is None:
            print(f"  stopped: {error}")
            # A party that is lost while it is told that the run has stopped is not the reason.
            missed = hall.aggregator.missed
            return bool(missed) and all(name in error for name in missed)
        total = outcome.total.tolist()
        print(f"  sum of {len(outcome.survivors)}: {total}")
        good = session.is_right(outcome) and session.audit(outcome, desks[AGGREGATOR].board) == 0
    for seat in hall.parties:
        good = good and (bool(seat.lost) if seat.outcome is None else seat.outcome.total.tolist() == total)
    if not lost:
        good = good and equals_uninterrupted(protocol, seed, outcome)
        print(f"  {'equals' if good else 'DIFFERS FROM'} the uninterrupted run")
    return good


def equals_uninterrupted(protocol: str, seed: int, outcome: Outcome) -> bool:
    """Play the run in this process, and tell whether the sum is the same; noise is drawn anew."""
    session = Session.of(protocol, seed)
    board = MemoryBoard(session.text) if session.text else None
    aggregator = make_aggregator(
        session.context, session.parameters, session.signers[AGGREGATOR], board=board
    )
    parties = [
        make_party(session.context, session.parameters, session.signers[name], ring_vector)
        for name, ring_vector in session.ring_vector.items()
    ]
    drive([aggregator, *parties], MemoryNetwork(), AGGREGATOR)
    plain = aggregator.result
    same = board is not None or plain.total.tolist() == outcome.total.tolist()
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
    multiprocessing.set_forkserver_preload([name for name in sys.modules if name.startswith("smpc_dp")])
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    counted = not arguments.no_counter
    good = [execute(arguments.protocol, seed, arguments.kill_rate, counted=counted) for seed in seeds]
    if arguments.runs > 1:
        print(f"{sum(good)} of {len(good)} runs as they must be")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
