"""Sums, means and weighted means as terms of a computation on shares, and their results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, Fault, VerificationError
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.mpyc.agreement import Opened
from smpc_dp.protocols.mpyc.claims import privacy_of_sum
from smpc_dp.protocols.mpyc.params import SharedParameters
from smpc_dp.protocols.mpyc.terms import ProgramKind, ProgramTerms, modulus_for
from smpc_dp.protocols.result import Evidence, Outcome


def sum_terms(parameters: SharedParameters, question: str, users: int) -> ProgramTerms:
    """Return the terms of the sum that a question ("average round 7") asks for.

    Raises ConfigError if the session has no sums, or the question is for none.
    """
    encoding = parameters.sums
    asked = question.split(" ", 1)[0]
    if asked not in ("sum", "average"):
        raise ConfigError([Fault("question", f"{asked[:40]!r} is neither a sum nor an average")])
    # A weight multiplies on shares, so it cannot be another than the one that is added up.
    kind: ProgramKind = "weighted-mean" if encoding.max_weight else "mean" if asked == "average" else "sum"
    width = max(encoding.highest - encoding.lowest, 1)
    upper = (width,) * encoding.length + ((encoding.max_weight,) if encoding.max_weight else ())
    largest = max(width * max(1, encoding.max_weight), *upper)
    bits = (users * largest).bit_length() + 2
    return ProgramTerms(
        kind=kind,
        users=users,
        length=encoding.lanes,
        modulus=modulus_for(bits, parameters.security),
        bits=bits,
        lower=(0,) * encoding.lanes,
        upper=upper,
        security=parameters.security,
    )


def sum_record(encoding: Encoding, lanes: Sequence[int]) -> list[int]:
    """Return what a user shares of its encoded vector: values above the lowest, then the weight if any."""
    if not encoding.max_weight:
        return list(lanes)
    weight = lanes[-1]
    return [*(lane // weight if weight else 0 for lane in lanes[:-1]), weight]


def sum_outcome(context: Context, parameters: SharedParameters, servers: int, opened: Opened) -> Outcome:
    """Return the sum that a run has opened; raise VerificationError for one that there cannot be."""
    encoding = parameters.sums
    users = len(opened.included)
    values, refused = opened.values[: encoding.lanes], opened.values[encoding.lanes :]
    if not all(0 <= user < users for user in refused):
        raise VerificationError("the servers refused the record of a user that there is not")
    if len(values) != encoding.lanes or not all(0 <= value < 1 << 63 for value in values):
        raise VerificationError("the servers opened values that are no sum of vectors within the bounds")
    total, weight = encoding.decode(np.array(values, np.uint64), users)
    return Outcome(
        total=total,
        weight=weight,
        encoding=encoding,
        survivors=opened.included,
        absent=tuple(name for name in context.names if name not in opened.included),
        faults=(
            *opened.faults,
            *(
                f"{opened.included[user]}: a value out of bounds; its vector counts as the least"
                for user in refused
            ),
        ),
        privacy=privacy_of_sum(users, servers),
        evidence=evidence_of(context, opened),
    )


def evidence_of(context: Context, opened: Opened) -> Evidence:
    """Return what binds a result to its run: both sets, signed by all servers."""
    return Evidence(
        protocol=context.protocol,
        version=context.version,
        session_digest=context.session_digest,
        run_id=opened.run_id,
        roll=opened.terms.digest,
        participating=opened.present,
        participants=opened.included_by,
        survivors=opened.opened_by,
    )
