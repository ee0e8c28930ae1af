"""The masks that hide a vector, or what is left of them in a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from smpc_dp.crypto.prg import add_masks
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases.parameters import SumParameters


class Masks(NamedTuple):
    """Seeds of the masks on a vector: self-masks, all of one sign, and pairwise masks with signs."""

    own: Sequence[bytes]
    own_sign: int
    pairs: Sequence[bytes]
    signs: Sequence[int]

    def __repr__(self) -> str:
        return "Masks(secret)"

    @property
    def signed(self) -> list[tuple[bytes, int]]:
        """Each mask's seed, with the sign +1 or -1 by which its mask is added."""
        return [*((seed, self.own_sign) for seed in self.own), *zip(self.pairs, self.signs, strict=True)]

    def add_to(self, ring_vector: RingVector, parameters: SumParameters, threads: int = 1) -> None:
        """Expand all masks and add them to the vector in place."""
        add_masks(ring_vector, self.own, [self.own_sign] * len(self.own), threads=threads)
        parameters.add_pair_terms(ring_vector, self.pairs, self.signs, threads)
