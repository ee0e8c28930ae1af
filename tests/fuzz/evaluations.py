"""Decoders within an evaluation that is secure against both sides: a message of a published run is replaced.

Whatever comes in its place, the role that takes it ends with the one error, or with the right output.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from smpc_dp.capabilities.pairs.active import messages as a
from smpc_dp.capabilities.pairs.circuits.circuit import unpack
from smpc_dp.capabilities.pairs.garbled.messages import BULK
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.errors import Code, SmpcError, VerificationError
from smpc_dp_lab.vectors import active_negative, active_runs
from smpc_dp_lab.vectors.pairwise_fault import replay
from smpc_dp_lab.vectors.pairwise_runs import AGGREGATOR, EVALUATOR, GARBLER, described, find, new_run
from tests.fuzz.target import Decoder, Target

PUBLISHED = Path(__file__).parents[2] / "protocols" / "active" / "vectors"
# A whole role is run for each input: `make test` leaves them out.
COST = 4000
# By target the run, sender and receiver, and the number of the piece or the step of the message.
_MESSAGES: dict[str, tuple[str, str, str, int | str]] = {
    "trees": ("both", GARBLER, EVALUATOR, active_negative.TREES),
    "response": ("both", EVALUATOR, GARBLER, active_negative.RESPONSE),
    "u": ("both", GARBLER, EVALUATOR, active_negative.U),
    "d": ("both", EVALUATOR, GARBLER, active_negative.D),
    "differences": ("both", GARBLER, EVALUATOR, active_negative.DIFFERENCE_BITS),
    "openings": ("both", EVALUATOR, GARBLER, active_negative.OPENING_BITS),
    "inputs": ("both", GARBLER, EVALUATOR, active_negative.INPUTS),
    "tables": ("both", GARBLER, EVALUATOR, active_negative.TABLES),
    "masked": ("both", EVALUATOR, GARBLER, active_negative.MASKED_VALUES),
    "macs": ("both", GARBLER, EVALUATOR, a.MACS),
    "outputs": ("both", EVALUATOR, GARBLER, a.OUTPUTS),
    "shares": ("aggregator", EVALUATOR, AGGREGATOR, a.SHARES),
    "chi": ("aggregator", AGGREGATOR, GARBLER, a.CHI),
    "opening": ("aggregator", GARBLER, EVALUATOR, a.OPENING),
    "opened": ("aggregator", GARBLER, AGGREGATOR, a.OPENED),
}


@functools.cache
def _published(base: str) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads((PUBLISHED / f"run-{base}.json").read_bytes())
    return vector


def _messages(base: str, sender: str, receiver: str) -> list[bytes]:
    return [
        bytes.fromhex(message["bytes"])
        for message in _published(base)["messages"]
        if (message["sender"], message["receiver"]) == (sender, receiver)
    ]


def _place(base: str, sender: str, receiver: str, which: int | str) -> int:
    """Return the number of a piece or a step among the messages from a sender to a receiver."""
    messages = _messages(base, sender, receiver)
    if isinstance(which, int):
        return [number for number, data in enumerate(messages) if data[0] == BULK][which]
    return [described(sender, data) for data in messages].index(which)


def _decoder(base: str, sender: str, receiver: str, which: int | str) -> Decoder:
    def decode(content: bytes) -> None:
        members = _published(base)["result"]
        sent = {name: _messages(base, name, receiver) for name in members if name != receiver}
        sent[sender][_place(base, sender, receiver, which)] = content
        done = replay(new_run(find(base, active_runs.SCENARIOS)).roles[receiver], sent)
        if isinstance(done.end, SmpcError):
            assert isinstance(done.end, VerificationError)
            assert done.end.code == Code.EVALUATION
            raise done.end
        assert isinstance(done.end, Evaluated)
        count = _published(base)["session"]["instances"]
        outputs = done.end.outputs
        learned = None if outputs is None else [unpack(rows, count) for rows in outputs]
        assert learned == members[receiver]

    return decode


def targets() -> list[Target]:
    """Return the targets of this file."""

    def seeds(base: str, sender: str, receiver: str, which: int | str) -> tuple[bytes, ...]:
        return (_messages(base, sender, receiver)[_place(base, sender, receiver, which)],)

    return [
        Target(f"active.evaluation.{name}", _decoder(*place), functools.partial(seeds, *place), cost=COST)
        for name, place in _MESSAGES.items()
    ]
