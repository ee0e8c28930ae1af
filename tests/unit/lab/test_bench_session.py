"""`smpc-dp bench session` at a small size."""

from __future__ import annotations

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.session import run_session_bench
from smpc_dp_lab.bench.session_worker import PRECISION


@pytest.mark.long
def test_it_averages_exactly_and_counts_bytes() -> None:
    report = run_session_bench(3, 1_000)
    figures = {figure.name: figure for figure in report.figures}
    assert 0 < figures["largest difference to the plain average"].median <= PRECISION
    sent = figures["party: sent"]
    assert sent.limit is not None
    assert sent.limit.median == 3_000 < sent.median < 6_000
    assert figures["aggregator: peak memory"].median > 1 << 20


@pytest.mark.parametrize(("parties", "length", "runs"), [(2, 10, 1), (3, 0, 1), (3, 10, 0)])
def test_sizes_out_of_range_are_refused(parties: int, length: int, runs: int) -> None:
    with pytest.raises(ConfigError):
        run_session_bench(parties, length, runs)
