"""Compile a kernel to a circuit, alone or with noise."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from smpc_dp.circuits import randomisers
from smpc_dp.circuits.builder import Bits, Builder
from smpc_dp.circuits.circuit import Circuit, pack, unpack
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.kernels.fields import Codes
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.privacy.circuit_noise import Noise


@lru_cache(maxsize=64)
def compile_kernel(kernel: Kernel, noise: Noise | None) -> Circuit:
    """Return the circuit from two records and random bits to a raw output; without noise, to the integer.

    Raises ConfigError for a kernel without a circuit.
    """
    if kernel.gadget is None:
        raise ConfigError.at("kernel", f"'{kernel.name}' has no circuit", ConfigCheck.UNSUPPORTED)
    builder = Builder()

    def side() -> tuple[list[Bits], Bits]:
        """Add one side's inputs: the fields of its record, and its random bits."""
        record = [builder.input(field.bits) for field in kernel.fields]
        return record, () if noise is None else builder.input(noise.joint_bits)

    (x, first), (y, second) = side(), side()
    integer = kernel.gadget(builder, x, y)
    if noise is None:
        builder.output(integer)
        return builder.build()
    joint = randomisers.joint_bits(builder, first, second)
    builder.output(randomisers.randomise(builder, integer, joint, *noise.randomiser))
    return builder.build()


def evaluate(circuit: Circuit, a: Codes, b: Codes) -> NDArray[np.object_]:
    """Evaluate a kernel's circuit on records of codes, shapes (..., fields), broadcast."""
    a, b = np.broadcast_arrays(a, b)
    columns = [side[..., index].reshape(-1) for side in (a, b) for index in range(a.shape[-1])]
    rows = [pack(column.tolist(), width) for column, width in zip(columns, circuit.inputs, strict=True)]
    (result,) = circuit.evaluate_many(rows)
    return np.array(unpack(result, len(columns[0])), dtype=object).reshape(a.shape[:-1])
