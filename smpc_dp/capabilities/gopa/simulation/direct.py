"""Sessions without an aggregator in one process: all parties, and channels between any two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from smpc_dp.capabilities.gopa import direct_states
from smpc_dp.capabilities.gopa.direct_evidence import coordinator_of
from smpc_dp.capabilities.gopa.direct_params import DirectParameters
from smpc_dp.engine.result import Outcome, Result
from smpc_dp.engine.run import Run
from smpc_dp.report.trace import Trace
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import draw_kills, simulated_run
from smpc_dp.session.memory.tracing import traced
from smpc_dp.transport.memory import Faults
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
    clip: bool = False,
    request: int = 1,
    seed_for_simulation: int | None = None,
    remember: bool = True,
) -> tuple[DirectRoles, int]:
    """Return the parties of a run over `vectors`, and how many values were clipped; see `simulated_run`."""
    simulated = simulated_run(
        len(vectors),
        request=request,
        seed_for_simulation=seed_for_simulation,
        remember=remember,
        protocol=parameters.protocol,
        operation=parameters.planned(),
    )
    names = simulated.context.names
    context = replace(
        simulated.context, aggregator=EVERYONE, keys={name: simulated.context.keys[name] for name in names}
    )
    parties: list[Run[Outcome]] = []
    clipped = 0
    for name, vector in zip(names, vectors, strict=True):
        ring_vector, changed = parameters.encoding.encode(vector, party=name, clip=clip)
        clipped += changed
        parties.append(
            direct_states.party(
                context, parameters, simulated.signers[name], ring_vector, simulated.sources[name]
            )
        )
    return DirectRoles(context, parties), clipped


def run_direct(
    parameters: DirectParameters,
    vectors: Sequence[ArrayLike],
    kind: str,
    *,
    dropout: float,
    clip: bool,
    seed_for_simulation: int | None,
    progress: Callable[[str, int], None] | None,
    trace: Trace | None = None,
) -> Result:
    """Run a session of `simulate.average`; arguments as there."""
    roles, clipped = direct_roles(parameters, vectors, clip=clip, seed_for_simulation=seed_for_simulation)
    # One message to each of the others is one step; the coordinator stays, or there would be no run.
    coordinator = roles.coordinator
    others = [name for name in roles.context.names if name != coordinator.name]
    # A message to all is one message to each: a party dies before its step, or in the middle of it.
    messages = (len(vectors) - 1) * (len(parameters.party_steps) - 2)
    kills = draw_kills(others, dropout * len(vectors) / len(others), seed_for_simulation, messages)
    network, make = traced(trace, Faults(kill=kills), seed_for_simulation or 0)
    errors = drive(roles.parties, network, coordinator.name, progress, mesh=True, make=make)
    for party in (coordinator, *roles.parties):
        if party.name in errors and not network.is_dead(party.name):
            raise errors[party.name]
    return Result.of(coordinator.result, kind, clipped, distributions=parameters.noise_distributions)
