"""What a session that learns asks of its averager, as written. This module loads no learner."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from smpc_dp.engine.registry import find_protocol
from smpc_dp.engine.session_protocol import SessionProtocol

LEARN = "learn"
# By method of an averager the protocol whose requests its averages are.
METHODS: Mapping[str, str] = MappingProxyType(
    {"secagg": "secagg", "gopa": "gopa", "local": "exchange", "pair": "exchange", "mpyc": "mpyc"}
)
DEFAULT: Final = "secagg"


def averager_of(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """Return the `averager` table of a session's parameters; empty if there is none."""
    averager = parameters.get("averager")
    return averager if isinstance(averager, Mapping) else {}


def is_verifiable(parameters: Mapping[str, object]) -> bool:
    """Tell whether the averages of a session's learner are to be verifiable."""
    return averager_of(parameters).get("verifiable") is True


def averages_by(parameters: Mapping[str, object]) -> SessionProtocol | None:
    """Return the protocol that averages for a learner; None if the method is unknown or not installed."""
    method = averager_of(parameters).get("method", DEFAULT)
    return find_protocol(METHODS[method]) if isinstance(method, str) and method in METHODS else None
