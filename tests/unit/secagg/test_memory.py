"""Memory for large vectors is O(vector): it does not grow with parties or neighbours."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from smpc_dp.encoding import Encoding
from smpc_dp.engine.events import Message, Start
from smpc_dp.engine.phases import messages as m
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp_lab.bench.roles import sum_roles

LENGTH = 200_000
VECTOR = 4 * LENGTH


@pytest.mark.parametrize("parties", [6, 24])
def test_aggregator_holds_no_vector_of_a_party(parties: int) -> None:
    """Feed each masked vector as it is made: what the aggregator keeps is one sum, whatever the number."""
    parameters = SecAggParameters(
        encoding=Encoding.plan(length=LENGTH, lower=-1.0, upper=1.0, precision=1e-7, parties=parties),
        plan=plan_secagg(parties),
    )
    assert parameters.encoding.element_bytes == 4
    new_run, _ = sum_roles(parameters, [np.zeros(LENGTH)] * parties, seed_for_simulation=1)
    machines = {machine.name: machine for machine in new_run.parties}
    waiting = [envelope for machine in new_run.parties for envelope in machine.handle(Start())]
    while new_run.aggregator.step != m.MASKED:
        answers = [sent for envelope in waiting for sent in new_run.aggregator.handle(Message(envelope))]
        if new_run.aggregator.step != m.MASKED:
            waiting = [
                sent for answer in answers for sent in machines[answer.receiver].handle(Message(answer))
            ]
    tracemalloc.start()
    try:
        peak = 0
        for answer in answers:
            (masked,) = machines[answer.receiver].handle(Message(answer))
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            new_run.aggregator.handle(Message(masked))
            del masked
            now, top = tracemalloc.get_traced_memory()
            peak = max(peak, top - before)
            # One vector less: the message itself.
            assert now - before < -VECTOR // 2
        assert peak < 4 * VECTOR
    finally:
        tracemalloc.stop()
