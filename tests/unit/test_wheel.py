"""The check of a wheel's content refuses what is not the product. `make wheel` runs it on the real one."""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from release.wheel import LOCK, ROOT, TEMPLATES, check_content, environment, foreign, needed

METADATA = ("smpc_dp-0.1.0.dist-info/METADATA", "smpc_dp-0.1.0.dist-info/licenses/LICENSE")
PAGES = tuple(f"smpc_dp/report/templates/{file.name}" for file in TEMPLATES.iterdir())
PRODUCT = (
    "smpc_dp/__init__.py",
    "smpc_dp/_core.abi3.so",
    "smpc_dp/capabilities/servers/statistics/vectors.py",
    *PAGES,
    *METADATA,
)


def made(folder: Path, names: Sequence[str], abi: str = "abi3") -> Path:
    path = folder / f"smpc_dp-0.1.0-cp311-{abi}-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "")
    return path


def test_the_product_passes(tmp_path: Path) -> None:
    check_content(made(tmp_path, PRODUCT))


def test_all_modules_of_the_package_pass() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in (ROOT / "smpc_dp").rglob("*.py")]
    assert len(names) > 300
    assert foreign(names, "0.1.0") == []


@pytest.mark.parametrize(
    "name",
    [
        "smpc_dp/bench/secagg.py",
        "smpc_dp/cli/bench.py",
        "smpc_dp/cli/vectors.py",
        "smpc_dp/vectors/runs.py",
        "smpc_dp/simulate/test_average.py",
        "smpc_dp/capabilities/learn/figure_3.py",
        "smpc_dp_lab/vectors/runs.py",
        "lab/pyproject.toml",
        "tests/conftest.py",
        "benchmarks/README.md",
        "smpc_dp-0.1.1.dist-info/METADATA",
    ],
)
def test_development_code_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=name):
        check_content(made(tmp_path, [*PRODUCT, name]))


def test_a_wheel_of_one_python_or_without_the_core_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="cp311"):
        check_content(made(tmp_path, PRODUCT, abi="cp311"))
    with pytest.raises(SystemExit, match="lacks the compiled core"):
        check_content(made(tmp_path, METADATA))


def test_a_wheel_without_the_templates_of_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"lacks templates of pages: smpc_dp/report/templates/base.html, "):
        check_content(made(tmp_path, [name for name in PRODUCT if name not in PAGES]))


def test_a_compiler_on_the_path_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert environment(tmp_path)["PATH"] == str(tmp_path / "bin")
    compiler = tmp_path / "bin" / "cc"
    compiler.touch(0o755)
    with pytest.raises(SystemExit, match="holds a compiler: cc"):
        environment(tmp_path)


def test_the_locked_versions_of_the_product_are_with_hashes_and_without_tools() -> None:
    blocks = re.findall(r"^(\S+)==.*\n((?: .*\n)*)", needed(LOCK.read_text("utf-8")), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {name for name, _ in blocks}
    assert names >= {re.split("[<>=]", wanted)[0] for wanted in project["dependencies"]}
    # Of typer, and of rich by way of markdown-it-py.
    assert names >= {"shellingham", "mdurl"}
    assert names.isdisjoint({"maturin", "pytest", "networkx", "matplotlib"})
    assert all("--hash=sha256:" in lines for _, lines in blocks)
