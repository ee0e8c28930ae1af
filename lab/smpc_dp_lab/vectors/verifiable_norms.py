"""Cheats of parties with a bounded norm: one false message each."""

from __future__ import annotations

from collections.abc import Iterator

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.statements import NOISE, NORM, SUM
from smpc_dp_lab.vectors.verifiable_cheat import BALL_BASE, Cheat
from smpc_dp_lab.vectors.verifiable_parties import (
    CHEAT,
    copied,
    excluded,
    flip_last,
    instead,
    off_by_one,
    one_more_noise,
    out_of_range,
    shifted,
    swap,
    with_noise,
)
from smpc_dp_lab.vectors.verifiable_runs import BALL, BALL_INPUTS


def all_cheats() -> Iterator[Cheat]:
    """Yield all test vectors of logs in which a party's vector breaks its norm bound."""
    for name, about, check, tamper in (
        (
            "norm-one-step-too-large",
            "The squares of a vector sum to one more than the bound's.",
            NORM,
            out_of_range((5, 1)),
        ),
        (
            "norm-in-one-coordinate",
            "One coordinate alone is beyond the bound.",
            NORM,
            out_of_range((6, 0)),
        ),
        (
            "norm-by-the-group-order",
            "A coordinate whose square is far above every bound.",
            NORM,
            out_of_range((1 << 61, 0)),
        ),
        (
            "norm-coordinates-swapped",
            "The vector that is committed to has the coordinates of the proven one, exchanged.",
            NORM,
            out_of_range(BALL_INPUTS[CHEAT][::-1]),
        ),
        (
            "norm-proof-of-another-vector",
            "The proof is right, about another vector within the bound.",
            NORM,
            out_of_range((0, 1)),
        ),
        (
            "norm-proof-of-another-run",
            "Vector and norm proof are the user's own, from another run.",
            NORM,
            copied(v.COMMIT, "value", "range_proof", party=CHEAT, run=2, setting=BALL),
        ),
        (
            "norm-proof-of-another-user",
            "The commitment to the vector and its proof are those of another user of the run.",
            NORM,
            copied(v.COMMIT, "value", "range_proof", setting=BALL),
        ),
        (
            "norm-proof-flipped",
            "One bit of the norm proof is flipped.",
            NORM,
            instead(v.COMMIT, range_proof=flip_last),
        ),
        (
            "ball-noise-off-by-one",
            "Under a bound on the norm, one coordinate of the noise is one too many.",
            NOISE,
            with_noise(one_more_noise),
        ),
        (
            "ball-sum-off-by-one",
            "Under a bound on the norm, x_hat is one more than the sum.",
            SUM,
            off_by_one,
        ),
        (
            "ball-sum-coordinates-swapped",
            "Under a bound on the norm, the coordinates of x_hat are swapped.",
            SUM,
            shifted(swap),
        ),
    ):
        yield excluded(name, about, check, tamper, BALL, BALL_BASE)
