"""How commands hand over a result: to a file, as text, as JSON."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.commands.statistic_text import statistic_text
from smpc_dp.cli.reporting import make_report
from smpc_dp.cli.run import results_of
from smpc_dp.console.output import deliver, progress_console, report_line, writable_streams
from smpc_dp.report.sections import pairs_section
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import ProcessOutcome, print_event

RESULT = {"value": [1.5]}


@pytest.mark.parametrize(
    ("options", "printed"),
    [({}, "in words\n"), ({"as_json": True}, '{"value": [1.5]}\n'), ({"quiet": True}, "")],
)
def test_a_result_is_written_and_printed(
    options: dict[str, bool], printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    assert deliver(RESULT, out, lambda: "in words", **options)
    assert json.loads(out.read_text("utf-8")) == RESULT
    assert capsys.readouterr().out == printed


def test_a_file_can_hold_another_object_for_its_owner_alone(tmp_path: Path) -> None:
    out = tmp_path / "model.json"
    assert deliver(RESULT, out, str, quiet=True, confidential=True, stored={"model": 1})
    assert json.loads(out.read_text("utf-8")) == {"model": 1}
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("quiet", [False, True])
def test_a_result_that_cannot_be_written_is_printed_as_json(
    quiet: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gone" / "result.json"
    assert not deliver(RESULT, out, lambda: "in words", quiet=quiet)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == RESULT
    assert shown.err == f"smpc-dp: {out}: cannot write the result (No such file or directory)\n"


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:  # noqa: ARG002
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("where", [None, "result.json", "gone/result.json"])
def test_a_result_that_cannot_be_printed_is_in_a_file_or_on_standard_error(
    where: str | None, as_json: bool, tmp_path: Path
) -> None:
    out = None if where is None else tmp_path / where
    errors = io.StringIO()
    with contextlib.redirect_stdout(Full()), contextlib.redirect_stderr(errors):
        assert not deliver(RESULT, out, lambda: "in words", as_json=as_json)
    *lines, last = errors.getvalue().splitlines()
    if where == "result.json":
        assert out is not None
        assert json.loads(out.read_text("utf-8")) == RESULT
        assert (lines, last) == ([], "smpc-dp: cannot write the output (No space left on device)")
    else:
        assert lines[-1] == "smpc-dp: cannot write the output (No space left on device)"
        assert json.loads(last) == RESULT


@pytest.mark.parametrize("as_json", [False, True])
def test_a_result_whose_reader_has_left_is_on_standard_error(as_json: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    errors = io.StringIO()
    with (
        os.fdopen(writer, "w") as pipe,
        contextlib.redirect_stdout(pipe),
        contextlib.redirect_stderr(errors),
        writable_streams(),
    ):
        assert not deliver(RESULT, None, lambda: "in words", as_json=as_json)
    line, result = errors.getvalue().splitlines()
    assert line == "smpc-dp: cannot write the output (Broken pipe)"
    assert json.loads(result) == RESULT


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_text_that_a_stream_cannot_encode_is_printed_with_escapes(encoding: str) -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding)
    with contextlib.redirect_stdout(output), writable_streams():
        assert deliver(RESULT, None, lambda: "Łódź \ud800")
    assert output.buffer.getvalue().decode(encoding).startswith("\\u0141")


def test_a_standard_output_that_is_closed_is_an_error() -> None:
    errors = io.StringIO()
    with mock.patch.object(sys, "stdout", None), contextlib.redirect_stderr(errors), writable_streams():
        assert not deliver(RESULT, None, lambda: "in words")
    assert json.loads(errors.getvalue().splitlines()[-1]) == RESULT


@pytest.mark.parametrize("errors", [Full(), None])
def test_remarks_that_cannot_be_written_end_nothing(errors: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(sys, "stderr", errors), writable_streams():
        report_line("a remark")
        progress_console().print("a step")
        assert deliver(RESULT, None, lambda: "in words")
    assert capsys.readouterr().out == "in words\n"


def test_events_for_a_launcher_need_no_encoding() -> None:
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    event = Event("alice", "warned", detail="Łódź")
    with contextlib.redirect_stdout(output):
        print_event(event)
    assert msgspec.json.decode(output.buffer.getvalue(), type=Event) == event


def test_a_run_takes_what_a_member_could_not_write_to_its_file(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("alice", "bob", "carol")}
    files["alice"].write_text('{"value": 1}\n')
    files["bob"].write_text('{"val')
    outcomes = {name: ProcessOutcome(name, output=["a line", '{"value": 2}']) for name in files}
    outcomes["carol"].output.pop()
    assert results_of(files, outcomes) == {"alice": {"value": 1}, "bob": {"value": 2}}


def test_a_report_needs_no_metadata_of_the_package() -> None:
    missing = mock.Mock(side_effect=importlib.metadata.PackageNotFoundError("smpc-dp"))
    with mock.patch("importlib.metadata.version", missing):
        assert smpc_dp.__version__ in make_report("title", "", (), ()).footer


def test_a_statistic_of_pairs_says_what_its_interval_covers() -> None:
    result: dict[str, Any] = {
        **{"kernel": "auc", "value": 0.7, "standard_error": 0.1, "interval": [0.4, 0.9], "level": 0.995},
        **{"pairs": 9, "failed": 0, "parties": 6, "partners": 3, "noise_error": 0.05, "absent": []},
        **{"faults": [], "positives": None, "auc": None, "evidence": None},
        "privacy": {"epsilon": 1.0, "delta": 0.0, "claim": "", "not_protected": []},
    }
    lines = statistic_text(result).splitlines()
    covered = "for the noise and the records as a sample"
    assert lines[:2] == ["auc: 0.7, standard error 0.1", f"99.5% interval: 0.4 to 0.9, {covered}"]
    assert f"The interval is {covered}." in str(pairs_section(result))
    assert covered not in str(pairs_section({**result, "interval": None}))
