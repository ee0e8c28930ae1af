"""Mechanisms: exactly sampled noise with its sensitivity, its neighbouring relation and its guarantee."""

from smpc_dp.privacy.mechanisms.additive import (
    AdditiveNoise,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    Skellam,
)
from smpc_dp.privacy.mechanisms.base import Mechanism
from smpc_dp.privacy.mechanisms.distributed import DistributedSum
from smpc_dp.privacy.mechanisms.randomised_response import KaryRandomisedResponse
from smpc_dp.privacy.mechanisms.real import Gaussian, Laplace, RealMechanism
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity

__all__ = [
    "AdditiveNoise",
    "Binomial",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistributedSum",
    "Gaussian",
    "KaryRandomisedResponse",
    "Laplace",
    "Mechanism",
    "RealMechanism",
    "Sensitivity",
    "Skellam",
]
