"""Published circuits of pairwise statistics: kernels at common sizes, and one with its noise."""

from __future__ import annotations

from collections.abc import Callable

from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.randomisers import add_cyclic_laplace, joint_bits
from smpc_dp.capabilities.pairs.kernels import definitions
from smpc_dp.capabilities.pairs.kernels.on_bits import as_circuit
from smpc_dp.capabilities.pairs.published.entry import Published, Value, Values

# (threshold, bits) of the coins of `privacy.circuit_noise.CyclicLaplace.design(2, 1.0)`.
TAU_COINS = (
    (1547, 12),
    (2205, 13),
    (3913, 15),
    (2367, 17),
    (2835, 23),
    (491, 32),
    (1547, 12),
)
_JOINT = sum(bits for _, bits in TAU_COINS)


def _sign(difference: int) -> int:
    """Return -1, 0 or 1: the sign of a difference."""
    return (difference > 0) - (difference < 0)


def _tau(x0: int, x1: int, y0: int, y1: int) -> int:
    """Return 1 + sign(x0 - y0) sign(x1 - y1), the plain value of Kendall's tau kernel on two records."""
    return 1 + _sign(x0 - y0) * _sign(x1 - y1)


def _records(*fields: tuple[str, int]) -> tuple[Value, ...]:
    """Return descriptions of circuit inputs for the fields of two records, x then y."""
    return tuple(
        Value(f"{side}_{name}", width, f"{name} of {record}, code on its grid")
        for side, record in (("x", "the first record"), ("y", "the second record"))
        for name, width in fields
    )


def _kernel(
    name: str,
    summary: str,
    fields: tuple[tuple[str, int], ...],
    output: str,
    steps: int,
    definition: definitions.Definition,
    meaning: Callable[..., int],
) -> Published:
    """Return the published entry of a kernel: its circuit, and the plain function that it is checked with."""
    compiled = as_circuit(definition)

    def build(builder: Builder, *values: Bits) -> list[Bits]:
        return [compiled(builder, values[: len(fields)], values[len(fields) :])]

    def plain(*values: int) -> Values:
        return (meaning(*values),)

    value = Value("z", steps.bit_length(), output)
    return Published(name, summary, _records(*fields), (value,), build, plain)


def _noisy_tau() -> Published:
    """Return the published entry of Kendall's tau on 32-bit records with Laplace noise of epsilon 1."""

    def build(builder: Builder, *values: Bits) -> list[Bits]:
        x, first, y, second = values[:2], values[2], values[3:5], values[5]
        integer = as_circuit(definitions.kendall_tau)(builder, x, y)
        return [add_cyclic_laplace(builder, integer, joint_bits(builder, first, second), TAU_COINS)]

    def plain(x0: int, x1: int, first: int, y0: int, y1: int, second: int) -> Values:
        joint, tossed = first ^ second, []
        for threshold, bits in TAU_COINS:
            tossed.append(joint % (1 << bits) < threshold)
            joint >>= bits
        noise = sum(coin << index for index, coin in enumerate(tossed[:-1]))
        noise = -1 - noise if tossed[-1] else noise
        return ((_tau(x0, x1, y0, y1) + noise) % (1 << len(TAU_COINS)),)

    coins = tuple(Value(f"{side}_coins", _JOINT, "fair random bits of this party") for side in ("x", "y"))
    records = _records(("first", 32), ("second", 32))
    return Published(
        "kendall_tau32_laplace",
        "z = 1 + sign(x0 - y0) sign(x1 - y1) + discrete Laplace noise of epsilon 1, mod 2^7",
        (*records[:2], coins[0], *records[2:], coins[1]),
        (Value("z", len(TAU_COINS), "noisy kernel, cyclic"),),
        build,
        plain,
    )


KERNELS = (
    _kernel(
        "kendall_tau32",
        "z = 1 + sign(x0 - y0) sign(x1 - y1)",
        (("first", 32), ("second", 32)),
        "0 discordant, 1 tied, 2 concordant",
        2,
        definitions.kendall_tau,
        _tau,
    ),
    _kernel(
        "gini16",
        "z = |x - y|",
        (("value", 16),),
        "grid steps between the two",
        (1 << 16) - 1,
        definitions.absolute_difference((1 << 16) - 1),
        lambda x, y: abs(x - y),
    ),
    _kernel(
        "variance16",
        "z = (x - y)^2",
        (("value", 16),),
        "squared grid steps",
        ((1 << 16) - 1) ** 2,
        definitions.squared_difference((1 << 16) - 1),
        lambda x, y: (x - y) ** 2,
    ),
    _kernel(
        "collision32",
        "z = (x = y)",
        (("value", 32),),
        "1 where both are equal",
        1,
        definitions.collision,
        lambda x, y: int(x == y),
    ),
    _kernel(
        "auc32",
        "z = 1 + sign(x - y), labels public: x has label 1, y label 0",
        (("score", 32),),
        "0 less, 1 tied, 2 greater",
        2,
        definitions.auc,
        lambda x, y: 1 + _sign(x - y),
    ),
    _kernel(
        "auc32_private_labels",
        "z = 1 + (l - m) sign(x - y) for labels l, m that differ, else 0",
        (("score", 32), ("label", 1)),
        "0 less or same label, 1 tied, 2 greater",
        2,
        definitions.auc_private_labels,
        lambda x, a, y, b: 1 + (a - b) * _sign(x - y) if a != b else 0,
    ),
    _noisy_tau(),
)
