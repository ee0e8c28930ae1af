"""The folder in which `smpc-dp party` keeps its state where no option says so: for members of a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from smpc_dp.cli import party
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import load_session
from tests import command

EXACT: dict[str, object] = {"length": 1, "kind": "integer", "lower": 0, "upper": 9, "corrupt": 0}
AGGREGATOR = ("--as", "aggregator", "--requests", "0")
PARTY = ("--as", "alice", "--number", "1")


def opened_by(path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[Path | None, str]:
    """Return the folder of the state that a member opens, and what it prints, without a session."""
    found: list[Any] = []

    def member(*arguments: Any) -> None:
        found.append(arguments[-1])
        raise typer.Exit

    monkeypatch.setattr(party, "HostMember", member)
    done = command.smpc_dp("party", str(path), *options)
    [state] = found
    if state is None:
        return None, done.stderr
    state.close()
    return state.folder, done.stderr


def test_an_aggregator_that_serves_until_it_is_stopped_has_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_local_session(tmp_path, ("alice", "bob", "carol"), EXACT)
    digest = load_session(path).digest.hex()[:16]
    folder = tmp_path / "state" / f"aggregator-{digest}"
    for _ in range(2):
        opened, printed = opened_by(path, monkeypatch, *AGGREGATOR)
        assert opened == folder
        assert printed.startswith(f"state in {folder} without a counter: ")
        assert printed.endswith(". It has keys: in no backup\n")
    assert folder.stat().st_mode & 0o777 == 0o700
    # A session with other terms has a folder of its own.
    (tmp_path / "other").mkdir()
    other = create_local_session(tmp_path / "other", ("alice", "bob", "carol"), EXACT | {"upper": 8})
    (tmp_path / "other" / "state").symlink_to(tmp_path / "state")
    assert opened_by(other, monkeypatch, *AGGREGATOR)[0] != folder


def test_a_default_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With the ways out: who was given no folder does not know the options."""
    path = create_local_session(tmp_path, ("alice", "bob", "carol"), EXACT)
    (tmp_path / "state").touch()
    refused = command.smpc_dp("party", str(path), *AGGREGATOR)
    assert refused.returncode
    assert "cannot make the folder for the state (Not a directory)" in refused.stderr
    assert "--no-state" in refused.stderr


def test_systemd_gives_every_member_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = create_local_session(tmp_path, ("alice", "bob", "carol"), EXACT)
    (tmp_path / "given").mkdir()
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path / 'given'}:{tmp_path / 'other'}")
    for options in (PARTY, AGGREGATOR, AGGREGATOR[:2]):
        opened, _ = opened_by(path, monkeypatch, *options)
        assert opened is not None
        assert opened.parent == tmp_path / "given"
    assert len([*(tmp_path / "given").iterdir()]) == 2


@pytest.mark.parametrize("options", [PARTY, AGGREGATOR[:2], (*AGGREGATOR, "--no-state")], ids=" ".join)
def test_other_members_keep_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    path = create_local_session(tmp_path, ("alice", "bob", "carol"), EXACT)
    assert opened_by(path, monkeypatch, *options) == (None, "")


def test_what_is_given_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = create_local_session(tmp_path, ("alice", "bob", "carol"), EXACT)
    (tmp_path / "counter").mkdir()
    given = ("--state", str(tmp_path / "mine"), "--counter", str(tmp_path / "counter"))
    opened, printed = opened_by(path, monkeypatch, *AGGREGATOR, *given)
    assert opened == tmp_path / "mine"
    assert "goes on from any step" in printed
    for options in (("--state", "x"), ("--counter", str(tmp_path / "counter"))):
        refused = command.smpc_dp("party", str(path), *AGGREGATOR, "--no-state", *options)
        assert refused.returncode == 2
        assert " is " in refused.stderr


def test_a_session_that_is_not_saved_goes_on_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = create_local_session(tmp_path, ("alice", "bob", "carol"), EXACT)

    def refuse(_session: object) -> None:
        raise ConfigError.at("state", "is not for this session: because", ConfigCheck.UNSUPPORTED)

    monkeypatch.setattr(party, "check_can_save", refuse)
    opened, printed = opened_by(path, monkeypatch, *AGGREGATOR)
    assert opened is None
    assert printed == "keeps no state, which is not for this session: because\n"
    assert not (tmp_path / "state").exists()
