"""Benchmarks: each measures this package, its peers and its limit alternately, in the same run."""

from smpc_dp_lab.bench.engines import run_engines_bench
from smpc_dp_lab.bench.figures import Report
from smpc_dp_lab.bench.gopa import run_gopa_bench
from smpc_dp_lab.bench.learn import run_learn_bench
from smpc_dp_lab.bench.pairwise import run_compare_bench, run_garbling_bench, run_ot_bench
from smpc_dp_lab.bench.proofs import run_proofs_bench
from smpc_dp_lab.bench.sampling import run_sampling_bench
from smpc_dp_lab.bench.secagg import run_secagg_bench
from smpc_dp_lab.bench.session import run_session_bench
from smpc_dp_lab.bench.statistic import run_statistic_bench

__all__ = [
    "Report",
    "run_compare_bench",
    "run_engines_bench",
    "run_garbling_bench",
    "run_gopa_bench",
    "run_learn_bench",
    "run_ot_bench",
    "run_proofs_bench",
    "run_sampling_bench",
    "run_secagg_bench",
    "run_session_bench",
    "run_statistic_bench",
]
