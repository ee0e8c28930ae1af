"""Import the modules of extras, or say which extra installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from smpc_dp.errors import LocalError

# The package that is imported -> (the name under which it is installed, the extra of pyproject.toml).
EXTRAS: dict[str, tuple[str, str]] = {
    "networkx": ("networkx", "graphs"),
    "sklearn": ("scikit-learn", "learn"),
}


def optional(module: str) -> ModuleType:
    """Return a module of an extra; raise LocalError, naming the extra, where its package is not installed."""
    package = module.partition(".")[0]
    name, extra = EXTRAS[package]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A package that is there, but lacks something itself, is another error.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise LocalError(f"{name} is not installed: install smpc-dp[{extra}]") from None
