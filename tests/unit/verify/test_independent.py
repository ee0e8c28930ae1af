"""The second auditor has nothing of the first, and refuses whatever is no log."""

from __future__ import annotations

import ast
import json
import random
import resource
import sys
from pathlib import Path

import pytest

import smpc_dp_verify.__main__ as command
from smpc_dp.logs.audits.second import MEMORY_MIB
from smpc_dp_verify.__main__ import main
from smpc_dp_verify.encodings import party_set, read_set
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.run import Audit
from smpc_dp_verify.session import has_small_order

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "verify" / "smpc_dp_verify"
HONEST = json.loads((ROOT / "protocols/gopa/vectors/verifiable-run-honest.json").read_text("utf-8"))["log"]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command have the memory of this process and more."""
    monkeypatch.setattr(command, "MEMORY", 1 << 20)


def test_it_has_nothing_of_the_library() -> None:
    imported = set()
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                imported.add(str(node.module).partition(".")[0])
    assert imported - sys.stdlib_module_names == {"Crypto", "cryptography", "msgspec", "smpc_dp_verify"}


def test_the_library_has_nothing_of_it() -> None:
    for file in [*(ROOT / "smpc_dp").rglob("*.py"), *(ROOT / "lab").rglob("*.py")]:
        text = file.read_text("utf-8")
        assert "import smpc_dp_verify" not in text, file
        assert "from smpc_dp_verify" not in text, file


def test_a_flipped_bit_is_refused(stride: int) -> None:
    """Without proofs: the chain, the signatures and the run id cover each bit of each line.

    One bit of each line is tried, or with --all three.
    """
    assert Audit(HONEST, frozenset()).entries == len(HONEST) - 1
    chooser = random.Random(7)
    for index, line in enumerate(HONEST):
        for bit in chooser.sample(range(8 * len(line)), 3 if stride == 1 else 1):
            changed = bytearray(line.encode())
            changed[bit // 8] ^= 1 << bit % 8
            try:
                text = changed.decode()
            except UnicodeDecodeError:
                continue
            with pytest.raises(Refused):
                Audit([*HONEST[:index], text, *HONEST[index + 1 :]], frozenset())


def test_sets_have_one_spelling() -> None:
    for members in ([], [1], [1, 2, 3], [*range(1, 18)], [*range(1, 17)]):
        assert read_set(party_set(members, 17), 17) == members
    for other in ("00dfff80", "0103001100", "01030003", "011200", "00f1", "00dfff40", "02", ""):
        with pytest.raises(Refused):
            read_set(bytes.fromhex(other), 17)


def test_keys_of_small_order_are_refused() -> None:
    """The eight points of small order of Ed25519, as RFC 8032 encodes them, and other encodings of two."""
    y = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc"
    small = ["01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 32, "00" * 31 + "80"]
    small += [y + "05", y + "85"]
    small += [
        ("c7" + "176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03" + last)
        for last in ("7a", "fa")
    ]
    for encoded in (*small, "ee" + "ff" * 30 + "7f", "ed" + "ff" * 30 + "7f"):
        assert has_small_order(bytes.fromhex(encoded)), encoded
    base = "58" + "66" * 31
    assert not has_small_order(bytes.fromhex(base))


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    "text", ["", "{}\n", "[" * 100_000 + "\n", "\ud800\n", '{"format":1}\n', "\x1b[31m\n"]
)
def test_what_is_no_log(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert main([str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["reason"] in ("the format", "the log is cut")


def test_the_command_takes_a_gibibyte_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    path.touch()
    before, limits = resource.getrlimit(resource.RLIMIT_AS), []

    def verify(*_: object) -> None:
        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0] >> 20)
        raise MemoryError

    monkeypatch.setattr(command, "verify", verify)
    assert (command.MEMORY, main([str(path), "--memory", "100000"])) == (MEMORY_MIB, 7)
    monkeypatch.setattr(command, "MEMORY", 200_000)
    assert main([str(path)]) == 7
    assert (limits, resource.getrlimit(resource.RLIMIT_AS)) == ([100_000, 200_000], before)
    assert "more memory is needed than --memory allows" in capsys.readouterr().err


@pytest.mark.parametrize("memory", ["0", "-1", str(1 << 40), "much"])
def test_memory_that_cannot_be_is_refused(memory: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["log", "--memory", memory])
    assert "--memory" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["none", "."])
def test_a_file_that_cannot_be_read_starts_no_process(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(workers: int) -> None:
        pytest.fail(f"{workers} processes")

    monkeypatch.setattr(command, "open_processes", refuse)
    assert main([str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / name}: ")


@pytest.mark.usefixtures("room")
def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path), "--head", "AB"])
    assert caught.value.code == 2
    path = tmp_path / "log"
    path.write_text("".join(f"{line}\n" for line in HONEST[:-1]), "utf-8")
    assert main([str(path)]) == 1
    assert "This log does not hold: no end" in capsys.readouterr().out
