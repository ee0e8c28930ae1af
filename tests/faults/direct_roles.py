"""The parties of a session without an aggregator, to drive them over the in-memory network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from smpc_dp.capabilities.gopa import direct_states
from smpc_dp.capabilities.gopa.direct_evidence import coordinator_of
from smpc_dp.capabilities.gopa.direct_params import DirectParameters
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.session.memory.simulated_run import simulated_run
from smpc_dp.wire.envelope import EVERYONE
from smpc_dp.wire.signing import Context


@dataclass(slots=True)
class DirectRoles:
    """The parties of one simulated run without an aggregator."""

    context: Context
    parties: list[Run[Outcome]]

    @property
    def coordinator(self) -> Run[Outcome]:
        """The coordinator, which proposes the sets."""
        return self.parties[coordinator_of(self.context.request, len(self.parties)) - 1]


def direct_roles(
    parameters: DirectParameters,
    vectors: Sequence[ArrayLike],
    *,
    request: int = 1,
    seed_for_simulation: int | None = None,
) -> DirectRoles:
    """Return the parties of a run over `vectors`; see `simulated_run`."""
    simulated = simulated_run(
        len(vectors),
        request=request,
        seed_for_simulation=seed_for_simulation,
        protocol=parameters.protocol,
        operation=parameters.planned(),
    )
    names = simulated.context.names
    context = replace(
        simulated.context, aggregator=EVERYONE, keys={name: simulated.context.keys[name] for name in names}
    )
    parties: list[Run[Outcome]] = []
    for name, vector in zip(names, vectors, strict=True):
        ring_vector, _ = parameters.encoding.encode(vector, party=name)
        parties.append(
            direct_states.party(
                context, parameters, simulated.signers[name], ring_vector, simulated.sources[name]
            )
        )
    return DirectRoles(context, parties)
