"""How the aggregator finds what a run is asked for: what most parties ask, and the others are excluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from smpc_dp.errors import Code, PeerFault
from smpc_dp.protocols.engine.collector import Collector, CollectorState


def agree_on_question(collector: Collector[Any], state: CollectorState, asked: Mapping[int, str]) -> str:
    """Return what most parties ask, and exclude those that ask something else.

    Of questions that are asked as often the first in the order of their characters is taken.
    """
    counts = Counter(asked.values())
    question = min(counts, key=lambda text: (-counts[text], text))
    for party, theirs in asked.items():
        if theirs != question:
            asks = f"asks {theirs!r}, the others ask {question!r}"
            collector.exclude(state, party, PeerFault(collector.name_of(party), asks, code=Code.QUESTION))
    return question
