"""Noise made in circuits: exact distributions, proven epsilon, and that the circuit has the distribution."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from smpc_dp.capabilities.pairs.circuits.builder import Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, unpack_bytes
from smpc_dp.capabilities.pairs.kernels import Field, collision, gini_mean_difference, kendall_tau
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel
from smpc_dp.capabilities.pairs.published.kernels import TAU_COINS
from smpc_dp.capabilities.pairs.statistics.compiled import design_noise
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import ConfigError
from smpc_dp.privacy import circuit_noise
from smpc_dp.privacy.circuit_gaussian import TableGaussian, total_delta
from smpc_dp.privacy.circuit_noise import CyclicLaplace, Noise, NoiseKind, RandomisedResponse
from smpc_dp.privacy.empirical import Claim, Sampler, audit
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.reference.pairs_coin_streams import coin_gates, streamed_coins

# One chi-square test alarms falsely once in 10^5; there are fewer than ten, with fixed seeds.
ALARM = 1e-5

# (width, coins, AND gates a coin by comparison and from a stream); docs/proofs/statistics.md has larger ones.
STREAMS = [
    (16, 1, (15, 2139)),
    (16, 64, (15, 252)),
    (64, 1, (63, 3456)),
    (64, 64, (63, 315)),
]

Design = Callable[[int, float], CyclicLaplace | RandomisedResponse]


def greatest_log_ratio(noise: Noise) -> float:
    """Over all pairs of kernel integers and all outputs, from the exact distribution."""
    if isinstance(noise, RandomisedResponse):
        distributions = [noise.masses(h) for h in range(noise.steps + 1)]
    else:
        assert isinstance(noise, CyclicLaplace)
        distribution = noise.masses()
        distributions = [
            distribution[-h:] + distribution[:-h] if h else distribution for h in range(noise.steps + 1)
        ]
    return max(math.log(max(column) / min(column)) for column in zip(*distributions, strict=True))


def test_a_greater_epsilon_would_need_longer_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """523,832,156 is one of the grids on which the longest coin of all is longest."""
    monkeypatch.setattr(circuit_noise, "GREATEST_EPSILON", 100.0)

    def longest(steps: int, epsilon: float) -> int:
        return max(coin.bits for coin in CyclicLaplace.design(steps, epsilon).coins)

    assert max(longest(steps, 12.0) for steps in (1, 2, 3, 5, 11, 1000, 523832156, 820017759)) == 55
    assert longest(523832156, 19.0) > 63


@pytest.mark.parametrize("steps", [1, 2, 5, 12])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("design", [CyclicLaplace.design, RandomisedResponse.design])
def test_epsilon_holds_for_the_coins_as_they_are(design: Design, steps: int, epsilon: float) -> None:
    noise = design(steps, epsilon)
    result = greatest_log_ratio(noise)
    assert result <= float(noise.proven) * (1 + 1e-14)  # the test's logarithm is in floating point
    assert noise.proven <= Fraction(epsilon)
    # And hardly anything is given away.
    assert result >= 0.995 * epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.003])
@pytest.mark.parametrize("steps", [1, 2, 63])
def test_a_small_epsilon_is_made_use_of(steps: int, epsilon: float) -> None:
    """Coins of too few bits would never keep the integer."""
    noise = RandomisedResponse.design(steps, epsilon)
    assert noise.proven <= Fraction(epsilon)
    assert noise.joint_bits <= 128
    assert noise.exchange.bits <= 63
    ideal = math.expm1(epsilon) / (steps + math.exp(epsilon))
    assert float(1 - noise.exchange.probability) == pytest.approx(ideal, rel=0.12)
    assert math.isfinite(noise.variance)


@pytest.mark.parametrize(("steps", "epsilon"), [(2, 1.0), (2, 0.2), (30, 1.0)])
def test_laplace_moments_are_those_of_the_law(steps: int, epsilon: float) -> None:
    noise = CyclicLaplace.design(steps, epsilon)
    distribution = noise.masses()
    assert sum(distribution) == 1
    half = len(distribution) // 2
    signed = [(x if x < half else x - len(distribution), mass) for x, mass in enumerate(distribution)]
    assert sum((x * m for x, m in signed), Fraction(0)) == noise.mean
    assert sum((x * x * m for x, m in signed), Fraction(0)) - noise.mean**2 == noise.exact_variance
    q = math.exp(-epsilon / steps)
    assert noise.variance == pytest.approx(2 * q / (1 - q) ** 2, rel=0.004)
    assert abs(float(noise.mean)) < 0.001 * math.sqrt(noise.variance)


def test_a_forgotten_coin_would_be_seen() -> None:
    """The proof is about the coins: with another one the distribution has another epsilon."""
    noise = CyclicLaplace.design(2, 1.0)
    coins = list(noise.coins)
    coins[1] = coins[0]
    assert greatest_log_ratio(CyclicLaplace(2, 1.0, tuple(coins), noise.proven)) > 1.05


def random_rows(circuit: Circuit, count: int, seed: int) -> list[NDArray[np.uint64]]:
    rng = np.random.default_rng(seed)
    words = -(-count // 64)
    return [rng.integers(0, 2**64, (width, words), dtype=np.uint64) for width in circuit.inputs]


def outputs(
    kernel_steps: int, noise: Noise, integer: int, count: int, seed: int, zero: str = ""
) -> NDArray[np.uint8]:
    """Raw outputs of the circuit of a kernel whose integer is |x - y| = `integer`; `zero` cheats."""
    kernel = gini_mean_difference(Field(0, kernel_steps))
    circuit = compile_kernel(kernel, noise)
    rows = random_rows(circuit, count, seed)
    rows[0][:] = [[-(integer >> bit & 1) & (2**64 - 1)] for bit in range(len(rows[0]))]
    rows[2][:] = 0
    for index, name in ((1, "first"), (3, "second")):
        if zero == name:
            rows[index] = np.zeros_like(rows[index])
    (result,) = circuit.evaluate_many(rows)
    return unpack_bytes(result, count)[:, 0]


def exact_distribution(noise: Noise, integer: int) -> NDArray[np.float64]:
    if isinstance(noise, CyclicLaplace):
        distribution = np.array([float(m) for m in noise.masses()])
        return np.roll(distribution, integer)
    if isinstance(noise, RandomisedResponse):
        return np.array([float(m) for m in noise.masses(integer)])
    assert isinstance(noise, TableGaussian)
    edges = np.array([0.0, *map(float, noise.cuts), 2.0**63]) / 2.0**63
    magnitude = np.diff(edges)
    both = np.concatenate([magnitude[:0:-1] / 2, magnitude[:1], magnitude[1:] / 2])
    return np.concatenate([np.zeros(integer), both])


@pytest.mark.parametrize("zero", ["", "first", "second"])
@pytest.mark.parametrize(
    "noise",
    [
        CyclicLaplace.design(3, 1.0),
        RandomisedResponse.design(3, 1.0),
        RandomisedResponse.design(4, 1.0),
        TableGaussian.design(3, 2.0, 1e-4, 1),
    ],
    ids=["laplace", "response-4", "response-5", "gaussian"],
)
def test_the_circuit_has_the_exact_law_even_if_one_partys_bits_are_zeros(noise: Noise, zero: str) -> None:
    count, integer = 200_000, 2
    result = np.bincount(outputs(noise.steps, noise, integer, count, 7, zero))
    distribution = exact_distribution(noise, integer)
    assert len(result) <= len(distribution)
    result = np.pad(result, (0, len(distribution) - len(result)))
    common = distribution * count >= 10
    expected = np.append(distribution[common], distribution[~common].sum()) * count
    seen = np.append(result[common], result[~common].sum())
    keep = expected > 0
    assert seen[~keep].sum() == 0
    assert chisquare(seen[keep], expected[keep] * seen.sum() / expected.sum()).pvalue > ALARM


@pytest.mark.parametrize("kind", ["laplace", "randomised_response", "gaussian"])
def test_the_ideal_functionality_has_the_circuits_law(kind: NoiseKind) -> None:
    noise = design_noise(3, 1.0, 1e-5 if kind == "gaussian" else 0.0, 1, kind)
    drawn = noise.draw(np.full(200_000, 1), SeededRandomnessForSimulation(3, "ideal"))
    distribution = exact_distribution(noise, 1)
    result = np.bincount(drawn.astype(np.int64), minlength=len(distribution))
    common = distribution * 200_000 >= 10
    expected = np.append(distribution[common], distribution[~common].sum())
    seen = np.append(result[common], result[~common].sum())
    keep = expected > 0
    assert chisquare(seen[keep], expected[keep] / expected.sum() * 200_000).pvalue > ALARM
    read = noise.read(drawn)
    assert read.mean() == pytest.approx(1.0, abs=5 * math.sqrt(noise.variance / 200_000))


def test_zeros_in_place_of_both_partys_bits_would_be_no_noise() -> None:
    """The control of the test above: it can fail."""
    noise = CyclicLaplace.design(3, 1.0)
    kernel = gini_mean_difference(Field(0, 3))
    circuit = compile_kernel(kernel, noise)
    assert len({tuple(circuit.evaluate([2, 0, 0, 0])) for _ in range(5)}) == 1


def tau_sampler(noise: Noise) -> Sampler:
    """Kendall's tau of (5, y) with (3, 3): concordant, or discordant after y is substituted."""
    circuit = compile_kernel(kendall_tau(Field(0, 7), Field(0, 7)), noise)

    def sample(which: int, count: int, _key: bytes) -> NDArray[np.int64]:
        bits = [SystemRandomness().bytes(8 * width * -(-count // 64)) for width in circuit.inputs]
        rows = [
            np.frombuffer(b, np.uint64).reshape(w, -1).copy()
            for b, w in zip(bits, circuit.inputs, strict=True)
        ]
        for index, value in ((0, 5), (1, (0, 7)[which]), (3, 3), (4, 3)):
            rows[index][:] = [[-(value >> bit & 1) & (2**64 - 1)] for bit in range(3)]
        (result,) = circuit.evaluate_many(rows)
        return unpack_bytes(result, count).astype(np.int64)

    return sample


def test_the_audit_of_the_noisy_kernel_stays_below_epsilon_and_catches_a_forgotten_range() -> None:
    """10^6 evaluations on either input; false alarms at a rate of 0.001."""
    right = audit(tau_sampler(CyclicLaplace.design(2, 1.0)), [Claim(1.0, 0.0)], 1_000_000)
    assert not right[0].refuted
    assert right[0].lower > 0.9
    # Noise for a range of 1, where tau has 2.
    wrong = CyclicLaplace.design(1, 1.0)
    stretched = CyclicLaplace(2, 1.0, wrong.coins, wrong.proven)
    assert audit(tau_sampler(stretched), [Claim(1.0, 0.0)], 100_000)[0].refuted


def test_a_small_epsilon_is_refused_with_the_smallest_that_works() -> None:
    with pytest.raises(ConfigError, match=r"smallest that works is ([\d.e-]+)") as refused:
        CyclicLaplace.design(1 << 32, 0.01)
    least = float(str(refused.value).split("works is ")[1].split(";")[0])
    with pytest.raises(ConfigError):
        CyclicLaplace.design(1 << 32, 0.99 * least)
    assert CyclicLaplace.design(1 << 32, 1.01 * least).output_bits <= 42
    with pytest.raises(ConfigError, match="smallest that works is") as refused:
        TableGaussian.design(5, 0.01, 1e-6, 1)
    least = float(str(refused.value).split("works is ")[1].split(":")[0])
    assert len(TableGaussian.design(5, 1.01 * least, 1e-6, 1).cuts) <= 512


@pytest.mark.parametrize("steps", [1, 2, 5, 1000, 1 << 30])
@pytest.mark.parametrize("epsilon", [1e-6, 1.3e-6, 1.7e-6, 0.02, 0.9, 11.3, 12.0])
def test_coins_are_words(steps: int, epsilon: float) -> None:
    """At most 63 bits, or the ideal functionality would toss others; at most 41 of them."""
    if steps == 1 << 30 and epsilon < 0.02:
        with pytest.raises(ConfigError, match=r"smallest that works is 0\.0196"):
            CyclicLaplace.design(steps, epsilon)
        return
    noise = CyclicLaplace.design(steps, epsilon)
    assert max(coin.bits for coin in noise.coins) <= 63
    assert noise.output_bits <= 41
    assert RandomisedResponse.design(min(steps, 63), epsilon).exchange.bits <= 63


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, 1e-300, 13.0, True, "1"])
def test_epsilon_must_be_a_budget(epsilon: object) -> None:
    for design in (CyclicLaplace.design, RandomisedResponse.design):
        with pytest.raises(ConfigError, match="epsilon"):
            design(2, epsilon)  # type: ignore[arg-type]


@pytest.mark.parametrize("evaluations", [1, 2, 3])
def test_gaussian_delta_covers_the_exact_law_of_all_evaluations(evaluations: int) -> None:
    """Against all outputs of the evaluations, by brute force on the circuit's own distribution."""
    noise = TableGaussian.design(1, 6.0, 1e-3, evaluations)
    distribution = exact_distribution(noise, 0)
    first, second = np.append(distribution, 0.0), np.append(0.0, distribution)
    p, q = np.ones(1), np.ones(1)
    for _ in range(evaluations):
        p, q = np.outer(p, first).ravel(), np.outer(q, second).ravel()
    exact = float(np.maximum(p - math.exp(6.0) * q, 0).sum())
    assert exact <= noise.delta
    assert exact >= 0.9 * noise.delta
    assert total_delta(noise.sigma, 1, 6.0, evaluations) <= noise.delta


def test_epsilon_is_shared_among_the_pairs() -> None:
    for partners in (1, 2, 3, 7):
        noise = design_noise(2, 1.0, 0.0, partners, "laplace")
        assert isinstance(noise, CyclicLaplace)
        assert partners * noise.proven <= 1


def test_the_published_coins_are_those_of_the_design() -> None:
    assert tuple(map(tuple, CyclicLaplace.design(2, 1.0).coins)) == TAU_COINS


def test_gates() -> None:
    """What lab/FIGURES.md says of plans."""
    for steps, epsilon, gates in ((2, 1.0, 123), (1, 1.0, 112), (1000, 1.0, 245)):
        noise = CyclicLaplace.design(steps, epsilon)
        kernel = collision(Field(0, 1)) if steps == 1 else gini_mean_difference(Field(0, steps))
        whole = compile_kernel(kernel, noise).and_count
        assert whole - compile_kernel(kernel, None).and_count == gates


def test_a_stream_makes_the_coins_that_comparisons_would() -> None:
    """Against the definition, bit by bit; one stream in four is too short here, and says so."""
    threshold, width, count, length = 27, 6, 8, 18
    builder = Builder()
    coins, enough = streamed_coins(builder, builder.input(length), threshold, width, count)
    builder.output((*coins, enough))
    circuit = builder.build()
    rng = np.random.default_rng(1)
    for _ in range(400):
        bits = rng.integers(0, 2, length)
        decided, number, index = [], 0, 0
        for bit in bits:
            number, index = 2 * number + int(bit), index + 1
            if number != threshold >> (width - index) or index == width:
                decided.append(int(number << (width - index) < threshold))
                number = index = 0
        (result,) = circuit.evaluate([int(bits @ (1 << np.arange(length)))])
        wanted = (decided + [0] * count)[:count]
        assert [result >> coin & 1 for coin in range(count)] == wanted
        assert result >> count == (len(decided) >= count)


@pytest.mark.parametrize(("width", "count", "gates"), STREAMS)
def test_comparisons_are_the_smaller_circuit_at_every_size_that_is_used(
    width: int, count: int, gates: tuple[int, int]
) -> None:
    """The claim of docs/proofs/statistics.md; a pair tosses fewer than 64 coins, each of its own bias."""
    threshold = int.from_bytes(hashlib.shake_128(b"x").digest(width // 8), "big") | 1
    compared, streamed = coin_gates(width, threshold, count)
    assert (round(compared / count), round(streamed / count)) == gates
    assert compared < streamed
