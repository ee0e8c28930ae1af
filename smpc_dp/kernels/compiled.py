"""A kernel as a circuit, alone or with noise."""

from __future__ import annotations

from functools import lru_cache

from smpc_dp.circuits import randomisers
from smpc_dp.circuits.builder import Bits, Builder
from smpc_dp.circuits.circuit import Circuit
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.privacy.circuit_gaussian import TableGaussian
from smpc_dp.privacy.circuit_noise import CyclicLaplace, Noise, RandomisedResponse


@lru_cache(maxsize=64)
def compile_kernel(kernel: Kernel, noise: Noise | None) -> Circuit:
    """Return the circuit: records and random bits to a raw output; without noise, records to the integer.

    Raises ConfigError for a kernel without a circuit.
    """
    if kernel.gadget is None:
        raise ConfigError([Fault("kernel", f"'{kernel.name}' has no circuit")])
    builder = Builder()

    def side() -> tuple[list[Bits], Bits]:
        record = [builder.input(field.bits) for field in kernel.fields]
        return record, () if noise is None else builder.input(noise.joint_bits)

    (x, first), (y, second) = side(), side()
    integer = kernel.gadget(builder, x, y)
    if noise is None:
        builder.output(integer)
        return builder.build()
    joint = randomisers.joint_bits(builder, first, second)
    builder.output(_randomised(builder, integer, joint, noise))
    return builder.build()


def _randomised(builder: Builder, integer: Bits, joint: Bits, noise: Noise) -> Bits:
    match noise:
        case CyclicLaplace():
            return randomisers.add_cyclic_laplace(builder, integer, joint, noise.coins)
        case RandomisedResponse():
            return randomisers.randomised_response(builder, integer, joint, noise.exchange, noise.cuts)
        case TableGaussian():
            return randomisers.add_table_gaussian(builder, integer, joint, noise.cuts, noise.output_bits)
        case _:
            raise ConfigError([Fault("noise", f"no circuit for {type(noise).__name__}")])
