"""Simulations: all members of a session in one process, without sockets."""

from smpc_dp.capabilities.learn.simulation.learning import learn
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate
from smpc_dp.capabilities.pairs.simulation.similarity import similarities
from smpc_dp.capabilities.reports.simulation.local import local_auc, local_pairwise
from smpc_dp.capabilities.reports.simulation.names import names
from smpc_dp.session.memory.members import Simulated
from smpc_dp.simulate.average import average
from smpc_dp.simulate.sessions import run
from smpc_dp.simulate.statistic import pairwise
from smpc_dp.simulate.statistics import statistics

__all__ = [
    "Simulated",
    "average",
    "evaluate",
    "learn",
    "local_auc",
    "local_pairwise",
    "names",
    "pairwise",
    "run",
    "similarities",
    "statistics",
]
