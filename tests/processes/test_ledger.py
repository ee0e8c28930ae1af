"""The ledger between real processes: killed at every step of a write, and many that charge at once."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smpc_dp import files
from smpc_dp.errors import LocalError, PrivacyError
from smpc_dp.privacy.accountant import store
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.accountant.ledger import Ledger

TENTH = Event("tenth", "substitution", (Pure(0.1),))
# Every call into the system that a write makes; the process dies before or after each.
STEPS = [
    (call, moment)
    for call in ("open draft", "write", "fsync file", "replace", "open folder", "fsync folder")
    for moment in ("before", "after")
]


def in_child(work: Callable[[], None]) -> int:
    """Fork, run `work` in the child, and return the status that the child ended with; 99 if it raised."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(99)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def new(path: Path, epsilon: float = 1.0) -> Ledger:
    return Ledger.create(path, party="a", dataset="d", relation="substitution", epsilon=epsilon, delta=0.0)


class DyingSystem:
    """Stands for `os` in the store, and kills the process at one step."""

    def __init__(self, step: str, moment: str) -> None:
        self.step, self.moment, self.syncs = step, moment, 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("open", "fdopen", "fsync", "replace"):
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            step = name
            if name == "open":
                if str(arguments[0]).endswith(".new"):
                    step = "open draft"
                elif arguments[1] & os.O_DIRECTORY:
                    step = "open folder"
            elif name == "fsync":
                self.syncs += 1
                step = "fsync file" if self.syncs == 1 else "fsync folder"
            elif name == "fdopen" and arguments[1] == "wb":
                step = "write"
            if (step, "before") == (self.step, self.moment):
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **options)
            if (step, "after") == (self.step, self.moment):
                if step == "write":
                    # half a file on the disk
                    os.write(arguments[0], b'{\n "format": "smpc-dp privacy led')
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


@pytest.mark.parametrize(("step", "moment"), STEPS)
def test_killed_at_any_step_it_loses_nothing(
    step: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = new(tmp_path / "ledger")
    book.charge(b"first run", TENTH)

    def charge_and_die() -> None:
        monkeypatch.setattr(files, "os", DyingSystem(step, moment))
        book.charge(b"second run", TENTH)

    assert os.WTERMSIG(in_child(charge_and_die)) == signal.SIGKILL
    entries = book.entries()
    written = (step, moment) in {
        ("replace", "after"),
        ("open folder", "before"),
        ("open folder", "after"),
        ("fsync folder", "before"),
        ("fsync folder", "after"),
    }
    assert [entry.run for entry in entries] == [b"first run".hex(), b"second run".hex()][
        : 2 if written else 1
    ]
    # the lock went with the process; the same run charged again is charged once in all
    receipt = book.charge(b"second run", TENTH, resume=True)
    assert receipt.repeated == written
    assert book.spent().epsilon == pytest.approx(0.2)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_charge_is_durable_when_it_returns(moment: str, tmp_path: Path) -> None:
    book = new(tmp_path / "ledger")

    def charge() -> None:
        book.charge(b"only run", TENTH)
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WTERMSIG(in_child(charge)) == signal.SIGKILL
    assert len(book.entries()) == 1


def test_several_processes_cannot_overspend_together(tmp_path: Path) -> None:
    book = new(tmp_path / "ledger", epsilon=2.0)

    def spend(who: int) -> None:
        own = Ledger.open(book.path)
        for number in range(20):
            try:
                own.charge(f"run {who} {number:03}".encode(), TENTH)
            except PrivacyError:
                return

    children = []
    for who in range(4):
        child = os.fork()
        if child == 0:
            try:
                spend(who)
            except BaseException:
                traceback.print_exc()
                os._exit(99)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    # 4 times 20 tenths were asked for, 20 fit
    assert len(book.entries()) == 20
    assert book.spent().epsilon == pytest.approx(2.0)


def test_a_held_lock_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = new(tmp_path / "ledger")
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.1)
    with store.locked(book.path):

        def wait() -> None:
            with pytest.raises(LocalError, match="another process has held it"):
                book.charge(b"some run", TENTH)

        assert in_child(wait) == 0
    assert book.charge(b"some run", TENTH).number == 1


def test_a_full_disk_charges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = new(tmp_path / "ledger")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LocalError, match="No space left"):
        book.charge(b"some run", TENTH)
    monkeypatch.undo()
    assert book.entries() == ()
