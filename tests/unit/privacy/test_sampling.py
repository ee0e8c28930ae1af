"""The samplers' face: ranges, sources, streams."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.privacy import sampling
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian, discrete_laplace

KEY = bytes(range(32))
HUGE = Fraction(1, 1 << 256)

CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("bernoulli_exp", (Fraction(1, 2),)),
    ("geometric", (Fraction(1, 2),)),
    ("discrete_laplace", (3,)),
    ("discrete_gaussian", (9,)),
    ("skellam", (9,)),
    ("binomial", (10, Fraction(1, 3))),
)


@pytest.mark.parametrize(("name", "parameters"), CALLS)
@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097])
def test_shape_and_dtype(name: str, parameters: tuple[Any, ...], count: int) -> None:
    drawn = getattr(sampling, name)(NoiseSource.system(), count, *parameters)
    assert drawn.shape == (count,)
    assert drawn.dtype == (np.bool_ if name == "bernoulli_exp" else np.int64)


@pytest.mark.parametrize(("name", "parameters"), CALLS)
def test_threads_do_not_matter_and_a_short_call_is_the_beginning_of_a_long_one(
    name: str, parameters: tuple[Any, ...]
) -> None:
    function = getattr(sampling, name)
    long = function(NoiseSource.keyed(KEY), 20_000, *parameters)
    for count, threads in ((20_000, 3), (5000, 2), (1, 256)):
        again = function(NoiseSource.keyed(KEY), count, *parameters, threads=threads)
        assert (again == long[:count]).all()


def test_equal_keys_and_contexts_give_equal_noise_and_nothing_else_does() -> None:
    def drawn(key: bytes, *context: bytes, variance: int = 1 << 60) -> tuple[int, ...]:
        return tuple(discrete_gaussian(NoiseSource.keyed(key, *context), 4, variance).tolist())

    assert drawn(KEY, b"run", b"ann", b"ben") == drawn(KEY, b"run", b"ann", b"ben")
    others = {
        drawn(KEY),
        drawn(KEY, b""),
        drawn(KEY, b"run", b"ann", b"ben"),
        drawn(KEY, b"run", b"annben", b""),
        drawn(KEY, b"run", b"ben", b"ann"),
        drawn(bytes(32), b"run", b"ann", b"ben"),
        drawn(KEY, variance=(1 << 60) + 1),
    }
    assert len(others) == 7


def test_each_call_has_a_stream_of_its_own() -> None:
    source, twin = NoiseSource.keyed(KEY), NoiseSource.keyed(KEY)
    first, second = (discrete_gaussian(source, 100, 1 << 60) for _ in range(2))
    assert (first != second).all()
    assert source.calls == 2
    discrete_gaussian(twin, 7, 1 << 60)
    assert (discrete_gaussian(twin, 100, 1 << 60) == second).all()


def test_laws_with_equal_parameters_do_not_share_a_stream() -> None:
    pairs = {tuple(getattr(sampling, name)(NoiseSource.keyed(KEY), 20, 9).tolist()) for name, _ in CALLS[2:5]}
    assert len(pairs) == 3


def test_system_sources_differ() -> None:
    one, other = (discrete_gaussian(NoiseSource.system(), 50, 1 << 80) for _ in range(2))
    assert (one != other).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_repeat_its_parents_noise() -> None:
    source = NoiseSource.system()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, discrete_gaussian(source, 4, 1 << 80).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    drawn = np.frombuffer(os.read(read, 32), np.int64)
    os.close(read)
    os.close(write)
    assert (discrete_gaussian(source, 4, 1 << 80) != drawn).all()


def test_a_source_can_be_shared_by_threads() -> None:
    source = NoiseSource.keyed(KEY)
    taken: list[int] = []

    def take() -> None:
        for _ in range(50):
            taken.extend(discrete_gaussian(source, 1, 1 << 80).tolist())

    workers = [threading.Thread(target=take) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    alone = NoiseSource.keyed(KEY)
    assert sorted(taken) == sorted(discrete_gaussian(alone, 1, 1 << 80).item() for _ in range(200))


def test_the_key_is_shown_nowhere() -> None:
    source = NoiseSource.keyed(KEY)
    assert repr(source) == "NoiseSource(calls=0)"
    assert KEY.hex() not in repr(source._core)
    assert not hasattr(source, "__dict__")
    with pytest.raises(TypeError):
        pickle.dumps(source)
    with pytest.raises(TypeError):
        copy.deepcopy(source)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_a_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(ConfigError, match=f"key: {len(key)} bytes, not 32"):
        NoiseSource.keyed(key)


def test_a_key_and_a_source_are_of_their_kinds() -> None:
    with pytest.raises(ConfigError, match="key: must be bytes, is str"):
        NoiseSource.keyed("x" * 32)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="source: must be a NoiseSource, is NoneType"):
        discrete_gaussian(None, 1, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["run", [1, 2], bytearray(2), 7])
def test_context_is_bytes(part: Any) -> None:
    with pytest.raises(ConfigError, match=r"context\[1\]: must be bytes, is "):
        NoiseSource.keyed(KEY, b"", part)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("discrete_gaussian", (1, 0), r"variance is 0: it must be above 0 and at most 2\*\*100"),
        ("discrete_gaussian", (1, -4), "variance is -4"),
        ("discrete_gaussian", (1, (1 << 100) + 1), r"at most 2\*\*100"),
        ("discrete_gaussian", (1, 0.5), r"variance is 0\.5: it must be an integer or a fractions\.Fraction"),
        ("discrete_gaussian", (1, True), "variance is True"),
        ("discrete_gaussian", (1, HUGE), r"variance: its numerator and denominator must be below 2\*\*256"),
        ("discrete_gaussian", (-1, 1), r"count is -1: it must be an integer from 0 to 2\*\*32"),
        ("discrete_gaussian", ((1 << 32) + 1, 1), "count is 4294967297"),
        ("discrete_gaussian", (1.0, 1), r"count is 1\.0"),
        ("discrete_laplace", (1, 0), "scale is 0"),
        ("discrete_laplace", (1, (1 << 50) + 1), r"scale is .* at most 2\*\*50"),
        ("skellam", (1, 0), "variance is 0"),
        ("skellam", (1, (1 << 100) + 1), r"at most 2\*\*100"),
        ("geometric", (1, 0), "x is 0: it must be at least 1/1125899906842624"),
        ("geometric", (1, Fraction(1, (1 << 50) + 1)), "x is 1/1125899906842625"),
        ("bernoulli_exp", (1, Fraction(-1, 9)), "x is -1/9: it must be at least 0"),
        ("binomial", (1, -1, Fraction(1, 2)), r"trials is -1: it must be an integer from 0 to 2\*\*62"),
        ("binomial", (1, (1 << 62) + 1, Fraction(1, 2)), "trials is"),
        ("binomial", (1, 2.0, Fraction(1, 2)), r"trials is 2\.0"),
        ("binomial", (1, 2, Fraction(3, 2)), "p is 3/2: it must be between 0 and 1"),
        ("binomial", (1, 2, Fraction(-1, 2)), "p is -1/2"),
    ],
)
def test_what_is_out_of_range_is_named(name: str, arguments: tuple[Any, ...], message: str) -> None:
    source = NoiseSource.keyed(KEY)
    with pytest.raises(ConfigError, match=message):
        getattr(sampling, name)(source, *arguments)
    assert source.calls == 0


@pytest.mark.parametrize("threads", [0, 257, 1.5])
def test_threads_are_bounded(threads: Any) -> None:
    with pytest.raises(ConfigError, match="threads is"):
        discrete_laplace(NoiseSource.keyed(KEY), 1, 1, threads=threads)


def test_the_core_refuses_by_itself() -> None:
    core = NoiseSource.keyed(KEY)._core
    one = b"\1"
    refused: tuple[Callable[[], Any], ...] = (
        lambda: core.draw("normal", [one, one], 1, 1),
        lambda: core.draw("skellam", [one], 1, 1),
        lambda: core.draw("skellam", [one, b""], 1, 1),
        lambda: core.draw("discrete-gaussian", [b"", one], 1, 1),
        lambda: core.draw("discrete-gaussian", [bytes(33), one], 1, 1),
        lambda: core.draw("discrete-gaussian", [b"\1" + bytes(13), one], 1, 1),
        lambda: core.draw("binomial", [b"\x80" + bytes(7), one, one, b"\2"], 1, 1),
        lambda: core.draw("binomial", [one, one, b"\3", b"\2"], 1, 1),
        lambda: core.draw("discrete-gaussian", [one, one], (1 << 32) + 1, 1),
        lambda: core.draw("discrete-gaussian", [one, one], 1, 0),
    )
    for call in refused:
        with pytest.raises(ValueError, match=r"\w"):
            call()
    assert core.calls == 0


@pytest.mark.parametrize(
    ("trials", "p", "expected"), [(0, Fraction(1, 2), 0), (9, 0, 0), (9, 1, 9), (1 << 62, 1, 1 << 62)]
)
def test_certain_binomials(trials: int, p: Fraction | int, expected: int) -> None:
    assert sampling.binomial(NoiseSource.system(), 3, trials, p).tolist() == [expected] * 3


def test_certain_bernoullis() -> None:
    source = NoiseSource.system()
    assert sampling.bernoulli_exp(source, 50, 0).all()
    assert not sampling.bernoulli_exp(source, 50, 10**9).any()
