"""The roles of a sum in one process: those of all parties and of the aggregator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from smpc_dp.engine.phases.last_results import SentResults
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import make_aggregator, make_party
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run, RunningRole
from smpc_dp.identity.keys import verify
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.session.memory.simulated_run import AGGREGATOR, simulated_run, with_board
from smpc_dp.wire.signing import Context


@dataclass(slots=True)
class Roles:
    """The roles of one simulated run: aggregator, parties, context, and board of logs if any."""

    context: Context
    aggregator: Run[Outcome]
    parties: list[Run[Outcome]]
    board: MemoryBoard | None = None

    @property
    def machines(self) -> list[RunningRole]:
        """The runs of all roles, the aggregator's first."""
        return [self.aggregator, *self.parties]


def sum_roles(
    parameters: SumParameters,
    vectors: Sequence[ArrayLike],
    *,
    weights: Sequence[int] | None = None,
    clip: bool = False,
    request: int = 1,
    threads: int = 1,
    seed_for_simulation: int | None = None,
    remember: bool = True,
    alone: Collection[int] = (),
    declared: Mapping[str, object] | None = None,
) -> tuple[Roles, int]:
    """Return the roles of a run over `vectors`, and how many values were clipped; see `simulated_run`.

    The parties at the indexes `alone` check everything themselves, whatever the others remember. `declared`
    are the parameters as a session file would have them; a verifiable run needs them, for its board.
    """
    simulated = simulated_run(
        len(vectors),
        request=request,
        seed_for_simulation=seed_for_simulation,
        remember=remember,
        protocol=parameters.protocol,
        operation=parameters.planned(),
    )
    board = None
    if parameters.is_logged:
        simulated, board = with_board(simulated, declared or {})
    context = simulated.context
    parties: list[Run[Outcome]] = []
    clipped = 0
    unaided = replace(context, verify=verify, memo=None) if alone else context
    for index, name in enumerate(context.names):
        weight = None if weights is None else weights[index]
        ring_vector, changed = parameters.encoding.encode(
            vectors[index], party=name, weight=weight, clip=clip
        )
        clipped += changed
        own = unaided if index in alone else context
        parties.append(
            make_party(own, parameters, simulated.signers[name], ring_vector, simulated.sources[name])
        )
    aggregator = make_aggregator(
        context,
        parameters,
        simulated.signers[AGGREGATOR],
        threads=threads,
        board=board,
        last=SentResults(simulated.sources[AGGREGATOR]),
    )
    return Roles(context, aggregator, parties, board), clipped
