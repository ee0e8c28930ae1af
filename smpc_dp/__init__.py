"""Secure multi-party computation with differential privacy.

    async with smpc_dp.connect("session.toml", party="alice") as session:
        result = await session.average(vector)

See README.md for the commands and `docs/` for the rest.
"""

from smpc_dp import simulate
from smpc_dp.errors import (
    ConfigError,
    LocalError,
    PeerFault,
    PrivacyError,
    SmpcError,
    TimeoutFault,
    VerificationError,
)
from smpc_dp.identity import Identity
from smpc_dp.protocols.result import Result
from smpc_dp.runtime.aggregator import serve
from smpc_dp.runtime.session import Session, connect
from smpc_dp.runtime.session_file import write_session

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Identity",
    "LocalError",
    "PeerFault",
    "PrivacyError",
    "Result",
    "Session",
    "SmpcError",
    "TimeoutFault",
    "VerificationError",
    "__version__",
    "connect",
    "serve",
    "simulate",
    "write_session",
]
