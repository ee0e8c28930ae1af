"""Vectors of parties' kernels on shares: description, terms, and opened result."""

from __future__ import annotations

import numpy as np

from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import add_with_carry
from smpc_dp.capabilities.pairs.kernels import Field, Kernel, table_kernel
from smpc_dp.capabilities.pairs.kernels.described import describe
from smpc_dp.capabilities.pairs.kernels.fields import Codes
from smpc_dp.capabilities.pairs.kernels.on_bits import Record
from smpc_dp.capabilities.servers.simulation.shared import run_ideal
from smpc_dp.capabilities.servers.statistics.plan import statistic_program
from smpc_dp.capabilities.servers.statistics.program import design_pairs, way_of
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.vectors.runs import SCHEMA

SEED = bytes(range(32))
CODES = ([0], [3], [2], [6], [6])


def _both(builder: Builder, x: Record, y: Record) -> Bits:
    return add_with_carry(builder, x[0], y[0])


def _sum_of(a: Codes, b: Codes) -> Codes:
    total: Codes = a[..., 0] + b[..., 0]
    return total


def kernels() -> dict[str, tuple[Kernel, int]]:
    """Return kernels and the partners of each party: a table's, and one whose gates cut it to its range."""
    near = table_kernel("near", lambda x, y: float(abs(x[0] - y[0]) < 2), Field(0, 6), low=0, high=1)
    cut = Kernel(
        "both",
        (Field(0, 1000),),
        low=0.0,
        unit=1.0,
        steps=9,
        function=lambda a, b: _sum_of(a, b) * 1.0,
        integer=_sum_of,
        gadget=_both,
        symmetric=True,
    )
    return {"of-a-table": (near, 0), "cut-to-its-range": (cut, 2)}


def kernel_json(name: str) -> dict[str, object]:
    """Return the vector of one kernel: description, terms without noise, pairs and their sum."""
    kernel, partners = kernels()[name]
    design = SEED if partners else b""
    program = statistic_program(kernel, len(CODES), None, partners=partners, design=design)
    terms = program.terms
    (opened,) = run_ideal(program, np.array(CODES, np.int64), SeededRandomnessForSimulation(1, name))
    return {
        "schema": SCHEMA,
        "kind": "kernel",
        "name": name,
        "kernel": describe(kernel),
        "users": len(CODES),
        "partners": partners,
        "design": design.hex(),
        "terms": terms.canonical().decode("ascii"),
        "terms_digest": terms.digest.hex(),
        "way": way_of(terms),
        "codes": [list(code) for code in CODES],
        "pairs": design_pairs(terms).tolist(),
        "opened": [str(opened)],
    }
