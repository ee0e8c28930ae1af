"""Many parties in one process: the same machines, no sockets."""

from smpc_dp.simulate.average import average, check_size

__all__ = ["average", "check_size"]
