"""All parties in one process: the same machines, no sockets."""

from smpc_dp.simulate.average import average, check_size
from smpc_dp.simulate.local import local_auc, local_pairwise
from smpc_dp.simulate.pairwise import evaluate

__all__ = ["average", "check_size", "evaluate", "local_auc", "local_pairwise"]
