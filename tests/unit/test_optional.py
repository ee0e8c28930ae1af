"""Modules of extras: imported where they are installed, and named with their extra where they are not."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from smpc_dp.capabilities.learn import data, topology
from smpc_dp.errors import LocalError
from smpc_dp.optional import EXTRAS, import_optional
from smpc_dp.privacy.gopa.graphs import random_regular

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Hide a package, with its modules that are imported already."""

    def hidden(package: str) -> None:
        for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return hidden


@pytest.mark.parametrize("package", EXTRAS)
def test_a_missing_package_is_named_with_its_extra(package: str, hide: Callable[[str], None]) -> None:
    name, extra = EXTRAS[package]
    hide(package)
    for module in (package, f"{package}.anything"):
        with pytest.raises(LocalError) as raised:
            import_optional(module)
        assert str(raised.value) == f"{name} is not installed: install smpc-dp[{extra}]"


@pytest.mark.parametrize("package", EXTRAS)
def test_extras_install_what_they_are_named_for(package: str) -> None:
    name, extra = EXTRAS[package]
    assert any(needed.startswith(f"{name}>=") for needed in PROJECT["optional-dependencies"][extra])
    assert not any(needed.startswith(name) for needed in PROJECT["dependencies"])


def test_a_package_that_lacks_something_itself_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "networkx.py").write_text("import no_such_module_of_networkx\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "networkx", raising=False)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_networkx"):
        import_optional("networkx")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: topology.watts_strogatz(10, 4, 0.3, 1),
        lambda: topology.random_k_out(10, 2, 1),
        lambda: topology.erdos_renyi(10, 0.5, 1),
        lambda: random_regular(10, 4),
    ],
    ids=["watts-strogatz", "k-out", "erdos-renyi", "regular"],
)
def test_random_graphs_name_the_extra(draw: Callable[[], object], hide: Callable[[str], None]) -> None:
    hide("networkx")
    with pytest.raises(LocalError, match=r"networkx is not installed: install smpc-dp\[graphs\]"):
        draw()


def test_bundled_data_name_the_extra(hide: Callable[[str], None]) -> None:
    hide("sklearn")
    with pytest.raises(LocalError, match=r"scikit-learn is not installed: install smpc-dp\[learn\]"):
        data.bundled("iris")


def test_graphs_without_a_draw_need_no_networkx(hide: Callable[[str], None]) -> None:
    hide("networkx")
    assert topology.ring(5).edges.tolist() == [[0, 1], [0, 4], [1, 2], [2, 3], [3, 4]]
    assert topology.grid(2, 2).edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert len(topology.complete(5).edges) == 10
