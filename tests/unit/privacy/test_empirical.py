"""The empirical audit: right mechanisms pass, planted bugs are found.

Seeds are fixed, so a test passes always or never. Over the choice of the seed a right mechanism is refuted
with probability 1e-3 at most (`FALSE_ALARM`), 14 of them with 1.4e-2.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError
from smpc_dp.privacy import empirical, sampling
from smpc_dp.privacy.empirical import Audit, Claim, audit, audit_mechanism, clopper_pearson
from smpc_dp.privacy.mechanisms import (
    AdditiveNoise,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedSum,
    Gaussian,
    KaryRandomisedResponse,
    Laplace,
    Mechanism,
    Sensitivity,
    Skellam,
)
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

Integers = NDArray[np.int64]

SAMPLES = 1_000_000
ONE = Sensitivity.on_integers("substitution", l1=1)
TWO = Sensitivity.on_integers("substitution", dimension=2, l2=2)
CLAIM = Claim(1.0, 1e-5)
PURE = Claim(1.0, 0.0)


def source(name: str) -> NoiseSource:
    return NoiseSource.keyed(hashlib.sha256(name.encode()).digest())


def look(mechanism: Mechanism, claim: Claim, name: str) -> Audit:
    return audit_mechanism(mechanism, claim, SAMPLES, SeededRandomnessForSimulation(1, name))


def real(kind: type[Laplace] | type[Gaussian], claim: Claim, dimension: int = 1) -> Laplace | Gaussian:
    encoding = Encoding.plan(length=dimension, lower=0.0, upper=10.0, precision=0.01, parties=1)
    bounds = Sensitivity.on_reals("substitution", dimension=dimension, linf=10.0)
    return kind.calibrate(claim.epsilon, claim.delta, bounds, encoding)


def ten_wide() -> Laplace:
    made = real(Laplace, PURE)
    assert isinstance(made, Laplace)
    return made


def shared(kind: type[AdditiveNoise], claim: Claim, bounds: Sensitivity = ONE) -> DistributedSum:
    return DistributedSum.calibrate(kind, claim.epsilon, claim.delta, bounds, parties=6, missing=1, corrupt=2)


# Calibrated by the tests that look at them.
RIGHT: dict[str, tuple[Callable[[], Mechanism], Claim]] = {
    "discrete Laplace": (lambda: DiscreteLaplace.calibrate(1.0, 0.0, ONE), PURE),
    "discrete Laplace in two": (
        lambda: DiscreteLaplace.calibrate(
            1.0, 0.0, Sensitivity.on_integers("substitution", dimension=2, l1=4)
        ),
        PURE,
    ),
    "discrete Gaussian": (lambda: DiscreteGaussian.calibrate(1.0, 1e-5, ONE), CLAIM),
    "discrete Gaussian in two": (lambda: DiscreteGaussian.calibrate(1.0, 1e-5, TWO), CLAIM),
    "Skellam": (lambda: Skellam.calibrate(1.0, 1e-5, ONE), CLAIM),
    "Skellam in two": (lambda: Skellam.calibrate(1.0, 1e-5, TWO), CLAIM),
    "binomial": (lambda: Binomial.calibrate(1.0, 1e-5, ONE), CLAIM),
    "randomised response": (lambda: KaryRandomisedResponse.calibrate(1.0, 0.0, 5), PURE),
    "Laplace": (lambda: real(Laplace, PURE), PURE),
    "Gaussian in two": (lambda: real(Gaussian, CLAIM, 2), CLAIM),
    "sum of discrete Gaussians": (lambda: shared(DiscreteGaussian, CLAIM), CLAIM),
    "sum of Skellam": (lambda: shared(Skellam, CLAIM), CLAIM),
    "sum of binomials": (lambda: shared(Binomial, CLAIM), CLAIM),
    "sum of discrete Laplace": (lambda: shared(DiscreteLaplace, CLAIM), CLAIM),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", RIGHT)
def test_right_mechanisms_are_not_refuted_and_nearly_reached(name: str) -> None:
    calibrate, claim = RIGHT[name]
    mechanism = calibrate()
    assert mechanism.delta(claim.epsilon) <= claim.delta
    result = look(mechanism, claim, name)
    assert not result.refuted
    # the audit sees most of what is spent: it would be no test if it saw nothing
    assert result.lower > (0.8 if claim.delta == 0 else 0.4) * claim.epsilon


# planted bugs: each claims what the right mechanism does, and does something else


class HalfTheNoise(DiscreteGaussian):
    def noise(self, source: NoiseSource, count: int) -> Integers:
        return sampling.discrete_gaussian(source, count, self.variance / 4)


class WrongScale(DiscreteGaussian):
    """A standard deviation that is too small by the root of 2: a variance per share, or a forgotten 2."""

    def noise(self, source: NoiseSource, count: int) -> Integers:
        return sampling.discrete_gaussian(source, count, self.variance / 2)


class WrongLaplaceScale(DiscreteLaplace):
    def noise(self, source: NoiseSource, count: int) -> Integers:
        return sampling.discrete_laplace(source, count, self.scale * Fraction(70711, 100000))


class OneSided(DiscreteLaplace):
    def noise(self, source: NoiseSource, count: int) -> Integers:
        return np.abs(sampling.discrete_laplace(source, count, self.scale))


class NoNoise(DiscreteGaussian):
    def noise(self, _source: NoiseSource, count: int) -> Integers:
        return np.zeros(count, dtype=np.int64)


class LastCoordinateBare(DiscreteGaussian):
    def noise(self, source: NoiseSource, count: int) -> Integers:
        noise = sampling.discrete_gaussian(source, count, self.variance)
        noise[:: self.sensitivity.dimension] = 0
        return noise


class SeedReused(DiscreteGaussian):
    """Every call starts the same generator again."""

    def noise(self, _source: NoiseSource, count: int) -> Integers:
        return sampling.discrete_gaussian(NoiseSource.keyed(bytes(32)), count, self.variance)


class NoiseSharedByCoordinates(DiscreteGaussian):
    def noise(self, source: NoiseSource, count: int) -> Integers:
        dimension = self.sensitivity.dimension
        drawn = sampling.discrete_gaussian(source, count // dimension, self.variance)
        return np.repeat(drawn, dimension)


class TruthTooOften(KaryRandomisedResponse):
    """Keeps the truth with the chance that is meant for not drawing anew among all categories."""

    def release_many(self, values: Any, source: NoiseSource, count: int) -> Integers:
        first = super().release_many(values, source, count)
        again = sampling.binomial(source, first.size, 1, Fraction(1, 10)).reshape(first.shape)
        return np.where(again == 1, np.tile(np.asarray(values), (count, 1)), first)


class AllSharesCounted(DistributedSum):
    """Calibrated as if missing and corrupt parties' noise protected as well."""

    def release_many(self, values: Any, source: NoiseSource, count: int) -> Integers:
        return DistributedSum(self.share, parties=2).release_many(values, source, count)


class RangeForgotten(Laplace):
    """Noise for values in [0, 1] on values in [0, hi - lo]."""

    def release_many(self, values: Any, source: NoiseSource, count: int) -> NDArray[np.float64]:
        unit = DiscreteLaplace(self.discrete.sensitivity, self.discrete.scale / 10)
        right = Laplace(self.encoding, self.sensitivity, unit)
        return right.release_many(values, source, count)


def planted(kind: Any, bounds: Sensitivity = ONE) -> Mechanism:
    pure = issubclass(kind, DiscreteLaplace)
    made: Mechanism = kind.calibrate(1.0, 0.0 if pure else 1e-5, bounds)
    return made


def range_forgotten() -> Mechanism:
    wide = ten_wide()
    return RangeForgotten.calibrate(1.0, 0.0, wide.sensitivity, wide.encoding)


BUGS: dict[str, tuple[Callable[[], Mechanism], Claim]] = {
    "half the noise": (lambda: planted(HalfTheNoise), CLAIM),
    "half the noise in two": (lambda: planted(HalfTheNoise, TWO), CLAIM),
    "wrong scale": (lambda: planted(WrongScale), CLAIM),
    "wrong scale in two": (lambda: planted(WrongScale, TWO), CLAIM),
    "wrong Laplace scale": (lambda: planted(WrongLaplaceScale), PURE),
    "one-sided": (lambda: planted(OneSided), PURE),
    "no noise": (lambda: planted(NoNoise), CLAIM),
    "a bare coordinate": (lambda: planted(LastCoordinateBare, TWO), CLAIM),
    "noise shared by coordinates": (lambda: planted(NoiseSharedByCoordinates, TWO), CLAIM),
    "truth too often": (lambda: TruthTooOften.calibrate(1.0, 0.0, 5), PURE),
    "all shares counted": (
        lambda: AllSharesCounted(shared(Skellam, Claim(1.0, 1e-5)).share, parties=4, missing=1),
        CLAIM,
    ),
    "range forgotten": (range_forgotten, PURE),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_found(name: str) -> None:
    plant, claim = BUGS[name]
    mechanism = plant()
    assert mechanism.delta(claim.epsilon) <= claim.delta * 1.001
    result = look(mechanism, claim, name)
    assert result.refuted
    strongest = result.findings[0]
    assert strongest.lower > strongest.claim.epsilon


def test_a_seed_that_is_used_again_is_found() -> None:
    """Two releases of one run: each is right by itself, and their difference has no noise."""
    buggy, right = planted(SeedReused), DiscreteGaussian.calibrate(1.0, 1e-5, ONE)
    claim = Claim(2.0, 2e-5)
    for mechanism, refuted in ((buggy, True), (right, False)):
        drawn = source("reuse")

        def twice(
            which: int, count: int, _key: bytes, made: Mechanism = mechanism, drawn: NoiseSource = drawn
        ) -> Integers:
            first = made.release_many([which], drawn, count)
            second = made.release_many([0], drawn, count)
            return np.concatenate((first, second), axis=1)

        findings = audit(twice, [claim], 100_000)
        assert findings[0].refuted is refuted


def test_a_constant_seed_over_all_runs_is_found() -> None:
    constant = int(sampling.discrete_gaussian(source("constant"), 1, Fraction(14))[0])
    findings = audit(lambda which, count, _key: np.full((count, 1), which + constant), [CLAIM], 10_000)
    assert findings[0].refuted


# the statistics


@pytest.mark.parametrize(("hits", "samples"), [(0, 50), (1, 50), (25, 50), (50, 50), (300, 100_000)])
def test_clopper_pearson_inverts_the_binomial_tails(hits: int, samples: int) -> None:
    low, high = clopper_pearson(hits, samples, 1e-3)
    if hits:
        assert binom.sf(hits - 1, samples, low) == pytest.approx(1e-3, rel=1e-6)
    else:
        assert low == 0
    if hits < samples:
        assert binom.cdf(hits, samples, high) == pytest.approx(1e-3, rel=1e-6)
    else:
        assert high == 1


def test_false_alarms_are_as_rare_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rate of 0.2, 200 audits of a tight claim: 60 or more false alarms come up with probability
    4e-4."""
    monkeypatch.setattr(empirical, "FALSE_ALARM", 0.2)
    response = KaryRandomisedResponse(2, Fraction(3))
    drawn = source("alarms")

    def sample(which: int, count: int, _key: bytes) -> Integers:
        return response.release_many([which], drawn, count)

    alarms = sum(audit(sample, [Claim(math.log(3), 0.0)], 10_000)[0].refuted for _ in range(200))
    assert alarms < 60
    # and the bounds are not so wide that there could be none
    monkeypatch.setattr(empirical, "FALSE_ALARM", 0.999)
    alarms = sum(audit(sample, [Claim(math.log(3), 0.0)], 10_000)[0].refuted for _ in range(50))
    assert alarms > 5


def test_progress_counts_the_releases_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empirical, "BLOCK", 4_000)
    shown: list[tuple[int, int]] = []
    made = KaryRandomisedResponse.calibrate(1.0, 0.0, 3)
    audited = empirical.audit_mechanism(
        made, empirical.Claim(1.0, 0.0), 10_001, progress=lambda *pair: shown.append(pair)
    )
    assert shown == [(done, 20_002) for done in (4_000, 5_000, 9_000, 10_000, 14_000, 15_001, 19_001, 20_002)]
    assert all(finding.samples == 5_001 for finding in audited.findings)


def test_the_event_is_fixed_before_it_is_counted() -> None:
    """Outputs that are new in every draw: an event chosen on what it is counted on would look telling."""
    calls = 0

    def sample(which: int, count: int, _key: bytes) -> Integers:
        nonlocal calls
        calls += 1
        drawn = sampling.discrete_laplace(source(f"fresh {calls}"), count, Fraction(10**9))
        return drawn[:, None]

    findings = audit(sample, [Claim(0.0, 0.0)], 10_000)
    assert calls == 4
    assert not findings[0].refuted


@pytest.mark.parametrize("samples", [0, 9_999, 1 << 40])
def test_absurd_numbers_of_samples_are_named(samples: int) -> None:
    with pytest.raises(ConfigError, match="samples"):
        audit(lambda _which, count, _key: np.zeros((count, 1)), [CLAIM], samples)
    with pytest.raises(ConfigError, match="claim"):
        audit(lambda _which, count, _key: np.zeros((count, 1)), [], 10_000)


# the command

NAMES = [
    *("laplace", "gaussian", "discrete-laplace", "discrete-gaussian", "skellam", "binomial"),
    *("randomised-response", "distributed-discrete-laplace", "distributed-discrete-gaussian"),
    *("distributed-skellam", "distributed-binomial"),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_command_knows_every_mechanism(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empirical, "SystemRandomness", lambda: SeededRandomnessForSimulation(1, name))
    reported = json.loads(
        CliRunner().invoke(app, ["plan", "check", name, "--samples", "10000", "--json"]).stdout
    )
    assert reported["samples"] == 10_000
    assert reported["false_alarm"] == 1e-3
    assert reported["violation"] is False


def test_the_command_finds_the_same_with_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empirical, "SystemRandomness", lambda: SeededRandomnessForSimulation(1, "workers"))
    check = ["plan", "check", "discrete-gaussian", "--samples", "50000", "--json", "--workers"]
    one, two = (CliRunner().invoke(app, [*check, workers]).stdout for workers in ("1", "2"))
    assert one == two
    assert json.loads(one)["strongest"]["counted"] == 25_000
    error = CliRunner().invoke(app, [*check, "0"]).exception
    assert isinstance(error, ConfigError)
    assert str(error) == "workers: must be 1 to 256, is 0"


def test_the_command_ends_with_1_when_it_finds_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sampling, "discrete_laplace", lambda _source, count, _scale: np.zeros(count, np.int64)
    )
    done = CliRunner().invoke(app, ["plan", "check", "discrete-laplace", "--samples", "10000"])
    assert done.exit_code == 1
    assert "VIOLATION" in done.stdout


def test_the_command_names_what_cannot_be() -> None:
    for options in (["--epsilon", "0"], ["--delta", "1"], ["--samples", "5"], ["--dimension", "0"]):
        done = CliRunner().invoke(app, ["plan", "check", "discrete-gaussian", *options])
        assert isinstance(done.exception, ConfigError)
