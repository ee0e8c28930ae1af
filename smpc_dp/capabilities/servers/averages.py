"""Plan averages that servers compute by secret sharing, with one noise for a group."""

from __future__ import annotations

from smpc_dp.capabilities.servers.secret_sharing.params import VectorParameters
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.central_gaussian import GREATEST_EPSILON, WideGaussian
from smpc_dp.secagg.noisy import sensitivity_of

# The longest that mpyc may compute one average.
SECONDS = 600.0
# Processor time of a server, as measured: of a level of a draw, and of a bit of a value that is checked.
_DRAW_SECONDS, _BIT_SECONDS = 6e-3, 7e-5


def check_epsilon(epsilon: float) -> None:
    """Raise ConfigError if an epsilon is too large for averages that servers compute on shares."""
    if epsilon > GREATEST_EPSILON:
        reason = f"must be at most {GREATEST_EPSILON:g} with averages on shares, is {epsilon:g}"
        raise ConfigError.at("epsilon", reason, ConfigCheck.RANGE)


def plan_vectors(
    encoding: Encoding, missing: int, budget: tuple[float, float] | None = None
) -> VectorParameters:
    """Return the parameters of an average that servers compute, if `missing` parties may be lost.

    `budget`: epsilon and delta of this average by itself; None: it is exact. Raises ConfigError for invalid
    arguments.
    """
    noise = None if budget is None else WideGaussian.calibrate(*budget, sensitivity_of(encoding))
    _check_work(encoding.parties, encoding, 0 if noise is None else noise.levels)
    epsilon, delta = budget or (None, 0.0)
    return VectorParameters(
        parties=encoding.parties,
        fewest=encoding.parties - missing,
        encoding=encoding,
        epsilon=epsilon,
        delta=delta,
        mechanism="gaussian",
        seconds=SECONDS,
        noise=noise,
    )


def _check_work(parties: int, encoding: Encoding, noise_levels: int) -> None:
    """Raise ConfigError if an average takes servers too long; `noise_levels`: of its draw, 0 if exact."""
    bits = (encoding.highest - encoding.lowest).bit_length()
    seconds = encoding.length * (noise_levels * _DRAW_SECONDS + parties * bits * _BIT_SECONDS)
    if seconds > SECONDS / 2:
        reason = (
            f"vectors of {encoding.length} in groups of {parties} take each server about {seconds:.0f} s of "
            f"processor time on shares, at most {SECONDS / 2:.0f} are allowed"
        )
        raise ConfigError.at("features", reason, ConfigCheck.TOO_LARGE)
