"""Peak memory, in fresh processes: one role against recorded messages, or a whole run.

`python -m smpc_dp_lab.bench.memory` reads a request (JSON) and then the recorded messages, and prints the
bytes. A fresh process, because the memory of another role or another measurement would be counted too.
"""

from __future__ import annotations

import json
import struct
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import IO

import msgspec

from smpc_dp.engine.events import Deadline, Event, Message, Start
from smpc_dp.engine.phases.last_results import SentResults
from smpc_dp.engine.run import RunningRole
from smpc_dp.errors import LocalError
from smpc_dp.secagg import states as secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.simulated_run import AGGREGATOR, simulated_run
from smpc_dp.wire.signing import decode_envelope, encode_envelope
from smpc_dp_lab.bench.recording import record, vectors
from smpc_dp_lab.bench.resident import peak_bytes
from smpc_dp_lab.bench.workers import together

_LENGTH = struct.Struct("<I")


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    """A request: `name` is the role to replay, or "" for a whole run."""

    name: str
    parameters: SecAggParameters
    dropouts: int
    seed: int


def replay_peak(name: str, heard: Sequence[Event], parameters: SecAggParameters, seed: int) -> int:
    """Return the most bytes that one role and its current message have allocated at any time.

    Everything allocated through Python and numpy from the machine's making to its result, its vector
    included; the interpreter, the modules and the roster's keys are not. The core allocates a few pages.
    """
    return _measure(_Request(name, parameters, 0, seed), heard)


def whole_run_peak(parameters: SecAggParameters, dropouts: int, seed: int) -> int:
    """Return the peak resident bytes of a process in which all parties and the aggregator run."""
    return _measure(_Request("", parameters, dropouts, seed), ())


def _measure(request: _Request, heard: Sequence[Event]) -> int:
    frames = [msgspec.json.encode(request)]
    frames += [encode_envelope(event.envelope) if isinstance(event, Message) else b"" for event in heard]
    data = b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames)
    [printed] = together("memory", [[]], "measuring memory", inputs=[data])
    peak: int = json.loads(printed)
    return peak


def _frames(stream: IO[bytes]) -> Iterator[bytes]:
    while header := stream.read(_LENGTH.size):
        yield stream.read(_LENGTH.unpack(header)[0])


def _machine(request: _Request) -> RunningRole:
    """Return the run of a party or the aggregator to which recorded messages are fed again."""
    simulated = simulated_run(
        request.parameters.plan.parties, seed_for_simulation=request.seed, remember=False
    )
    signer = simulated.signers[request.name]
    if request.name == AGGREGATOR:
        last = SentResults(simulated.sources[AGGREGATOR])
        return secagg.aggregator(simulated.context, request.parameters, signer, last=last)
    row = vectors(request.parameters, request.seed)[simulated.context.names.index(request.name)]
    ring_vector, _ = request.parameters.encoding.encode(row, party=request.name)
    return secagg.party(
        simulated.context, request.parameters, signer, ring_vector, simulated.sources[request.name]
    )


def _replayed(request: _Request, frames: Iterator[bytes]) -> int:
    machine = _machine(request)
    ring_vector = request.parameters.encoding.ring_length * request.parameters.encoding.dtype().itemsize
    # The vector was there before the count began.
    before = 0 if request.name == AGGREGATOR else ring_vector
    tracemalloc.start()
    machine.handle(Start())
    for frame in frames:
        sender = msgspec.msgpack.decode(frame)[2] if frame else ""
        machine.handle(Message(decode_envelope(frame, sender)) if frame else Deadline())
    if not machine.finished:
        raise LocalError(f"{request.name}: the recorded messages do not bring it to its end")
    return before + tracemalloc.get_traced_memory()[1]


def main() -> None:
    """Measure what standard input describes, and print the peak memory in bytes."""
    frames = _frames(sys.stdin.buffer)
    request = msgspec.json.decode(next(frames), type=_Request)
    if request.name:
        peak = _replayed(request, frames)
    else:
        record(request.parameters, request.dropouts, request.seed)
        peak = peak_bytes()
    print(json.dumps(peak))


if __name__ == "__main__":
    main()
