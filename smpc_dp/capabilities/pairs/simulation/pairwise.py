"""A two-party evaluation in one process: the same roles, without sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from smpc_dp.capabilities.pairs.garbled.effects import Effects, Receive, Send
from smpc_dp.capabilities.pairs.garbled.evaluation import (
    AnyCircuit,
    Evaluation,
    Input,
    Operation,
    count_instances,
    resolve,
)
from smpc_dp.capabilities.pairs.garbled.params import Mode, Output, Security
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.roles import party_role
from smpc_dp.errors import Check, ConfigCheck, ConfigError, PeerFault, SmpcError
from smpc_dp.session.memory.randomness import randomness_of
from smpc_dp.session.memory.simulated_run import draw_signers, public_keys
from smpc_dp.wire.signing import Context

GARBLER, EVALUATOR = "garbler", "evaluator"
# (sender, receiver, message) -> what arrives instead, in order.
Tamper = Callable[[str, str, bytes], list[bytes]]


class Role(Protocol):
    """Interface of a participant that a simulation runs step by step."""

    def run(self) -> Effects[Evaluated]:
        """Run all steps of the role; each wait is an effect that the caller fulfils."""

    def farewell(self, error: SmpcError) -> list[Send]:
        """Return the messages that tell the others that `error` has ended the run."""


class _Actor:
    """State of one role in a simulated evaluation: its generator, and the message that it awaits."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.effects: Effects[Evaluated] = role.run()
        self.waits: Receive | None = None
        self.answer: bytes | None = None
        self.end: Evaluated | SmpcError | None = None

    def step(self) -> Sequence[Send]:
        """Run the role until it next sends or waits, passing it an awaited message; return what it sends."""
        try:
            if self.waits is not None and self.answer is not None:
                _check_size(self.waits, self.answer)
            effect = next(self.effects) if self.answer is None else self.effects.send(self.answer)
        except StopIteration as stop:
            self.end = stop.value
            return ()
        except SmpcError as error:
            self.effects.close()
            self.end = error
            return self.role.farewell(error)
        self.answer = None
        self.waits = effect if isinstance(effect, Receive) else None
        return (effect,) if isinstance(effect, Send) else ()


def _check_size(expected: Receive, data: bytes) -> None:
    """Raise PeerFault for a message that is longer than the receiver's limit."""
    if len(data) > expected.limit:
        raise PeerFault(
            expected.sender,
            f"announced a message of {len(data)} bytes, the limit is {expected.limit}",
            Check.TOO_LONG,
        )


def evaluate_in_memory(
    roles: Mapping[str, Role], tamper: Tamper | None = None
) -> dict[str, Evaluated | SmpcError]:
    """Run the roles of one evaluation against each other in memory; return each one's result or error.

    `tamper` sees every message and returns what arrives in its place. Raises RuntimeError when all remaining
    roles wait for one another.
    """
    actors = {name: _Actor(role) for name, role in roles.items()}
    queues: dict[tuple[str, str], deque[bytes]] = {}

    def deliver(name: str, message: Send) -> None:
        """Put a message, possibly tampered with, into its receiver's queue."""
        data = b"".join(message.parts)
        arriving = [data] if tamper is None else tamper(name, message.to, data)
        queues.setdefault((name, message.to), deque()).extend(arriving)

    while waiting := [name for name, actor in actors.items() if actor.end is None]:
        moved = False
        for name in waiting:
            actor = actors[name]
            while actor.end is None:
                if actor.waits is not None:
                    inbox = queues.get((actor.waits.sender, name))
                    if not inbox:
                        break
                    actor.answer = inbox.popleft()
                moved = True
                for message in actor.step():
                    deliver(name, message)
        if not moved:
            raise RuntimeError(f"everybody waits: {', '.join(waiting)}")
    return {name: actor.end for name, actor in actors.items() if actor.end is not None}


def evaluate(
    circuit: AnyCircuit,
    inputs: Sequence[Input],
    *,
    evaluator_inputs: Sequence[int] | None = None,
    output: Output = "both",
    mode: Mode | None = None,
    covert: int | None = None,
    security: Security | None = None,
    seed_for_simulation: int | None = None,
) -> Evaluation:
    """Simulate both parties' evaluation of a circuit in this process; return the result.

    Args:
        circuit, output, mode, covert, security, evaluator_inputs: as in `Session.evaluate`.
        inputs: for each input value of the circuit, the garbler's and the evaluator's, an unsigned integer or
            a batch of them.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.

    Raises:
        ConfigError: an argument is wrong. LocalError: the file of a circuit cannot be read.
    """
    built = resolve(circuit)
    count, batch = count_instances(inputs, None)
    if len(inputs) != len(built.inputs):
        reason = f"{len(inputs)} values, the circuit takes {len(built.inputs)}"
        raise ConfigError.at("inputs", reason, ConfigCheck.SHAPE)
    theirs = frozenset(range(1, len(built.inputs)) if evaluator_inputs is None else evaluator_inputs)

    def make(name: str) -> Operation:
        return Operation.make(
            built,
            [values for index, values in enumerate(inputs) if (index in theirs) == (name == EVALUATOR)],
            garbler=GARBLER,
            evaluator=EVALUATOR,
            own=name,
            output=output,
            mode=mode,
            covert=covert,
            security=security,
            evaluator_inputs=evaluator_inputs,
            instances=count if batch else None,
        )

    operations = {name: make(name) for name in (GARBLER, EVALUATOR)}
    sources = {name: randomness_of(seed_for_simulation, name) for name in operations}
    signers = draw_signers(sources)
    session, keys = sources[GARBLER].bytes(32), public_keys(signers)
    protocol = operations[GARBLER].plan.protocol
    context = Context(*protocol, session, 1, (GARBLER, EVALUATOR), "", keys)
    roles: dict[str, Participant] = {
        name: party_role(context, signers[name], operation.plan, operation.rows, sources[name])
        for name, operation in operations.items()
    }
    evaluated: dict[str, Evaluated] = {}
    for name, end in evaluate_in_memory(roles).items():
        if isinstance(end, SmpcError):
            raise end
        evaluated[name] = end
    learner = EVALUATOR if output == EVALUATOR else GARBLER
    return operations[learner].answer(evaluated[learner], context.session_digest)
