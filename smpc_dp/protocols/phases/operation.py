"""Selection of a run's operation by majority; parties that ask for another one are excluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from smpc_dp.errors import Check, Code, PeerFault
from smpc_dp.protocols.engine.collector import Collector, CollectorState


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
