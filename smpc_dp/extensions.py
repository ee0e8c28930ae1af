"""What an installation may have: this package's capabilities, and what other packages add, as learners.

The latter is found by entry points and loaded on demand. Callers look up names of this package first: no
other package can replace them, and sessions that use them load nothing of others.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.signals import Stopped

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

# The package of capabilities: each is a folder of it with a module `capability`.
CAPABILITIES = "smpc_dp.capabilities"
_OF_CAPABILITY = re.compile(rf"{re.escape(CAPABILITIES)}(\.\w+(\.capability)?)?")

# Characters of a distribution's name and version in an operation, whose length is bounded.
MAX_ORIGIN = 40


class Group(StrEnum):
    """Names of the entry-point groups in which other packages register commands, learners and more."""

    COMMANDS = "smpc_dp.commands"
    LEARNERS = "smpc_dp.learners"
    KERNELS = "smpc_dp.kernels"
    PROTOCOLS = "smpc_dp.protocols"
    STATISTICS = "smpc_dp.statistics"

    @property
    def kind(self) -> str:
        """Singular noun for what this group registers, for messages: "learner", "kernel"."""
        return self.value.rpartition(".")[2].removesuffix("s")


@dataclass(frozen=True)
class Extension:
    """Object that another installed package has registered by an entry point, with its title and origin.

    Attributes:
        title: for errors: "the kernel 'near' of my-package".
        value: the object that the entry point names.
        origin: "my-package 1.0", which the parties of a request compare.
    """

    title: str
    value: Any
    origin: str

    def unfit(self, why: str) -> LocalError:
        """Return the LocalError for a registered object that lacks what its group requires."""
        return LocalError(f"{self.title} {why}")


def imported(module: str) -> Any:
    """Import a module of this package; return None if it belongs to a capability that is not installed."""
    try:
        result = import_module(module)
        # A folder that is left without modules is a namespace package, which has a path and no file.
        is_empty = hasattr(result, "__path__") and getattr(result, "__file__", None) is None
        return None if is_empty else result
    except ModuleNotFoundError as error:
        # Of its folder, or of one that it builds on; another module that is missing in one is a fault.
        if error.name is None or not _OF_CAPABILITY.fullmatch(error.name):
            raise
        return None


def registered(group: Group) -> list[EntryPoint]:
    """Return the entry points that installed packages have in a group, sorted by name, not loaded."""
    # Not at the top: most processes use no extension.
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda entry: entry.name)


@functools.lru_cache(maxsize=64)
def find(group: Group, name: str) -> Extension | None:
    """Load the extension that another package registers as `name`; None if absent; LocalError if two do.

    Raises LocalError that names entry point and package if it cannot be loaded, or several register the name.
    """
    result = [entry for entry in registered(group) if entry.name == name]
    if not result:
        return None
    if len(result) > 1:
        packages = ", ".join(sorted(map(_package, result)))
        raise LocalError(f"the {group.kind} '{name}' is registered by several packages: {packages}")
    (entry,) = result
    version = "" if entry.dist is None else f" {entry.dist.version}"[: MAX_ORIGIN // 2]
    origin = _package(entry)[: MAX_ORIGIN - len(version)] + version
    return Extension(_title(group, entry), load(group, entry), origin)


def load(group: Group, entry: EntryPoint) -> Any:
    """Load and return the object that an entry point of another package names; LocalError if that fails.

    Raises LocalError, which names it and its package, if that fails.
    """
    try:
        return entry.load()
    except (KeyboardInterrupt, Stopped):
        raise
    except BaseException as error:
        raise LocalError(f"{_title(group, entry)} cannot be loaded ({error})") from None


def called(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of another package and return its value; LocalError for any error but ConfigError.

    Raises ConfigError as the function does, and LocalError with the type alone of whatever else it raises:
    others may be sent the text.
    """
    try:
        return function(*arguments)
    except (ConfigError, KeyboardInterrupt, Stopped):
        raise
    except BaseException as error:
        raise LocalError(type(error).__name__) from error


def describe_others(group: Group) -> str:
    """Return the end of an error message: names registered by other packages, and how to register one."""
    names = ", ".join(entry.name for entry in registered(group))
    listed = f"; of other packages: {names}" if names else ""
    return f"{listed}; other packages register theirs in the entry-point group '{group}'"


def _title(group: Group, entry: EntryPoint) -> str:
    """Return words for an error message that name an entry point: its kind, name and package."""
    return f"the {group.kind} '{entry.name}' of {_package(entry)}"


def _package(entry: EntryPoint) -> str:
    """Return the name of the package that declares an entry point, for errors."""
    return "another package" if entry.dist is None else entry.dist.name
