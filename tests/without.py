"""Plugin that runs tests without the folder of a capability: `pytest -p tests.without --without gopa`.

A test that fails after it, or a process that it started, has imported something of an absent capability is
skipped: it is a test of that capability. Every other test must pass.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.blocked import ASKED, SITECUSTOMIZE, AbsentModule, Blocked

BLOCKED: list[Blocked] = []
OF_ABSENT: list[BaseException] = []
"""Errors of tests that were skipped."""
FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", metavar="NAME", help="a capability that is absent, with those that use it")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Block the capability, and those that build on it, in this process and in those that tests start."""
    # Not at the top: a module of tests, which pytest must see before others import it.
    from tests.unit.absent import BUILT_ON, clear

    gone = config.getoption("--without")
    if gone not in BUILT_ON:
        raise pytest.UsageError(f"--without: {gone!r} is none of {', '.join(sorted(BUILT_ON))}")
    names = [f"smpc_dp.capabilities.{name}" for name in sorted({gone, *BUILT_ON[gone]})]
    folder = tempfile.TemporaryDirectory()
    config.stash[FOLDER] = folder
    Path(folder.name, "sitecustomize.py").write_text(SITECUSTOMIZE.format(names=names))
    root = Path(__file__).parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder.name, str(root), os.environ.get("PYTHONPATH", "")])
    os.environ[ASKED] = str(Path(folder.name, "asked"))
    BLOCKED.extend(map(Blocked, names))
    clear(pytest.MonkeyPatch(), *BLOCKED)
    # Made while the capability was there.
    for name in [name for name in sys.modules if name.startswith("tests.unit.test_")]:
        del sys.modules[name]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder that processes read."""
    if FOLDER in config.stash:
        config.stash[FOLDER].cleanup()


def _forget() -> None:
    """Forget what was asked for, and what is known of capabilities, so that they are asked for again.

    Modules that keep what is absent are imported again too.
    """
    from smpc_dp import extensions
    from smpc_dp.engine import registry

    registry._built_in.cache_clear()
    extensions.find.cache_clear()
    importers = {name for blocked in BLOCKED for name in blocked.importers}
    for name in importers & {*sys.modules}:
        package, _, last = name.rpartition(".")
        if name.startswith("smpc_dp"):
            del sys.modules[name]
            if package in sys.modules:
                vars(sys.modules[package]).pop(last, None)
    Path(os.environ[ASKED]).unlink(missing_ok=True)


def _is_of_absent(error: BaseException | None) -> bool:
    """Tell whether an absent capability was imported, or an error that is kept from before says so."""
    if Path(os.environ[ASKED]).exists():
        if error is not None:
            OF_ABSENT.append(error)
        return True
    # A fixture raises the same error again in each test.
    if any(error is one for one in OF_ABSENT):
        return True
    while error is not None:
        if isinstance(error, AbsentModule):
            return True
        error = error.__cause__ or error.__context__
    return False


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Skip a module that imports something of an absent capability."""
    _forget()
    report = yield
    if report.failed and _is_of_absent(None):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, "of an absent capability")
        # pytest leaves it there although its import has failed, and others import names from it.
        for name, module in [*sys.modules.items()]:
            if getattr(module, "__file__", None) == str(collector.path):
                del sys.modules[name]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Forget what earlier tests have asked for."""
    _forget()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Skip a failed test that has asked for an absent capability."""
    report = yield
    if report.failed and _is_of_absent(None if call.excinfo is None else call.excinfo.value):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "of an absent capability")
    return report
