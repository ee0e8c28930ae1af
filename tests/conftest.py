"""What all tests have in common."""

from __future__ import annotations

import os
import sys

import pytest

# Tests start some hundred processes. Without cached bytecode each compiles the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--schedules", type=int, default=60, help="seeded fault schedules for each protocol")


@pytest.fixture
def schedules(request: pytest.FixtureRequest) -> range:
    """The seeds of the fault schedules to play."""
    return range(int(request.config.getoption("--schedules")))
