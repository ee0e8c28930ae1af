"""Terms of a computation on shares, as plain data: the same for every server, and bound to the session."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.privacy.circuit_noise import PairDistribution

ProgramKind = Literal["sum", "mean", "weighted-mean", "statistic", "pairs", "tables"]
NoiseDistribution = Literal["laplace", "gaussian", "wide-gaussian"] | PairDistribution

# Mersenne primes p = 3 (mod 4), as mpyc's random bits need them.
MODULUS_BITS = (127, 521, 607, 1279)

Ratio = Annotated[str, Meta(pattern=r"^[0-9]+(/[1-9][0-9]*)?$", max_length=4096)]
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]+$", max_length=4096)]


class NoiseTerms(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"distribution": "law"}
):
    """Terms of the noise that a computation on shares draws and adds to one opened integer.

    `parameter` is exact, "p/q": the scale of a discrete Laplace, the variance of a discrete Gaussian (a wide
    one is a sum of scaled draws), or of one pair's output as it is read, in steps. `bits` and `cuts` are how
    a program draws it: random bits of a draw, or bits of a pair's output, and thresholds in hex.
    """

    distribution: NoiseDistribution
    parameter: Ratio
    bits: Annotated[int, Meta(ge=0, le=1024)] = 0
    cuts: tuple[Hex, ...] = ()

    @property
    def paired(self) -> bool:
        """Whether each pair's value has noise of its own, and is opened by itself."""
        return self.distribution in get_args(PairDistribution)

    @property
    def exact(self) -> Fraction:
        """The parameter of the noise distribution as an exact fraction."""
        return Fraction(self.parameter)


class ProgramTerms(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    rename={"parties": "users", "public_labels": "marks"},
):
    """Terms of one computation on shares (inputs, bounds, noise, field), which all members compare.

    A party's record is `length` integers; value i lies in `lower[i]`..`upper[i]`, both included. What is
    opened are integers: all else about the records stays shared.

    Attributes:
        kind: "sum", "mean", "weighted-mean": `length` opened sums (the last is of weights for
            "weighted-mean"); "statistic": the sum of the kernel's integers over the pairs of the design;
            "pairs": each of them, with noise of its own.
        parties: n, the number of parties with shares.
        modulus: of the prime field, in hex.
        bits: every integer of the computation lies in [-2**(bits-1), 2**(bits-1)); mpyc's l.
        security: statistical security of masked openings, in bits; mpyc's k. The field has room for
            bits + security + 2 bits.
        noise: none for an exact result; one for each opened integer, or one distribution for all of them.
        kernel: name of a kernel; `kernel_terms` its description as canonical JSON, with circuit and digest
            of a party's own.
        public_labels: of the parties, 0 or 1, where the kernel has them; else empty.
        partners: 0 for all pairs; else each party is in `partners` pairs at most, drawn from `design`.
        design: seed of an incomplete design, 32 bytes in hex.
        smallest_count, least_parties: of "tables": a cell with fewer records, or records of fewer parties, is
            not opened. Other kinds are written without them.
    """

    kind: ProgramKind
    parties: Annotated[int, Meta(ge=1)]
    length: Annotated[int, Meta(ge=1)]
    modulus: Hex
    bits: Annotated[int, Meta(ge=1, le=1024)]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    security: Annotated[int, Meta(ge=30, le=256)] = 60
    noise: tuple[NoiseTerms, ...] = ()
    kernel: str = ""
    kernel_terms: str = ""
    public_labels: tuple[Annotated[int, Meta(ge=0, le=1)], ...] = ()
    partners: Annotated[int, Meta(ge=0)] = 0
    design: str = ""
    smallest_count: Annotated[int, Meta(ge=0)] = 0
    least_parties: Annotated[int, Meta(ge=0)] = 0

    @property
    def prime(self) -> int:
        """The prime modulus of the field of the shares, as an integer."""
        return int(self.modulus, 16)

    @property
    def digest(self) -> bytes:
        """The TupleHash256 digest, 32 bytes, of all terms in canonical form."""
        return digest(Label.PROGRAM_TERMS, self.canonical())

    def canonical(self) -> bytes:
        """Return the terms as canonical JSON bytes, which all members hash and compare."""
        plain = msgspec.to_builtins(self)
        if self.kind != "tables":
            del plain["smallest_count"], plain["least_parties"]
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def modulus_for(bits: int, security: int) -> str:
    """Return a prime modulus, in hex, for integers of `bits` bits and masks; ValueError if too many."""
    for width in MODULUS_BITS:
        if width >= bits + security + 2:
            return f"{(1 << width) - 1:x}"
    raise ValueError(f"no field of this library has {bits + security + 2} bits")
