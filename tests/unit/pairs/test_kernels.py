"""Kernels of pairwise statistics: plain meaning, circuit, domains, and parties' own."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.circuit import pack, unpack
from smpc_dp.capabilities.pairs.circuits.gadgets import less_than
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    Kernel,
    auc,
    auc_private_labels,
    circuit_kernel,
    collision,
    gini_mean_difference,
    kendall_tau,
    table_kernel,
    variance,
)
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel
from smpc_dp.capabilities.pairs.kernels.definitions import absolute_difference
from smpc_dp.capabilities.pairs.kernels.described import describe, read_kernel
from smpc_dp.capabilities.pairs.kernels.fields import Cells, Codes
from smpc_dp.capabilities.pairs.kernels.named import NAMES, find_kernel, kernel_of
from smpc_dp.capabilities.pairs.kernels.on_bits import Record, as_circuit
from smpc_dp.errors import ConfigError, PrivacyError
from tests.examples import examples

SMALL = Field(-1.0, 1.5, 0.5)  # six points in three bits: two patterns encode nothing
TINY = {
    kernel.name: kernel
    for kernel in (
        kendall_tau(SMALL, Field(0, 4)),
        gini_mean_difference(SMALL),
        variance(SMALL),
        collision(SMALL),
        auc(SMALL),
        auc_private_labels(SMALL),
        table_kernel("product", lambda x, y: x[0] * y[0], SMALL, low=-1.5, high=2.25, unit=0.25),
        circuit_kernel(
            "distance",
            as_circuit(absolute_difference(7)),
            lambda a, b: abs(a - b)[..., 0],
            SMALL,
            low=0.0,
            high=5.0,
        ),
    )
}


def grid(kernel: Kernel) -> np.ndarray:
    return np.array(list(np.ndindex(*(field.steps + 1 for field in kernel.fields))), dtype=np.int64)


@pytest.mark.parametrize("kernel", TINY.values(), ids=TINY)
def test_the_circuit_is_the_plain_kernel_on_every_pair_of_records(kernel: Kernel) -> None:
    records = grid(kernel)
    a, b = (np.repeat(records, len(records), 0), np.tile(records, (len(records), 1)))
    circuit = compile_kernel(kernel, None)
    rows = [pack(column.tolist(), w) for column, w in zip(np.hstack([a, b]).T, circuit.inputs, strict=True)]
    (result,) = circuit.evaluate_many(rows)
    integers = np.array(unpack(result, len(a)))
    assert np.array_equal(integers, kernel.integer(a, b))
    assert np.allclose(kernel.decode(integers), kernel.function(kernel.values(a), kernel.values(b)))
    assert kernel.low <= kernel.decode(integers.min()) <= kernel.decode(integers.max()) <= kernel.high
    if kernel.symmetric:
        assert np.array_equal(integers, kernel.integer(b, a))


@pytest.mark.parametrize("kernel", TINY.values(), ids=TINY)
def test_no_pattern_of_bits_leaves_the_range(kernel: Kernel) -> None:
    """A dishonest party may put in bits that encode no record; noise is scaled to the range."""
    circuit = compile_kernel(kernel, None)
    width = sum(circuit.inputs)
    patterns = np.arange(1 << width)
    rows, start = [], 0
    for bits in circuit.inputs:
        rows.append(pack(((patterns >> start) & ((1 << bits) - 1)).tolist(), bits))
        start += bits
    (result,) = circuit.evaluate_many(rows)
    assert max(unpack(result, 1 << width)) <= kernel.steps


def test_a_kernel_is_as_symmetric_and_smooth_as_it_is_declared() -> None:
    def below(builder: Builder, x: Record, y: Record) -> Bits:
        return (less_than(builder, x[0], y[0]),)

    def of_below(a: Codes, b: Codes) -> Codes:
        return np.asarray(a[..., 0] < b[..., 0], np.int64)

    for field in (Field(0, 15), Field(0, 65_535)):
        with pytest.raises(ConfigError, match=r"two orders of the codes \[0\] and .*symmetric=False"):
            circuit_kernel("below", below, of_below, field, low=0.0, high=1.0)
        kernel = circuit_kernel("below", below, of_below, field, low=0.0, high=1.0, symmetric=False)
        assert not kernel.symmetric
        with pytest.raises(ConfigError, match="changes by 1 within a step"):
            circuit_kernel("below", below, of_below, field, low=0.0, high=1.0, symmetric=False, lipschitz=0.5)
    with pytest.raises(ConfigError, match=r"changes by 1 within a step of 0\.5: lipschitz = 1\.5"):
        table_kernel("sum", lambda x, y: 2 * x[0] + y[0], SMALL, low=-3, high=4.5, unit=0.5, lipschitz=1.5)
    assert table_kernel("sum", lambda x, y: x[0] + y[0], SMALL, low=-2, high=3, unit=0.5, lipschitz=1.0)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["kendall_tau", "collision", "auc", "auc_private_labels"])
@settings(max_examples=examples(200))
@given(data=st.data())
def test_the_circuit_is_the_plain_kernel_on_integers_of_32_bits(name: str, data: st.DataObject) -> None:
    kernel = find_kernel(name)
    edge = st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1])
    values = [
        st.integers(0, 1) if field.name == "label" else st.integers(-(2**31), 2**31 - 1) | edge
        for field in kernel.fields
    ]
    x, y = (kernel.codes(tuple([data.draw(each)] for each in values)) for _ in range(2))
    (result,) = compile_kernel(kernel, None).evaluate([int(code) for code in (*x[0], *y[0])])
    assert result == kernel.integer(x, y)[0]


@pytest.mark.parametrize("kernel", [k for k in TINY.values() if k.lipschitz], ids=lambda k: k.name)
def test_lipschitz_constants_hold_and_are_reached(kernel: Kernel) -> None:
    values = kernel.values(grid(kernel))
    table = kernel.function(values[:, None], values[None])
    slopes = np.abs(np.diff(table, axis=0)) / SMALL.step
    assert kernel.lipschitz is not None
    assert slopes.max() <= kernel.lipschitz + 1e-12
    # On a grid the square's slope is that of a chord, half a step short.
    assert slopes.max() >= kernel.lipschitz - SMALL.step / 2 - 1e-12


GRIDS = [(0, 42949672.95, 0.01), (0, 1_000_000, 0.01), (-180, 180, 1e-6), (1e6, 1.4e6, 1e-4)]


@pytest.mark.parametrize(("low", "high", "step"), GRIDS)
def test_every_written_decimal_of_a_fine_grid_has_its_code(low: float, high: float, step: float) -> None:
    field = Field(low, high, step, exact=True)
    codes = np.random.default_rng(1).integers(0, field.steps + 1, 2000)
    codes[:2] = 0, field.steps
    written: Any = [Decimal(str(low)) + int(code) * Decimal(str(step)) for code in codes]
    floats = np.array([float(value) for value in written])
    assert field.codes(floats).tolist() == field.codes(written).tolist() == codes.tolist()
    with pytest.raises(PrivacyError, match="multiples"):
        field.codes([np.nextafter(floats[0], floats[1])])
    with pytest.raises(PrivacyError, match="multiples"):
        field.codes([written[0] + Decimal(str(step)) / 3])


def test_integers_beyond_float64_keep_their_codes() -> None:
    coarse = Field(0, 2**60, 2**30)
    values = 2**30 * np.array([0, 1, 2**30 - 1, 2**30]) + [0, 2**29 + 1, 2**29 - 1, 0]
    assert coarse.codes(values).tolist() == [0, 2, 2**30 - 1, 2**30]
    assert coarse.codes(values.astype(object)).tolist() == coarse.codes(values).tolist()
    assert coarse.codes(values.astype(np.uint64)).tolist() == coarse.codes(values).tolist()
    with pytest.raises(PrivacyError, match="multiples"):
        Field(0, 2**60, 2**30, exact=True).codes(np.array([2**59 + 1]))


def test_a_grid_that_float64_cannot_tell_apart_is_refused() -> None:
    for low, high, step in ((10**18, 10**18 + 4 * 10**9, 1), (2**53, 2**53 + 4, 1), (1e15, 1e15 + 1, 0.1)):
        with pytest.raises(ConfigError, match="cannot tell points"):
            Field(low, high, step)
    with pytest.raises(ConfigError, match="cannot hold"):
        Field(2**53 + 1, 2**53 + 401, 4)
    assert Field(2**53 - 4, 2**53).codes(np.array([2**53 - 1])).tolist() == [3]


def test_narrow_floats_are_taken_as_written_where_they_tell_points_apart() -> None:
    assert Field(0, 1, 0.1, exact=True).codes(np.array([0.1, 0.3], np.float32)).tolist() == [1, 3]
    with pytest.raises(PrivacyError, match="float32 does not tell which"):
        Field(0, 1_000_000, 0.01, exact=True).codes(np.array([999_999.99], np.float32))


def test_extreme_bounds_give_right_codes_or_are_refused() -> None:
    assert Field(-1e308, 1e308, 1e300).codes([1e308, 0, -1e308]).tolist() == [2 * 10**8, 10**8, 0]
    assert Field(0, 1e-300, 1e-305).codes([1e-300, 0, 5e-301]).tolist() == [100_000, 0, 50_000]
    for form, field in ((variance, Field(0, 1e-200, 1e-204)), (variance, Field(0, 1e200, 1e196))):
        with pytest.raises(ConfigError, match="cannot hold its range"):
            form(field)
    with pytest.raises(ConfigError, match="cannot hold its range"):
        gini_mean_difference(Field(-1e308, 1e308, 1e300))
    with pytest.raises(ConfigError, match=r"value\.high"):
        Field(0, 10**400, 10**391)


def test_numbers_of_numpy_are_bounds() -> None:
    bounds: Any = np.int64(0), np.float32(1), np.float64(0.1)
    assert Field(*bounds) == Field(0, 1.0, 0.1)


@pytest.mark.parametrize(
    "values",
    [
        np.ma.array([5, 9], mask=[False, True]),
        ["1"],
        [1 + 0j],
        np.array(["2020-01-01"], "M8[D]"),
        [None],
        [b"1"],
    ],
)
def test_what_is_no_number_is_refused(values: Any) -> None:
    with pytest.raises(PrivacyError, match=r"masked|not an array of numbers"):
        Field(0, 10).codes(values)
    with pytest.raises(PrivacyError, match=r"masked|not an array of numbers"):
        collision(Field(0, 10)).codes(values)


@pytest.mark.parametrize("values", [[math.nan], [1e12], [-math.inf], ["x"]])
def test_values_outside_the_domain_are_refused(values: list[float] | list[str]) -> None:
    with pytest.raises(PrivacyError, match="value"):
        collision(Field(0, 10)).codes(values)


def test_values_are_rounded_to_a_declared_grid_and_nowhere_else() -> None:
    assert Field(0, 1, 0.1).codes([0.26]).tolist() == [3]
    with pytest.raises(PrivacyError, match="multiples of 1"):
        find_kernel("auc").codes([0.26])


@pytest.mark.parametrize("label", [2, 0.5, -1, math.nan])
def test_a_label_is_0_or_1(label: float) -> None:
    with pytest.raises(PrivacyError, match="label"):
        auc_private_labels().codes(([3], [label]))


def test_a_record_has_the_kernels_fields() -> None:
    with pytest.raises(ConfigError, match=r"not 2 values \(x, y\)"):
        kendall_tau().codes([1, 2, 3])
    with pytest.raises(ConfigError, match="not 2 values"):
        kendall_tau().codes(([1, 2], [3]))
    with pytest.raises(ConfigError, match="not equally long"):
        kendall_tau().codes([[1, 2], [3]])


@pytest.mark.parametrize(
    ("arguments", "claimed"),
    [
        ((1, 1, 1), "above low"),
        ((0, 1, 0), "above 0"),
        ((0, 1, 0.3), "integer"),
        ((0, math.nan, 1), "finite"),
    ],
)
def test_a_field_must_be_a_grid(arguments: tuple[float, float, float], claimed: str) -> None:
    with pytest.raises(ConfigError, match=claimed):
        Field(*arguments)


def test_cells_hold_their_lower_edges_and_the_last_one_the_upper_bound() -> None:
    cells = Cells(0.0, 1.0, bins=10)
    assert cells.codes([0.0, 0.099, 0.1, 0.55, 0.999, 1.0]).tolist() == [0, 0, 1, 5, 9, 9]
    assert cells.values(np.arange(10)) == pytest.approx(0.05 + 0.1 * np.arange(10))
    assert (cells.steps, cells.bits) == (9, 4)
    with pytest.raises(PrivacyError, match="value: 1 of 2 values are out of bounds, the first is number 2;"):
        cells.codes([0.5, 1.01])
    for bins in (1, 2.0, 1 << 33):
        with pytest.raises(ConfigError, match="bins"):
            Cells(0.0, 1.0, bins=bins)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="above low"):
        Cells(1.0, 1.0, bins=2)


def test_a_kernel_on_cells_is_described() -> None:
    """Thirds of an interval: no grid of decimals."""
    kernel = gini_mean_difference(Cells(-1.0, 1.0, "share", bins=3))
    again = read_kernel(describe(kernel))
    assert again.fields == kernel.fields
    assert again.high == pytest.approx(4 / 3)
    near = table_kernel("near", lambda x, y: float(abs(x[0] - y[0]) < 1), *kernel.fields, low=0, high=1)
    read = read_kernel(describe(near))
    records = np.array([[-0.9], [0.0], [0.1], [0.9]])
    assert read.integer(read.codes(records), read.codes(records[::-1])).tolist() == [0, 1, 1, 0]


def test_kernels_have_names() -> None:
    for name in NAMES:
        fields = (Field(0, 100),) if name in ("gini", "gini_mean_difference", "variance") else ()
        kernel = find_kernel(name, *fields)
        assert kernel_of(kernel.terms()).terms() == kernel.terms()
    with pytest.raises(ConfigError, match="none of"):
        find_kernel("spearman")
    with pytest.raises(ConfigError, match="needs the bounds"):
        find_kernel("gini")
    with pytest.raises(ConfigError, match="has 2 fields"):
        find_kernel("kendall_tau", SMALL)


@pytest.mark.parametrize(
    ("value", "claimed"), [(1.01, "not in its range"), (math.nan, "not in its range"), ("x", "not a number")]
)
def test_a_users_range_is_verified_on_every_pair(value: object, claimed: str) -> None:
    def wrong_once(x: tuple[float, ...], y: tuple[float, ...]) -> object:
        return value if (x, y) == ((1.5,), (-1.0,)) else 0.5

    with pytest.raises(ConfigError, match=rf"kernel mine: .*\(1.5\) and \(-1\) is {claimed}"):
        table_kernel("mine", wrong_once, SMALL, low=0.0, high=1.0, unit=0.5)  # type: ignore[arg-type]


def test_a_table_rounds_to_its_unit_and_knows_symmetry() -> None:
    kernel = table_kernel("mine", lambda x, y: 0.3 * (x[0] < y[0]), SMALL, low=0, high=1, unit=0.25)
    assert not kernel.symmetric
    assert set(kernel.integer(grid(kernel)[:, None], grid(kernel)[None]).ravel()) == {0, 1}
    with pytest.raises(ConfigError, match="2 to 16"):
        table_kernel("mine", max, Field(0, 1000), low=0, high=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("top", "high"), [(3, 5.0), (5, 3.0)])
def test_a_users_circuit_is_compared_with_its_meaning(top: int, high: float) -> None:
    with pytest.raises(ConfigError, match="kernel mine"):
        circuit_kernel(
            "mine",
            as_circuit(absolute_difference(top)),
            lambda a, b: abs(a - b)[..., 0],
            SMALL,
            low=0.0,
            high=high,
        )
