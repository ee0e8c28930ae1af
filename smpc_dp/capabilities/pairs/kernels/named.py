"""Kernels by name, as sessions and commands take them, and those of this package from plain data.

Another package registers a `Kernel`, or a `KernelFactory`, in the entry-point group `smpc_dp.kernels`, by its
name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from smpc_dp.capabilities.pairs.kernels import definitions
from smpc_dp.capabilities.pairs.kernels.compiled import alone, isolated
from smpc_dp.capabilities.pairs.kernels.fields import Cells, Field
from smpc_dp.capabilities.pairs.kernels.forms import LABEL, Form, KernelFactory
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.on_bits import limited
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.extensions import Extension, Group, called, describe_others, find

kendall_tau = Form("kendall_tau", ("x", "y"), lambda _: definitions.kendall_tau, low=-1.0, steps=2)
"""Kendall's tau: sign(x - x') sign(y - y'), ties counted as 0 [Bellet 2021, 3.4]."""

gini_mean_difference = Form("gini_mean_difference", ("x",), definitions.absolute_difference, degree=1)
"""Gini's mean difference: |x - x'|."""

variance = Form("variance", ("x",), definitions.squared_difference, scale=0.5, degree=2)
"""The sample variance: (x - x')**2 / 2."""

collision = Form("collision", ("x",), lambda _: definitions.collision)
"""Whether two records are equal; minus the logarithm of the mean is the Rényi-2 entropy.

The mean times n (n - 1) / 2 is the number of duplicate pairs.
"""

auc = Form("auc", ("score",), lambda _: definitions.auc, scale=0.5, steps=2, symmetric=False, labels="public")
"""The area under the ROC curve with public labels: 1 where the first score is greater, 1/2 for ties.

The first argument is a record of label 1, the second one of label 0. n+ n- times the mean is the statistic of
Mann and Whitney.
"""

auc_private_labels = Form(
    "auc_private_labels",
    ("score",),
    lambda _: definitions.auc_private_labels,
    scale=0.5,
    steps=2,
    labels="private",
)
"""The area under the ROC curve times the share of pairs with two labels; labels are private.

A record is (score, label). 1 where the labels differ and the record of label 1 has the greater score, 1/2 for
equal scores, 0 otherwise and for equal labels. AUC = mean * n (n - 1) / (2 n+ n-).
"""

FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (kendall_tau, gini_mean_difference, variance, collision, auc, auc_private_labels)
}
ALIASES: Mapping[str, str] = {
    "gini": "gini_mean_difference",
    "mann_whitney": "auc",
    "renyi_2": "collision",
}
MAX_NAME = 40
NAMES = (*FORMS, *ALIASES)

_LOG = logging.getLogger("smpc_dp.capabilities.pairs")


def find_kernel(kernel: str | Kernel, *fields: Field) -> Kernel:
    """Return the kernel of this name on these fields (default: 32-bit integers); a Kernel is returned as is.

    A kernel that another package registers has fields of its own, if it is no factory.

    Raises ConfigError for an unknown name, a wrong number of fields, or none where the range depends on them,
    and LocalError for what another package registers, or makes, that is no kernel of the name.
    """
    if isinstance(kernel, Kernel):
        _LOG.debug("takes the kernel %s", kernel.name)
        return kernel
    name = ALIASES.get(kernel, kernel) if isinstance(kernel, str) else ""
    known = _find(name)
    if known is None:
        reason = f"{kernel!r} is none of {', '.join(NAMES)}, and no Kernel{describe_others(Group.KERNELS)}"
        raise ConfigError.at("kernel", reason, ConfigCheck.CHOICE)
    if isinstance(known, Kernel):
        if fields:
            raise ConfigError.at(
                "kernel", f"'{name}' has fields of its own: none can be given", ConfigCheck.UNSUPPORTED
            )
        return known
    if fields and len(fields) != len(known.fields):
        reason = f"'{name}' has {len(known.fields)} fields, {len(fields)} are given"
        raise ConfigError.at("kernel", reason, ConfigCheck.SHAPE)
    _LOG.debug("takes the kernel %s", name)
    return known(*fields)


def requires_fields(name: str) -> bool:
    """Return whether the kernel of this name needs its fields from the caller; false for an unknown name."""
    known = _find(ALIASES.get(name, name))
    return isinstance(known, KernelFactory) and known.requires_fields


def _find(name: str) -> Kernel | KernelFactory | None:
    """Return the built-in or registered kernel, or its factory, of this name; None if it is unknown."""
    return FORMS.get(name) or registered_kernel(name)


@dataclass(frozen=True)
class _Registered(KernelFactory):
    """Wrapper of a kernel factory that another package registered: checks each kernel that it makes."""

    extension: Extension

    @property
    def requires_fields(self) -> bool:
        """Whether the registered factory needs fields from the caller."""
        return bool(self.extension.value.requires_fields)

    def make(self, *fields: Field) -> Kernel:
        """Return the factory's kernel, a function of two records, its circuit's output limited to `steps`.

        Raises LocalError if the factory makes no kernel of these fields, or one of another name.
        """
        try:
            made = called(self.extension.value.make, *fields)
        except LocalError as error:
            raise self.extension.unfit(f"makes no kernel of these fields: {error}") from error
        if not isinstance(made, Kernel) or made.name != self.name:
            raise self.extension.unfit(f"makes no Kernel with the name '{self.name}'")
        if made.fields != (*fields, *([LABEL] if made.labels == "private" else [])):
            raise self.extension.unfit("makes a kernel on other fields than those that are given")
        # Noise is scaled to the range, also on shares, where servers have the circuit alone.
        gadget = None if made.gadget is None else limited(made.gadget, made.steps)
        return replace(made, gadget=gadget, definition=None)


def registered_kernel(name: object) -> Kernel | KernelFactory | None:
    """Return the kernel or factory that another package registers so, or None; LocalError if unfit."""
    result = None if not isinstance(name, str) or name in NAMES else find(Group.KERNELS, name)
    if result is None:
        return None
    if not isinstance(result.value, Kernel | KernelFactory) or result.value.name != name:
        raise result.unfit(f"is no Kernel with the name '{name}', and no KernelFactory")
    if isinstance(result.value, Kernel):
        return result.value
    fields = result.value.fields
    if not isinstance(fields, tuple) or not fields or not all(isinstance(one, str) for one in fields):
        raise result.unfit("has no names of fields")
    return _Registered(result.value.name, fields, result)


def requested_kernel(terms: Mapping[str, Any]) -> Kernel:
    """Return the built-in or registered kernel that received terms describe, or raise ConfigError.

    Raises ConfigError, and LocalError as `find_kernel` does.
    """
    known = registered_kernel(terms.get("kernel"))
    if known is None:
        return kernel_of(terms)
    return known if isinstance(known, Kernel) else known(*read_fields(terms)[: len(known.fields)])


def kernel_of(terms: Mapping[str, Any]) -> Kernel:
    """Return the built-in kernel that these terms describe; raise ConfigError for other terms."""
    fields, name = read_fields(terms), terms.get("kernel")
    if not isinstance(name, str) or name not in FORMS:
        raise ConfigError.at("kernel", f"no kernel {name!r}", ConfigCheck.UNKNOWN_NAME)
    return find_kernel(name, *fields[: len(FORMS[name].fields)])


def read_fields(terms: Mapping[str, Any]) -> list[Field]:
    """Return the fields that a kernel's terms (plain data) describe; raise ConfigError if malformed."""
    try:
        names = [str(f["name"]) for f in terms["fields"]]
        if not all(name.isprintable() and len(name) <= MAX_NAME for name in names):
            raise ValueError(f"names of fields must be printable, {MAX_NAME} characters at most")
        return [
            Cells(float(f["low"]), float(f["high"]), str(f["name"]), bins=f["bins"])
            if "bins" in f
            else Field(float(f["low"]), float(f["high"]), float(f["step"]), str(f["name"]), bool(f["exact"]))
            for f in terms["fields"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError.at("kernel", f"not a kernel's description ({error})", ConfigCheck.FORMAT) from None


def sealed(kernel: Kernel) -> Kernel:
    """Return the equal built-in kernel if there is one, else the kernel with an isolated circuit."""
    return _same(kernel) or isolated(kernel)


def is_known(kernel: Kernel) -> bool:
    """Return whether a kernel is a built-in one, compared by its terms and circuit, not its name alone."""
    return _same(kernel) is not None


def _same(kernel: Kernel) -> Kernel | None:
    """Return the built-in kernel with equal terms and an equal circuit; None if there is none."""
    try:
        made = kernel_of(kernel.terms())
        if made is kernel:
            return made
        same = made.terms() == kernel.terms() and alone(kernel).digest == alone(made).digest
    except ConfigError:
        return None
    return made if same else None
