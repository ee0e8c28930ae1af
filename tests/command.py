"""`smpc-dp` in the process of the test: it prints and returns what a process of its own would."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import pytest

from smpc_dp.__main__ import main


def smpc_dp(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, the current one if none is given; return its exit code and its output."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["smpc-dp", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(cwd or Path.cwd()),
        # A process of its own prints these; pytest would keep them to itself.
        warnings.catch_warnings(action="error", category=RuntimeWarning),
        warnings.catch_warnings(action="error", category=UserWarning),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())
