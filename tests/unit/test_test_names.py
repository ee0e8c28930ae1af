"""The paths of tests: a test of one capability has its name in its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
CAPABILITIES = frozenset(file.parent.name for file in ROOT.glob("smpc_dp/capabilities/*/capability.py"))
IMPORT = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+smpc_dp\.capabilities(?:\.(\w+)|[ \t]+import[ \t]+(\([^)]*\)|.*))",
    re.MULTILINE,
)

# Folders of tests that may name any capability: the lab and the second auditor are packages of their own, and
# what stands in `unit` itself is about the whole package.
ANY = frozenset(["tests/unit", "tests/unit/lab", "tests/unit/verify"])
# Tests of the core that import one capability all the same, by the reason.
CORE: Mapping[str, tuple[str, ...]] = {
    "It is the same for all sums or requests, and tried with those of the core and of one capability": (
        "tests/faults/test_checked_checkers.py",
        "tests/faults/test_early_hellos.py",
        "tests/faults/test_fault_schedules.py",
        "tests/faults/test_last_results.py",
        "tests/faults/test_saved_aggregator.py",
        "tests/unit/engine/test_states.py",
        "tests/unit/records/test_audit.py",
        "tests/unit/secagg/test_checked_settings.py",
        "tests/unit/secagg/test_noisy_sum.py",
        "tests/unit/secagg/test_private_weights.py",
        "tests/unit/session/test_connection.py",
        "tests/unit/session/test_session_requests.py",
        "tests/unit/wire/test_large_fields.py",
    ),
    "It is the same for all logs, and tried with those of verifiable averages": (
        "tests/unit/logs/test_audit_hostile.py",
        "tests/unit/logs/test_audit_memory.py",
        "tests/unit/logs/test_log_page.py",
        "tests/unit/logs/test_second.py",
        "tests/unit/logs/test_second_vectors.py",
    ),
    "Blocking channels are of the transport, and opened by two-party evaluations alone": (
        "tests/faults/test_transport_blocking.py",
        "tests/processes/test_cut_connections.py",
    ),
    "A formula, a primitive or an output of the core is compared with one use of it": (
        "tests/reference/test_errata.py",
        "tests/unit/cli/test_output.py",
        "tests/unit/crypto/test_kernel_limit.py",
        "tests/unit/privacy/test_arguments.py",
        "tests/unit/privacy/test_published_bounds.py",
        "tests/vectors/test_known_answers.py",
    ),
}


def imported_by(text: str) -> frozenset[str]:
    """Return the capabilities that a test imports modules of."""
    found = (word for match in IMPORT.finditer(text) for word in re.findall(r"\w+", match[1] or match[2]))
    return CAPABILITIES.intersection(found)


def missing(path: str, text: str) -> str | None:
    """Return the one capability that a test imports, if its path does not have the name."""
    capabilities = imported_by(text)
    if len(capabilities) != 1 or capabilities & {*re.split(r"[/_.]", path)}:
        return None
    return next(iter(capabilities))


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("tests/faults/test_sums.py", "from smpc_dp.capabilities.gopa import states\n", "gopa"),
        ("tests/faults/test_sums.py", "def one():\n    import smpc_dp.capabilities.pairs.kernels\n", "pairs"),
        ("tests/unit/gopas/test_sums.py", "from smpc_dp.capabilities import (\n    gopa,\n)\n", "gopa"),
        ("tests/faults/test_gopa_sums.py", "from smpc_dp.capabilities.gopa import states\n", None),
        ("tests/unit/gopa/test_sums.py", "from smpc_dp.capabilities import gopa\n", None),
        ("tests/faults/test_sums.py", "from smpc_dp.capabilities import load\n", None),
        (
            "tests/faults/test_sums.py",
            "from smpc_dp.capabilities.gopa import states\nfrom smpc_dp.capabilities.pairs import kernels\n",
            None,
        ),
    ],
)
def test_a_path_without_the_capability_is_seen(path: str, text: str, expected: str | None) -> None:
    assert missing(path, text) == expected


def test_a_test_of_one_capability_has_its_name_in_the_path() -> None:
    files = {file.relative_to(ROOT).as_posix(): file for file in TESTS.rglob("test_*.py")}
    found = {path: missing(path, file.read_text("utf-8")) for path, file in files.items()}
    others = {path: name for path, name in found.items() if name and path.rpartition("/")[0] not in ANY}
    listed = {path for paths in CORE.values() for path in paths}
    new = sorted(f"{path}: {name}" for path, name in others.items() if path not in listed)
    assert not new, "\n".join(["without the name of their capability:", *new])
    needless = sorted(listed - {*others})
    assert not needless, "\n".join(["not needed in CORE any more:", *needless])
