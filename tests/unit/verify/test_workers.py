"""How many processes the second auditor starts, and what it says if it cannot start one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smpc_dp_verify import __main__ as command
from smpc_dp_verify.workers import MOST_WORKERS, default_workers


@pytest.mark.parametrize(
    ("processors", "mib", "expected"),
    [(2, 64 << 10, 2), (64, 16 << 10, 15), (8, 1 << 10, 1), (512, 1 << 20, MOST_WORKERS), (None, 1 << 20, 1)],
)
def test_default_workers_fit_processors_and_memory(
    processors: int | None, mib: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else mib << 8)
    assert default_workers(1 << 10) == expected


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EAGAIN])
def test_a_process_that_cannot_start_says_nothing_of_the_log(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def opened(_count: int) -> Iterator[None]:
        raise OSError(number, os.strerror(number))
        yield

    monkeypatch.setattr(command, "open_processes", opened)
    path = tmp_path / "log.jsonl"
    path.touch()
    assert command.main([str(path)]) == command.NO_MEMORY
    assert "no process can be started within --memory" in capsys.readouterr().err
