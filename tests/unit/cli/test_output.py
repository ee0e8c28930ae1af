"""How commands hand over a result: to a file, as text, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smpc_dp.cli.output import deliver

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
