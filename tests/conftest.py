"""What all tests have in common."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nacl.bindings
import pytest
from hypothesis import settings

from tests.examples import examples, want_all_examples
from tests.repeated import repeated

if TYPE_CHECKING:
    from smpc_dp.errors import ConfigIssue

# One thread for linear algebra, here and in the processes that tests start. Beside other workers on the same
# processors the threads of OpenBLAS wait for each other in busy loops, which takes longer than the work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start some hundred processes. Without cached bytecode each compiles the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Generators of commitments are stored beside the tests' own cache, and never where the user's lie.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parents[1] / ".pytest_cache" / "xdg")

# With --part one of so many of the cases that `make test` leaves out is drawn.
SHARE = 16


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="every case of every test, and 60 fault schedules")
    parser.addoption(
        "--part", default="", metavar="SEED", help="beside the cases of `make test` those that a seed draws"
    )
    parser.addoption(
        "--schedules", help="seeded fault schedules of each protocol: N, or FIRST:END; without this 10"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose, before tests are collected, how many examples properties are tested with.

    How long an example takes is nobody's promise: Hypothesis measures wall time, 200 ms by default. The
    examples are the same in every run, as the seeds of all tests are; `make fuzz` looks for new ones.
    """
    if not __debug__:
        raise pytest.UsageError("python -O and PYTHONOPTIMIZE remove assertions")
    if config.getoption("--all") or config.getoption("--part"):
        want_all_examples()
    settings.register_profile("fixed", max_examples=examples(100), deadline=None, derandomize=True)
    settings.load_profile("fixed")
    _commit_once()
    _plan_once()


def _verify_once() -> None:
    """Compute once what libsodium gives for the same arguments; errors are not kept.

    Members of a run in one process verify the same signatures, and tests play the same runs again.
    """
    for name in ("crypto_sign", "crypto_sign_open", "crypto_scalarmult", "crypto_scalarmult_base"):
        setattr(nacl.bindings, name, lru_cache(maxsize=1 << 13)(getattr(nacl.bindings, name)))


# Before the package is imported, which takes these functions from there; conftest.py of folders do so.
_verify_once()


def _once(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes once for the same integers, bytes and lists of them."""
    known = lru_cache(maxsize=1 << 12)(compute)

    def computed(*given: Any) -> Any:
        frozen = [tuple(one) if isinstance(one, list) else one for one in given]
        kinds = {type(part) for one in frozen for part in (one if isinstance(one, tuple) else (one,))}
        return known(*frozen) if kinds <= {int, bytes} else compute(*given)

    return computed


def _commit_once() -> None:
    """Compute commitments, proofs and oblivious transfers of the same values, blindings and seeds once.

    Errors are not kept. Runs of the vectors have fixed randomness, and tests play them again with one message
    changed.
    """
    from smpc_dp import _core

    once = ("commit", "combine_commitments", "prove_range", "prove_norm", "ot_base_pairs", "ot_base_respond")
    for name in once:
        setattr(_core, name, _once(getattr(_core, name)))
    for kind in (_core.OtSender, _core.OtReceiver):
        setattr(_core, kind.__name__, repeated(kind))
    real = _core.NoiseSecret
    commitment = _once(lambda *given: real(*given).commitment)
    values = _once(lambda coins, *given: real(*given).values(coins))
    prove = _once(
        lambda context, coins, blinding, seed, *given: real(*given).prove(context, coins, blinding, seed)
    )

    class NoiseSecret:
        """Replacement of the core's class, which computes everything from its arguments."""

        def __init__(self, *given: Any) -> None:
            self._given = given
            self.commitment = commitment(*given)

        def values(self, coins: bytes) -> list[int]:
            return [*values(coins, *self._given)]

        def prove(self, *given: Any) -> Any:
            return prove(*given, *self._given)

    setattr(_core, "NoiseSecret", NoiseSecret)  # noqa: B010 - mypy: a class is not assigned


# What tests that replace nothing have planned of the parameters of sessions: their plan and their faults.
_PLANNED: dict[tuple[str, int, str, tuple[str, ...]], tuple[Any, list[ConfigIssue]]] = {}


def _plan_once() -> None:
    """Plan a session's parameters once in all tests that replace nothing, not once for each member."""
    from smpc_dp.session import session_file

    plan = session_file.plan_parameters

    def planned(
        protocol: str,
        version: int,
        parameters: Mapping[str, object],
        names: Sequence[str],
        issues: list[ConfigIssue],
    ) -> Any:
        key = (protocol, version, json.dumps(parameters), tuple(names))
        if key not in _PLANNED:
            found: list[ConfigIssue] = []
            _PLANNED[key] = plan(protocol, version, parameters, names, found), found
        checked, found = _PLANNED[key]
        issues += found
        return checked

    session_file.plan_parameters = planned


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget plans before a test that may plan the same parameters otherwise, or look at how that is done."""
    if "monkeypatch" in getattr(item, "fixturenames", ()):
        _PLANNED.clear()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Forget what such a test has planned."""
    pytest_runtest_setup(item)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say how to repeat a part that a seed has drawn."""
    seed: str = config.getoption("--part")
    return f"cases drawn by --part {seed}" if seed else None


def drawn(seed: str, name: str, count: int) -> int:
    """Return a number below `count`, of a seed and a name alone."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8]) % count


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collections; later ones leave out what lives until the end."""
    from smpc_dp.__main__ import COLLECT

    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # As rarely as the commands search: half of what garbage collections take is saved.
        gc.set_threshold(COLLECT)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `long`, and cases of tests marked `thin`, unless all is wanted."""
    if config.getoption("--all"):
        return
    numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    seed: str = config.getoption("--part")
    wanted: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    # With --last-failed cases are cut before they are counted here: none of those that are left is left out.
    again = config.getoption("lf", False)
    for item in items:
        series = item.nodeid.partition("[")[0]
        (wanted if again or _is_wanted(item, next(numbers[series]), seed) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = wanted


def _is_wanted(item: pytest.Item, number: int, seed: str) -> bool:
    """Tell whether case `number` of a test runs without --all: by its marker, or drawn by a seed."""
    thin = item.get_closest_marker("thin")
    if not item.get_closest_marker("long") and (thin is None or number % thin.args[0] == 0):
        return True
    return seed != "" and drawn(seed, item.nodeid, SHARE) == 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker for each processor: each imports and collects everything by itself."""
    return os.cpu_count() or 1


class Terse:
    """Leaves out, of what a worker sends to the main process, the four of five messages that are not shown.

    These say that a test begins and has ended, and that its set-up and its end passed.
    """

    def __init__(self, worker: Any) -> None:
        self._send = worker.sendevent
        worker.sendevent = self._send_if_shown

    def _send_if_shown(self, name: str, **given: Any) -> None:
        if name not in ("logstart", "logfinish") and "passed over" not in given.get("data", ()):
            self._send(name, **given)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_to_serializable(self, report: Any) -> dict[str, object] | None:
        """Write such a report as nothing, in little time."""
        return {"passed over": True} if report.passed and report.when in ("setup", "teardown") else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a worker send less, unless times of set-ups, or a report with them, are asked for."""
    plugins, option = session.config.pluginmanager, session.config.getoption
    if option("durations", None) or option("xmlpath", None):
        return
    for plugin in [*plugins.get_plugins()]:
        if type(plugin).__name__ == "WorkerInteractor":
            plugins.register(Terse(plugin))


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Of how many positions in a row a test that goes through all of them looks at one: 1 with --all."""
    return 1 if request.config.getoption("--all") else 10


@pytest.fixture
def first(request: pytest.FixtureRequest, stride: int) -> int:
    """The first position of such a test: its cases begin at different ones, and with --part at others."""
    return drawn(request.config.getoption("--part"), request.node.nodeid, stride)


@pytest.fixture
def schedules(request: pytest.FixtureRequest) -> range:
    """The seeds of the fault schedules to play."""
    wanted: str = request.config.getoption("--schedules") or (
        "60" if request.config.getoption("--all") else "10"
    )
    first, _, end = wanted.rpartition(":")
    return range(int(first or 0), int(end))
