"""Programs on shares among three real processes, also where a user's shares do not fit together."""

from __future__ import annotations

import secrets

import numpy as np

from smpc_dp.bench.servers import run_servers, split_records
from smpc_dp.statistics import exact
from smpc_dp.statistics.kernels import Field, kendall_tau
from smpc_dp.statistics.shared.plan import read_answer, statistic_program, sum_program


def test_shares_of_no_polynomial_become_one_value_that_is_checked() -> None:
    """A user whose shares interpolate to different values for different servers cannot have two records."""
    program = sum_program("weighted-mean", 4, [(0, 255), (-9, 9), (0, 7)], None)
    records = [[200, -9, 7], [0, 0, 0], [255, 9, 1], [17, 3, 2]]
    held = split_records(program.terms, records, 3)
    # Three arbitrary field elements: with an overwhelming probability no value in bounds, for any two.
    for own in held:
        own[1] = [secrets.randbelow(program.terms.prime) for _ in range(3)]
    # The shares of user 3's weight differ by little: their polynomial has the degree 2 and the value 5.
    for own, share in zip(held, (5 + 1, 5 + 4, 5 + 9), strict=True):
        own[3][2] = share
    opened = run_servers(program.terms, [], 3, shares=held, runs=0).opened
    used = [[200, -9, 7], [0, -9, 0], [255, 9, 1], [17, 3, 5]]
    sums = [sum(record[place] * record[2] for record in used) for place in (0, 1)]
    assert opened == [*sums, 7 + 0 + 1 + 5, 1]


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


def test_a_program_opens_the_same_over_channels_as_over_mpycs_own_sockets() -> None:
    program = sum_program("sum", 3, [(0, 99), (-5, 5)], None)
    records = [[99, -5], [17, 5], [0, 3]]
    own = run_servers(program.terms, records, 3, warm=False)
    ours = run_servers(program.terms, records, 3, channels=True)
    assert own.opened == ours.opened == [116, 3]
    # The same messages, of numbers that differ in length; what carries them is on top, in time.
    assert abs(own.sent[0] - ours.sent[0]) < own.sent[0] / 100
    assert min(own.wall + own.cpu + ours.wall + ours.cpu) > 0
