"""The test vectors of the protocols: made here, published in `protocols/NAME/vectors`.

They are for other implementations and for auditors; those folders are only ever read to be compared.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

from smpc_dp.files import read_bounded
from smpc_dp_lab.vectors import (
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
    """Return the content of every published file by its name; the same bytes on every machine."""
    return PROTOCOLS[protocol]()


def check(folder: Path, protocol: str = "secagg") -> list[str]:
    """Return in what `folder` differs from `generate()`, one line a file; empty if byte for byte the same."""
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


def _mpyc() -> dict[str, bytes]:
    made = servers.all_to_json()
    made |= {f"kernel-{name}": servers_kernels.kernel_json(name) for name in servers_kernels.kernels()}
    return {f"{name}.json": _encode(content) for name, content in made.items()}


def _secagg() -> dict[str, bytes]:
    files: dict[str, JsonObject] = {}
    for scenario in runs.SCENARIOS:
        files[f"run-{scenario.name}"] = runs.to_json(scenario)
    files.update(derivations.all_to_json())
    files.update(succinct.all_to_json())
    for fault in negative.all_faults():
        files[f"negative-{fault.name}"] = fault.to_json()
    return {f"{name}.json": _encode(content) for name, content in files.items()}


def _gopa() -> dict[str, bytes]:
    files: dict[str, JsonObject] = {
        f"run-{scenario.name}": gopa_runs.to_json(scenario) for scenario in gopa_runs.SCENARIOS
    }
    files.update((f"negative-{fault.name}", fault.to_json()) for fault in gopa_negative.all_faults())
    files.update(
        (f"direct-run-{scenario.name}", direct_runs.to_json(scenario)) for scenario in direct_runs.SCENARIOS
    )
    files.update((f"direct-negative-{fault.name}", fault.to_json()) for fault in direct_negative.all_faults())
    return {f"{name}.json": _encode(content) for name, content in files.items()}


def _exchange() -> dict[str, bytes]:
    files: dict[str, JsonObject] = {
        f"run-{scenario.name}": exchange_runs.to_json(scenario) for scenario in exchange_runs.SCENARIOS
    }
    files.update((f"negative-{fault.name}", fault.to_json()) for fault in exchange_negative.all_faults())
    return {f"{name}.json": _encode(content) for name, content in files.items()}


def _pairwise() -> dict[str, bytes]:
    files: dict[str, JsonObject] = {
        f"run-{scenario.name}": pairwise_runs.to_json(scenario) for scenario in pairwise_runs.SCENARIOS
    }
    files.update((f"negative-{fault.name}", fault.to_json()) for fault in pairwise_negative.all_faults())
    files.update(
        (f"statistic-run-{scenario.name}", statistic_runs.to_json(scenario))
        for scenario in statistic_runs.SCENARIOS
    )
    files.update((f"statistic-negative-{name}", content) for name, content in statistic_negative.all_faults())
    whole = {f"{name}.json": _encode(content) for name, content in files.items()}
    return {**pairwise_garbling.generate(), **pairwise_ot.generate(), **whole}


PROTOCOLS: dict[str, Callable[[], dict[str, bytes]]] = {
    "secagg": _secagg,
    "gopa": lambda: {**_gopa(), **verifiable.generate(), **verifiable_sessions.generate()},
    "exchange": _exchange,
    "mpyc": _mpyc,
    "pairwise": _pairwise,
    "proofs": proofs.generate,
    "sampling": sampling.generate,
}


def _encode(content: JsonObject) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=True) + "\n").encode()
