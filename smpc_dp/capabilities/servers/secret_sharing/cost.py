"""What a request costs that servers answer on shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from smpc_dp.capabilities.servers.secret_sharing.params import RECORDS, SharedParameters
from smpc_dp.engine.phases.cost import Cost

if TYPE_CHECKING:
    from smpc_dp.capabilities.servers.secret_sharing.records import SharedRecordParameters

# Bytes of a share, and about those of an opened integer in decimal.
SHARE_BYTES = 16


def cost_on_shares(parameters: SharedParameters, servers: int) -> Cost | None:
    """Return the predicted cost of statistics or exact tables that servers compute; None for sums."""
    if parameters.program not in RECORDS:
        return None
    asked = cast("SharedRecordParameters", parameters)
    exact, bytes_shared = asked.epsilon is None, asked.request.length * servers * SHARE_BYTES
    answers, warnings = asked.planned_answers(asked.parties)
    return Cost(
        unit=None if exact else asked.schema.unit,
        relation=None if exact else asked.schema.relation,
        epsilon=asked.epsilon,
        delta=None if exact else asked.delta,
        counted=None,
        factor=None if exact else asked.request.deviation(1) / asked.curator_deviation,
        answers=tuple(answers),
        sent=bytes_shared,
        received=bytes_shared,
        steps=2,
        warnings=tuple(warnings),
    )
