"""Operations of runs: their text, and the selection of one by majority."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from smpc_dp.engine.collector import Collector, CollectorState
from smpc_dp.errors import Check, Code, ConfigCheck, ConfigError, PeerFault


def encode_operation(requested: Mapping[str, object], limit: int) -> str:
    """Return a requested operation as JSON text; raise ConfigError if it is above `limit` characters."""
    operation = json.dumps(requested, sort_keys=True)
    if len(operation) > limit:
        reason = f"its description has more than {limit} characters"
        raise ConfigError.at("kernel", reason, ConfigCheck.TOO_LARGE)
    return operation


def agree_on_operation(collector: Collector[Any], state: CollectorState, requested: Mapping[int, str]) -> str:
    """Return the operation of most parties, and exclude the parties that ask for another one.

    Of equally frequent operations it is the first in the order of their characters.
    """
    counts = Counter(requested.values())
    operation = min(counts, key=lambda text: (-counts[text], text))
    for party, theirs in requested.items():
        if theirs != operation:
            asks = f"asks {theirs!r}, the others ask {operation!r}"
            collector.exclude(
                state,
                party,
                PeerFault(collector.name_of(party), asks, Check.OTHER_OPERATION, code=Code.OPERATION),
            )
    return operation
