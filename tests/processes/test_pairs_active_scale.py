"""Ten million AND gates with security against both sides, between two processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

MEMBER = Path(__file__).with_name("pairs_active_member.py")
MIB = 1 << 20


def relay(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes until the end."""
    while data := source.recv(1 << 20):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


@pytest.mark.long
def test_ten_million_gates_take_no_more_memory_than_blocks() -> None:
    """Triples, tables and masks of all are 5 GB; a side's inputs and outputs 120 kB."""
    instances = 10_070
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sides = [
            subprocess.Popen(
                [sys.executable, MEMBER, str(side), str(port), str(instances)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for side in (0, 1)
        ]
        one, other = (server.accept()[0] for _ in sides)
        both = [threading.Thread(target=relay, args=ends) for ends in ((one, other), (other, one))]
        for thread in both:
            thread.start()
        try:
            ends = [json.loads(process.communicate(timeout=590)[0]) for process in sides]
        finally:
            for process in sides:
                process.kill()
                process.wait()
            for thread in both:
                thread.join()
            one.close()
            other.close()
    for end in ends:
        sys.stdout.write(f"{end}\n")
        assert end["wrong"] == 0
        assert end["ands"] > 9_999_000
        assert end["more"] < 192 * MIB
