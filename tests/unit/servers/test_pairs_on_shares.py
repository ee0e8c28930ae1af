"""Noise in each pair: randomisers compiled to programs on shares have the circuits' distributions."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from smpc_dp import simulate
from smpc_dp.capabilities.pairs.circuits.circuit import pack, unpack
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    Kernel,
    auc,
    collision,
    gini_mean_difference,
    kendall_tau,
    table_kernel,
)
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel
from smpc_dp.capabilities.servers.kernels.share_gadgets import public
from smpc_dp.capabilities.servers.requests.programs import compile_operation, operation_of
from smpc_dp.capabilities.servers.secret_sharing.params import check_parameters
from smpc_dp.capabilities.servers.simulation.shared import _lone_runtime, run_alone, run_ideal
from smpc_dp.capabilities.servers.statistics.pairs import (
    PAIR_DISTRIBUTIONS,
    each_pair,
    pair_circuit,
    pair_layers,
    pair_terms,
)
from smpc_dp.capabilities.servers.statistics.plan import read_answer, statistic_program
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.circuit_gaussian import TableGaussian
from smpc_dp.privacy.circuit_noise import LOOKUP_BITS, CyclicLaplace, Noise, RandomisedResponse
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

# The chance that a sound implementation fails one of the chi-square tests.
FALSE_ALARM = 1e-6
SEED = bytes(range(32))
DIGITS = Field(0, 3)
DISTRIBUTIONS: list[Noise] = [
    CyclicLaplace.design(3, 2.0),
    RandomisedResponse.design(3, 2.0),
    TableGaussian.design(3, 12.0, 1e-2, 1),
]
NAMED = [distribution.name for distribution in DISTRIBUTIONS]


def exact_masses(noise: Any, integer: int) -> dict[int, Fraction]:
    """The distribution of an output, from the coins as they are."""
    if isinstance(noise, CyclicLaplace):
        distribution = noise.masses()
        return {(integer + shift) % len(distribution): mass for shift, mass in enumerate(distribution)}
    if isinstance(noise, RandomisedResponse):
        return dict(enumerate(noise.masses(integer)))
    edges = [0, *noise.cuts, 1 << LOOKUP_BITS]
    masses: dict[int, Fraction] = {}
    for magnitude, (low, high) in enumerate(itertools.pairwise(edges)):
        for sign in (-1, 1):
            output = integer + len(noise.cuts) + sign * magnitude
            masses[output] = masses.get(output, Fraction(0)) + Fraction(high - low, 2 << LOOKUP_BITS)
    return masses


def near(top: int) -> Kernel:
    return table_kernel("near", lambda x, y: float(min(abs(x[0] - y[0]), 3)), Field(0, top), low=0, high=3)


@pytest.mark.parametrize("noise", DISTRIBUTIONS, ids=NAMED)
@pytest.mark.parametrize("kernel", [gini_mean_difference(DIGITS), near(5)], ids=["gini", "users"])
def test_a_pair_is_what_the_garbled_circuit_gives_for_the_same_bits(noise: Noise, kernel: Kernel) -> None:
    """Whatever both parties draw, its circuit on the XOR is the two-party circuit, on integers as on bits."""
    generator = np.random.default_rng(7)
    joint, count = noise.joint_bits, 200
    width, terms = kernel.fields[0].bits, pair_terms(noise)
    x, y = generator.integers(0, kernel.fields[0].steps + 1, (2, count)).tolist()
    bits = generator.integers(0, 2, (2, count, joint)).tolist()
    mine, theirs = [[sum(b << index for index, b in enumerate(row)) for row in side] for side in bits]
    xored = [a ^ b for a, b in zip(mine, theirs, strict=True)]
    garbled = compile_kernel(kernel, noise)
    wide = [pack(x, width), pack(mine, joint), pack(y, width), pack(theirs, joint)]
    wanted = unpack(garbled.evaluate_many(wide)[0], count)
    alone = pair_circuit(kernel, terms)
    rows = [pack(x, width), pack(y, width), pack(xored, joint)]
    assert unpack(alone.evaluate_many(rows)[0], count) == wanted
    whole = [a + (b << width) + (c << 2 * width) for a, b, c in zip(x, y, xored, strict=True)]
    plain = np.array([[each >> index & 1 for each in whole] for index in range(alone.n_inputs)], object)
    result = pair_layers(kernel, terms).evaluate(plain)
    assert sum(row << index for index, row in enumerate(result)).tolist() == wanted


@pytest.mark.parametrize("noise", DISTRIBUTIONS, ids=NAMED)
def test_both_compilations_of_a_randomiser_have_the_exact_mass_function(
    noise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By chi-square: the program on shares, and the circuit that two parties garble; the bits are given."""
    kernel, count = gini_mean_difference(DIGITS), 2000
    mpc = _lone_runtime()
    secint = mpc.SecInt(16, p=2**127 - 1)
    generator = np.random.default_rng(11)

    def given_bits(_kind: Any, number: int) -> Any:
        return secint.array(generator.integers(0, 2, number).astype(object))

    monkeypatch.setattr(mpc, "np_random_bits", given_bits)
    # Codes 3 and 1: the integer is 2.
    bits, pairs = [secint.array(public([[1, 1], [1, 0]]))], np.array([[0, 1]] * count)
    parts = each_pair(mpc, secint, kernel, pair_terms(noise), bits, pairs)
    on_shares = [int(value) for part in parts for value in drive(_opened(mpc, part))]
    words = -(-count // 64)
    rows = [
        *(generator.integers(0, 1 << 64, (noise.joint_bits, words), np.uint64) for _ in range(2)),
        *(pack([code] * count, 2) for code in (3, 1)),
    ]
    garbled = compile_kernel(kernel, noise).evaluate_many([rows[2], rows[0], rows[3], rows[1]])[0]
    for result in (on_shares, unpack(garbled, count)):
        seen, expected = binned(result, exact_masses(noise, 2), count)
        assert stats.chisquare(seen, expected).pvalue > FALSE_ALARM
        wrong, expected = binned(result, exact_masses(noise, 1), count)
        assert stats.chisquare(wrong, expected).pvalue < FALSE_ALARM


def binned(outcome: list[int], expected: dict[int, Fraction], count: int) -> tuple[list[int], list[float]]:
    """Results with fewer than 5 expected draws are one bin, which is not empty."""
    assert sum(expected.values()) == 1
    assert set(outcome) <= set(expected)
    common = [result for result, mass in expected.items() if mass * count >= 5]
    seen, required = (
        [outcome.count(result) for result in common],
        [float(expected[r]) * count for r in common],
    )
    rest = count - sum(required)
    if rest < 1e-6:
        return seen, required
    return [*seen, count - sum(seen)], [*required, rest]


async def _opened(mpc: Any, values: Any) -> Any:
    return await mpc.output(values)


def drive(coroutine: Any) -> Any:
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


def test_randomised_response_on_shares_has_its_masses_exactly() -> None:
    """Every pattern of the joint bits once: no statistics."""
    noise = RandomisedResponse.design(1, 0.7)
    assert noise.joint_bits <= 16
    kernel = collision(Field(0, 1))
    patterns = np.arange(1 << noise.joint_bits)
    fair = [(patterns >> index & 1).astype(object) for index in range(noise.joint_bits)]
    for x, y in ((0, 0), (0, 1)):
        codes = [np.full(len(patterns), code, object) for code in (x, y)]
        (result,) = pair_layers(kernel, pair_terms(noise)).evaluate(np.stack([*codes, *fair]))
        share = Fraction(int(result.sum()), len(patterns))
        assert share == noise.masses(int(x == y))[1]


@pytest.mark.thin(2)
@pytest.mark.parametrize("distribution", PAIR_DISTRIBUTIONS)
def test_pairs_on_shares_are_read_like_garbled_ones(distribution: Any) -> None:
    """The same plan, the same pairs, the same estimator; 14 deviations are passed once in e^19 runs."""
    kernel, parties = kendall_tau(Field(0, 99), Field(0, 99)), 40
    codes = np.stack([np.arange(parties), np.arange(parties)], axis=1)
    delta = 1e-5 if distribution == "pair_gaussian" else 0.0
    program = statistic_program(
        kernel, parties, 6.0, delta, distribution=distribution, partners=3, design=SEED
    )
    ideal = run_ideal(program, codes, SeededRandomnessForSimulation(1, "pairs"))
    for opened in (run_alone(program, codes.tolist()), ideal):
        answer = read_answer(program, opened)
        assert answer.result is not None
        assert answer.result.pairs == 60 == len(opened)
        assert abs(answer.values[0] - 1) < 14 * answer.noise_error[0]
    result = simulate.pairwise(kernel, codes, 6.0, 3, delta=delta, noise=distribution, engine="mpyc")
    garbled = simulate.pairwise(
        kernel, codes, 6.0, 3, delta=delta, noise=PAIR_DISTRIBUTIONS[distribution], fidelity="ideal"
    )
    assert result.noise_error == garbled.noise_error
    assert (result.pairs, result.partners, result.privacy.epsilon) == (60, 3, 6.0)
    assert "each" in result.privacy.guarantee.mechanism  # type: ignore[union-attr]


def test_public_labels_pair_both_sides() -> None:
    public_labels = [1, 0, 0, 1, 0]
    program = statistic_program(
        auc(Field(0, 9)),
        5,
        12.0,
        distribution="randomised_response",
        public_labels=public_labels,
        partners=1,
        design=SEED,
    )
    assert len(run_alone(program, [[9], [0], [1], [8], [0]])) == 2


def test_a_cheater_is_named_among_pairs() -> None:
    program = statistic_program(near(5), 4, 1.0, distribution="randomised_response", partners=1, design=SEED)
    opened = run_alone(program, [[0], [6], [1], [2]])
    assert len(opened) == 3
    assert read_answer(program, opened).refused == [1]


def test_what_pairs_cannot_be() -> None:
    kernel = kendall_tau(Field(0, 9), Field(0, 9))
    for change in ({"partners": 0}, {"partners": 33}, {"epsilon": None}, {"distribution": "pair_gaussian"}):
        arguments: Any = {
            "epsilon": 1.0,
            "distribution": "pair_laplace",
            "partners": 1,
            "design": SEED,
        } | change
        with pytest.raises(ConfigError):
            statistic_program(kernel, 50, **arguments)
    program = statistic_program(kernel, 4, 1.0, distribution="pair_laplace", partners=1, design=SEED)
    central = statistic_program(kernel, 4, 1.0).terms
    but = msgspec.structs.replace
    for terms in (
        but(program.terms, noise=()),
        but(program.terms, noise=central.noise),
        but(central, noise=program.terms.noise),
        but(program.terms, partners=0),
        but(program.terms, noise=(but(program.terms.noise[0], bits=3),)),
        but(program.terms, noise=(but(program.terms.noise[0], distribution="randomised_response"),)),
        but(program.terms, noise=(but(program.terms.noise[0], distribution="pair_gaussian"),)),
    ):
        with pytest.raises(ConfigError):
            run_alone(but(program, terms=terms), [[0, 0]] * 4)
    with pytest.raises(ConfigError, match="bits"):
        read_answer(program, [1 << 20, 0])


def test_a_question_for_pairs_is_compiled_alike() -> None:
    requested = operation_of(near(5), 1.5, 0.0, "randomised_response", None)
    parameters, _ = check_parameters({}, 6)
    assert parameters is not None
    program = compile_operation(parameters, requested, 6, (), SEED)
    assert program.terms.kind == "pairs"
    assert program.terms.partners == 1
    assert program.plan is not None
    assert program.terms.noise == (pair_terms(RandomisedResponse.design(3, 1.5)),)


@pytest.mark.parametrize("distribution", ["laplace", "pair_laplace"])
def test_an_absent_user_leaves_no_more_partners_than_there_are(distribution: str) -> None:
    """Every party asked for as many partners as there are others, and one did not come."""
    requested = operation_of(near(5), 3.0, 0.0, distribution, 5)
    parameters, _ = check_parameters({"dropout": 0.2}, 6)
    assert parameters is not None
    assert compile_operation(parameters, requested, 6, (), SEED).terms.partners == 5
    assert compile_operation(parameters, requested, 5, (), SEED).terms.partners == 4
    with pytest.raises(ConfigError, match="partners: 6 is not 0 to 5"):
        compile_operation(parameters, operation_of(near(5), 3.0, 0.0, distribution, 6), 6, (), SEED)
