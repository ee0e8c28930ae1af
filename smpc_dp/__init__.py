"""Secure multi-party computation with differential privacy.

    async with smpc_dp.connect("session.toml", party="alice") as session:
        result = await session.average(vector)

See README.md for the commands and `docs/` for the rest.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from smpc_dp.platforms import check_platform

check_platform()

from smpc_dp.errors import (  # noqa: E402 - other platforms lack what it imports
    Check,
    ConfigCheck,
    ConfigError,
    LocalError,
    OtherRequestError,
    PeerFault,
    PrivacyError,
    SmpcError,
    TimeoutFault,
    VerificationError,
)

if TYPE_CHECKING:
    from smpc_dp import simulate, sync
    from smpc_dp.capabilities.pairs.garbled.evaluation import Evaluation
    from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
    from smpc_dp.engine.result import Result
    from smpc_dp.identity.keys import Identity
    from smpc_dp.logs.audits.audit import audit
    from smpc_dp.logs.audits.audit_selection import CheckpointPolicy
    from smpc_dp.session.aggregator import serve
    from smpc_dp.session.session import Session, connect
    from smpc_dp.session.session_file import write_session
    from smpc_dp.web_settings import WebSettings
else:
    # Loaded at their first use: loading takes long, and the command line must catch Ctrl-C before it.
    _HOMES = {
        "smpc_dp.identity.keys": ("Identity",),
        "smpc_dp.capabilities.pairs.garbled.evaluation": ("Evaluation",),
        "smpc_dp.capabilities.pairs.ustatistic.result": ("StatisticResult",),
        "smpc_dp.engine.result": ("Result",),
        "smpc_dp.session.aggregator": ("serve",),
        "smpc_dp.logs.audits.audit": ("audit",),
        "smpc_dp.logs.audits.audit_selection": ("CheckpointPolicy",),
        "smpc_dp.session.session": ("Session", "connect"),
        "smpc_dp.session.session_file": ("write_session",),
        "smpc_dp.web_settings": ("WebSettings",),
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

    def __getattr__(name):
        if name in ("simulate", "sync"):
            return import_module(f"smpc_dp.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'smpc_dp' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__version__ = "0.1.0"

# The importing program decides whether log records are shown: docs/reference/logging.md.
logging.getLogger("smpc_dp").addHandler(logging.NullHandler())

__all__ = [
    "Check",
    "CheckpointPolicy",
    "ConfigCheck",
    "ConfigError",
    "Evaluation",
    "Identity",
    "LocalError",
    "OtherRequestError",
    "PeerFault",
    "PrivacyError",
    "Result",
    "Session",
    "SmpcError",
    "StatisticResult",
    "TimeoutFault",
    "VerificationError",
    "WebSettings",
    "__version__",
    "audit",
    "connect",
    "serve",
    "simulate",
    "sync",
    "write_session",
]
