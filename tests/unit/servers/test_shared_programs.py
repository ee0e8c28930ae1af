"""Programs on shares, run by a single mpyc party: kernels, noise, bounds and bad terms."""

from __future__ import annotations

import json
import logging
import math
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from smpc_dp.capabilities.pairs.circuits.circuit import pack, unpack
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    Kernel,
    auc,
    auc_private_labels,
    collision,
    gini_mean_difference,
    kendall_tau,
    variance,
)
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel
from smpc_dp.capabilities.servers.kernels import share_gadgets
from smpc_dp.capabilities.servers.simulation import shared as simulated
from smpc_dp.capabilities.servers.simulation.shared import run_alone, run_ideal
from smpc_dp.capabilities.servers.statistics.kernels import SORTED, Way
from smpc_dp.capabilities.servers.statistics.noise import add_noise, noise_terms, read_coins
from smpc_dp.capabilities.servers.statistics.plan import Program, read_answer, statistic_program, sum_program
from smpc_dp.capabilities.servers.statistics.program import design_pairs, run_program, way_of
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.central_noise import CoarseGaussian, FlooredLaplace
from smpc_dp.privacy.circuit_noise import Coin
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.examples import examples

# The chance that a sound implementation fails one of the chi-square tests.
FALSE_ALARM = 1e-6
SEED = bytes(range(32))


def drive(coroutine: Any) -> Any:
    """Run what a single party does at once."""
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


@pytest.fixture
def mpc(monkeypatch: pytest.MonkeyPatch) -> Any:
    runtime = simulated._lone_runtime()
    monkeypatch.setattr(runtime.options, "sec_param", 64)
    return runtime


def kernels_on(top: int) -> list[Kernel]:
    field = Field(0, top)
    return [
        kendall_tau(field, Field(0, top, name="y")),
        gini_mean_difference(field),
        variance(field),
        collision(field),
        auc(field),
        auc_private_labels(field),
    ]


def test_importing_mpyc_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest", "-M3", "-K", "99", "--help"])
    handlers = list(logging.getLogger().handlers)
    runtime = simulated._lone_runtime()
    assert sys.argv == ["pytest", "-M3", "-K", "99", "--help"]
    assert logging.getLogger().handlers == handlers
    assert len(runtime.parties) == 1


@settings(max_examples=examples(60))
@given(st.data())
def test_without_noise_both_engines_give_the_plain_kernel(data: st.DataObject) -> None:
    """All pairs, an incomplete design and single circuits; coarse grids are counted, fine ones compared."""
    top = data.draw(st.sampled_from([1, 2, 5, 7, 1000, 65_535, 2**20]), "top")
    kernel = data.draw(st.sampled_from(kernels_on(top)), "kernel")
    parties = data.draw(st.integers(2, 7), "users")
    partners = data.draw(st.sampled_from([0, 1]), "partners")
    row = st.tuples(*(st.integers(0, field.steps) for field in kernel.fields))
    codes = np.array(data.draw(st.lists(row, min_size=parties, max_size=parties), "codes"), np.int64)
    codes = codes.reshape(parties, len(kernel.fields))
    more = st.lists(st.integers(0, 1), min_size=parties - 2, max_size=parties - 2)
    public_labels = [1, 0, *data.draw(more, "marks")]
    public = public_labels if kernel.labels == "public" else []
    program = statistic_program(kernel, parties, None, public_labels=public, partners=partners, design=SEED)
    pairs = design_pairs(program.terms)
    circuit = compile_kernel(kernel, None)
    rows = [
        pack([int(code) for code in codes[pairs[:, side], index]], field.bits)
        for side in range(2)
        for index, field in enumerate(kernel.fields)
    ]
    garbled = unpack(circuit.evaluate_many(rows)[0], len(pairs))
    plain = [int(h) for h in kernel.integer(codes[pairs[:, 0]], codes[pairs[:, 1]])]
    assert garbled == plain
    opened = run_alone(program, codes.tolist())
    assert opened[0] == sum(plain)
    if kernel.labels == "private":
        assert opened[1] == codes[:, 1].sum()
    assert len(opened) == (2 if kernel.labels == "private" else 1)


@pytest.mark.thin(2)
@pytest.mark.parametrize("top", [1, 6, 1000])
@pytest.mark.parametrize("parties", [2, 3, 8, 13])
def test_all_ways_give_one_sum(mpc: Any, top: int, parties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(parties)
    public_labels = [index % 2 for index in range(parties)]
    for kernel in kernels_on(top):
        codes = np.stack([generator.integers(0, f.steps + 1, parties) for f in kernel.fields], axis=1)
        public = public_labels if kernel.labels == "public" else []
        program = statistic_program(kernel, parties, None, public_labels=public)
        monkeypatch.setattr(mpc.options, "sec_param", program.terms.security)
        ways: list[Way] = ["pairs"]
        ways += ["counts"] if top < 10 and kernel.name != "variance" else []
        ways += ["sort"] if kernel.name in SORTED else []
        ways += ["sums"] if kernel.name == "variance" else []
        ways.append("circuit")
        result = [drive(run_program(mpc, program.terms, codes.tolist(), way)) for way in ways]
        assert result == [run_ideal(program, codes, SeededRandomnessForSimulation(1, ""))] * len(ways)


def test_every_way_is_taken() -> None:
    ways = set()
    for kernel, parties in [
        (kernel, parties) for top in (3, 2**20) for kernel in kernels_on(top) for parties in (20, 400)
    ]:
        public_labels = [0, 1] * (parties // 2) if kernel.labels == "public" else []
        ways.add(way_of(statistic_program(kernel, parties, None, public_labels=public_labels).terms))
    assert ways == {"pairs", "counts", "sums", "sort"}
    # Unit vectors of 8 million shares would not fit into memory.
    assert way_of(statistic_program(gini_mean_difference(Field(0, 4095)), 2000, None).terms) == "sort"


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(1, 70), st.integers(1, 2**70)), min_size=1, max_size=6), st.randoms())
def test_coins_on_shares_are_comparisons(coins: list[tuple[int, int]], random: Any) -> None:
    runtime = simulated._lone_runtime()
    secint = runtime.SecInt(16, p=2**127 - 1)
    exact = [Coin(threshold % (1 << bits), bits) for bits, threshold in coins]
    numbers = [random.randrange(1 << coin.bits) for coin in exact]
    bits = [
        number >> index & 1 for number, coin in zip(numbers, exact, strict=True) for index in range(coin.bits)
    ]
    result = share_gadgets.below(secint.array(share_gadgets.public([bits])), exact)
    opened = drive(_opened(runtime, result))
    assert opened.tolist() == [[int(n < coin.threshold) for n, coin in zip(numbers, exact, strict=True)]]


async def _opened(runtime: Any, values: Any) -> Any:
    return await runtime.output(values)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "noise",
    [
        FlooredLaplace.design(2, 6, 1.5),
        FlooredLaplace.design(1, 9, 4.0),
        CoarseGaussian.design(2, 6, 4.0, 1e-3),
        CoarseGaussian.design(40, 90, 4.0, 1e-3),
    ],
    ids=["laplace 2", "laplace 1", "gaussian 2", "gaussian 40"],
)
def test_noise_on_shares_has_the_exact_mass_function(
    mpc: Any, noise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program and the ideal functionality against `masses`, by chi-square; the bits are given."""
    count, integer = 1500, 3
    generator = np.random.default_rng(8)
    secint = mpc.SecInt(32, p=2**127 - 1)

    real_bits = mpc.np_random_bits

    def given_bits(kind: Any, number: int) -> Any:
        if kind is not secint:
            return real_bits(kind, number)
        return secint.array(generator.integers(0, 2, number).astype(object))

    monkeypatch.setattr(mpc, "np_random_bits", given_bits)

    async def noisy() -> Any:
        integers = secint.array(share_gadgets.public([integer] * count))
        noisy = await add_noise(mpc, secint, integers, noise_terms(noise), noise.span.bit_length())
        return await mpc.output(noisy)

    source = SeededRandomnessForSimulation(8, "noise")
    expected = noise.masses(integer)
    assert sum(expected.values()) == 1
    for result in (drive(noisy()).tolist(), [noise.draw(integer, source) for _ in range(count)]):
        _, seen, required = _binned(result, expected, count)
        assert stats.chisquare(seen, required).pvalue > FALSE_ALARM


def _binned(
    outcome: list[int], expected: dict[int, Fraction], count: int
) -> tuple[list[int], list[int], list[float]]:
    """Results with fewer than 5 expected draws are one bin."""
    common = [result for result, mass in sorted(expected.items()) if mass * count >= 5]
    seen = [outcome.count(result) for result in common]
    required = [float(expected[result]) * count for result in common]
    return common, [*seen, count - sum(seen)], [*required, count - sum(required)]


def test_a_wrong_coin_fails_the_chi_square() -> None:
    noise = FlooredLaplace.design(2, 6, 1.5)
    sign = noise.inner.coins[-1]
    terms = noise_terms(noise)
    cuts = list(terms.cuts)
    cuts[-2] = f"{(1 << sign.bits) + sign.threshold // 2:x}"
    changed = msgspec.structs.replace(terms, cuts=tuple(cuts))
    assert read_coins(changed)[-2].probability < sign.probability
    coins = tuple(read_coins(changed)[:-1])
    wrong = replace(noise, inner=replace(noise.inner, coins=coins))
    source = SeededRandomnessForSimulation(8, "noise")
    result = [wrong.draw(3, source) for _ in range(1500)]
    _, seen, expected = _binned(result, noise.masses(3), 1500)
    assert stats.chisquare(seen, expected).pvalue < FALSE_ALARM


@pytest.mark.parametrize(("moved", "span", "epsilon"), [(1, 3, 3.0), (2, 6, 1.5), (3, 4, 0.7)])
def test_epsilon_of_the_floored_law_is_pure(moved: int, span: int, epsilon: float) -> None:
    """From all masses, exactly, for every shift up to the sensitivity; and it is nearly used up."""
    noise = FlooredLaplace.design(moved, span, epsilon)
    distributions = [noise.masses(integer) for integer in range(span + 1)]
    assert all(distribution.keys() == distributions[0].keys() for distribution in distributions)
    assert min(float(mass) for distribution in distributions for mass in distribution.values()) > 0
    worst = max(
        max(distributions[a][result] / distributions[b][result] for result in distributions[a])
        for a in range(span + 1)
        for b in range(span + 1)
        if abs(a - b) <= moved
    )
    assert 0.99 * epsilon < math.log(worst) <= epsilon


@pytest.mark.parametrize(("moved", "span"), [(3, 8), (9, 33)])
def test_delta_of_the_coarse_gaussian_holds(moved: int, span: int) -> None:
    epsilon, delta = 2.0, 1e-3
    noise = CoarseGaussian.design(moved, span, epsilon, delta)
    distributions = [noise.masses(integer) for integer in range(span + 1)]
    rate = Fraction(math.exp(epsilon))
    for a in range(span + 1):
        for b in range(max(0, a - moved), min(span, a + moved) + 1):
            lost = sum(
                max(mass - rate * distributions[b].get(result, Fraction(0)), Fraction(0))
                for result, mass in distributions[a].items()
            )
            assert lost <= delta


def test_terms_carry_the_coins() -> None:
    noise = FlooredLaplace.design(5, 100, 0.3)
    assert tuple(read_coins(noise_terms(noise))) == (*noise.inner.coins, noise.floor)


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", ["sum", "mean", "weighted-mean"])
@pytest.mark.parametrize(
    ("epsilon", "distribution", "delta"),
    [(None, "laplace", 0.0), (2.0, "laplace", 0.0), (2.0, "gaussian", 1e-5)],
)
def test_sums(kind: Any, epsilon: float | None, distribution: Any, delta: float) -> None:
    bounds = [(-5, 1000), (0, 7), (1, 9)]
    generator = np.random.default_rng(3)
    records = np.stack([generator.integers(low, high + 1, 40) for low, high in bounds], axis=1)
    program = sum_program(kind, 40, bounds, epsilon, delta, distribution=distribution)
    answer = read_answer(program, run_alone(program, records.tolist()))
    ideal = read_answer(program, run_ideal(program, records, SeededRandomnessForSimulation(3, "sums")))
    plain = records.sum(axis=0).astype(float)
    if kind == "mean":
        plain = plain / 40
    if kind == "weighted-mean":
        plain = (records[:, :2] * records[:, 2:]).sum(axis=0) / records[:, 2].sum()
    for result in (answer, ideal):
        assert len(result.values) == len(plain)
        # Noise beyond 12 standard deviations has a chance below e^-16 for each distribution.
        close = np.abs(np.array(result.values) - plain) <= 12 * np.array(result.noise_error) + 1e-9
        assert close.all()
        assert result.refused == []


def test_a_value_out_of_bounds_is_named_and_counts_as_the_least() -> None:
    """Whatever field element a party shares: beyond its bounds, negative, or from all over the field."""
    program = sum_program("sum", 5, [(0, 10), (-3, 300)], None)
    prime = program.terms.prime
    records = [[10, 300], [11, 5], [3, -4], [prime // 3, 7], [0, 2**60 + 5]]
    assert run_alone(program, records) == [10, 300 - 4 * 3, 1, 2, 3, 4]


def test_a_statistic_stays_in_range_with_a_cheater() -> None:
    kernel = variance(Field(0, 6))
    program = statistic_program(kernel, 4, None)
    honest = run_alone(program, [[0], [6], [3], [1]])
    cheated = run_alone(program, [[0], [6], [3], [2**50]])
    assert cheated == [
        int(np.sum([(a - b) ** 2 for a, b in ((0, 6), (0, 3), (0, 0), (6, 3), (6, 0), (3, 0))])),
        3,
    ]
    assert len(honest) == 1


def test_wrong_terms_are_refused(mpc: Any) -> None:
    good = statistic_program(kendall_tau(Field(0, 9), Field(0, 9, name="y")), 3, 1.0).terms
    rows = [[1, 2], [3, 4], [5, 6]]
    but = msgspec.structs.replace
    mpc.options.sec_param = good.security
    for terms, shares in (
        (good, rows[:2]),
        (good, [[1], [2], [3]]),
        (good, [[1, 2], [3, 4], [5, good.prime]]),
        (but(good, security=good.security + 1), rows),
        (but(good, upper=(9, 10)), rows),
        (but(good, bits=5), rows),
        (but(good, public_labels=(0, 1, 1)), rows),
        (but(good, kernel="variance"), rows),
        (but(good, kernel_terms="{"), rows),
        (but(good, kernel_terms="[" * 100_000), rows),
        (but(good, noise=good.noise * 3), rows),
        (but(good, noise=(but(good.noise[0], cuts=("1", "2", "3")),)), rows),
        (but(good, partners=1), rows),
    ):
        with pytest.raises(ConfigError):
            drive_refused(run_program(mpc, terms, shares))
    mpc.options.sec_param = 41
    with pytest.raises(ConfigError, match="masked values"):
        drive_refused(run_program(mpc, but(good, security=41), rows))


def drive_refused(coroutine: Any) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return


def test_programs_that_cannot_be() -> None:
    kernel = auc(Field(0, 9))
    changes: tuple[dict[str, Any], ...] = (
        {"public_labels": []},
        {"public_labels": [1, 1, 1]},
        {"public_labels": [1, 0, 2]},
        {"partners": 3, "public_labels": [0, 1, 1], "design": SEED},
        {"partners": 1, "public_labels": [0, 1, 1]},
        {"public_labels": [0, 1, 1], "epsilon": 0.0},
        {"public_labels": [0, 1, 1], "epsilon": math.nan},
        {"public_labels": [0, 1, 1], "delta": 1e-6},
        {"public_labels": [0, 1, 1], "distribution": "gaussian"},
    )
    for change in changes:
        arguments: dict[str, Any] = {"epsilon": 1.0, **change}
        with pytest.raises(ConfigError):
            statistic_program(kernel, 3, **arguments)
    for bounds in ([], [(0, 0)], [(0, 1)], [(0, 1), (-1, 1)]):
        with pytest.raises(ConfigError):
            sum_program("weighted-mean", 3, bounds, 1.0)
    with pytest.raises(ConfigError, match="30 records of 8388608 bits; at most 4194304 bits in all"):
        sum_program("sum", 30, [(0, 255)] * (1 << 20), None)
    with pytest.raises(ConfigError, match=r"199990000 pairs one by one; at most 67108864: .*`P`"):
        statistic_program(kendall_tau(Field(0, 99), Field(0, 99)), 20_000, 1.0)
    statistic_program(kendall_tau(Field(0, 7), Field(0, 7)), 20_000, 1.0)


def test_what_no_program_opens_is_refused() -> None:
    """All servers may say it: parties named that there are not, or integers beyond all floats."""
    program = statistic_program(collision(Field(0, 9)), 3, 1.0)
    assert read_answer(program, [2, 0, 2]).refused == [0, 2]
    for opened in ([2, 3], [2, -1], [1 << 1100], [-(1 << 1100)]):
        with pytest.raises(ConfigError, match="opened"):
            read_answer(program, opened)


def test_terms_are_plain_data() -> None:
    terms = statistic_program(gini_mean_difference(Field(0, 100)), 30, 0.5).terms
    assert msgspec.json.decode(terms.canonical(), type=type(terms)) == terms
    assert json.loads(terms.kernel_terms)["kernel"] == "gini_mean_difference"


def test_programs_are_values() -> None:
    program = statistic_program(collision(Field(0, 3)), 5, 1.0)
    assert isinstance(program, Program)
    with pytest.raises(ConfigError):
        read_answer(program, [])
