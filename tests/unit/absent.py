"""Which capabilities are absent together, and a process in which they are."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder

import pytest

import smpc_dp.capabilities
from smpc_dp import extensions
from smpc_dp.engine import registry
from smpc_dp.extensions import CAPABILITIES
from tests.unit.test_capabilities import MAY_IMPORT

# By capability those that build on it, which are absent with it.
BUILT_ON: Mapping[str, frozenset[str]] = {
    name: frozenset(other for other, listed in MAY_IMPORT.items() if name in listed) for name in MAY_IMPORT
}


def clear(monkeypatch: pytest.MonkeyPatch, *finders: MetaPathFinder) -> None:
    """Forget what is imported of capabilities, and find modules by `finders` first."""
    registry._built_in.cache_clear()
    extensions.find.cache_clear()
    for name in [*sys.modules]:
        if name.startswith(f"{CAPABILITIES}."):
            monkeypatch.delitem(sys.modules, name)
    for name in BUILT_ON:
        monkeypatch.delattr(smpc_dp.capabilities, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [*finders, *sys.meta_path])
