"""Programs on shares among three real processes, also where a party's shares do not fit together."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau, table_kernel
from smpc_dp.capabilities.pairs.statistics import exact
from smpc_dp.capabilities.servers.statistics.plan import read_answer, statistic_program, sum_program
from smpc_dp.capabilities.servers.statistics.program import design_pairs
from smpc_dp_lab.bench.servers import run_servers, split_records


def test_shares_of_no_polynomial_become_one_value_that_is_checked() -> None:
    """A party whose shares interpolate to different values for different servers cannot have two records."""
    program = sum_program("weighted-mean", 4, [(0, 255), (-9, 9), (0, 7)], None)
    records = [[200, -9, 7], [0, 0, 0], [255, 9, 1], [17, 3, 2]]
    held = split_records(program.terms, records, 3)
    # Three arbitrary field elements: with an overwhelming probability no value in bounds, for any two.
    for own in held:
        own[1] = [secrets.randbelow(program.terms.prime) for _ in range(3)]
    # The shares of party 3's weight differ by little: their polynomial has the degree 2 and the value 5.
    for own, share in zip(held, (5 + 1, 5 + 4, 5 + 9), strict=True):
        own[3][2] = share
    opened = run_servers(program.terms, [], 3, shares=held, runs=0).opened
    used = [[200, -9, 7], [0, -9, 0], [255, 9, 1], [17, 3, 5]]
    sums = [sum(record[index] * record[2] for record in used) for index in (0, 1)]
    assert opened == [*sums, 7 + 0 + 1 + 5, 1]


@pytest.mark.long
def test_a_statistic_of_three_servers_is_within_its_noise() -> None:
    generator = np.random.default_rng(5)
    kernel = kendall_tau(Field(0, 1000), Field(0, 1000, name="y"))
    first = generator.integers(0, 1001, 30)
    codes = np.stack([first, np.clip(first + generator.integers(-200, 201, 30), 0, 1000)], axis=1)
    program = statistic_program(kernel, 30, 1.0)
    answer = read_answer(program, run_servers(program.terms, codes.tolist(), 3, runs=0).opened)
    # Laplace noise beyond 14 standard deviations has a chance of e^-19.
    assert abs(answer.values[0] - exact.u_statistic(kernel, codes)) < 14 * answer.noise_error[0]
    assert answer.refused == []


@pytest.mark.long
def test_circuits_are_evaluated_on_real_shares() -> None:
    """A party's kernel among three servers, by its circuit, and pairs with noise of their own."""
    generator = np.random.default_rng(6)
    near = table_kernel("near", lambda x, y: float(abs(x[0] - y[0])), Field(0, 15), low=0, high=15)
    codes = generator.integers(0, 16, (9, 1))
    terms = statistic_program(near, 9, None).terms
    wanted = int(np.abs(codes - codes.T).sum()) // 2
    assert run_servers(terms, codes.tolist(), 3, way="circuit", runs=0).opened == [wanted]
    program = statistic_program(
        near, 9, 12.0, distribution="randomised_response", partners=2, design=bytes(32)
    )
    opened = run_servers(program.terms, codes.tolist(), 3, runs=0).opened
    pairs = design_pairs(program.terms)
    exact_ones = np.abs(codes[pairs[:, 0]] - codes[pairs[:, 1]]).reshape(-1)
    # At epsilon 6 each of the eight keeps its integer with a probability above 0.96: four at least do but
    # once in 2e5 runs.
    assert int((np.array(opened) == exact_ones).sum()) >= 4
    assert read_answer(program, opened).result is not None


@pytest.mark.long
def test_a_program_opens_the_same_over_channels_as_over_mpycs_own_sockets() -> None:
    program = sum_program("sum", 3, [(0, 99), (-5, 5)], None)
    records = [[99, -5], [17, 5], [0, 3]]
    own = run_servers(program.terms, records, 3, warm=False)
    ours = run_servers(program.terms, records, 3, channels=True)
    assert own.opened == ours.opened == [116, 3]
    # The same messages, of numbers that differ in length; what carries them is on top, in time.
    assert abs(own.sent[0] - ours.sent[0]) < own.sent[0] / 100
    assert min(own.wall + own.cpu + ours.wall + ours.cpu) > 0
