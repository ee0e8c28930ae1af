"""A platform on which the library cannot run is refused when it is imported, in words."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import smpc_dp
from smpc_dp import platforms
from smpc_dp.platforms import OLDEST_PYTHON, check_platform

PACKAGE = Path(smpc_dp.__file__).parent
HERE = {"version_info": (3, 14, 0), "platform": "linux", "maxsize": 2**63 - 1, "byteorder": "little"}


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 14, 2), (4, 0, 0)])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_what_may_run_passes(
    version: tuple[int, int, int], platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        platforms, "sys", SimpleNamespace(**{**HERE, "version_info": version, "platform": platform})
    )
    check_platform()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version_info": (3, 10, 13)}, "Python 3.11 or later is needed, this is 3.10"),
        ({"version_info": (2, 7, 18)}, "Python 3.11 or later is needed, this is 2.7"),
        ({"platform": "win32"}, "Windows is not supported: Linux is needed"),
        ({"platform": "cygwin"}, "Windows is not supported: Linux is needed"),
        ({"maxsize": 2**31 - 1}, "a 64-bit Python is needed"),
        ({"byteorder": "big"}, "a little-endian processor is needed"),
        (
            {"platform": "win32", "maxsize": 2**31 - 1},
            "Windows is not supported: Linux is needed; a 64-bit Python is needed",
        ),
    ],
)
def test_what_cannot_run_is_refused(
    changes: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "sys", SimpleNamespace(**{**HERE, **changes}))
    with pytest.raises(ImportError) as refused:
        check_platform()
    assert str(refused.value) == f"smpc-dp does not run here (docs/reference/compatibility.md): {reason}"


@pytest.mark.parametrize("module", ["smpc_dp", "smpc_dp.errors"])
def test_the_import_is_refused_before_anything_is_loaded(module: str) -> None:
    code = (
        "import sys\n"
        "sys.byteorder = 'big'\n"
        f"try:\n    import {module}\nexcept ImportError as error:\n    print(error)\n"
        "print({'numpy', 'msgspec', 'smpc_dp._core', 'smpc_dp.errors'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "smpc-dp does not run here (docs/reference/compatibility.md): a little-endian processor is needed",
        "set()",
    ]


@pytest.mark.parametrize("name", ["__init__.py", "platforms.py"])
def test_older_pythons_can_read_the_check(name: str) -> None:
    ast.parse((PACKAGE / name).read_text("utf-8"), feature_version=(3, 8))


def test_the_oldest_python_is_that_of_the_project() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text("utf-8")
    assert f'requires-python = ">={".".join(map(str, OLDEST_PYTHON))}"' in project
