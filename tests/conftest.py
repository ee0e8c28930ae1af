"""What all tests have in common."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

# How long an example takes is nobody's promise: Hypothesis measures wall time, 200 ms by default.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Tests start some hundred processes. Without cached bytecode each compiles the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules", default="60", help="seeded fault schedules of each protocol: N, or FIRST:END"
    )


@pytest.fixture
def schedules(request: pytest.FixtureRequest) -> range:
    """The seeds of the fault schedules to play."""
    first, _, end = request.config.getoption("--schedules").rpartition(":")
    return range(int(first or 0), int(end))
