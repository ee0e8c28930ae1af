"""One side of evaluations that are secure against both, over a socket on loopback: mul32, many times.

    pairs_active_member.py SIDE PORT INSTANCES

Prints how many outputs are wrong, the peak of its memory above what it had before it began, AND gates, the
seconds of the processor and the bytes that it sent.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from queue import Queue

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.active.evaluator import ActiveEvaluatorRole
from smpc_dp.capabilities.pairs.active.garbler import ActiveGarblerRole
from smpc_dp.capabilities.pairs.active.messages import ACTIVE, VERSION
from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.circuits.circuit import pack_bytes, unpack_bytes
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Send
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.identity.keys import Identity
from smpc_dp.wire.signing import Context
from smpc_dp_lab.bench.resident import peak_bytes

NAMES = ("garbler", "evaluator")
ROLES = (ActiveGarblerRole, ActiveEvaluatorRole)
# Messages that wait for a peer who does not read.
WAITING = 6


class Line:
    """A connection with frames; a thread sends, so that no side waits for the other to read."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self.sent = 0
        self._going: Queue[bytes | None] = Queue(WAITING)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while (data := self._going.get()) is not None:
            self._connection.sendall(struct.pack("<I", len(data)) + data)

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        self._going.put(data)

    def receive(self, limit: int) -> bytes:
        (size,) = struct.unpack("<I", self._read(4))
        if size > limit:
            raise ValueError(f"a message of {size} bytes, the limit is {limit}")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._connection.recv(size, socket.MSG_WAITALL)
        if len(data) != size:
            raise EOFError(f"{len(data)} of {size} bytes came")
        return data

    def close(self) -> None:
        self._going.put(None)
        self._thread.join()


def drive(effects: Effects[Evaluated], line: Line) -> Evaluated:
    """Run a role over the connection to its end."""
    effect = next(effects)
    while True:
        answer = b""
        if isinstance(effect, Send):
            line.send(b"".join(effect.parts))
        else:
            answer = line.receive(effect.limit)
        try:
            effect = effects.send(answer)
        except StopIteration as stop:
            evaluated: Evaluated = stop.value
            return evaluated


def octets(values: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :4]


def main(side: int, port: int, instances: int) -> None:
    circuit = find("mul32").build()
    parameters = PairwiseParameters("", *NAMES, instances=instances, mode="unique")
    # Both know both inputs, and can tell what is right.
    drawn = np.random.default_rng(1).integers(0, 1 << 32, (2, instances), dtype=np.uint64)
    line = Line(socket.create_connection(("127.0.0.1", port)))
    mine = Identity.generate(NAMES[side])
    line.send(mine.public_key)
    keys = {NAMES[side]: mine.public_key, NAMES[1 - side]: line.receive(len(mine.public_key))}
    context = Context(ACTIVE, VERSION, bytes(32), 1, NAMES, "", keys)
    inputs = [pack_bytes(octets(drawn[side]), 32)]
    role = ROLES[side](context, mine, ActivePlan(circuit, parameters), inputs, SystemRandomness())
    before, began = peak_bytes(), time.process_time()
    evaluated = drive(role.run(), line)
    line.close()
    spent = time.process_time() - began
    assert evaluated.outputs is not None
    got = unpack_bytes(evaluated.outputs[0], instances)
    wrong = int((got != octets(drawn[0] * drawn[1])).any(axis=1).sum())
    ands = circuit.and_count * instances
    cost = {"more": peak_bytes() - before, "spent": spent, "sent": line.sent}
    sys.stdout.write(json.dumps({"wrong": wrong, "ands": ands, **cost}) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
