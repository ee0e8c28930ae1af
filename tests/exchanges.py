"""An exchange by its roles in one process."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.encoding import RingVector
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.errors import SmpcError
from smpc_dp.session.exchange import states
from smpc_dp.session.exchange.params import ExchangeParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR, simulated_run
from smpc_dp.transport.memory import MemoryNetwork


def drive_exchange(
    parameters: ExchangeParameters, ring_vector: Sequence[RingVector], seed: int
) -> tuple[list[Run[Outcome]], dict[str, SmpcError]]:
    """Run an exchange to its end; return its parties, and the errors of those that failed, by name."""
    simulated = simulated_run(
        len(ring_vector),
        seed_for_simulation=seed,
        protocol=parameters.protocol,
        operation=parameters.planned(),
    )
    parties = [
        states.party(simulated.context, parameters, simulated.signers[name], brought, simulated.sources[name])
        for name, brought in zip(simulated.context.names, ring_vector, strict=True)
    ]
    aggregator = states.aggregator(simulated.context, parameters, simulated.signers[AGGREGATOR])
    return parties, drive([aggregator, *parties], MemoryNetwork(seed=seed), AGGREGATOR)
