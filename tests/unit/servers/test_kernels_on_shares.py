"""Kernels compiled twice: definitions and users' circuits on shares, beside plain functions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp import simulate
from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol, parse_bristol
from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.circuit import pack, unpack
from smpc_dp.capabilities.pairs.circuits.gadgets import less_than, multiply
from smpc_dp.capabilities.pairs.circuits.layers import layers_of
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
from smpc_dp.capabilities.pairs.kernels.described import MAX_CIRCUIT, describe, read_kernel, table_of
from smpc_dp.capabilities.pairs.kernels.fields import Codes
from smpc_dp.capabilities.pairs.kernels.on_bits import Record
from smpc_dp.capabilities.pairs.statistics import exact
from smpc_dp.capabilities.servers.kernels.on_shares import Bilinear, Column, Distance, OnShares
from smpc_dp.capabilities.servers.requests.programs import operation_of
from smpc_dp.capabilities.servers.secret_sharing.messages import MAX_OPERATION
from smpc_dp.capabilities.servers.simulation import shared
from smpc_dp.capabilities.servers.simulation.shared import run_alone
from smpc_dp.capabilities.servers.statistics.kernels import compiled_layers
from smpc_dp.capabilities.servers.statistics.plan import read_answer, statistic_program
from smpc_dp.capabilities.servers.statistics.program import design_pairs, kernel_in, way_of
from smpc_dp.errors import ConfigError
from tests.examples import examples

SEED = bytes(range(32))
FINE = Field(0, 65_535)


def package_kernels(top: int) -> list[Kernel]:
    field = Field(0, top)
    pair = (field, Field(0, top, name="y"))
    return [
        *(make(*pair[:count]) for make, count in ((kendall_tau, 2), (auc, 1), (auc_private_labels, 1))),
        *(make(field) for make in (gini_mean_difference, variance, collision)),
    ]


def columns(codes: Codes, kernel: Kernel) -> list[Column]:
    """Plain integers in place of shares."""
    whole = codes.astype(object)
    bits = [
        (codes[:, index, None] >> np.arange(f.bits) & 1).astype(object)
        for index, f in enumerate(kernel.fields)
    ]
    return [Column(each, whole[:, index]) for index, each in enumerate(bits)]


@pytest.mark.parametrize("top", [1, 2, 3, 6, 7])
def test_both_compilations_of_a_definition_are_the_plain_kernel_on_every_pair(top: int) -> None:
    """Circuit, its layers of products and program on shares, each against the meaning, pair by pair."""
    for kernel in package_kernels(top):
        sizes = [field.steps + 1 for field in kernel.fields]
        records = np.indices(sizes).reshape(len(sizes), -1).T
        first, second = np.divmod(np.arange(len(records) ** 2), len(records))
        x, y = records[first], records[second]
        plain = kernel.integer(x, y).tolist()
        circuit = compile_kernel(kernel, None)
        rows = [pack(side[:, p].tolist(), f.bits) for side in (x, y) for p, f in enumerate(kernel.fields)]
        assert unpack(circuit.evaluate_many(rows)[0], len(x)) == plain
        assert kernel.definition is not None
        sides = columns(x, kernel), columns(y, kernel)
        result = layers_of(circuit).evaluate(np.concatenate([c.bits for s in sides for c in s], axis=1).T)
        assert sum(row << index for index, row in enumerate(result)).tolist() == plain
        shared = kernel.definition(OnShares(), *sides)
        if isinstance(shared, Distance):
            assert abs(shared.x.values - shared.y.values).tolist() == plain
            continue
        assert isinstance(shared, Bilinear)
        made = shared.constant + shared.factor * shared.left * (1 if shared.right is None else shared.right)
        assert made.tolist() == plain
        assert shared.total().tolist() == [sum(plain)]


def test_layers_are_any_circuit_bit_for_bit() -> None:
    """Random circuits of few wires, as files may have them: constants, copies, x AND NOT x, unused gates."""
    generator = np.random.default_rng(8)
    for _ in range(400):
        inputs, gates = (int(size) for size in generator.integers((1, 0), (5, 25)))
        lines = []
        for out in range(inputs, inputs + gates):
            a, b = generator.integers(max(0, out - int(generator.choice([3, 6, 99]))), out, 2)
            kind = str(generator.choice(["XOR", "AND", "AND", "INV", "EQW", "EQ"]))
            operands = {"XOR": f"2 1 {a} {b}", "AND": f"2 1 {a} {b}", "EQ": f"1 1 {a & 1}"}
            lines.append(f"{operands.get(kind, f'1 1 {a}')} {out} {kind}")
        outputs = int(generator.integers(1, min(inputs + gates, 6) + 1))
        header = [f"{gates} {inputs + gates}", f"1 {inputs}", f"1 {outputs}"]
        circuit = parse_bristol("\n".join([*header, *lines, ""]).encode())
        codes = np.arange(1 << inputs)
        (wanted,) = circuit.evaluate_many([pack(codes.tolist(), inputs)])
        result = layers_of(circuit).evaluate(
            np.array([codes >> index & 1 for index in range(inputs)], object)
        )
        assert (result.T @ (1 << np.arange(outputs)) == unpack(wanted, len(codes))).all(), lines


def farther(builder: Builder, x: Record, y: Record) -> Bits:
    """Return 2 (x < y) + (z < w), by gates that share nothing with this package's kernels."""
    return less_than(builder, x[1], y[1]), less_than(builder, x[0], y[0])


def of_farther(a: Codes, b: Codes) -> Codes:
    return 2 * (a[..., 0] < b[..., 0]) + (a[..., 1] < b[..., 1])


def product(builder: Builder, x: Record, y: Record) -> Bits:
    return multiply(builder, x[0], y[0], 2 * len(x[0]))


def of_product(a: Codes, b: Codes) -> Codes:
    return np.asarray(a[..., 0] * b[..., 0], np.int64)


PRODUCT = circuit_kernel("product", product, of_product, Field(0, 511), low=0.0, high=float(511**2))


@settings(max_examples=examples(40))
@given(st.data())
def test_a_users_kernel_is_the_same_on_shares(data: st.DataObject) -> None:
    """A table or a circuit, all pairs or matchings, every way that there is, against its plain meaning."""
    top = data.draw(st.sampled_from([1, 2, 5]), "top")
    steps = data.draw(st.integers(1, 6), "steps")
    table = data.draw(st.lists(st.integers(0, steps), min_size=36, max_size=36), "table")
    parties = data.draw(st.integers(2, 6), "users")
    partners = data.draw(st.integers(0, 1), "partners")
    even = table_kernel(
        "table",
        lambda x, y: float(table[int(min(x, y)[0]) + 6 * int(max(x, y)[0])]),
        Field(0, top),
        low=0,
        high=steps,
    )
    kernel = data.draw(st.sampled_from([PRODUCT, even]), "kernel")
    codes = np.array(
        data.draw(
            st.lists(st.integers(0, kernel.fields[0].steps), min_size=parties, max_size=parties), "codes"
        )
    ).reshape(parties, 1)
    program = statistic_program(kernel, parties, None, partners=partners, design=SEED)
    pairs = design_pairs(program.terms)
    wanted = int(kernel.integer(codes[pairs[:, 0]], codes[pairs[:, 1]]).sum())
    assert run_alone(program, codes.tolist()) == [wanted]
    assert shared.run_ideal(program, codes, None) == [wanted]  # type: ignore[arg-type]


def test_every_way_of_a_users_kernel_is_taken() -> None:
    near = table_kernel("near", lambda x, y: float(abs(x[0] - y[0]) < 2), Field(0, 255), low=0, high=1)
    assert [way_of(statistic_program(near, parties, None).terms) for parties in (2, 30)] == [
        "circuit",
        "counts",
    ]
    few = statistic_program(near, 30, None, partners=2, design=SEED)
    assert way_of(few.terms) == "circuit"


def test_a_users_kernel_has_the_sensitivity_of_its_range() -> None:
    """With its noise, against the statistic without any: 14 deviations are passed once in e^19 runs."""
    near = table_kernel("near", lambda x, y: 3.0 * (x == y), Field(0, 9), low=0, high=6, unit=3.0)
    ages = np.random.default_rng(1).integers(0, 10, 40)
    program = statistic_program(near, 40, 2.0)
    assert program.noise[0].sensitivity == near.steps * 39
    result = simulate.pairwise(near, ages, 2.0, engine="mpyc")
    assert abs(result.value - exact.u_statistic(near, ages)) < 14 * result.noise_error
    assert result.kernel == "near"


@pytest.mark.parametrize("name", ["kendall_tau", "gini_mean_difference", "closeness"])
def test_a_users_kernel_is_its_own_whatever_its_name(name: str) -> None:
    field = Field(0, 3, name="x", exact=True)
    fields = (field, Field(0, 3, name="y", exact=True)) if name == "kendall_tau" else (field,)
    own = table_kernel(name, lambda x, y: float(x[0] == y[0]), *fields, low=0.0, high=3.0)
    records = np.array([[1, 2], [1, 3], [2, 0], [1, 1]])[:, : len(fields)]
    program = statistic_program(own, 4, None)
    assert run_alone(program, records.tolist()) == [3]
    assert exact.u_statistic(own, records) == 0.5
    assert kernel_in(program.terms).definition is None
    assert "circuit" in json.loads(operation_of(own, 1.0, 0.0, "laplace", None))


def test_a_description_is_read_back() -> None:
    kernel = circuit_kernel(
        "mine", farther, of_farther, FINE, FINE, low=-1.0, high=0.5, unit=0.5, symmetric=False
    )
    described = describe(kernel)
    again = read_kernel(json.loads(json.dumps(described)))
    assert again.terms() == kernel.terms()
    assert describe(again) == described
    assert described["digest"] == compile_kernel(kernel, None).digest.hex()
    records = np.random.default_rng(4).integers(0, 65_536, (2, 50, 2))
    assert (again.integer(*records) == kernel.integer(*records)).all()
    assert len(operation_of(kernel, 1.0, 0.0, "laplace", 2)) < MAX_OPERATION
    terms = statistic_program(kernel, 9, 1.0, partners=2, design=SEED).terms
    other = circuit_kernel(
        "mine", farther, of_farther, FINE, FINE, low=-0.5, high=1.0, unit=0.5, symmetric=False
    )
    assert statistic_program(other, 9, 1.0, partners=2, design=SEED).terms.digest != terms.digest


def lying(field: Field, steps: int) -> Kernel:
    """A kernel whose circuit gives x + y's low bits, whatever its declared range."""
    return Kernel(
        "lying",
        (field,),
        low=0.0,
        unit=1.0,
        steps=steps,
        function=lambda a, b: (a[..., 0] + b[..., 0]) * 1.0,
        integer=lambda a, b: a[..., 0] + b[..., 0],
        gadget=lambda builder, x, y: tuple(builder.xor(a, b) for a, b in zip(x[0], y[0], strict=True)),
        symmetric=True,
    )


def test_a_wrong_range_is_found_out_on_a_small_domain() -> None:
    with pytest.raises(ConfigError, match=r"gives 15 on the codes \[0\] and \[15\].*0 to 11"):
        statistic_program(lying(Field(0, 15), 11), 5, 1.0)
    statistic_program(lying(Field(0, 15), 15), 5, 1.0)
    first = dataclasses.replace(lying(Field(0, 15), 15), gadget=lambda _builder, x, _y: x[0])
    with pytest.raises(ConfigError, match="symmetric"):
        describe(first)


def test_a_number_with_more_bits_than_its_range_needs_serves_every_noise() -> None:
    """Bits that are 0 on every record need not be so for their gates; of too many bits nothing is tried."""
    field = Field(0, 3)

    def wide(builder: Builder, x: Record, y: Record) -> Bits:
        both = builder.and_(x[0][0], y[0][0])
        never = builder.and_(builder.and_(both, x[0][1]), builder.xor(x[0][1], both))
        return both, never, never

    kernel = dataclasses.replace(lying(field, 1), gadget=wide)
    for distribution in ("laplace", "pair_laplace", "randomised_response"):
        program = statistic_program(kernel, 4, 12.0, distribution=distribution, partners=1, design=SEED)
        assert abs(read_answer(program, run_alone(program, [[1], [3], [1], [1]])).values[0] - 1) < 4
    long = dataclasses.replace(lying(FINE, 1), gadget=lambda _builder, x, y: (*x[0], *x[0], *x[0], *y[0]))
    with pytest.raises(ConfigError, match="gives a number of 64 bits, at most 62"):
        describe(long)


def test_a_wrong_range_is_cut_in_the_computation_on_a_large_domain() -> None:
    """Also the sum of the integers stays in what noise is scaled to: the program cuts, not its author."""
    program = statistic_program(lying(FINE, 1000), 3, None)
    assert run_alone(program, [[0], [900], [65_535]]) == [900 + 1000 + 1000]
    assert compile_kernel(kernel_in(program.terms), None).outputs == (10,)


def test_what_is_too_large_is_refused_with_its_figure() -> None:
    rough = np.random.default_rng(3).integers(0, 256, (64, 64))
    large = table_kernel("large", lambda x, y: rough[int(x[0]), int(y[0])], Field(0, 63), low=0, high=255)
    with pytest.raises(ConfigError, match=rf"[0-9]+ gates, [0-9]+ bytes in .*; at most {MAX_CIRCUIT}"):
        statistic_program(large, 9, 1.0)
    costly = circuit_kernel("costly", product, of_product, FINE, low=0.0, high=float(65_535**2))
    each, parties = compiled_layers(kernel_in(statistic_program(costly, 9, None).terms)).products, 800
    with pytest.raises(ConfigError, match=f"{each} products, times {parties * (parties - 1) // 2} pairs"):
        statistic_program(costly, parties, 1.0)
    statistic_program(costly, parties, 1.0, partners=10, design=SEED)
    none = dataclasses.replace(lying(FINE, 9), gadget=None)
    with pytest.raises(ConfigError, match="no circuit"):
        statistic_program(none, 9, 1.0)


def test_a_kernel_that_is_not_symmetric_has_no_order_over_all_pairs() -> None:
    kernel = circuit_kernel("mine", farther, of_farther, FINE, FINE, low=0.0, high=3.0, symmetric=False)
    with pytest.raises(ConfigError, match="not symmetric"):
        statistic_program(kernel, 3, 1.0)
    statistic_program(kernel, 2, 1.0)
    statistic_program(kernel, 3, 1.0, partners=1, design=SEED)


def changed(**to: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda described: described | to


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (changed(digest="00" * 32), "kernel.digest"),
        (changed(circuit="1 2\n"), "kernel.circuit"),
        (changed(circuit="x" * (MAX_CIRCUIT + 1)), "kernel.circuit"),
        (changed(circuit=5), "kernel.circuit"),
        (changed(labels="private"), "kernel.labels"),
        (changed(symmetric=1), "kernel.symmetric"),
        (changed(unit="0"), "kernel"),
        (changed(unit="nan"), "kernel"),
        (changed(steps=0), "kernel"),
        (changed(steps=True), "kernel"),
        (changed(steps=1 << 50), "kernel"),
        (changed(kernel="a\nb"), "kernel"),
        (changed(fields=[]), "kernel"),
        (changed(fields=5), "kernel"),
        (lambda described: {k: v for k, v in described.items() if k != "low"}, "kernel"),
        (lambda d: d | {"fields": [d["fields"][0] | {"high": "255"}]}, "kernel.circuit"),
    ],
)
def test_a_bad_description_is_refused(change: Any, where: str) -> None:
    described = describe(lying(FINE, 65_535))
    with pytest.raises(ConfigError, match=where):
        read_kernel(change(described))


def test_terms_with_another_circuit_than_their_digest_are_refused() -> None:
    """Whoever altered a circuit on its way would have to alter the digest, and with it that of the terms."""
    program = statistic_program(lying(FINE, 65_535), 3, 1.0)
    described = json.loads(program.terms.kernel_terms)
    described["circuit"] = format_bristol(compile_kernel(lying(FINE, 9), None)).decode().replace("XOR", "AND")
    altered = msgspec.structs.replace(program.terms, kernel_terms=json.dumps(described))
    assert altered.digest != program.terms.digest
    with pytest.raises(ConfigError, match="digest"):
        kernel_in(altered)


def test_tables_hold_every_code() -> None:
    kernel = kendall_tau(Field(0, 3), Field(0, 2, name="y"))
    table = table_of(kernel)
    assert table is not None
    assert table.shape == (16, 16)
    assert table[1, 2 + 4] == 2
    assert table[1 + 4, 2] == 0
    assert table_of(variance(FINE)) is None
