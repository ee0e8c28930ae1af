"""`SMPC_DP_KERNELS` keeps kernels from faster instructions, the bytes stay; what cannot be is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smpc_dp import _core

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("portable", "aes-ni", "vaes-256", "vaes-512")
# Garbles, evaluates and transposes, and prints which kernels there are and a digest of all that came out.
SCRIPT = """
import hashlib, json
import numpy as np
from smpc_dp import _core
from smpc_dp.crypto import garble, ot
from smpc_dp.capabilities.pairs.published.library import PUBLISHED

found = hashlib.sha256()
circuit = PUBLISHED["less_u16"].build()
compiled = garble.compile_circuit(
    circuit.op, circuit.a, circuit.b, circuit.out, n_wires=circuit.n_wires, n_inputs=32,
    outputs=np.arange(circuit.n_wires - 1, circuit.n_wires, dtype=np.uint32),
)
bits = np.random.default_rng(1).integers(0, 2, (32, 50), dtype=np.uint8)
for mode in (garble.Mode.UNIQUE, garble.Mode.TILE):
    run = garble.Run(bytes(16), mode, 16, 50)
    garbler, evaluator = garble.Garbler(compiled, run, bytes(32)), garble.Evaluator(compiled, run)
    evaluator.set_input_labels(0, garbler.encode(0, bits))
    tables = garbler.next_tables(compiled.table_bytes(50))
    evaluator.feed(tables)
    found.update(bytes(tables) + evaluator.output_labels().tobytes())
columns = np.random.default_rng(2).integers(0, 256, 2048 * 65, dtype=np.uint8)
rows = np.empty((64 * 128, 16), dtype=np.uint8)
found.update(ot.rows_and_hashes(b"c" * 16, columns, rows, portable=False) + rows.tobytes())
print(json.dumps([_core.garbling_kernels(), found.hexdigest()]))
"""


def limited(name: str | None, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with kernels limited."""
    environment = {key: value for key, value in os.environ.items() if key != "SMPC_DP_KERNELS"}
    if name is not None:
        environment["SMPC_DP_KERNELS"] = name
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def outcome(name: str | None) -> list[Any]:
    done = limited(name, "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    result: list[Any] = json.loads(done.stdout)
    return result


def test_every_limit_gives_the_same_bytes() -> None:
    machine, expected = outcome(None)
    assert machine == list(NAMES[: len(machine)])
    for number, name in enumerate(machine, 1):
        assert outcome(name) == [machine[:number], expected]


@pytest.mark.parametrize("name", ["fast", "", "Portable", "vaes"])
def test_an_unknown_name_is_refused(name: str) -> None:
    done = limited(name, "-c", "import smpc_dp._core")
    assert done.returncode == 1
    reported = f'ImportError: SMPC_DP_KERNELS: "{name}" is none of portable, aes-ni, vaes-256, vaes-512'
    assert done.stderr.splitlines()[-1] == reported


def test_what_the_processor_lacks_is_refused() -> None:
    if "SMPC_DP_KERNELS" in os.environ:
        pytest.skip("kernels are limited")
    machine = _core.garbling_kernels()
    lacking = NAMES[len(machine) :]
    if not lacking:
        pytest.skip(
            "this processor lacks nothing: the unit test in core/src/instructions.rs tells of one that does"
        )
    done = limited(lacking[0], "-c", "import smpc_dp._core")
    reported = f"SMPC_DP_KERNELS: this processor lacks {lacking[0]}, it has {', '.join(machine)}"
    assert done.stderr.splitlines()[-1] == f"ImportError: {reported}"


@pytest.mark.long
@pytest.mark.slow
def test_portable_kernels_produce_the_published_transfers() -> None:
    test = "tests/vectors/test_ot_vectors.py::test_published_vectors_are_what_the_code_produces"
    done = limited("portable", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test)
    assert done.returncode == 0, done.stdout
