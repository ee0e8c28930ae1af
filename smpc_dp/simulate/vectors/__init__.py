"""The test vectors of secure aggregation: made here, published in `protocols/secagg/vectors`.

They are for other implementations and for auditors; that folder is only ever read to be compared.
"""

from __future__ import annotations

import json
from pathlib import Path

from smpc_dp.simulate.vectors import derivations, negative, runs

JsonObject = dict[str, object]


def generate() -> dict[str, bytes]:
    """Return the content of every published file by its name; the same bytes on every machine."""
    files: dict[str, JsonObject] = {}
    for scenario in runs.SCENARIOS:
        files[f"run-{scenario.name}"] = runs.to_json(scenario)
    files.update(derivations.all_to_json())
    for fault in negative.all_faults():
        files[f"negative-{fault.name}"] = fault.to_json()
    return {f"{name}.json": _encode(content) for name, content in files.items()}


def check(folder: Path) -> list[str]:
    """Return in what `folder` differs from `generate()`, one line a file; empty if byte for byte the same."""
    expected = generate()
    present = {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}
    differences = [f"{name}: is missing" for name in sorted(expected.keys() - present.keys())]
    differences += [f"{name}: is not one of the vectors" for name in sorted(present.keys() - expected.keys())]
    differences += [
        f"{name}: differs from what the code produces"
        for name in sorted(expected.keys() & present.keys())
        if expected[name] != present[name]
    ]
    return differences


def write(folder: Path) -> list[str]:
    """Write every file of `generate()` into `folder`, which is made if needed; return the names."""
    folder.mkdir(parents=True, exist_ok=True)
    files = generate()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return sorted(files)


def _encode(content: JsonObject) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=True) + "\n").encode()
