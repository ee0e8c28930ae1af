"""What an installation runs: versions of protocols and of the channel, kernels, libraries."""

from __future__ import annotations

import importlib.metadata
import platform

from smpc_dp.crypto.garble import kernels
from smpc_dp.engine.registry import built_in_protocols
from smpc_dp.transport.handshake import VERSION

# Libraries below this one whose versions decide what a session does.
LIBRARIES = ("cryptography", "msgspec", "numpy", "pynacl")


def installed_versions() -> str:
    """Return three lines of text: versions of protocols, of native code, of Python and libraries."""
    protocols = ", ".join(
        f"{protocol.name} {' and '.join(map(str, sorted(protocol.versions)))}"
        for protocol in sorted(built_in_protocols(), key=lambda protocol: protocol.name)
        if protocol.versions
    )
    *others, used = kernels()
    also = f"; also there: {', '.join(others)}" if others else ""
    libraries = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    return "\n".join(
        [
            f"protocols: {protocols}; channel {VERSION}",
            f"kernels: {used}{also}",
            f"{platform.python_implementation()} {platform.python_version()}, {', '.join(libraries)}",
        ]
    )
