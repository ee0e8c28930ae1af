"""What must be equal on two machines so that a shard has the same value on both."""

from __future__ import annotations

import functools
import hashlib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

# Packages whose code is compared, and packages whose versions are: their numbers go into values.
CODE, VERSIONS = ("smpc_dp", "smpc_dp_lab", "smpc_dp_verify"), ("smpc-dp", "numpy", "scipy", "mpyc")
_SUFFIXES = frozenset({".py", ".so"})


@functools.cache
def build() -> dict[str, str]:
    """Return package versions and a hash of this project's code, to compare machines of a cluster."""
    versions = {
        name: next((one.version for one in metadata.distributions(name=name)), "a checkout")
        for name in VERSIONS
    }
    return versions | {"code": _digest()}


def difference(own: dict[str, str], other: dict[str, str]) -> str:
    """Return text that says how another machine's build differs from this one; "" if equal."""
    return "; ".join(
        f"{name} {other.get(name, 'not there')}, and {text} here"
        for name, text in own.items()
        if other.get(name) != text
    )


def _digest() -> str:
    """Return a hash of all code files of this project's packages that are installed here."""
    state = hashlib.sha256()
    for name in CODE:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        root = Path(spec.origin).parent
        for path in sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES):
            content = hashlib.sha256(path.read_bytes()).digest()
            state.update(f"{name}/{path.relative_to(root)}".encode() + b"\0" + content)
    return state.hexdigest()[:16]
