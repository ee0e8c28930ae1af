"""Wrong inputs: one line that says what and where, exit code 1 or 2, and nothing sent."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.console.output import check_can_write
from smpc_dp.errors import LocalError
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.command import smpc_dp

PARTIES = ("alice", "bob", "carol", "dave")
REAL: dict[str, object] = {"length": 2, "lower": -1.0, "upper": 1.0, "precision": 1e-3}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session whose aggregator is this test: a socket that must never be connected to."""
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=Timeouts(connect=60.0, step=20.0))
    (tmp_path / "inputs").mkdir()
    for name in PARTIES:
        (tmp_path / "inputs" / f"{name}.json").write_text("[0.5, -0.5]")
    return path


def port_of(session: Path) -> int:
    result = re.search(r'address = "127\.0\.0\.1:(\d+)"', session.read_text())
    assert result is not None
    return int(result[1])


def refused(session: Path, *arguments: str, code: int = 1) -> list[str]:
    """Run a command; check that it fails in plain lines without a connection; return the lines."""
    with socket.create_server(("127.0.0.1", port_of(session))) as aggregator:
        # What was sent is here when the command has ended.
        aggregator.settimeout(0.01)
        done = smpc_dp(*arguments)
        with pytest.raises(TimeoutError):
            aggregator.accept()
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert lines
    assert all(line.startswith("smpc-dp: ") for line in lines), done.stderr
    return lines


INPUTS: dict[str, tuple[str, str]] = {
    "nan": ("[0.1, NaN]", "alice: vector[1] must be finite"),
    "infinity": ("[Infinity, 0]", "alice: vector[0] must be finite"),
    "above": ("[0.1, 1.001]", "alice: vector[1] is outside [-1.0, 1.0]"),
    "below": ("[-1.5, -2]", "alice: vector[0] is outside [-1.0, 1.0] (2 values are)"),
    "short": ("[0.1]", "vector: alice: shape must be (2,), is (1,)"),
    "empty": ("[]", "vector: alice: shape must be (2,), is (0,)"),
    "nested": ("[[0.1, 0.2]]", "alice.json: [0] is not a number, but a list"),
    "words": ('["a", "b"]', "alice.json: [0] is not a number, but a string"),
    "booleans": ("[true, false]", "alice.json: [0] is not a number, but true or false"),
    "not json": ("0.1 0.2", "alice.json:1: not JSON (Extra data)"),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("fault", INPUTS)
@pytest.mark.parametrize("command", ["party", "run"])
def test_a_bad_vector_is_refused(session: Path, fault: str, command: str) -> None:
    content, message = INPUTS[fault]
    (session.parent / "inputs" / "alice.json").write_text(content)
    arguments = ["party", str(session), "--as", "alice"] if command == "party" else ["run", str(session)]
    (line,) = refused(session, *arguments)
    # Nothing after it: the value is not told.
    assert line.endswith(message)


def test_a_wrong_dtype_is_refused(session: Path) -> None:
    (session.parent / "inputs" / "alice.json").unlink()
    np.save(session.parent / "inputs" / "alice.npy", np.array([1j, 2j]))
    (line,) = refused(session, "party", str(session), "--as", "alice")
    assert "alice.npy: must hold numbers, has dtype complex128" in line


def test_a_pickle_is_refused(session: Path) -> None:
    (session.parent / "inputs" / "alice.json").unlink()
    np.save(session.parent / "inputs" / "alice.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    (line,) = refused(session, "party", str(session), "--as", "alice")
    assert "alice.npy: not an input vector" in line


def edit(before: str, after: str) -> Callable[[Path], None]:
    def act(session: Path) -> None:
        text = session.read_text()
        assert before in text
        session.write_text(text.replace(before, after, 1))

    return act


def repeat_member(key: str) -> Callable[[Path], None]:
    """Give bob alice's name or public key."""

    def act(session: Path) -> None:
        text = session.read_text()
        values = re.findall(rf'^{key} = "(.*)"$', text, re.MULTILINE)
        session.write_text(text.replace(f'{key} = "{values[2]}"', f'{key} = "{values[1]}"'))

    return act


def drop_members(session: Path) -> None:
    blocks = session.read_text().split("[[roster]]")
    session.write_text("[[roster]]".join(blocks[:4]))


FILES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "unknown protocol": (edit('"secagg"', '"secsum"'), ["protocol: 'secsum' is unknown"]),
    "unknown version": (edit("version = 3", "version = 7"), ["version: 7 is unknown"]),
    "unknown parameter": (edit("length = 2", "length = 2\nlenght = 3"), ["parameters.lenght: unknown"]),
    "several at once": (
        edit("upper = 1.0", 'upper = -2.0\nsecurity = 7\nkind = "complex"'),
        ["parameters.kind", "parameters.security"],
    ),
    "duplicate name": (repeat_member("name"), ["name"]),
    "duplicate key": (repeat_member("public_key"), ["public_key"]),
    "fewer parties than the plan needs": (drop_members, ["roster: "]),
    "syntax": (edit("length = 2", "length = = 2"), ["session.toml:5"]),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_bad_session_file_is_refused(session: Path, fault: str) -> None:
    change, messages = FILES[fault]
    port_line = session.read_text()
    original = session.parent / "original.toml"
    original.write_text(port_line)
    change(session)
    with socket.create_server(("127.0.0.1", port_of(original))) as aggregator:
        # What was sent is here when the command has ended.
        aggregator.settimeout(0.01)
        done = smpc_dp("run", str(session))
        with pytest.raises(TimeoutError):
            aggregator.accept()
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for message in messages:
        assert message in done.stderr, done.stderr


def test_a_missing_key_file(session: Path) -> None:
    (session.parent / "keys" / "alice.key").unlink()
    (line,) = refused(session, "party", str(session), "--as", "alice")
    assert "alice.key: cannot read the identity (No such file or directory)" in line


def test_a_key_file_that_others_can_read(session: Path) -> None:
    path = session.parent / "keys" / "alice.key"
    os.chmod(path, 0o640)
    (line,) = refused(session, "party", str(session), "--as", "alice")
    assert "alice.key: mode 0640" in line


def test_the_key_of_another(session: Path) -> None:
    keys = session.parent / "keys"
    (line,) = refused(session, "party", str(session), "--as", "alice", "--key", str(keys / "bob.key"))
    assert "bob.key: the identity of 'bob', not of 'alice'" in line


def test_a_name_that_is_not_in_the_roster(session: Path) -> None:
    (line,) = refused(session, "party", str(session), "--as", "mallory")
    assert "'mallory' is not in the roster" in line


def test_a_missing_input(session: Path) -> None:
    (session.parent / "inputs" / "alice.json").unlink()
    (line,) = refused(session, "run", str(session))
    assert "no input file of 'alice'" in line


def test_weights_where_there_are_none(session: Path) -> None:
    (line,) = refused(session, "party", str(session), "--as", "alice", "--weight", "3")
    assert "this session has no weights" in line


def test_wrong_usage_is_exit_code_2(session: Path) -> None:
    done = smpc_dp("party", str(session))
    assert done.returncode == 2
    assert done.stderr == "smpc-dp: Missing option '--as' (try 'smpc-dp party --help')\n"


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("aggregator", ["--input", "x.npy"]),
        ("aggregator", ["--weight", "3"]),
        ("aggregator", ["--clip"]),
        ("aggregator", ["--operation", "sum"]),
        ("aggregator", ["--number", "2"]),
        ("alice", ["--listen", "127.0.0.1:9"]),
        ("alice", ["--requests", "1"]),
    ],
)
def test_an_option_of_the_other_role_is_wrong_usage(session: Path, name: str, option: list[str]) -> None:
    (line,) = refused(session, "party", str(session), "--as", name, *option, code=2)
    assert f"{option[0]} is for {'parties' if name == 'aggregator' else 'the aggregator'}" in line


@pytest.mark.parametrize(
    ("out", "why"),
    [("none/r.json", "there is no folder "), ("alice.key/r.json", "is no folder"), ("", "is a folder")],
)
def test_a_result_that_cannot_be_written_is_refused_before(session: Path, out: str, why: str) -> None:
    (session.parent / "alice.key").touch()
    for name in ("alice", "aggregator"):
        path = session.parent / out
        (line,) = refused(session, "party", str(session), "--as", name, "--out", str(path))
        assert f"{path}: cannot write the result (" in line
        assert why in line


def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(LocalError, match="no right to write"):
        check_can_write(tmp_path / "r.json")


def test_weights_of_a_session_without_any(session: Path) -> None:
    weights = session.parent / "weights.json"
    weights.write_text(json.dumps(dict.fromkeys(PARTIES, 1)))
    (line,) = refused(session, "run", str(session), "--weights", str(weights))
    assert line == "smpc-dp: --weights: this session has no weights: its max_weight is 0"


def test_a_bound_that_is_no_float_is_refused(session: Path) -> None:
    text = session.read_text()
    huge = session.parent / "huge.toml"
    huge.write_text(text.replace("upper = 1.0", "upper = 1" + "0" * 400))
    (line,) = refused(session, "run", str(huge))
    expected = "must be a number or an integer or an array, below 2^1023"
    assert line == f"smpc-dp: parameters.upper: {expected}, is an integer of 1329 bits"


@pytest.mark.long
def test_clipping_only_when_asked_for_and_counted(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=Timeouts(connect=60.0, step=20.0))
    (tmp_path / "inputs").mkdir()
    for name in PARTIES:
        (tmp_path / "inputs" / f"{name}.json").write_text(json.dumps([3.0, 0.5]))
    done = smpc_dp("run", str(path), "--clip", "--json")
    result = json.loads(done.stdout)
    assert result["value"] == [1.0, 0.5]
    assert result["clipped"] == 1
