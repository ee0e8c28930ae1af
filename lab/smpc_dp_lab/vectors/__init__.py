"""Test vectors of the protocols: generated here, published in `protocols/NAME/vectors`.

They are for other implementations and for auditors; those folders are only ever read to be compared.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from smpc_dp.engine.registry import built_in_protocols
from smpc_dp.files import read_bounded
from smpc_dp_lab.vectors import (
    active_negative,
    active_runs,
    checked_negative,
    checked_runs,
    contradictions,
    covert_certificates,
    covert_negative,
    covert_runs,
    derivations,
    direct_negative,
    direct_runs,
    exchange_negative,
    exchange_runs,
    gopa_negative,
    gopa_runs,
    negative,
    pairwise_garbling,
    pairwise_negative,
    pairwise_ot,
    pairwise_runs,
    proofs,
    runs,
    sampling,
    servers,
    servers_kernels,
    signed_results,
    statistic_negative,
    statistic_runs,
    succinct,
    verifiable,
    verifiable_sessions,
)

MAX_FILE_BYTES = 1 << 26

JsonObject = dict[str, object]


@functools.cache
def generate(protocol: str = "secagg") -> dict[str, bytes]:
    """Return the content of every published file by its name; the same bytes on every host."""
    return {
        f"{name}.json": (json.dumps(content, indent=1, ensure_ascii=True) + "\n").encode()
        for name, content in PROTOCOLS[protocol]().items()
    }


def check(folder: Path, protocol: str = "secagg") -> list[str]:
    """Return the differences of `folder` from `generate()`, one line per file; empty if there are none."""
    expected = generate(protocol)
    present = {
        path.name: read_bounded(path, "the vectors", MAX_FILE_BYTES) for path in sorted(folder.glob("*.json"))
    }
    differences = [f"{name}: is missing" for name in sorted(expected.keys() - present.keys())]
    differences += [f"{name}: is not one of the vectors" for name in sorted(present.keys() - expected.keys())]
    differences += [
        f"{name}: differs from what the code produces"
        for name in sorted(expected.keys() & present.keys())
        if expected[name] != present[name]
    ]
    return differences


def write(folder: Path, protocol: str = "secagg") -> list[str]:
    """Write every file of `generate()` into `folder`, which is made if needed; return the names."""
    folder.mkdir(parents=True, exist_ok=True)
    files = generate(protocol)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return sorted(files)


def _of(
    runs: ModuleType, faults: ModuleType, prefix: str = "", scenarios: ModuleType | None = None
) -> dict[str, JsonObject]:
    """Return the test vectors of recorded runs, and of changed messages (`faults`) in such runs."""
    played = (scenarios or runs).SCENARIOS
    files = {f"{prefix}run-{scenario.name}": runs.to_json(scenario) for scenario in played}
    return files | {f"{prefix}negative-{fault.name}": fault.to_json() for fault in faults.all_faults()}


def _secagg() -> dict[str, JsonObject]:
    """Return all test vectors of secure aggregation, by file name."""
    checked = _of(runs, checked_negative, scenarios=checked_runs)
    single = derivations.all_to_json() | succinct.all_to_json() | contradictions.all_to_json()
    return _of(runs, negative) | checked | signed_results.all_to_json() | single


def _gopa() -> dict[str, JsonObject]:
    """Return all test vectors of GOPA, by file name."""
    made = _of(gopa_runs, gopa_negative) | _of(direct_runs, direct_negative, "direct-")
    return made | verifiable.generate() | verifiable_sessions.generate()


def _mpyc() -> dict[str, JsonObject]:
    """Return all test vectors of secret sharing, by file name."""
    kernels = {f"kernel-{name}": servers_kernels.kernel_json(name) for name in servers_kernels.kernels()}
    return servers.all_to_json() | kernels


def _pairwise() -> dict[str, JsonObject]:
    """Return all test vectors of two-party evaluation and pairwise statistics, by file name."""
    made = _of(pairwise_runs, pairwise_negative) | _of(statistic_runs, statistic_negative, "statistic-")
    return made | pairwise_garbling.generate() | pairwise_ot.generate()


_GENERATORS: dict[str, Callable[[], dict[str, JsonObject]]] = {
    "secagg": _secagg,
    "gopa": _gopa,
    "exchange": lambda: _of(exchange_runs, exchange_negative),
    "mpyc": _mpyc,
    "pairwise": _pairwise,
    "active": lambda: _of(active_runs, active_negative),
    "covert": lambda: (
        _of(pairwise_runs, covert_negative, scenarios=covert_runs) | covert_certificates.generate()
    ),
}
PROTOCOLS = {folder: _GENERATORS[folder] for one in built_in_protocols() for folder in one.vectors} | {
    "proofs": proofs.generate,
    "sampling": sampling.generate,
}
"""By the folder of `protocols/`: those that the protocols name, and what protocols are made of."""
