"""Which protocols exist, and who checks the parameters of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from smpc_dp.errors import Fault
from smpc_dp.protocols.pairwise.params import check_parameters as check_pairwise
from smpc_dp.protocols.secagg.params import check_parameters as check_secagg

# (the parameters as written in the session file, number of parties) -> (checked parameters or None, faults).
# A fault's `where` is a key of [parameters], or "roster" when the number of parties is at fault.
ParameterChecker = Callable[[Mapping[str, object], int], tuple[object | None, list[Fault]]]

PARAMETER_CHECKERS: dict[tuple[str, int], ParameterChecker] = {
    ("secagg", 1): check_secagg,
    ("pairwise", 1): check_pairwise,
}

# The protocols in which exactly one member of the roster must be the aggregator.
NEEDS_AGGREGATOR: frozenset[tuple[str, int]] = frozenset({("secagg", 1)})
