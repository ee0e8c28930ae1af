"""How a run ends well: with an outcome, its claim and its evidence."""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress

import numpy as np

from smpc_dp.encoding import Lanes
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.result import Certificate, Evidence, Outcome
from smpc_dp.protocols.sets import PartySet, pack_set


def outcome(
    context: Context,
    parameters: SumParameters,
    run_id: bytes,
    total: Lanes,
    roll: bytes,
    *,
    participants: Collection[int],
    survivors: Collection[int],
    participants_certificate: Certificate,
    survivors_certificate: Certificate | None,
    faults: tuple[str, ...] = (),
    residual_pairs: int = 0,
) -> Outcome:
    """Decode the sum of the survivors and put its claim and its evidence beside it.

    `residual_pairs` counts the pairs of which only one end is in the sum and whose term was left in it.
    """
    grid, weight = parameters.decode(total, len(survivors))
    packed = survivors.packed if isinstance(survivors, PartySet) else pack_set(survivors, len(context.names))
    present, absent = context.remember(("split", packed), lambda: _split(context, survivors))
    return Outcome(
        total=grid,
        weight=weight,
        encoding=parameters.encoding,
        survivors=present,
        absent=absent,
        faults=faults,
        privacy=parameters.privacy(len(survivors)),
        noise=parameters.noise(len(survivors), residual_pairs),
        evidence=Evidence(
            protocol=context.protocol,
            version=context.version,
            session_digest=context.session_digest,
            run_id=run_id,
            roll=roll,
            participating=context.remember(
                ("participants", participants_certificate.set_digest), lambda: _split(context, participants)
            )[0],
            participants=participants_certificate,
            survivors=survivors_certificate,
        ),
    )


def _split(context: Context, survivors: Collection[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the survivors and those of the others, in roster order."""
    if isinstance(survivors, PartySet):
        inside = survivors.flags()
    else:
        inside = np.zeros(len(context.names), dtype=np.bool_)
        inside[np.fromiter(survivors, np.intp, len(survivors)) - 1] = True
    return tuple(compress(context.names, inside.tolist())), tuple(compress(context.names, (~inside).tolist()))
