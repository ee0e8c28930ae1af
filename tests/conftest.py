"""What all tests have in common."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

# How long an example takes is nobody's promise: Hypothesis measures wall time, 200 ms by default. The
# examples are the same in every run, as the seeds of all tests are; `make fuzz` looks for new ones.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")

# One thread for linear algebra, here and in the processes that tests start. Beside other workers on the same
# processors the threads of OpenBLAS wait for each other in busy loops, which takes longer than the work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start some hundred processes. Without cached bytecode each compiles the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all", action="store_true", help="the schedules marked `long` too, and 60 fault schedules"
    )
    parser.addoption(
        "--schedules", help="seeded fault schedules of each protocol: N, or FIRST:END; without this 20"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `long`, unless all is wanted."""
    if config.getoption("--all"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker more than there are processors: tests of processes wait for deadlines."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Of how many positions in a row a test that goes through all of them looks at one: 1 with --all."""
    return 1 if request.config.getoption("--all") else 5


@pytest.fixture
def schedules(request: pytest.FixtureRequest) -> range:
    """The seeds of the fault schedules to play."""
    wanted: str = request.config.getoption("--schedules") or (
        "60" if request.config.getoption("--all") else "20"
    )
    first, _, end = wanted.rpartition(":")
    return range(int(first or 0), int(end))
