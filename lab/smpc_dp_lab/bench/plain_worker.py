"""One member of a plain average over TCP, with numpy and sockets alone: `python -m ... ROLE ARGUMENTS`.

Nothing is encrypted, signed or masked: clients send their float32 values as they are, and the server sends
all of them the average. ROLE is:

- `server DESCRIPTOR PARTIES LENGTH`: accepts at a listening socket, adds up in float64;
- `client PORT INDEX LENGTH`: averages its model, once all clients are connected.

Members print their measurements as JSON, with the names that `session_worker` has.
"""

from __future__ import annotations

import json
import socket
import sys
import time

import numpy as np
from numpy.typing import NDArray

from smpc_dp_lab.bench.resident import usage

# The server says that all are connected.
READY = b"r"
SECONDS = 900.0


def serve(descriptor: int, parties: int, length: int) -> dict[str, object]:
    """Add up the vectors of all clients, one after another; send the average; return measurements."""
    starting = time.process_time()
    listener = socket.socket(fileno=descriptor)
    listener.settimeout(SECONDS)
    clients = [listener.accept()[0] for _ in range(parties)]
    for client in clients:
        client.settimeout(SECONDS)
        client.sendall(READY)
    total, received = np.zeros(length), np.empty(length, np.float32)
    for client in clients:
        receive(client, received)
        total += received
    total /= parties
    average = total.astype(np.float32)
    for client in clients:
        client.sendall(average.data.cast("B"))
    measured = usage()
    return {**measured, "busy": measured["cpu"] - starting}


def take_part(port: int, index: int, length: int) -> dict[str, object]:
    """Send a model, drawn by its number, and receive the average; return measurements."""
    before = time.process_time()
    model = np.random.default_rng(index).uniform(-1, 1, length).astype(np.float32)
    drawing = time.process_time() - before
    with socket.create_connection(("127.0.0.1", port), SECONDS) as server:
        receive(server, np.empty(len(READY), np.uint8))
        begun, starting = time.monotonic(), time.process_time()
        server.sendall(model.data.cast("B"))
        average = np.empty(length, np.float32)
        receive(server, average)
        ended = time.monotonic()
    measured = usage()
    return {
        **measured,
        "cpu": measured["cpu"] - drawing,
        "busy": measured["cpu"] - starting,
        "begun": begun,
        "ended": ended,
        "mean": float(np.mean(average, dtype=np.float64)),
    }


def receive(source: socket.socket, array: NDArray[np.float32] | NDArray[np.uint8]) -> None:
    """Fill an array with bytes from a socket; raise EOFError if the connection ends first."""
    view = array.data.cast("B")
    while view:
        count = source.recv_into(view)
        if not count:
            raise EOFError("the connection ended before the array was complete")
        view = view[count:]


def main(role: str, *numbers: str) -> dict[str, object]:
    """Act as server, or as one client, of a plain average over sockets; return measurements."""
    values = [int(number) for number in numbers]
    return serve(*values) if role == "server" else take_part(*values)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
