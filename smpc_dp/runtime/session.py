"""A party's session: connect once, then sum or average as often as the others do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from smpc_dp.encoding import Lanes
from smpc_dp.errors import ConfigError, Fault, SmpcError, TimeoutFault
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.pairwise.evaluation import AnyCircuit, Evaluation, Input, Question, Role
from smpc_dp.protocols.pairwise.params import Mode, Output
from smpc_dp.protocols.registry import party_machine
from smpc_dp.protocols.result import Result
from smpc_dp.protocols.secagg.messages import START
from smpc_dp.protocols.secagg.party import PartyMachine
from smpc_dp.runtime.evaluation import Evaluations
from smpc_dp.runtime.events import Event, OnEvent, ignore
from smpc_dp.runtime.events import Kind as EventKind
from smpc_dp.runtime.member import Membership, from_wire, to_wire
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.endpoint import dial

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt

# An aggregator may wait a whole step for others before it answers, and then compute.
PATIENCE = 4.0
Kind = Literal["sum", "average"]
LABEL_LIMIT = 200


class Session:
    """One party's open session. Made by `connect`; `sum` and `average` are for one task at a time."""

    def __init__(
        self,
        membership: Membership,
        channel: Channel,
        evaluations: Evaluations,
        on_event: OnEvent,
        ledger: Ledger | None = None,
    ) -> None:
        self._membership = membership
        self._ledger = ledger
        self._channel = channel
        self._evaluations = evaluations
        self._on_event = on_event
        self._request = 0

    def __repr__(self) -> str:
        return f"Session({self.party!r}, {self._request} requests)"

    @property
    def party(self) -> str:
        """The party's name."""
        return self._membership.name

    @property
    def length(self) -> int:
        """Coordinates of the session's vectors."""
        return self._membership.parameters.encoding.length

    async def sum(
        self, vector: ArrayLike, *, weight: int | None = None, clip: bool = False, label: str = ""
    ) -> Result:
        """Return the exact sum of the survivors' vectors (times their weights, if the session has weights).

        The n-th call of one party goes with the n-th call of the others, also after a call that raised.

        Args:
            vector: shape (length,), float64 or integers as the session says, within its bounds.
            weight: this party's secret integer in [0, max_weight]; needed exactly if the session has weights.
            clip: clip values to the bounds, and say in the result how many were; otherwise they are refused.
            label: what this request is, in at most 200 characters that everybody may read ("round 7").
                Parties that call with another label, or ask for an average where others ask for a sum, are
                not added up with them.

        Raises:
            ConfigError, PrivacyError: the vector or the weight is refused, and others learn only that.
            PeerFault: somebody broke the protocol; TimeoutFault: somebody is missing. The session can go on
                with the next request, unless the aggregator itself is lost.
        """
        return await self._run("sum", vector, weight, clip, label)

    async def average(
        self,
        vector: ArrayLike,
        *,
        weight: int | None = None,
        clip: bool = False,
        label: str = "",
        method: str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        l2_bound: float | None = None,
        verifiable: bool | None = None,
    ) -> Result:
        """Return the (weighted) average of the survivors' vectors; arguments and errors as in `sum`.

        `method`, `epsilon`, `delta`, `l2_bound` and `verifiable` are the session file's; where given, they
        must be the same.
        """
        session = self._membership.session
        given = {"method": method, "epsilon": epsilon, "delta": delta, "l2_bound": l2_bound}
        due = {"method": session.protocol} | {
            key: session.parameters.get(key) for key in given if key != "method"
        }
        due["verifiable"] = session.parameters.get("verifiable", False)
        given["verifiable"] = verifiable
        differing = [
            Fault(key, f"is {value!r}, the session file says {due[key]!r}")
            for key, value in given.items()
            if value is not None and value != due[key]
        ]
        if differing:
            raise ConfigError(differing)
        return await self._run("average", vector, weight, clip, label)

    async def evaluate(
        self,
        circuit: AnyCircuit,
        inputs: Sequence[Input],
        *,
        peer: str,
        role: Role,
        output: Output = "both",
        evaluator_inputs: Sequence[int] | None = None,
        instances: int | None = None,
        mode: Mode = "tile",
        label: str = "",
    ) -> Evaluation:
        """Evaluate a Boolean circuit with one other party, by garbled circuits; both call this.

        The two connect to each other: one of them needs an address in the session file. Evaluations may run
        beside requests to the aggregator; those with one peer run one after the other, in the order of the
        calls.

        Args:
            circuit: name of a published circuit, path of a file in Bristol Fashion, or a `Circuit`.
            inputs: for each of this party's input values of the circuit, in order, an unsigned integer; or,
                for a batch, a sequence or integer array of them, all of one length.
            peer: the other party's name.
            role: "garbler" or "evaluator": this party's; the peer has the other one. The claim is not the
                same for both: the garbler must be semi-honest, the evaluator need not be.
            output: who learns the output: "garbler", "evaluator" or "both".
            evaluator_inputs: places (from 0) of the evaluator's input values; by default all but the first.
            instances: how many evaluations; needed for a batch in which this party has no inputs.
            mode: "tile" or "unique" garbling keys.
            label: what this evaluation is, in at most 200 characters; the peer must say the same.

        Raises:
            ConfigError: an argument is wrong, or the peer's differ; names which, before anything is garbled.
            PeerFault: the peer broke the protocol. TimeoutFault: it did not call within `gather` seconds, or
                took longer than `step` for one message. The session can go on after each.
        """
        _check_label(label)
        self._evaluations.check_peer(peer)
        if role not in ("garbler", "evaluator"):
            raise ConfigError([Fault("role", f"{role!r} is neither 'garbler' nor 'evaluator'")])
        garbler, evaluator = (self.party, peer) if role == "garbler" else (peer, self.party)
        question = await asyncio.to_thread(
            Question.ask,
            circuit,
            inputs,
            garbler=garbler,
            evaluator=evaluator,
            own=self.party,
            output=output,
            mode=mode,
            evaluator_inputs=evaluator_inputs,
            instances=instances,
        )

        def on_step(step: str) -> None:
            self._on_event(Event(self.party, "step", step=step, waiting=1, detail=f"evaluation with {peer}"))

        return await self._evaluations.evaluate(question, peer, label, on_step)

    async def _run(self, kind: Kind, vector: ArrayLike, weight: int | None, clip: bool, label: str) -> Result:
        _check_label(label)
        self._request += 1
        try:
            lanes, clipped = self._membership.parameters.encoding.encode(
                vector, party=self.party, weight=weight, clip=clip
            )
        except SmpcError as error:
            # The others must neither wait for this vector nor take the next one for it.
            await self._decline(error)
            raise
        return await self._run_encoded(kind, lanes, clipped, label)

    async def sum_encoded(self, kind: Kind, lanes: Lanes, clipped: int = 0, label: str = "") -> Result:
        """Return the "sum" or "average" of lanes that the session's encoding has made before; a request.

        For callers who check an input before they connect. `lanes` is copied.
        """
        self._request += 1
        return await self._run_encoded(kind, lanes.copy(), clipped, label)

    async def _run_encoded(self, kind: Kind, lanes: Lanes, clipped: int, label: str) -> Result:
        if not self._channel.live:
            raise TimeoutFault({self._membership.aggregator}, "hello", "the connection is lost")
        planned = self._membership.parameters.planned()
        machine = self._machine(lanes, " ".join(part for part in (kind, label, planned) if part))
        try:
            receipt = await self._drive(machine)
        except SmpcError as error:
            await self._say_farewell(machine, error)
            self._tell("failed", machine, str(error))
            raise
        outcome = machine.result
        self._on_event(
            Event(
                self.party,
                "done",
                self._request,
                "done",
                survivors=outcome.survivors,
                absent=outcome.absent,
            )
        )
        return Result.of(outcome, kind, clipped, receipt)

    def _machine(self, lanes: Lanes, question: str) -> PartyMachine:
        return party_machine(
            self._membership.context(self._request, question),
            self._membership.parameters,
            self._membership.identity,
            lanes,
        )

    async def _decline(self, error: SmpcError) -> None:
        """Leave the request before it begins."""
        encoding = self._membership.parameters.encoding
        machine = self._machine(np.zeros(encoding.lanes, dtype=encoding.dtype), "")
        await self._say_farewell(machine, error)

    async def _drive(self, machine: PartyMachine) -> Receipt | None:
        """Run the machine to its end; return the ledger's receipt."""
        receipt: Receipt | None = None
        timeouts = self._membership.session.timeouts
        await self._send(machine.start())
        patience = timeouts.connect + timeouts.gather + PATIENCE * timeouts.step
        while not machine.finished:
            self._tell("step", machine)
            try:
                async with asyncio.timeout(patience):
                    request, envelope = from_wire(await self._channel.receive(), self._channel.peer)
            except TimeoutError:
                machine.expire()
                continue
            except ChannelClosed as closed:
                if closed.clean and machine.step == START:
                    raise TimeoutFault(
                        {self._channel.peer}, START, "it has ended the session and serves no more requests"
                    ) from None
                machine.lost(self._channel.peer)
                continue
            if request < self._request:
                continue
            if request > self._request:
                raise TimeoutFault(
                    {self.party}, machine.step, f"too late: the others are at request {request}"
                )
            due = machine.step
            answer = await asyncio.to_thread(machine.receive, envelope)
            if due == machine.release_step and answer:
                # The first message that depends on the data: charged when it is there, before it is sent.
                receipt = await self._charge(machine)
            await self._send(answer)
            patience = PATIENCE * timeouts.step
        return receipt

    async def _charge(self, machine: PartyMachine) -> Receipt | None:
        ledger, event = self._ledger, self._membership.parameters.event
        if ledger is None:
            return None
        return await asyncio.to_thread(lambda: ledger.charge(machine.run_id, event()))

    async def _send(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            try:
                await self._channel.send(*to_wire(self._request, envelope))
            except ChannelClosed as error:
                raise TimeoutFault({self._channel.peer}, envelope.step, str(error)) from None

    async def _say_farewell(self, machine: PartyMachine, error: SmpcError) -> None:
        if not self._channel.live:
            return
        try:
            await self._send(machine.farewell(error))
        except SmpcError:
            # The channel is gone, and what matters has been raised already.
            return

    def _tell(self, kind: EventKind, machine: PartyMachine, detail: str = "") -> None:
        waiting = len(machine.waiting_for)
        self._on_event(Event(self.party, kind, self._request, machine.step, waiting, detail))


def _check_label(label: str) -> None:
    if len(label) > LABEL_LIMIT:
        raise ConfigError([Fault("label", f"at most {LABEL_LIMIT} characters, has {len(label)}")])


@asynccontextmanager
async def connect(
    session: str | os.PathLike[str],
    party: str,
    *,
    key: str | os.PathLike[str] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    on_event: OnEvent = ignore,
) -> AsyncIterator[Session]:
    """Connect `party` to the aggregator of a session file, over mutual TLS 1.3 pinned to its roster.

    Args:
        session: path of the session file.
        party: a name of the roster with role "party".
        key: path of its identity file; by default `keys/PARTY.key` beside the session file.
        ledger: path of the party's privacy ledger (`smpc-dp ledger create`). Each request is charged to it,
            durably, before anything that depends on the vector is sent; one that it refuses raises
            PrivacyError, and nothing of the vector is sent.
        on_event: told of every step, for progress.

    Raises:
        ConfigError: every fault of the session file, or what differs from the aggregator's; another's ledger.
        LocalError: the key file or the ledger is missing or damaged, or others can read it.
        TimeoutFault, PeerFault: the aggregator cannot be reached, or is not who it should be.
    """
    membership = Membership.load(session, party, key)
    book = None if ledger is None else await asyncio.to_thread(_open_ledger, ledger, party)
    channel = await dial(membership.endpoint(), membership.aggregator)
    on_event(Event(party, "connected", detail=membership.aggregator))
    evaluations = Evaluations(membership.session, membership.identity)
    try:
        yield Session(membership, channel, evaluations, on_event, book)
    finally:
        await asyncio.to_thread(evaluations.close)
        await channel.close()


def _open_ledger(path: str | os.PathLike[str], party: str) -> Ledger:
    # Not at the top: most sessions have no ledger, and the accountant takes a while to load.
    from smpc_dp.privacy.accountant.ledger import Ledger

    return Ledger.open(os.fspath(path), party=party)
