"""Files from outside are read up to a bound, and what is longer is refused in one line that names it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.pairs.commands import plan_pairwise
from smpc_dp.capabilities.pairs.published import publish
from smpc_dp.capabilities.pairs.published.library import PUBLISHED
from smpc_dp.cli import app
from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.files import lock_folder, read_bounded
from smpc_dp.privacy.gopa import graphs
from smpc_dp.session import inputs, session_file
from smpc_dp_lab import vectors

MOST = 1000


def test_up_to_the_bound_and_not_beyond(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * MOST)
    assert read_bounded(file, "it", MOST) == b"x" * MOST
    with pytest.raises(LocalError, match=rf"file: cannot read it \(longer than {MOST - 1} bytes\)"):
        read_bounded(file, "it", MOST - 1)
    with pytest.raises(LocalError, match=r"none: cannot read it \(No such file"):
        read_bounded(tmp_path / "none", "it", MOST)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_device_without_an_end_is_left() -> None:
    with pytest.raises(LocalError, match=f"/dev/zero: .*longer than {MOST} bytes"):
        read_bounded("/dev/zero", "it", MOST)


def model(path: Path) -> None:
    arguments = ["plan", "pairwise", "--parties", "10", "--epsilon", "1", "--model", str(path)]
    raised = CliRunner().invoke(app, arguments).exception
    assert raised is not None
    raise raised


READERS: dict[str, tuple[Any, str, str, Callable[[Path], object]]] = {
    "graph": (graphs, "MAX_FILE_BYTES", "edges", lambda path: graphs.read_edges(path, 5)),
    "model": (plan_pairwise, "MAX_MODEL_BYTES", "model.json", model),
    "text": (inputs, "MAX_TEXT_BYTES", "a.txt", inputs.read_vector),
    "csv": (inputs, "MAX_TEXT_BYTES", "a.csv", inputs.read_vector),
    "json": (inputs, "MAX_TEXT_BYTES", "a.json", inputs.read_vector),
    "npy": (inputs, "MAX_NPY_BYTES", "a.npy", inputs.read_vector),
    "weights": (inputs, "MAX_TEXT_BYTES", "weights.json", lambda path: inputs.read_weights(path, ["a"])),
    "manifest": (
        publish,
        "MAX_FILE_BYTES",
        publish.MANIFEST,
        lambda path: publish.read_manifest(path.parent),
    ),
    "session": (session_file, "MAX_FILE_BYTES", "session.toml", session_file.load_session),
    "vectors": (vectors, "MAX_FILE_BYTES", "run.json", lambda path: vectors.check(path.parent, "sampling")),
}


@pytest.mark.parametrize("kind", READERS)
def test_every_reader_has_a_bound(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, bound, name, read = READERS[kind]
    assert getattr(module, bound) <= 1 << 30
    monkeypatch.setattr(module, bound, MOST)
    (tmp_path / name).write_bytes(b"\x93NUMPY" + b" " * MOST)
    with pytest.raises(LocalError, match=f"{name}: cannot read .* \\(longer than {MOST} bytes\\)"):
        read(tmp_path / name)


def test_a_published_circuit_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = PUBLISHED["add32"]
    publish.export([entry], tmp_path, with_manifest=False)
    monkeypatch.setattr(publish, "MAX_FILE_BYTES", MOST)
    assert any(
        f"longer than {MOST} bytes" in fault for fault in publish.check_published(entry, tmp_path).faults
    )


def test_a_graph_of_nothing_but_faults_lists_some(tmp_path: Path) -> None:
    file = tmp_path / "edges"
    file.write_text("x\n" * 500)
    with pytest.raises(ConfigError) as raised:
        graphs.read_edges(file, 5)
    assert len(raised.value.issues) == 101
    assert str(raised.value).endswith("edges:101: not read on, after as many faults")


def test_a_locked_folder_keeps_others_out(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    with lock_folder(tmp_path), pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
