"""Structs are decoded in several threads."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from smpc_dp.decoding import convert, decode_json, decode_msgpack

# On msgspec alone, one of the 100 types crashes the process: the outer type is known before the inner one is.
PROGRAM = """
import sys, threading, msgspec
from smpc_dp.decoding import decode_msgpack
sys.setswitchinterval(1e-6)
for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [(f"field{i}", "int") for i in range(20)])
    outer = msgspec.defstruct(f"Outer{number}", [("one", inner), ("more", list[inner])])
    one = inner(*range(20))
    message = outer(one, [one, one])
    body, gate, decoded = msgspec.msgpack.encode(message), threading.Barrier(8), []

    def work():
        gate.wait()
        decoded.append(decode_msgpack(body, outer))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert decoded == [message] * 8
"""


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    x: int
    y: int


def test_threads_decode_a_type_for_the_first_time_together() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_decoders_are_strict() -> None:
    point = Point(1, 2)
    assert decode_msgpack(msgspec.msgpack.encode(point), Point) == point
    assert decode_json('{"x":1,"y":2}', Point) == point
    assert convert({"x": 1, "y": 2}, Point) == point
    for wrong in ({"x": 1}, {"x": 1, "y": 2, "z": 3}, {"x": 1, "y": "2"}, {"x": 1, "y": 2.0 + 1e-9}):
        with pytest.raises(msgspec.ValidationError):
            decode_msgpack(msgspec.msgpack.encode(wrong), Point)
        with pytest.raises(msgspec.ValidationError):
            decode_json(msgspec.json.encode(wrong), Point)
        with pytest.raises(msgspec.ValidationError):
            convert(wrong, Point)
