"""Requests for statistics of pairs that servers compute on shares, by a party."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.servers.requests.programs import operation_of
from smpc_dp.session.party_requests import PartyRequests

if TYPE_CHECKING:
    from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
    from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
    from smpc_dp.capabilities.servers.requests.connection import ServersConnection
    from smpc_dp.privacy.circuit_noise import NoiseKind, PairDistribution


async def request_statistic(
    requests: PartyRequests,
    kernel: str | Kernel,
    data: Any,
    epsilon: float,
    partners: int | None,
    *,
    delta: float,
    noise: NoiseKind | PairDistribution,
    zetas: tuple[float, float] | None,
    public_label: int | None,
    number: int | None,
) -> StatisticResult:
    """Count and run a party's request for a pairwise statistic that servers compute; return the result."""
    requests.take(number)
    async with requests.declining():
        outcome = find_kernel(kernel)
        operation = operation_of(outcome, epsilon, delta, noise, partners)
    with requests.noting_others():
        result = await cast("ServersConnection", requests.connection).statistic(
            requests.number, outcome, data, public_label, operation, zetas, requests.ledger
        )
    requests.notify_done(result.survivors, result.absent)
    return result
