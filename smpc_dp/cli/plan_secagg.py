"""`smpc-dp plan secagg`: the numbers and the cost of a secure aggregation."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from smpc_dp.console.options import option, with_settings
from smpc_dp.console.output import print_plan, print_struct
from smpc_dp.engine.phases.parameters import Total
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.secagg_plan import SecAggPlan, communication
from smpc_dp.secagg.params import SAME, ExactSettings, check_parameters


class PlannedSum(SecAggPlan, frozen=True, kw_only=True):
    """JSON output: the plan of a secure sum, with the bytes that a party sends and receives."""

    length: int
    element_bytes: int
    modulus_bits: int
    total: Total
    communication: dict[str, dict[str, int]]


@with_settings(ExactSettings, without=(SAME,), length=10_000, lower=-1.0, upper=1.0)
def secagg(
    parties: Annotated[int, typer.Option(help="Parties in the roster.")],
    precision: Annotated[float | None, option(ExactSettings, "precision", default="1e-6 for real")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **given: Any,
) -> None:
    """Plan a secure aggregation: its numbers and its cost.

    Degree, threshold and quorum, the probability that any of them fails, whether parties check the total, and
    the traffic of one party.
    """
    if given["kind"] == "real" or precision is not None:
        given["precision"] = 1e-6 if precision is None else precision
    checked, faults = check_parameters(given, parties)
    if checked is None:
        raise ConfigError(faults)
    plan, encoding = checked.plan, checked.encoding
    length, size = encoding.ring_length, encoding.element_bytes
    cost = communication(plan, length, size, checked=checked.is_checked, has_checkers=checked.has_checkers)
    if as_json:
        print_struct(
            PlannedSum(
                **msgspec.structs.asdict(plan),
                length=encoding.length,
                element_bytes=encoding.element_bytes,
                modulus_bits=encoding.modulus_bits,
                total=checked.total,
                communication=cost,
            )
        )
        return
    bits = "cannot fail" if plan.failure_bits is None else f"at most 2^-{plan.failure_bits:.1f}"
    graph = "complete graph" if plan.complete else "random graph"
    dropouts = f"at most; the run stops below {plan.min_survivors} survivors"
    if checked.keeps_survivors:
        dropouts += "; in a session's first exact sum: later ones are over the same survivors"
    rows = [
        ("degree k", plan.degree, f"neighbours that each party draws ({graph})"),
        ("threshold t", plan.threshold, f"shares that open a secret; 2t > k + {plan.corrupt_holders}"),
        ("quorum q", plan.quorum, f"signatures that certify a set; 2q > {parties} + {plan.max_corrupt}"),
        ("dropouts", plan.max_dropouts, dropouts),
        ("corrupt parties", plan.max_corrupt, "at most, colluding with a malicious aggregator"),
        ("honest in any sum", plan.min_honest_in_sum, "at least, whatever the aggregator does"),
        ("failure", bits, "some neighbourhood too corrupt, too few shares, or a group cut off"),
        ("total", checked.total, checked.total_note),
        ("masks a party", f"{plan.mask_degree:.1f}", "on average"),
        (
            "sent a party",
            _bytes(cost["up"]["total"]),
            f"for {encoding.length} numbers of {encoding.element_bytes} bytes",
        ),
        ("received a party", _bytes(cost["down"]["total"]), ""),
    ]
    if checked.has_checkers:
        many, more = plan.checkers(), cost["checker"]["down"]
        rows += [
            ("checkers", many, f"survivors that check the total for all; {plan.check_quorum} must attest it"),
            (
                "received a checker",
                _bytes(more),
                f"besides; {many * more / 1e9:,.1f} GB to all of them, in one step",
            ),
        ]
    print_plan(plan, False, f"secure aggregation of {parties} parties", rows)


def _bytes(count: int) -> str:
    """Return a number of bytes as text in kB of 1000 bytes."""
    return f"{count / 1000:,.1f} kB"
