"""Tokens in the memory of one process, between parties that are alone as in processes of their own."""

from __future__ import annotations

import asyncio

import numpy as np

from smpc_dp.capabilities.learn.tokens import PlainTokens, Taken


class TokensApart(PlainTokens):
    """Token passing of one party, the only local one; `queues` has the tokens on their way to each."""

    def __init__(self, party: int, queues: list[asyncio.Queue[Taken]]) -> None:
        super().__init__(len(queues))
        self._here, self._queues = np.array([party]), queues

    @property
    def parties(self) -> int:
        return len(self._queues)


def tokens_apart(parties: int) -> list[TokensApart]:
    """Return the connected token passing of each party."""
    queues = [asyncio.Queue[Taken]() for _ in range(parties)]
    return [TokensApart(party, queues) for party in range(parties)]
