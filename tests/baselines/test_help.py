"""The help of all commands is the stored one."""

from __future__ import annotations

from tests.baselines import help as shown


def test_the_help_of_every_command_is_the_stored_one() -> None:
    assert shown.text() == shown.FILE.read_text("utf-8"), "see tests/baselines/__main__.py"
