"""The published circuits: what the files hold, what `check` proves, and what it catches."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.pairs.circuits import aes, sha256
from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.circuits.builder import Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, Op, pack, unpack
from smpc_dp.capabilities.pairs.commands import circuits
from smpc_dp.capabilities.pairs.published.check import check_meaning
from smpc_dp.capabilities.pairs.published.library import PUBLISHED, find
from smpc_dp.capabilities.pairs.published.publish import (
    MANIFEST,
    check_folder,
    check_published,
    export,
    manifest,
)
from smpc_dp.cli import app
from smpc_dp.errors import ConfigError, LocalError, VerificationError

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "circuits"
# AES and SHA-256 are tried on fewer inputs here; `smpc-dp circuits check` tries 100,000.
SAMPLES = 2_000
AND_GATES = {
    "add32": 31,
    "add64": 63,
    "sub64": 63,
    "neg64": 62,
    "abs32": 31,
    "mul32": 993,
    "mul64": 4033,
    "less_u16": 16,
    "less_s16": 16,
    "less_u32": 32,
    "less_s32": 32,
    "less_u64": 64,
    "less_s64": 64,
    "less_u16_than_1000": 12,
    "equal32": 31,
    "equal64": 63,
    "mux64": 64,
    "popcount64": 63,
    "aes128": 6400,
    "sha256": 22573,
    "kendall_tau32": 130,
    "gini16": 31,
    "variance16": 390,
    "collision32": 31,
    "auc32": 64,
    "auc32_private_labels": 67,
    "kendall_tau32_laplace": 253,
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_file_is_right(name: str) -> None:
    finding = check_published(PUBLISHED[name], FOLDER, SAMPLES)
    assert finding.faults == ()
    assert finding.inputs_tried >= SAMPLES


def test_the_folder_holds_exactly_what_is_published() -> None:
    assert check_folder(FOLDER).faults == ()
    assert (FOLDER / MANIFEST).read_bytes() == manifest()


def test_and_gates_are_as_stated() -> None:
    assert {name: entry.build().and_count for name, entry in PUBLISHED.items()} == AND_GATES


def test_the_s_box_inverts_and_maps_as_fips_197_says() -> None:
    builder = Builder()
    builder.output(aes.sbox(builder, builder.input(8)))
    circuit = builder.build()
    assert circuit.and_count == 32
    (rows,) = circuit.evaluate_many([pack(list(range(256)), 8)])
    assert unpack(rows, 256) == [affine(inverse(byte)) for byte in range(256)]


def inverse(byte: int) -> int:
    return next((other for other in range(256) if multiply(byte, other) == 1), 0)


def multiply(a: int, b: int) -> int:
    product = 0
    for bit in range(8):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(14, 7, -1):
        if product >> bit & 1:
            product ^= 0x11B << (bit - 8)
    return product


def affine(byte: int) -> int:
    turned = [(byte << effect | byte >> (8 - effect)) & 0xFF for effect in range(5)]
    return 0x63 ^ turned[0] ^ turned[1] ^ turned[2] ^ turned[3] ^ turned[4]


def test_aes_on_the_example_of_fips_197() -> None:
    key, block = 0x000102030405060708090A0B0C0D0E0F, 0x00112233445566778899AABBCCDDEEFF
    assert find("aes128").build().evaluate([key, block]) == [0x69C4E0D86A7B0430D8CDB78070B4C55A]


def test_the_constants_of_sha_256_are_those_of_fips_180() -> None:
    assert sha256.ROUND_CONSTANTS[:2] == (0x428A2F98, 0x71374491)
    assert sha256.ROUND_CONSTANTS[-1] == 0xC67178F2
    assert sha256.INITIAL_STATE[0] == 0x6A09E667
    assert sha256.INITIAL_STATE[-1] == 0x5BE0CD19


def test_plain_sha_256_agrees_with_hashlib() -> None:
    for inputs, outputs in sha256.known_answers():
        assert sha256.meaning(*inputs) == outputs


def one_gate_changed(circuit: Circuit, gate: int) -> Circuit:
    op = np.array(circuit.op)
    op[gate] = Op.AND if op[gate] == Op.XOR else Op.XOR
    return Circuit(circuit.inputs, circuit.outputs, circuit.n_wires, op, circuit.a, circuit.b, circuit.out)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["equal64", "less_s64", "mux64", "add64", "aes128", "sha256"])
def test_any_changed_gate_is_seen(name: str) -> None:
    entry = PUBLISHED[name]
    circuit = entry.build()
    binary = np.flatnonzero((circuit.op == Op.XOR) | (circuit.op == Op.AND))
    large = len(binary) > 1000
    for gate in binary[:: len(binary) // (8 if large else 30)]:
        with pytest.raises(VerificationError, match=f"^{name}: .* gives "):
            check_meaning(entry, one_gate_changed(circuit, int(gate)), 200 if large else 5_000)


def test_other_widths_are_seen() -> None:
    with pytest.raises(VerificationError, match="not as published"):
        check_meaning(PUBLISHED["add64"], PUBLISHED["add32"].build())


def test_progress_is_told() -> None:
    reported: list[int] = []
    entry = PUBLISHED["less_u16_than_1000"]
    assert check_meaning(entry, entry.build(), 1, reported.append) == 1 << 16
    assert reported == sorted(set(reported))
    assert reported[-1] == 1 << 16


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "circuits"))


def faults(folder: Path, name: str = "add32") -> tuple[str, ...]:
    return check_published(PUBLISHED[name], folder, 100).faults


def test_a_changed_byte_is_found(copy: Path) -> None:
    path = copy / "add32.txt"
    path.write_bytes(path.read_bytes() + b"\n")
    result = faults(copy)
    assert "add32.txt: not byte for byte what the builder makes" in result
    assert any("sha256 is" in fault for fault in result)


def test_a_file_that_computes_something_else_is_found(copy: Path) -> None:
    (copy / "add32.txt").write_bytes(format_bristol(one_gate_changed(PUBLISHED["add32"].build(), 5)))
    assert any(" gives " in fault for fault in faults(copy))


def test_a_file_that_cannot_be_read_is_found_with_its_line(copy: Path) -> None:
    path = copy / "add32.txt"
    path.write_bytes(path.read_bytes().replace(b"AND", b"OR", 1))
    assert any("'OR' is not a gate" in fault for fault in faults(copy))
    path.unlink()
    assert any("No such file" in fault for fault in faults(copy))


@pytest.mark.thin(3)
@pytest.mark.parametrize("key", ["sha256", "digest", "gates", "wires", "and_depth", "inputs"])
def test_a_wrong_manifest_is_found(copy: Path, key: str) -> None:
    value = json.loads((copy / MANIFEST).read_bytes())
    value["circuits"]["add32"][key] = {"AND": 30} if key == "gates" else 7
    (copy / MANIFEST).write_text(json.dumps(value))
    (fault,) = faults(copy)
    assert f"add32: {key} is" in fault
    assert check_folder(copy).faults


def test_strange_entries_and_files_are_found(copy: Path) -> None:
    (copy / "more.txt").write_bytes(b"")
    value = json.loads((copy / MANIFEST).read_bytes())
    value["circuits"]["other"] = value["circuits"].pop("add32")
    (copy / MANIFEST).write_text(json.dumps(value))
    assert check_folder(copy).faults == (
        "more.txt: not a published file",
        f"{MANIFEST}: no such circuit: other",
    )
    assert faults(copy) == (f"{MANIFEST}: no entry add32",)
    (copy / MANIFEST).write_text("{")
    assert any("not JSON" in fault for fault in faults(copy))


def test_an_absent_folder_says_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "not there"
    with pytest.raises(LocalError) as raised:
        check_folder(folder)
    (advice,) = re.findall("`smpc-dp (.*)`", str(raised.value))
    assert CliRunner().invoke(app, shlex.split(advice)).exit_code == 0
    assert check_folder(folder).faults == ()


def test_export_writes_the_published_bytes(tmp_path: Path) -> None:
    small = [entry for name, entry in PUBLISHED.items() if AND_GATES[name] < 100]
    for path in export(small, tmp_path / "new", with_manifest=True):
        assert path.read_bytes() == (FOLDER / path.name).read_bytes()


def test_commands(tmp_path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    listed = run(app, ["circuits", "list", "--json"])
    assert {row["name"]: row["and"] for row in json.loads(listed.stdout)["circuits"]} == AND_GATES
    assert run(app, ["circuits", "export", "mux64", "--out", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "mux64.txt").read_bytes() == (FOLDER / "mux64.txt").read_bytes()
    assert run(app, ["circuits", "export"]).exit_code == 2
    assert run(app, ["circuits", "export", "mux64", "--all"]).exit_code == 2
    unknown = run(app, ["circuits", "export", "mux65"])
    assert isinstance(unknown.exception, ConfigError)
    # All are checked above, each by itself.
    few = {name: entry for name, entry in PUBLISHED.items() if AND_GATES[name] < 1_000}
    monkeypatch.setattr(circuits, "PUBLISHED", few)
    arguments = ["circuits", "check", "--folder", str(copy), "--samples", "10", "--json"]
    right = run(app, arguments)
    assert right.exit_code == 0
    checked = json.loads(right.stdout)
    assert checked["ok"] is True
    assert {*few} <= {check["name"] for check in checked["checks"]}
    (copy / "mux64.txt").unlink()
    wrong = run(app, arguments)
    assert wrong.exit_code == 1
    assert [check["name"] for check in json.loads(wrong.stdout)["checks"] if check["faults"]] == ["mux64"]


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    return names


def test_the_evidence_is_never_imported() -> None:
    assert {path.suffix for path in FOLDER.iterdir()} == {".txt", ".json", ".md"}
    named = re.compile(rb"\b(?:from|import)\s[^#\n]*(?<![.\w])(?:circuits|protocols)\b")
    for path in ROOT.joinpath("smpc_dp").rglob("*.py"):
        if not named.search(path.read_bytes()):
            continue
        assert not {name.split(".")[0] for name in imports(path)} & {"circuits", "protocols"}


def test_circuits_import_downwards_only() -> None:
    for path in ROOT.joinpath("smpc_dp", "capabilities", "pairs", "circuits").rglob("*.py"):
        for name in imports(path):
            if name.startswith("smpc_dp") and not name.startswith("smpc_dp.capabilities.pairs.circuits"):
                assert name.split(".")[1] in {"crypto", "encoding", "errors", "files"}
