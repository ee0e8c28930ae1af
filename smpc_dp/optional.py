"""Imports of optional dependencies, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from smpc_dp.errors import LocalError

# Imported package -> (distribution, extra of pyproject.toml).
EXTRAS: dict[str, tuple[str, str]] = {
    "flwr": ("flwr", "flower"),
    "networkx": ("networkx", "graphs"),
    "pandas": ("pandas", "tables"),
    "pyarrow": ("pyarrow", "tables"),
    "ray": ("ray", "ray"),
    "sklearn": ("scikit-learn", "learn"),
    "torch": ("torch", "torch"),
}


def import_optional(module: str) -> ModuleType:
    """Import a module of an optional dependency; if it is missing, LocalError names the extra to install."""
    package = module.partition(".")[0]
    name, extra = EXTRAS[package]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A missing dependency of an installed package is another error.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise LocalError(f"{name} is not installed: install smpc-dp[{extra}]") from None
