"""The folder of published circuits: its files, its manifest, and the check that the builder makes both."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol, parse_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, Op
from smpc_dp.capabilities.pairs.published.check import RANDOM_INPUTS, check_meaning
from smpc_dp.capabilities.pairs.published.entry import Published, Value
from smpc_dp.capabilities.pairs.published.library import PUBLISHED
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, VerificationError
from smpc_dp.files import read_bounded

MANIFEST = "MANIFEST.json"
MAX_FILE_BYTES = 1 << 26
BIT_ORDER = "least significant bit first"


@dataclass(frozen=True)
class Finding:
    """Result of checking one published circuit, or the folder of all: inputs tried, and faults found."""

    name: str
    inputs_tried: int
    faults: tuple[str, ...]


def describe(entry: Published, circuit: Circuit, text: bytes) -> dict[str, object]:
    """Return the manifest's entry for a circuit: its sizes, meaning and the hash of its file."""
    return {
        "file": entry.file,
        "sha256": sha256(text).hexdigest(),
        "digest": circuit.digest.hex(),
        "computes": entry.summary,
        "inputs": [_describe_value(value) for value in entry.inputs],
        "outputs": [_describe_value(value) for value in entry.outputs],
        "gates": {op.name: circuit.count(op) for op in Op},
        "wires": circuit.n_wires,
        "and_depth": circuit.and_depth,
    }


@functools.cache
def _text(entry: Published) -> bytes:
    """Return the content of the file that publishes a circuit, cached."""
    return format_bristol(entry.build())


@functools.cache
def manifest() -> bytes:
    """Return the content of the manifest file, which describes all published circuits."""
    circuits = {}
    for name, entry in PUBLISHED.items():
        circuit = entry.build()
        circuits[name] = describe(entry, circuit, _text(entry))
    value = {"format": "Bristol Fashion", "bit_order": BIT_ORDER, "circuits": circuits}
    return json.dumps(value, indent=2).encode() + b"\n"


def export(entries: Iterable[Published], folder: Path, *, with_manifest: bool) -> list[Path]:
    """Write published circuits as Bristol files, and the manifest of all if wanted; return the written paths.

    Raises LocalError when a file cannot be written.
    """
    texts = {entry.file: _text(entry) for entry in entries}
    if with_manifest:
        texts[MANIFEST] = manifest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_bytes(text)
    except OSError as error:
        raise LocalError(f"{folder}: {error.strerror}") from error
    return [folder / name for name in texts]


def check_folder(folder: Path) -> Finding:
    """Return as a finding's faults unknown files and a wrong manifest; LocalError if unreadable.

    Raises LocalError when the folder cannot be read.
    """
    faults: list[str] = []
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        advice = f"`smpc-dp circuits export --all --out {shlex.quote(str(folder))}` makes it"
        raise LocalError(f"{folder}: {error.strerror}; {advice}") from error
    known = {entry.file for entry in PUBLISHED.values()} | {MANIFEST, "README.md"}
    faults.extend(f"{name}: not a published file" for name in names if name not in known)
    try:
        entries = read_manifest(folder)
        faults.extend(f"{MANIFEST}: no such circuit: {name}" for name in entries if name not in PUBLISHED)
        if not faults and _read(folder / MANIFEST) != manifest():
            faults.append(f"{MANIFEST}: differs from what the builder makes")
    except (ConfigError, LocalError) as error:
        faults.append(str(error))
    return Finding("folder", 0, tuple(faults))


def read_manifest(folder: Path) -> Mapping[str, object]:
    """Return the manifest's entries by name. Raises LocalError (no file) or ConfigError (not a manifest)."""
    path = folder / MANIFEST
    try:
        value = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError.at(str(path), f"not JSON: {error}", ConfigCheck.FORMAT) from error
    circuits = value.get("circuits") if isinstance(value, dict) else None
    if not isinstance(circuits, dict):
        raise ConfigError.at(str(path), "no object 'circuits'", ConfigCheck.MISSING)
    return circuits


def check_published(
    entry: Published,
    folder: Path,
    count: int = RANDOM_INPUTS,
    progress: Callable[[int], None] = lambda _: None,
) -> Finding:
    """Check a published circuit's file, manifest entry and outputs; return inputs tried and faults.

    `count` and `progress` are those of `check_meaning`. Faults are returned, not raised.
    """
    faults: list[str] = []
    tried = 0
    circuit = None
    built = entry.build()
    path = folder / entry.file
    try:
        text = _read(path)
        if text != _text(entry):
            faults.append(f"{entry.file}: not byte for byte what the builder makes")
        circuit = parse_bristol(text, str(path))
        faults.extend(_manifest_faults(entry, read_manifest(folder), describe(entry, circuit, text)))
    except (ConfigError, LocalError) as error:
        faults.append(str(error))
    try:
        tried = check_meaning(entry, built if circuit is None else circuit, count, progress)
    except VerificationError as error:
        faults.append(str(error))
    return Finding(entry.name, tried, tuple(faults))


def _read(path: Path) -> bytes:
    """Return the bytes of a file in the folder of published circuits, up to a size limit."""
    return read_bounded(path, "the file", MAX_FILE_BYTES)


def _manifest_faults(
    entry: Published, entries: Mapping[str, object], result: Mapping[str, object]
) -> list[str]:
    """Return messages on how a circuit's entry in the manifest differs from the expected one."""
    claimed = entries.get(entry.name)
    if not isinstance(claimed, dict):
        return [f"{MANIFEST}: no entry {entry.name}"]
    return [
        f"{MANIFEST}: {entry.name}: {key} is {json.dumps(claimed.get(key))}, not {json.dumps(value)}"
        for key, value in result.items()
        if claimed.get(key) != value
    ] + [f"{MANIFEST}: {entry.name}: unknown key {key}" for key in claimed if key not in result]


def _describe_value(value: Value) -> dict[str, object]:
    """Return the manifest's data on one input or output: name, width and meaning."""
    return {"name": value.name, "width": value.width, "meaning": value.meaning}
