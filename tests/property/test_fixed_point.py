"""Vectors that are encoded and decoded block by block are those of a slow twin, with the same errors."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from smpc_dp import fixed_point
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.fixed_point import GridTotal
from smpc_dp.trees import flatten
from tests.reference import encoding_twin as twin

PARTIES = 3
# Blocks are this short in these tests, so that vectors have several.
SHORT = 8


@pytest.fixture(autouse=True, scope="module")
def _short_blocks() -> Any:
    with patch.object(fixed_point, "BLOCK", SHORT):
        yield


@st.composite
def encodings(draw: st.DrawFn, length: int, *, weights: bool = True, box: bool = True) -> Encoding:
    """Encodings of all widths and precisions; bounds anywhere that the precision allows."""
    bits = draw(st.integers(-960, 1000))
    width = draw(st.integers(1, 59))
    # Bounds in steps, moved by less than a step so that they lie between grid points.
    low = draw(st.integers(-(1 << width), 1 << width))
    high = low + draw(st.integers(2, 1 << width))
    part = draw(st.sampled_from([0.0, 0.25, 0.5, 0.49]))
    sides = []
    for _ in range(draw(st.sampled_from([1, length])) if box else 1):
        left, right = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
        left, right = (left, right) if right - left > 1 else (low, high)
        try:
            sides.append((math.ldexp(left + part, -bits), math.ldexp(right - part, -bits)))
        except OverflowError:
            assume(False)
    lower, upper = zip(*sides, strict=True)
    chosen: dict[str, Any] = {"lower": lower[0], "upper": upper[0]}
    if len(sides) > 1:
        chosen = {"lower": list(lower), "upper": list(upper)}
    weight = draw(st.sampled_from([0, 1, 7, 1000])) if weights else 0
    try:
        return Encoding.plan(
            length=length, precision=2.0**-bits, parties=PARTIES, max_weight=weight, **chosen
        )
    except ConfigError:
        assume(False)
        raise


@st.composite
def values_of(draw: st.DrawFn, encoding: Encoding, shape: tuple[int, ...]) -> Any:
    """Values of every kind: on, near and beyond bounds, of half steps, denormal, infinite, not a number."""
    low, high = float(encoding.lower), float(encoding.upper)
    half = encoding.step / 2
    edges = [
        side + sign * part for side in (low, high) for sign in (-1, 1) for part in (0.0, half, 1.5 * half)
    ]
    near = [np.nextafter(edge, towards) for edge in edges for towards in (-np.inf, np.inf)]
    within = st.floats(low, high)
    rare = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308])
    kind = draw(st.sampled_from(["within", "edges", "any"]))
    elements = {
        "within": within,
        "edges": st.one_of(within, st.sampled_from([*edges, *map(float, near), 0.0, -0.0, 5e-324])),
        "any": st.one_of(within, rare, st.floats(width=64)),
    }[kind]
    dtype = draw(st.sampled_from(["<f8", ">f8", "<f4", ">f4", "<f2"]))
    with np.errstate(over="ignore", under="ignore"):
        array = draw(arrays.arrays(np.float64, shape, elements=elements)).astype(dtype)
    return laid_out(draw(st.sampled_from(["C", "F", "reversed", "strided"])), array)


def laid_out(order: str, array: Any) -> Any:
    """Return an array of the same values in another layout."""
    if order == "reversed":
        return array[::-1].copy()[::-1] if array.ndim else array
    if order == "strided":
        wide = np.zeros((*array.shape, 2), array.dtype)
        wide[..., 0] = array
        return wide[..., 0]
    return np.asarray(array, order=order)  # type: ignore[call-overload]


def outcome_of(function: Any) -> Any:
    """Return what a function returns, or the text of what it raises without the party's name."""
    try:
        return function()
    except twin.Refused as refused:
        return str(refused)
    except PrivacyError as error:
        return str(error).removeprefix("ann: ")


@settings(deadline=None)
@given(st.data(), st.integers(1, 3 * SHORT), st.booleans())
def test_vectors_of_reals(data: st.DataObject, length: int, clip: bool) -> None:
    encoding = data.draw(encodings(length))
    vector = data.draw(values_of(encoding, (length,)))
    weight = encoding.max_weight or None

    def encoded() -> tuple[list[int], int]:
        ring_vector, clipped = encoding.encode(vector, party="ann", weight=weight, clip=clip)
        return ring_vector.tolist(), clipped

    assert outcome_of(encoded) == outcome_of(lambda: twin.encode(encoding, vector, weight, clip=clip))


@settings(deadline=None)
@given(st.data(), st.integers(1, 3 * SHORT), st.booleans())
def test_vectors_of_integers(data: st.DataObject, length: int, clip: bool) -> None:
    width = data.draw(st.integers(1, 60))
    low = data.draw(st.integers(-(1 << width), (1 << width) - 1))
    high = data.draw(st.integers(low + 1, 1 << width))
    lower: Any = [low, *[low - 1] * (length - 1)] if length > 1 and data.draw(st.booleans()) else low
    try:
        encoding = Encoding.plan(length=length, lower=lower, upper=high, precision=None, parties=PARTIES)
    except ConfigError:
        assume(False)
        raise
    dtype = data.draw(st.sampled_from(["<i8", ">i8", "<i4", "<u4", "<i1", "<u8"]))
    limits = np.iinfo(dtype)
    most = min(limits.max, (1 << 63) - 1)
    near = [min(max(side + more, limits.min), most) for side in (low, high) for more in (-1, 0, 1)]
    elements = st.one_of(st.sampled_from(near), st.integers(limits.min, most))
    vector = data.draw(arrays.arrays(dtype, length, elements=elements))

    def encoded() -> tuple[list[int], int]:
        ring_vector, clipped = encoding.encode(vector, party="ann", clip=clip)
        return ring_vector.tolist(), clipped

    assert outcome_of(encoded) == outcome_of(lambda: twin.encode(encoding, vector, clip=clip))


SHAPES = st.lists(
    st.sampled_from([(), (0,), (1,), (5,), (SHORT,), (2, 3), (3, 7), (2, 1, SHORT + 1)]),
    min_size=1,
    max_size=4,
).filter(lambda shapes: sum(map(math.prod, shapes)) > 0)


@settings(deadline=None)
@given(st.data(), SHAPES, st.booleans())
def test_trees(data: st.DataObject, shapes: list[tuple[int, ...]], clip: bool) -> None:
    """Encoded, summed, averaged and restored; with bounds of leaves, or bounds of coordinates."""
    length = sum(map(math.prod, shapes))
    encoding = data.draw(encodings(length))
    leaves = {f"['{index}']": data.draw(values_of(encoding, shape)) for index, shape in enumerate(shapes)}
    tree = {path[2:-2]: array for path, array in leaves.items()}
    weight, bounds = encoding.max_weight or None, None
    low, high = float(encoding.lower), float(encoding.upper)
    if encoding.box is None and data.draw(st.booleans()):
        part = st.sampled_from([(low, high), (low / 2, high / 2), (0.0, 1.0), (-3e-3, 1e-3), (5.0, 5.5)])
        bounds = {path: data.draw(part.filter(lambda pair: pair[0] < pair[1])) for path in leaves}
    try:
        flat = flatten(tree, encoding, party="ann", bounds=bounds, clip=clip)
    except ConfigError:
        # Bounds that the session has no steps for.
        assume(False)
        raise

    def encoded() -> tuple[list[int], int]:
        ring_vector, clipped = flat.encode(weight=weight)
        return ring_vector.tolist(), clipped

    def expected() -> tuple[list[int], int]:
        vector, outside = twin.flatten(encoding, leaves, bounds, clip=clip)
        elements, clipped = twin.encode(encoding, vector, weight, clip=clip)
        return elements, clipped + outside

    right = outcome_of(expected)
    assert outcome_of(encoded) == right
    if isinstance(right, str):
        return
    ring_vector = flat.encode(weight=weight)[0]
    total, factor = encoding.decoded(PARTIES * ring_vector, PARTIES)
    whole = [PARTIES * element for element in right[0]]
    assert factor == (whole[-1] if encoding.max_weight else PARTIES)
    grid = [element + factor * encoding.lowest for element in whole[:length]]
    assert total.values.tolist() == grid
    noisy = data.draw(st.booleans())
    averages = encoding.averages(total, factor, noisy=noisy)
    means = twin.average(encoding, grid, factor, noisy=noisy)
    assert averages[:].tolist() == means
    with np.errstate(over="ignore", under="ignore"):
        back = flat.restore(averages, exact=not noisy)
        wanted = twin.restore(leaves, np.array(means), encoding, bounds, exact=not noisy)
    for path, leaf in wanted.items():
        made = np.asarray(back[path[2:-2]])
        # A leaf without axes comes back as a number, which has the byte order of this machine.
        kind = leaf.dtype if leaf.ndim else leaf.dtype.newbyteorder("=")
        assert made.dtype in {leaf.dtype, kind}
        assert made.tolist() == leaf.tolist()


@settings(deadline=None)
@given(st.data(), st.integers(1, 8), st.integers(1, 3 * SHORT))
def test_packed_vectors_of_every_width(data: st.DataObject, width: int, length: int) -> None:
    """Packed as bytes of Python's integers; added from any buffer, modulo the range of the lanes."""
    # A sum of 64 bits has a sign.
    top = ((1 << min(8 * width, 63)) - 1) // PARTIES
    encoding = Encoding.plan(length=length, lower=0, upper=top, precision=None, parties=PARTIES)
    assert encoding.element_bytes == width
    lanes = data.draw(arrays.arrays(encoding.dtype, length))
    packed = encoding.pack(lanes)
    expected = b"".join((int(lane) % (1 << (8 * width))).to_bytes(width, "little") for lane in lanes)
    assert packed == expected
    overwritten = lanes.copy()
    size = encoding.pack_overwriting(overwritten)
    assert overwritten.tobytes()[:size] == expected
    reduced = [int(lane) % (1 << (8 * width)) for lane in lanes]
    for buffer in (packed, memoryview(packed), memoryview(bytearray(b"x" + packed))[1:]):
        assert encoding.unpack(buffer).tolist() == reduced
        total = lanes.copy()
        encoding.add_packed(total, buffer)
        modulus = 1 << (8 * np.dtype(encoding.dtype).itemsize)
        assert total.tolist() == [
            (int(lane) + more) % modulus for lane, more in zip(lanes, reduced, strict=True)
        ]
    for wrong in (packed[:-1], packed + b"\0"):
        with pytest.raises(ValueError, match=f"{len(wrong)} bytes where {len(packed)} are due"):
            encoding.add_packed(lanes, wrong)


@settings(deadline=None)
@given(
    arrays.arrays(np.int64, st.integers(1, 3 * SHORT), elements=st.integers(-(1 << 62), 1 << 62)),
    st.one_of(st.integers(1, 100), st.integers((1 << 53) - 1, 1 << 60)),
    st.integers(-960, 1000),
    st.booleans(),
)
def test_averages_are_rounded_once(grid: Any, weight: int, bits: int, noisy: bool) -> None:
    bound = math.ldexp(1.0, 60 - bits)
    encoding = Encoding.plan(length=len(grid), lower=-bound, upper=bound, precision=2.0**-bits, parties=3)
    assert encoding.fractional_bits == bits
    averages = encoding.averages(GridTotal.of(grid), weight, noisy=noisy)
    expected = twin.average(encoding, grid.tolist(), weight, noisy=noisy)
    assert averages[:].tolist() == expected
    assert averages[1:3].tolist() == expected[1:3]
