"""Cheats of users where the norm is bounded: what they say instead of the truth, one thing each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.statements import NOISE, NORM, SUM
from smpc_dp_lab.vectors.verifiable_cheat import BALL_BASE, EXCLUDED, Cheat
from smpc_dp_lab.vectors.verifiable_runs import BALL_INPUTS, Cheater, Tamper, entry_of, honest, play
from smpc_dp_lab.vectors.verifiable_users import (
    CHEAT,
    OTHER,
    at,
    commit_of,
    off_by_one,
    out_of_range,
    shifted,
    swap,
    with_noise,
)


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat of a user whose vector has a bounded norm."""
    yield _excluded(
        "norm-one-step-too-large",
        "The squares of a vector sum to one more than the bound's.",
        NORM,
        out_of_range((5, 1)),
    )
    yield _excluded(
        "norm-in-one-coordinate", "One coordinate alone is beyond the bound.", NORM, out_of_range((6, 0))
    )
    yield _excluded(
        "norm-by-the-group-order",
        "A coordinate whose square is far above every bound.",
        NORM,
        out_of_range((1 << 61, 0)),
    )
    yield _excluded(
        "norm-coordinates-swapped",
        "The vector that is committed to has the coordinates of the proven one, exchanged.",
        NORM,
        out_of_range(BALL_INPUTS[CHEAT][::-1]),
    )
    yield _excluded(
        "norm-proof-of-another-vector",
        "The proof is right, about another vector within the bound.",
        NORM,
        out_of_range((0, 1)),
    )
    yield _excluded(
        "norm-proof-of-another-run",
        "Vector and norm proof are the user's own, from another run.",
        NORM,
        at(v.COMMIT, _replayed),
    )
    yield _excluded(
        "norm-proof-of-another-user",
        "The commitment to the vector and its proof are those of another user of the run.",
        NORM,
        at(v.COMMIT, _copied),
    )
    yield _excluded(
        "norm-proof-flipped", "One bit of the norm proof is flipped.", NORM, at(v.COMMIT, _garbled)
    )
    yield _excluded(
        "ball-noise-off-by-one",
        "Under a bound on the norm, one coordinate of the noise is one too many.",
        NOISE,
        with_noise(_one_more),
    )
    yield _excluded(
        "ball-sum-off-by-one", "Under a bound on the norm, x_hat is one more than the sum.", SUM, off_by_one
    )
    yield _excluded(
        "ball-sum-coordinates-swapped",
        "Under a bound on the norm, the coordinates of x_hat are swapped.",
        SUM,
        shifted(swap),
    )


def _excluded(name: str, about: str, check: str, tamper: Tamper) -> Cheat:
    def make() -> list[bytes]:
        return play({CHEAT: tamper}, ball=True).lines

    return Cheat(name, about, check, EXCLUDED, (CHEAT,), make, BALL_BASE)


def _committed(party: str, run: int | None = None) -> v.Commit:
    played = honest(ball=True) if run is None else honest(run=run, ball=True)
    return decode(entry_of(played, v.COMMIT, party).payload, v.Commit, "")


def _replayed(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    earlier = _committed(CHEAT, run=2)
    return replace(commit_of(message), value=earlier.value, range_proof=earlier.range_proof)


def _copied(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    others = _committed(OTHER)
    return replace(commit_of(message), value=others.value, range_proof=others.range_proof)


def _garbled(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    proof = commit_of(message).range_proof
    return replace(commit_of(message), range_proof=proof[:-1] + bytes([proof[-1] ^ 1]))


def _one_more(user: Cheater) -> Sequence[int]:
    return (user.secret.given[0] + 1, *user.secret.given[1:])
