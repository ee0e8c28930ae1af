"""Benchmarks: each measures its peers and its limit in the same run, alternating with ours."""

from smpc_dp.bench.figures import Report
from smpc_dp.bench.secagg import run_secagg_bench

__all__ = ["Report", "run_secagg_bench"]
