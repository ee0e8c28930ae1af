"""Answers that a command needs: from its options, from defaults, or from prompts on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer

from smpc_dp.console.output import report_error
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues

T = TypeVar("T")


class Prompts:
    """Answers of a user by option name, given on the command line or asked for; notes missing options.

    Args:
        given: the values of options; None: not given.
        takes_defaults: an option that is not given has its default, if there is one, and nobody is asked.
    """

    def __init__(self, given: Mapping[str, object], *, takes_defaults: bool) -> None:
        self._given = given
        self._takes_defaults = takes_defaults
        self._missing = Issues()

    def given(self, option: str) -> Any:
        """Return the value that the user gave for an option, or None."""
        return self._given[option]

    def answer(
        self, option: str, text: str, read: Callable[[str], T], default: object = None, why: str = ""
    ) -> T | None:
        """Return an option's given, default or typed value, converted; None, noted, if nobody can be asked.

        `read` raises ValueError, or ConfigError, for a wrong text. `why`: the reason why there is no default.
        """
        given = self._given[option]
        if given is None and self._takes_defaults:
            given = default
        if given is not None:
            return _read(option, read, str(given))
        if not sys.stdin.isatty():
            reason = "is needed, and there is no terminal to ask on"
            if default is not None:
                reason += f"; --yes takes {default}"
            elif why:
                reason += f": {why}"
            self._missing.add_issue(option, reason, ConfigCheck.MISSING)
            return None
        if why and default is None:
            typer.echo(why, err=True)
        while True:
            typed = _typed(option, text, default)
            try:
                return _read(option, read, typed)
            except ConfigError as error:
                report_error(error)

    def needed(
        self, option: str, text: str, read: Callable[[str], T], default: object = None, why: str = ""
    ) -> T:
        """Return the converted answer to a question; raise ConfigError naming options without answers."""
        answer = self.answer(option, text, read, default, why)
        if answer is None:
            raise ConfigError(self._missing)
        return answer

    def exclude(self, options: str, why: str) -> None:
        """Raise ConfigError if any of these options (separated by blanks) is given."""
        for option in options.split():
            if self._given[option] is not None:
                raise ConfigError.at(option, why, ConfigCheck.UNSUPPORTED)

    def raise_missing(self) -> None:
        """Raise ConfigError that names all options noted as missing; do nothing if there are none."""
        self._missing.raise_issues()


def _typed(option: str, text: str, default: object) -> str:
    """Return the text that a user types at a prompt; raise ConfigError at the end of the input."""
    try:
        return str(typer.prompt(text, default=default, err=True, type=str))
    except typer.Abort as error:
        # Typer has one error for Ctrl-C and for Ctrl-D.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        typer.echo(err=True)
        reason = "has no answer: the input has ended, and nothing is written"
        raise ConfigError.at(option, reason, ConfigCheck.MISSING) from None


def _read(option: str, read: Callable[[str], T], text: str) -> T:
    """Return the option's text converted by `read`; raise ConfigError that names the option on failure."""
    try:
        return read(text)
    except ConfigError as error:
        raise ConfigError(ConfigIssue(option, reason, check) for _, reason, check in error.issues) from None
    except ValueError as error:
        raise ConfigError.at(option, str(error), ConfigCheck.FORMAT) from None
