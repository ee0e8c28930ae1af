"""The sampling benchmark's report, on sizes that take no time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.sampling import run_sampling_bench


def interpreter(folder: Path, program: str) -> str:
    """A stand-in for the interpreter that has the peer: runs `program` whatever it is asked to run."""
    worker, script = folder / "worker.py", folder / "python"
    worker.write_text(program)
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {worker}\n")
    script.chmod(0o700)
    return str(script)


def test_figures_stand_beside_what_was_measured(tmp_path: Path) -> None:
    peer = interpreter(
        tmp_path,
        "import sys\n"
        'print(\'{"version": "9.9"}\', flush=True)\n'
        "for line in sys.stdin:\n"
        "    print('{\"seconds\": 1000.0}', flush=True)\n",
    )
    rounds: list[tuple[str, int, int]] = []
    report = run_sampling_bench(
        2, lambda name, done, of: rounds.append((name, done, of)), values=1000, peer_python=peer
    )
    shown = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert shown["bench"] == "sampling"
    assert shown["versions"]["opendp"] == "9.9"
    figures = shown["figures"]
    assert len({figure["name"] for figure in figures}) == len(figures) == 9
    assert [name for name, done, of in rounds if done == of] == [figure["name"] for figure in figures]
    for figure in figures:
        assert figure["runs"] == 2
        assert figure["better"] == "lower"
        assert figure["min"] > 0
        if figure["target"] is not None:
            assert figure["peer"] == {"name": "opendp vector sampler", "version": "9.9", "median": 1e9}
            assert figure["met"] is True
    assert sum(figure["target"] is not None for figure in figures) == 2
    assert sum(figure["limit"] is not None for figure in figures) == 7


def test_an_absent_peer_is_null(tmp_path: Path) -> None:
    absent = interpreter(tmp_path, 'print(\'{"absent": "no opendp"}\', flush=True)\n')
    report = run_sampling_bench(1, values=1000, peer_python=absent)
    assert report.versions["opendp"] is None
    assert all(figure.peer is None and figure.met is None for figure in report.figures)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        run_sampling_bench(0, values=999)
    assert [fault.where for fault in caught.value.issues] == ["runs", "values"]
