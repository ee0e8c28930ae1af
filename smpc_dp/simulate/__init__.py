"""Many parties in one process: the same machines, no sockets."""

from smpc_dp.simulate.average import average

__all__ = ["average"]
