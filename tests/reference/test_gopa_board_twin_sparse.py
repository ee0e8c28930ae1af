"""Logs of runs on a sparse graph, audited by the second auditor.

Proofs take it a good part of a second, so it verifies those of three parties; all else it checks of
everybody.
"""

from __future__ import annotations

import functools

import pytest

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp_lab.vectors.verifiable_parties import off_by_one
from smpc_dp_lab.vectors.verifiable_runs import SPARSE, RecordedRun, execute
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.run import Audit

NAMES = list(SPARSE.inputs)
CHEAT, GONE = NAMES[7], NAMES[20]


def twin(lines: list[bytes]) -> Audit:
    proven = frozenset({NAMES[0], CHEAT, NAMES[-1]})
    return Audit([line.decode("ascii") for line in lines], proven)


@functools.cache
def ran() -> RecordedRun:
    """One party vanishes before it commits, one publishes a wrong sum."""
    return execute({CHEAT: off_by_one}, kill={GONE: 4}, setting=SPARSE, memo=True)


@pytest.mark.long
def test_the_twin_finds_the_same_of_a_sparse_run() -> None:
    result = twin(ran().lines)
    assert result.total == [int(value) for value in ran().relay.result.total]
    assert result.excluded == {CHEAT: "sum"}
    assert result.void == []
    assert GONE not in result.participants
    assert max(len(edges) for edges in result.edges.values()) < len(NAMES) - 3


@pytest.mark.long
def test_the_twin_refuses_a_sparse_log_without_one_opening() -> None:
    entries = ran().entries
    dropped = next(index for index, entry in enumerate(entries) if entry.kind == v.OPEN)
    with pytest.raises(Refused):
        twin(ran().log(entries[:dropped] + entries[dropped + 1 :]))
