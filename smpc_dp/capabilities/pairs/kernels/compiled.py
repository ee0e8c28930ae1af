"""Compile a kernel to a circuit, alone or with noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits import randomisers
from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.circuit import MAX_GATES, Circuit, pack, unpack
from smpc_dp.capabilities.pairs.kernels.fields import Cells, Codes, Field
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.on_bits import MAX_TABLE_BITS, Gadget, minimum
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.extensions import called
from smpc_dp.privacy.circuit_noise import Noise

# Gates of a kernel whose code is not this package's: 600 MB while it is made.
MOST_GATES = 1 << 20
# Pairs of records on which kernels are checked where there are too many for all of them.
SAMPLES = 20_000


@lru_cache(maxsize=64)
def compile_kernel(kernel: Kernel, noise: Noise | None) -> Circuit:
    """Return the circuit of a kernel on two records, with noise from joint random bits unless noise is None.

    Raises ConfigError for a kernel without a circuit.
    """
    if noise is None:
        return _of_records(kernel, MAX_GATES)
    gadget, random, builder = _gadget_of(kernel), noise.joint_bits, Builder()

    def side() -> tuple[list[Bits], Bits]:
        """Add one side's inputs: the fields of its record, and its random bits."""
        return [builder.input(field.bits) for field in kernel.fields], builder.input(random)

    (x, first), (y, second) = side(), side()
    integer = gadget(builder, x, y)
    joint = randomisers.joint_bits(builder, first, second)
    builder.output(randomisers.randomise(builder, integer, joint, *noise.randomiser))
    return builder.build()


def _gadget_of(kernel: Kernel) -> Gadget:
    """Return the function that builds a kernel's circuit; raise ConfigError for a kernel without one."""
    if kernel.gadget is None:
        raise ConfigError.at("kernel", f"'{kernel.name}' has no circuit", ConfigCheck.UNSUPPORTED)
    return kernel.gadget


def _of_records(kernel: Kernel, most: int) -> Circuit:
    """Return the noiseless circuit of a kernel on two records; ConfigError if it has over `most` gates."""
    gadget, builder = _gadget_of(kernel), Builder(most)
    x, y = ([builder.input(field.bits) for field in kernel.fields] for _ in range(2))
    builder.output(gadget(builder, x, y))
    # Not a method that a gadget may have replaced.
    return Builder.build(builder)


def isolated(kernel: Kernel) -> Kernel:
    """Return a copy of a kernel with its circuit rebuilt, the output cut to the range; or ConfigError.

    The noisy circuit has no other input and no other output than the two records and one integer, and the
    gadget has no wire of the noise: a wrong gadget cannot break what the noise is designed for. Code that
    attacks this process is not confined. Raises ConfigError, also for more than `MOST_GATES` gates, and
    LocalError with the type of what the gadget raises.
    """
    # Before the gadget runs.
    steps, fields = kernel.steps, kernel.fields
    if type(steps) is not int or any(type(one) not in (Field, Cells) for one in fields):
        raise ConfigError.at("kernel", "its steps or its fields are of other classes", ConfigCheck.TYPE)
    circuit = alone(kernel)

    def gadget(builder: Builder, x: Sequence[Bits], y: Sequence[Bits]) -> Bits:
        return minimum(builder, builder.insert(circuit, [*x, *y])[0], steps)

    # Not a copy: a subclass could set its own gadget again.
    return Kernel(
        kernel.name,
        fields,
        low=kernel.low,
        unit=kernel.unit,
        steps=steps,
        function=kernel.function,
        integer=kernel.integer,
        lipschitz=kernel.lipschitz,
        symmetric=kernel.symmetric,
        labels=kernel.labels,
        gadget=gadget,
    )


def alone(kernel: Kernel) -> Circuit:
    """Return the noiseless circuit of a kernel on two records; raise ConfigError for a wrong shape."""
    widths = tuple(field.bits for field in kernel.fields)
    circuit = called(_of_records, kernel, MOST_GATES)
    if circuit.inputs != (*widths, *widths) or len(circuit.outputs) != 1:
        reason = f"its circuit has other inputs than two records, or {len(circuit.outputs)} outputs, not one"
        raise ConfigError.at(f"kernel {kernel.name}", reason, ConfigCheck.SHAPE)
    return circuit


def evaluate(circuit: Circuit, a: Codes, b: Codes) -> NDArray[np.object_]:
    """Return the integers of a kernel's circuit on encoded records, computed in the clear, broadcast."""
    a, b = np.broadcast_arrays(a, b)
    columns = [side[..., index].reshape(-1) for side in (a, b) for index in range(a.shape[-1])]
    rows = [pack(column.tolist(), width) for column, width in zip(columns, circuit.inputs, strict=True)]
    (result,) = circuit.evaluate_many(rows)
    return np.array(unpack(result, len(columns[0])), dtype=object).reshape(a.shape[:-1])


def sample_pairs(fields: Sequence[Field]) -> tuple[Codes, Codes]:
    """Return pairs of encoded records to test a kernel on: all of up to 16 bits, else 20,000."""
    tops = [field.steps for field in fields] * 2
    if 2 * sum(field.bits for field in fields) <= MAX_TABLE_BITS:
        indices = np.indices([top + 1 for top in tops]).reshape(len(tops), -1)
    else:
        # Nothing here is secret: corners first, then multiples of the golden ratio, spread over every range;
        # in the last third the records are neighbours, or equal.
        slopes = 0.6180339887498949 ** np.arange(1, 1 + len(tops))
        parts = np.outer(slopes, np.arange(SAMPLES)) % 1.0
        indices = np.floor(parts * (np.array(tops)[:, None] + 1)).astype(np.int64)
        corners = np.indices([2] * len(tops)).reshape(len(tops), -1)[:, : SAMPLES // 2]
        indices[:, : corners.shape[1]] = corners * np.array(tops)[:, None]
        near = indices[:, -SAMPLES // 3 :]
        first, second = near[: len(fields)], near[len(fields) :]
        second[:] = np.clip(first + np.arange(near.shape[1]) % 3 - 1, 0, np.array(tops)[: len(fields), None])
    return indices[: len(fields)].T, indices[len(fields) :].T


def check_symmetry(kernel: Kernel, a: Codes, b: Codes) -> None:
    """Raise ConfigError if a kernel declared as symmetric gives another value for (b, a) than for (a, b)."""
    if not kernel.symmetric:
        return
    differing = np.flatnonzero(kernel.integer(a, b) != kernel.integer(b, a))
    if differing.size:
        reason = f"the two orders of the codes {format_pair(a, b, int(differing[0]))} give different values"
        raise ConfigError.at(
            f"kernel {kernel.name}", f"{reason}: declare symmetric=False", ConfigCheck.DIFFERS
        )


def format_pair(a: Codes, b: Codes, index: int) -> str:
    """Return the pair of encoded records at `index` as text for error messages."""
    return f"{a[index].tolist()} and {b[index].tolist()}"
