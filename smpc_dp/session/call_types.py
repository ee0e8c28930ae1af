"""What calls of capabilities take and return, by name: types alone, of which a program loads none.

Type checkers must know the fields of what `await session.pairwise(...)` returns, and a class of the core that
described them would be written twice. So this one module of the core names types of capabilities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.own import LocalFunction, Metric
    from smpc_dp.capabilities.learn.requirements import Learned, OnStep
    from smpc_dp.capabilities.pairs.garbled.evaluation import AnyCircuit, Evaluation, Input, Role
    from smpc_dp.capabilities.pairs.garbled.params import Mode, Output, Security
    from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
    from smpc_dp.capabilities.pairs.statistics.similarity import Similarities
    from smpc_dp.capabilities.pairs.ustatistic.plan import Engine
    from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
    from smpc_dp.capabilities.reports.reports import SentReport

    __all__ = [
        "AnyCircuit",
        "Engine",
        "Evaluation",
        "Input",
        "Kernel",
        "Learned",
        "LocalFunction",
        "Metric",
        "Mode",
        "OnStep",
        "Output",
        "Role",
        "Security",
        "SentReport",
        "Similarities",
        "StatisticResult",
    ]
