"""Kernels of pairwise statistics and their fields: one definition each, for bits, shares and arrays."""

from smpc_dp.capabilities.pairs.circuits import gadgets
from smpc_dp.capabilities.pairs.kernels.described import describe
from smpc_dp.capabilities.pairs.kernels.fields import Field
from smpc_dp.capabilities.pairs.kernels.forms import KernelFactory
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import (
    auc,
    auc_private_labels,
    collision,
    find_kernel,
    gini_mean_difference,
    kendall_tau,
    variance,
)
from smpc_dp.capabilities.pairs.kernels.own import circuit_kernel, table_kernel

__all__ = [
    "Field",
    "Kernel",
    "KernelFactory",
    "auc",
    "auc_private_labels",
    "circuit_kernel",
    "collision",
    "describe",
    "find_kernel",
    "gadgets",
    "gini_mean_difference",
    "kendall_tau",
    "table_kernel",
    "variance",
]
