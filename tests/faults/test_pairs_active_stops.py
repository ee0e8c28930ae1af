"""Evaluations secure against both sides that stop at each message, or get one of another evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from smpc_dp.capabilities.pairs.active import plan as planning
from smpc_dp.capabilities.pairs.active.messages import COIN, COMMIT, EQUAL, MACS, OUTPUTS, SHARES
from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.active.role import ActiveRole
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Send
from smpc_dp.capabilities.pairs.garbled.messages import CONTROL, HELLO, PIECE_HEADER, START
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.errors import Code, SmpcError, TimeoutFault
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.signing import decode, decode_envelope, encode_envelope
from tests.active_pairs import CONTEXT, HUB, IDENTITIES, NAMES, Pair, expected_of, outputs_of, plan_of
from tests.faults.test_pairs_active import (
    EXPECTED,
    HONEST,
    PLAN,
    SIGNED,
    STEPS,
    THIRD,
    VALUES,
    Recorded,
    check_failed,
    resigned,
    step_of,
)

FIRST = next(number for number, (_, step) in enumerate(STEPS) if not step)
"""The first message after hellos and start."""


THIRD_RUN = Recorded()
assert outputs_of(Pair().evaluate(THIRD, VALUES, THIRD_RUN), THIRD, (HUB,)) == [EXPECTED]
THIRD_STEPS = [(sender, step_of(sender, data)) for sender, data in THIRD_RUN.messages]
# Up to the first share of the output, both sides do as they do without an aggregator.
THIRD_SHARES = next(number for number, (_, step) in enumerate(THIRD_STEPS) if step == SHARES)
THIRD_STOPS = [
    number for number, (sender, _) in enumerate(THIRD_STEPS) if sender == HUB or number >= THIRD_SHARES
]


STOPS = [*((PLAN, number) for number in range(len(STEPS))), *((THIRD, number) for number in THIRD_STOPS)]
# Without hellos and start.
LOSSES = [(plan, number) for plan, number in STOPS if number >= (FIRST if plan is PLAN else THIRD_SHARES)]


def name_of(part: ActivePlan | int) -> str:
    """The name of a case: who learns the output, and the number of the message."""
    return str(part) if isinstance(part, int) else part.parameters.output


def check_erased(pair: Pair, role: Any) -> None:
    """A side that has failed holds no setup, label or mask."""
    assert pair.setups[role.name].ends() is None
    assert pair.setups[role.name].state == (b"", 0, b"", 0, 0, 0)
    held = vars(role)
    assert [part.size for part in (*held["_room"], *held["_hiding"], held["_arrived"])] == [0] * 6


class Held:
    """A role whose generator a test closes, as a driver does after an error of its own."""

    effects: Effects[Evaluated]

    def __init__(self, role: ActiveRole) -> None:
        self.role = role

    def run(self) -> Effects[Evaluated]:
        self.effects = self.role.run()
        return self.effects

    def farewell(self, error: SmpcError) -> list[Send]:
        return self.role.farewell(error)


@pytest.mark.parametrize(("plan", "number"), LOSSES, ids=name_of)
def test_a_connection_lost_at_any_message_ends_the_receiver_with_one_code(
    plan: ActivePlan, number: int
) -> None:
    gone, _ = (STEPS if plan is PLAN else THIRD_STEPS)[number]
    pair, seen = Pair(), Recorded()
    held = {name: Held(role) for name, role in pair.roles(plan, VALUES).items()}
    waiting: list[str] = []

    def tamper(sender: str, to: str, data: bytes) -> list[bytes]:
        at = len(seen.messages)
        passed = seen(sender, to, data)
        if sender != gone or at < number:
            return passed
        waiting.append(to)
        return []

    with pytest.raises(RuntimeError, match="everybody waits"):
        evaluate_in_memory(held, tamper)
    left = held[waiting[0]]
    left.effects.close()
    for message in left.farewell(TimeoutFault({gone}, left.role.step, code=Code.LOST)):
        envelope = decode_envelope(b"".join(message.parts)[1:], left.role.name)
        assert decode(envelope.body, Abort, left.role.name) == Abort(Code.EVALUATION)
    if left.role.name != HUB:
        check_erased(pair, left.role)


class Stopping:
    """Passes on all messages until `by` stops at one: it sends each an abort, and nothing more."""

    def __init__(self, number: int, by: str, roles: Mapping[str, ActiveRole]) -> None:
        self.seen = Recorded()
        self._number, self._by, self._roles = number, by, roles
        self.told: list[str] = []

    def __call__(self, sender: str, to: str, data: bytes) -> list[bytes]:
        at = len(self.seen.messages)
        passed = self.seen(sender, to, data)
        if sender != self._by or at < self._number:
            return passed
        if to in self.told:
            return []
        self.told.append(to)
        run_id = self._roles[sender].run_id or CONTEXT.session_digest
        abort = Abort(Code.FAULT, culprit=to)
        (written,) = CONTEXT.write(IDENTITIES[sender], run_id, ABORT, [to], abort)
        return [bytes([CONTROL]) + encode_envelope(written)]


@pytest.mark.parametrize(("plan", "number"), STOPS, ids=name_of)
def test_who_stops_at_any_message_ends_all_others_with_one_code(plan: ActivePlan, number: int) -> None:
    by, step = (STEPS if plan is PLAN else THIRD_STEPS)[number]
    pair = Pair()
    roles = pair.roles(plan, VALUES)
    stopping = Stopping(number, by, roles)
    ends = evaluate_in_memory(roles, stopping)
    told = stopping.told[0]
    assert isinstance(ends[told], SmpcError)
    for name in {*ends} - {by}:
        end = ends[name]
        if isinstance(end, Evaluated):
            # It had sent and taken everything before.
            assert name != told
            assert end.outputs is None or outputs_of(ends, plan, (name,)) == [EXPECTED]
            continue
        if roles[name].step != HELLO:
            check_failed(end, [Code.EVALUATION])
        if name != HUB:
            check_erased(pair, roles[name])
    assert step in (HELLO, START) or set(stopping.seen.codes) == {Code.EVALUATION}


# Messages of other evaluations.


def check_refused(end: Evaluated | SmpcError, recorded: Recorded, begun: bool) -> None:
    """A side that was sent a wrong message has no output, and after the start the one error."""
    assert isinstance(end, SmpcError)
    if begun:
        check_failed(end, recorded.codes)


def replaying(number: int, old: bytes) -> Recorded:
    return Recorded(lambda _sender, at, data: old if at == number else data)


# With the seeds of HONEST_RUN: only what is bound to the session differs.
OTHER_SESSION = dataclasses.replace(CONTEXT, session_digest=bytes([1]) * 32)
OTHERS = {"pair": (2, CONTEXT), "session": (1, OTHER_SESSION)}
OTHER_RUNS = {(source, plan.parameters.output): Recorded() for source in OTHERS for plan in (PLAN, THIRD)}
for source, (seed, context) in OTHERS.items():
    for plan in (PLAN, THIRD):
        Pair(seed, context).evaluate(plan, VALUES, OTHER_RUNS[source, plan.parameters.output])


@pytest.mark.parametrize(("plan", "number"), STOPS, ids=name_of)
@pytest.mark.parametrize("source", OTHERS)
def test_a_message_of_another_pair_or_session_is_refused(source: str, plan: ActivePlan, number: int) -> None:
    sender, old = OTHER_RUNS[source, plan.parameters.output].messages[number]
    recorded = replaying(number, old)
    receivers: list[str] = []

    def tamper(by: str, to: str, data: bytes) -> list[bytes]:
        receivers.append(to)
        return recorded(by, to, data)

    ends = Pair().evaluate(plan, VALUES, tamper)
    (by, due) = recorded.messages[number]
    assert by == sender
    if due == old:
        # Masked inputs alone: the same masks are drawn for them.
        assert (source, step_of(by, due), outputs_of(ends, plan)[0]) == ("session", "", EXPECTED)
        return
    check_refused(ends[receivers[number]], recorded, number >= (FIRST if plan is PLAN else THIRD_SHARES))


def evaluate_twice() -> tuple[Pair, Recorded]:
    """A pair after two evaluations, and the messages of the second, which has no setup any more."""
    pair, seen = Pair(), Recorded()
    pair.evaluate(PLAN, VALUES)
    assert outputs_of(pair.evaluate(PLAN, VALUES, seen), PLAN) == [EXPECTED] * 2
    return pair, seen


LATER_STEPS = evaluate_twice()[1].steps()


@pytest.mark.parametrize("number", range(len(LATER_STEPS)))
def test_a_message_of_an_earlier_evaluation_of_the_pair_is_refused(number: int) -> None:
    pair, seen = evaluate_twice()
    sender, old = seen.messages[number]
    recorded = replaying(number, old)
    ends = pair.evaluate(PLAN, VALUES, recorded)
    check_refused(ends[HONEST[sender]], recorded, number >= FIRST)
    assert pair.setups[HONEST[sender]].ends() is None


@pytest.mark.parametrize("number", [number for number, step in enumerate(LATER_STEPS) if step in SIGNED])
def test_the_content_of_an_earlier_message_is_refused_when_it_is_signed_anew(number: int) -> None:
    pair, seen = evaluate_twice()
    sender, old = seen.messages[number]
    step = step_of(sender, old)
    former = decode(decode_envelope(old[1:], sender).body, SIGNED[step], sender)

    def renew(body: Any) -> Any:
        # The hash of all pieces is a check of its own.
        return msgspec.structs.replace(former, transcript=body.transcript) if step == MACS else former

    recorded = Recorded(lambda by, at, data: resigned(by, data, renew) if at == number else data)
    ends = pair.evaluate(PLAN, VALUES, recorded)
    check_refused(ends[HONEST[sender]], recorded, True)


@pytest.fixture(scope="module")
def blocks() -> Iterator[tuple[ActivePlan, list[list[int]], list[tuple[str, bytes]]]]:
    """A plan of three blocks, its inputs, and all messages of an evaluation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "GROUP", 40)
        plan, values, seen = plan_of(PLAN.circuit, 5), [[3, 9, 4, 5, 5], [4, 9, 3, 7, 2]], Recorded()
        assert [block.count for block in plan.blocks()] == [2, 2, 1]
        assert outputs_of(Pair().evaluate(plan, values, seen), plan)[0] == expected_of(plan.circuit, values)
        yield plan, values, seen.messages


@pytest.mark.parametrize("sender", NAMES)
@pytest.mark.parametrize("step", ["", COMMIT, EQUAL, COIN, MACS, OUTPUTS])
def test_a_message_of_an_earlier_block_is_refused(
    blocks: tuple[ActivePlan, list[list[int]], list[tuple[str, bytes]]], sender: str, step: str
) -> None:
    # A piece has the header that is due, and the content of the last earlier one of its length.
    plan, values, messages = blocks
    tried = 0
    for number, (by, data) in enumerate(messages):
        earlier = [
            one
            for at, one in messages[FIRST:number]
            if (at, step_of(at, one)) == (by, step) and (step or len(one) == len(data))
        ]
        if (by, step_of(by, data)) != (sender, step) or not earlier or number < FIRST:
            continue
        head = 0 if step else PIECE_HEADER.size
        recorded = replaying(number, data[:head] + earlier[-1][head:])
        ends = Pair().evaluate(plan, values, recorded)
        check_refused(ends[HONEST[sender]], recorded, True)
        tried += 1
    assert tried or (sender, step) == ("bob", MACS)
