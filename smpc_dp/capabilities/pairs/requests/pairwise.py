"""Runs one role of a two-party evaluation over blocking channels."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar, cast

import numpy as np

from smpc_dp.capabilities.pairs.active.plan import plan_evaluation
from smpc_dp.capabilities.pairs.garbled.effects import Buffer, Receive, Send
from smpc_dp.capabilities.pairs.garbled.messages import PAIRWISE, VERSION
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters, load_circuit
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan, Rows
from smpc_dp.capabilities.pairs.requests.convictions import Convictions
from smpc_dp.capabilities.pairs.roles import PairTransfers, aggregator_role, party_role
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import (
    Code,
    ConfigCheck,
    ConfigError,
    ConfigIssue,
    LocalError,
    SmpcError,
    TimeoutFault,
    certificate_of,
)
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member
from smpc_dp.session.local import ON_ONE_MACHINE, free_port
from smpc_dp.session.member import CERTIFICATES, default_key, load_identity
from smpc_dp.session.session_file import SessionFile, Timeouts, load_session, write_session
from smpc_dp.session.tasks import checked_for
from smpc_dp.session.threads import start_in_thread
from smpc_dp.transport.blocking import RECEIVE, BlockingChannel, await_any
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.connect import accept_blocking, dial_blocking, listen_at_own_address
from smpc_dp.transport.endpoint import Endpoint
from smpc_dp.transport.tls import Contexts, contexts
from smpc_dp.wire.signing import Context

AGGREGATOR = "aggregator"
STORED_BYTES = 1 << 24
# Seconds between two looks at a role that judges, and in which a cancelled one takes what has arrived.
LOOK_SECONDS = 0.05
GRACE_SECONDS = 1.0

T = TypeVar("T")
# Is told of the error that ends a role before anybody else is; returns the error to raise.
Keep = Callable[[SmpcError], SmpcError]


class Conduit(Protocol):
    """Interface of a blocking connection between two members, direct or relayed by the aggregator."""

    @property
    def bytes_sent(self) -> int:
        """Number of bytes of messages that were sent so far."""

    @property
    def bytes_received(self) -> int:
        """Number of bytes of messages that were received so far."""

    def send(self, parts: Sequence[Buffer], /) -> None:
        """Send one message, given as buffers that are joined in order."""

    def receive(self, limit: int, ahead: int = 0, /) -> Buffer:
        """Wait for the next message, of at most `limit` bytes, and return it."""

    def close(self, parts: Sequence[Buffer], /) -> None:
        """Send a last message, and close the connection."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of running a role: its output, the seconds to each step, and the bytes of its messages.

    `steps` holds the seconds from the connection to the first beginning of each step, and to "done". Bytes
    are those of messages, without frames and TLS.
    """

    evaluated: Evaluated
    steps: Mapping[str, float]
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True)
class PairwiseMember:
    """Settings of one member of a two-party evaluation: session file, identity and plan.

    `contexts`: TLS contexts of every connection; None: each `connect` makes its own. `convictions`: the
    members that are refused, where `evaluate` stores certificates too.
    """

    session: SessionFile
    identity: Identity
    plan: Plan
    contexts: Contexts | None = None
    convictions: Convictions | None = None

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], name: str, key: str | os.PathLike[str] | None = None
    ) -> PairwiseMember:
        """Read the session file, the circuit and the member's key; connects to nobody.

        Args:
            path: the session file; a circuit's file is looked for beside it.
            name: the member; it must be in the roster.
            key: its identity file; by default `keys/NAME.key` beside the session file.

        Raises:
            ConfigError, LocalError: the file, the circuit, the name or the key is wrong, or a certificate
                beside the key.
        """
        session = load_session(path)
        parameters = cast("PairwiseParameters", checked_for(session, "circuit"))
        _check_roster(session, parameters)
        member = session.roster.member(name)
        key_file = key if key is not None else default_key(path, name)
        identity = load_identity(key_file, name, member.public_key, f"roster[{name}].public_key")
        circuit = load_circuit(parameters, Path(path).parent)
        convictions = Convictions(Path(key_file).with_name(CERTIFICATES), session.roster)
        plan = plan_evaluation(circuit, parameters)
        return cls(session, identity, plan, contexts(identity, session.roster), convictions)

    @property
    def input_values(self) -> tuple[int, ...]:
        """Numbers of the circuit's input values that this member provides."""
        parameters = self.plan.parameters
        values = {
            parameters.garbler: self.plan.garbler_values,
            parameters.evaluator: self.plan.evaluator_values,
        }
        return self.plan.given(values.get(self.identity.name, ()))

    def role(
        self, inputs: Sequence[Rows], request: int = 1, transfers: PairTransfers | None = None
    ) -> Participant:
        """Return this member's role (garbler, evaluator or aggregator), with its packed inputs.

        Several roles may be driven in turn over the same channels, each with its own number `request`, the
        same for all members. Roles with the same `transfers` set the oblivious transfers up once.

        Raises ConfigError for inputs that do not fit the circuit.
        """
        name, plan, parameters = self.identity.name, self.plan, self.plan.parameters
        aggregator = self.session.roster.aggregator
        protocol, version = plan.protocol
        context = Context(
            protocol=protocol,
            version=version,
            session_digest=self.session.digest,
            request=request,
            names=(parameters.garbler, parameters.evaluator),
            aggregator="" if aggregator is None else aggregator.name,
            keys={member.name: member.public_key for member in self.session.roster},
        )
        randomness = SystemRandomness()
        if name in (parameters.garbler, parameters.evaluator):
            session = self.session.canonical_json() if parameters.covert else b""
            return party_role(context, self.identity, plan, inputs, randomness, transfers, session=session)
        plan.check_inputs((), inputs, name)
        return aggregator_role(context, self.identity, plan, randomness)

    @cached_property
    def _endpoint(self) -> Endpoint:
        """The transport endpoint with which this member connects to the other members."""
        timeouts = self.session.timeouts
        return Endpoint(
            identity=self.identity,
            roster=self.session.roster,
            session_digest=self.session.digest,
            session=self.session.canonical,
            connect_timeout=timeouts.connect,
            frame_timeout=timeouts.step,
            prepared=self.contexts,
        )

    def connect(self) -> dict[str, BlockingChannel]:
        """Connect to all other members; return the channels by name.

        Raises TimeoutFault, PeerFault, ConfigError or LocalError when a member cannot be reached.
        """
        endpoint, name, parameters = self._endpoint, self.identity.name, self.plan.parameters
        garbler, evaluator, aggregator = (
            parameters.garbler,
            parameters.evaluator,
            self.session.roster.aggregator,
        )
        called = {garbler: (evaluator,), evaluator: ()}.get(name, (garbler, evaluator))
        calling = [] if aggregator is None or aggregator.name == name else [aggregator.name]
        calling += [garbler] if name == evaluator else []
        channels: dict[str, BlockingChannel] = {}
        # Listening comes first: whom nobody hears calls again after a pause.
        with listen_at_own_address(endpoint) if called else contextlib.nullcontext() as server:
            try:
                for peer in calling:
                    channels[peer] = dial_blocking(endpoint, peer)
                if server is not None:
                    channels |= accept_blocking(endpoint, server, called)
            except BaseException:
                for channel in channels.values():
                    channel.close()
                raise
        return channels


def evaluate(
    member: PairwiseMember, role: Participant, on_step: Callable[[str], None] = lambda _step: None
) -> Report:
    """Run one member's part of a two-party evaluation, from connecting to the result; blocks the caller.

    Raises:
        ConfigError: a peer has another session or circuit.
        PeerFault, TimeoutFault, LocalError: a member ended the run, broke the protocol or is missing, or is
            convicted of cheating.
    """
    convictions = member.convictions
    if convictions is not None:
        for peer in member.session.roster.parties:
            convictions.check(peer.name)
    channels = member.connect()
    try:
        keep = _unchanged if convictions is None else convictions.keep
        return drive(role, channels, on_step, keep, partial(await_any, list(channels.values())))
    finally:
        for channel in channels.values():
            channel.close()


async def run_role(role: Participant, work: Callable[[], T], stop: Callable[[], None]) -> T:
    """Run `work()`, which drives a role, in a thread, and return its value; a cancellation calls `stop`.

    A cancelled caller waits for the role to take what has arrived, for GRACE_SECONDS at most. If the role
    judges it waits for the judgement and its two messages to the aggregator, however often it is cancelled,
    as it is when the event loop ends. A conviction is raised in the place of the cancellation.
    """
    running = start_in_thread(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop()
        # The statement may have arrived, and its role not yet have woken.
        loop = asyncio.get_running_loop()
        grace = loop.time() + GRACE_SECONDS
        while not running.done() and (role.judges or loop.time() < grace):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running], timeout=LOOK_SECONDS)
        if running.done() and certificate_of(running.exception()) is not None:
            return running.result()
        raise
    finally:
        running.cancel()


def _unchanged(error: SmpcError) -> SmpcError:
    """Return the error as it is: the default where no certificates are stored."""
    return error


def drive(
    role: Participant,
    channels: Mapping[str, Conduit],
    on_step: Callable[[str], None] = lambda _step: None,
    keep: Keep = _unchanged,
    wait: Callable[[int], None] = lambda _rounds: None,
) -> Report:
    """Run a role over open channels to its end, and return its report; on an error tell others, and raise.

    Roles may be driven in turn over the same channels; `Report` counts the bytes of all. A role that may
    convict its partner needs a `keep` that stores the certificate. `wait` waits until any channel has
    something, for the time of so many messages: needed by an aggregator whose parties exchange many first.
    """
    keep_freed_memory()
    began = time.perf_counter()
    steps: dict[str, float] = {}
    effects = role.run()
    answer: Buffer | None = None
    try:
        while True:
            resumed = time.perf_counter() - began
            effect = next(effects) if answer is None else effects.send(answer)
            answer = None
            if role.step not in steps:
                # Not now: the work for its first message is part of the step.
                steps[role.step] = resumed
                on_step(role.step)
            if isinstance(effect, Send):
                channels[effect.to].send(effect.parts)
            else:
                if effect.rounds:
                    wait(effect.rounds)
                answer = _receive(channels[effect.sender], effect)
    except StopIteration as stop:
        evaluated: Evaluated = stop.value
    except SmpcError as error:
        effects.close()
        # First: who is convicted may keep its partner from a farewell, or in one.
        raised = keep(error)
        reported: SmpcError = error
        if isinstance(error, ChannelClosed):
            reported = TimeoutFault({error.peer}, role.step, str(error), code=Code.LOST)
        for message in role.farewell(reported):
            # An error of a farewell does not take the place of its reason.
            with contextlib.suppress(SmpcError):
                channels[message.to].close(message.parts)
        if raised is error:
            raise
        raise raised from error
    steps["done"] = time.perf_counter() - began
    sent = sum(channel.bytes_sent for channel in channels.values())
    received = sum(channel.bytes_received for channel in channels.values())
    return Report(evaluated, steps, sent, received)


def _receive(channel: Conduit, effect: Receive) -> Buffer:
    """Return the message that a role waits for; a TimeoutFault names those too for whom its sender waits."""
    try:
        return channel.receive(effect.limit, effect.ahead)
    except TimeoutFault as error:
        if not effect.awaited or error.step != RECEIVE:
            raise
        who = sorted({effect.sender, *effect.awaited})
        reason = f"nothing came from {effect.sender}, which waits for others; who is silent is not known"
        raise TimeoutFault(who, error.step, reason) from None


def keep_freed_memory() -> None:
    """Make the C library (glibc) keep freed memory in this process, in large pages.

    Fresh pages cost more than the computation in them. glibc keeps freed blocks up to the size of the largest
    ever freed, so the second block is on its heap, where numpy asks for large pages as for every array of
    this size; and there it stays. Elsewhere this does nothing. The blocks are never touched.
    """
    for _ in range(2):
        np.empty(STORED_BYTES, np.uint8)


def create_pairwise_session(
    folder: str | os.PathLike[str],
    parameters: Mapping[str, object],
    *,
    garbler: str = "garbler",
    evaluator: str = "evaluator",
    timeouts: Timeouts | None = None,
) -> Path:
    """Write a session file and the keys of all its members into `folder`; return the session file.

    For trials and tests: all secret keys are on one machine. `parameters` are those of the protocol without
    the names; an aggregator is there if it learns the output.

    Raises:
        ConfigError: a name or parameter is wrong; lists every fault.
        LocalError: a file cannot be written, or no port is free.
    """
    path = Path(folder) / "session.toml"
    try:
        default_key(path, garbler).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"{folder}: cannot make the folder ({error.strerror})") from None
    identities: list[Identity] = []
    entries: list[Member] = []
    names = [garbler, evaluator] + [AGGREGATOR] * (parameters.get("output") == "aggregator")
    for name in names:
        identity = Identity.generate(name)
        address = None if name == evaluator else f"127.0.0.1:{free_port()}"
        identities.append(identity)
        entries.append(identity.entry("aggregator" if name == AGGREGATOR else "party", address))
    table = {**parameters, "garbler": garbler, "evaluator": evaluator}
    write_session(path, PAIRWISE, VERSION, table, entries, timeouts or ON_ONE_MACHINE)
    for identity in identities:
        identity.save(default_key(path, identity.name))
    return path


def _check_roster(session: SessionFile, parameters: PairwiseParameters) -> None:
    """Raise ConfigError unless garbler (with address), evaluator and aggregator are in the roster as due."""
    parties = {member.name for member in session.roster.parties}
    issues = [
        ConfigIssue(
            f"parameters.{role}",
            f"{name!r} is no party of the roster ({', '.join(sorted(parties))})",
            ConfigCheck.UNKNOWN_NAME,
        )
        for role, name in (("garbler", parameters.garbler), ("evaluator", parameters.evaluator))
        if name not in parties
    ]
    if not issues and session.roster.member(parameters.garbler).address is None:
        issues.append(
            ConfigIssue("roster", f"the garbler '{parameters.garbler}' has no address", ConfigCheck.MISSING)
        )
    needed, there = parameters.output == "aggregator", session.roster.aggregator is not None
    if needed != there:
        reason = "is needed for this output" if needed else "is not for this output"
        issues.append(
            ConfigIssue("roster", f"an aggregator {reason} ({parameters.output})", ConfigCheck.MISSING)
        )
    if issues:
        raise ConfigError(issues)
