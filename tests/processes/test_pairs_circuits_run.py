"""`smpc-dp circuits run` with real processes over mutual TLS."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
from pathlib import Path

import pytest

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.published.library import find
from tests.command import smpc_dp

# FIPS 197, appendix C.1.
KEY, PLAINTEXT = "000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff"
CIPHERTEXT = "69c4e0d86a7b0430d8cdb78070b4c55a"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return smpc_dp("circuits", "run", *arguments)


def test_a_file_is_evaluated_and_each_output_printed_in_hex(tmp_path: Path) -> None:
    path = tmp_path / "add.txt"
    path.write_bytes(format_bristol(find("add64").build()))
    x, y = secrets.randbits(64), secrets.randbits(64)
    done = run(str(path), "--inputs", f"0X{x:X}, 0x{y:x}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{(x + y) % 2**64:016x}\n"


@pytest.mark.long
@pytest.mark.parametrize("output", ["both", "garbler", "aggregator"])
def test_aes_of_the_standard(output: str) -> None:
    done = run("aes128", "--inputs", f"{KEY},{PLAINTEXT}", "--output", output, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outputs"] == [CIPHERTEXT]
    learned = {name for name, member in result["members"].items() if member["outputs"] is not None}
    assert learned == {"both": {"garbler", "evaluator"}}.get(output, {output})
    assert len({member["transcript"] for member in result["members"].values()}) == 1
    assert result["members"]["garbler"]["bytes_sent"] > 32 * 6400


@pytest.mark.long
def test_the_evaluator_may_hold_any_of_the_inputs() -> None:
    block = b"abc" + b"\x80" + bytes(52) + (24).to_bytes(8, "big")
    state = "6a09e667bb67ae853c6ef372a54ff53a510e527f9b05688c1f83d9ab5be0cd19"
    done = run("sha256", "--inputs", f"{block.hex()},{state}", "--evaluator-inputs", "0", "--mode", "unique")
    assert done.stdout == hashlib.sha256(b"abc").hexdigest() + "\n"


@pytest.mark.parametrize(
    ("arguments", "claimed"),
    [
        (("add64", "--inputs", ""), "0 values, the circuit has 2 inputs"),
        (("add64", "--inputs", "1,"), "--inputs[1]: not a number in hex\n"),
        (("add64", "--inputs", "1,-2"), "--inputs[1]: not a number in hex\n"),
        (("add64", "--inputs", "1,2", "--evaluator-inputs", "x"), "--evaluator-inputs: 'x'"),
        ((str(Path(__file__).parent), "--inputs", "1"), "Is a directory"),
        ((__file__, "--inputs", "1"), f"{__file__}:1: "),
        (("add64", "--inputs", "1"), "1 values, the circuit has 2 inputs"),
        (("add64", "--inputs", "1,2x"), "--inputs[1]: not a number in hex\n"),
        (("add64", "--inputs", f"1,{1 << 64:x}"), "--inputs[1]: 65 bits, more than 64"),
        (("add64", "--inputs", "1,2", "--evaluator-inputs", "2"), "--evaluator-inputs: '2'"),
        (
            ("add64", "--inputs", "1,2", "--evaluator-inputs", "0,0"),
            "--evaluator-inputs: '0,0' names a place",
        ),
        (("no-such-file", "--inputs", "1"), "'no-such-file' is neither a file nor a published circuit"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], claimed: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("smpc-dp: ")
    assert done.stderr.count("\n") == 1
    assert claimed in done.stderr


@pytest.mark.parametrize(
    "arguments", [("add64",), ("add64", "--inputs", "1,2", "--output", "nobody"), ("--inputs", "1,2")]
)
def test_wrong_usage_is_one_line_too(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_circuit_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cyclic.txt"
    path.write_text("2 4\n2 1 1\n1 1\n\n2 1 0 3 2 AND\n2 1 0 2 3 AND\n")
    done = run(str(path), "--inputs", "1,1")
    assert done.returncode == 1
    assert f"{path}:5" in done.stderr
