"""The second auditor derives from a session file what the session's plan has."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp_verify.session import Session
from smpc_dp_verify.sums import MOST_BY_DEFAULT, MOST_SHOWN, read_sums

EXACT: dict[str, Any] = {"length": 3, "lower": -1.5, "upper": 2.0, "precision": 1e-3}
NOISY = {key: EXACT[key] for key in ("length", "lower", "upper")} | {"epsilon": 1.0, "delta": 1e-6}
CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("secagg", 4, EXACT),
    ("secagg", 7, EXACT | {"corrupt": 0.3, "dropout": 0.15, "total": "checked"}),
    ("secagg", 50, EXACT | {"same_survivors": False, "precision": 1.0}),
    ("secagg", 9, {"length": 2, "lower": [0, -7], "upper": [70_000, 9], "kind": "integer"}),
    ("secagg", 12, EXACT | {"max_weight": 1_000_000, "lower": [-1.5, 0.0, 1.0], "upper": 3.0}),
    ("secagg", 6, NOISY),
    ("secagg", 6, {"length": 3, "l2_bound": 2.5, "epsilon": 1.0, "delta": 1e-6, "total": "checked"}),
    ("gopa", 6, NOISY | {"on_dropout": "roll-back", "total": "checked"}),
    ("gopa", 6, NOISY),
    # Without `total`, from what the session is.
    ("secagg", 4, EXACT | {"total": "unchecked"}),
    ("secagg", 4, EXACT | {"length": 100_000}),
    ("secagg", 4, EXACT | {"length": 100_001}),
    ("secagg", 4, EXACT | {"length": 99_999, "max_weight": 3}),
    ("secagg", 4, EXACT | {"length": 100_000, "max_weight": 3}),
    ("secagg", 4, EXACT | {"length": 100_001, "total": "checked"}),
    ("secagg", 10_000, EXACT),
    ("secagg", 10_001, EXACT),
    ("secagg", 10_001, EXACT | {"total": "checked"}),
    ("secagg", 6, NOISY | {"length": 100_001}),
    ("gopa", 6, NOISY | {"on_dropout": "roll-back"}),
    ("gopa", 6, NOISY | {"on_dropout": "roll-back", "length": 100_001}),
    ("gopa", 6, NOISY | {"on_dropout": "roll-back", "total": "unchecked"}),
]


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize(("protocol", "parties", "parameters"), CASES)
def test_both_derive_the_same(protocol: str, parties: int, parameters: dict[str, Any], newest: bool) -> None:
    version = (max if newest else min)(session_protocol(protocol).versions)
    planned, issues = checker_of(protocol, version)(parameters, parties)
    assert not issues
    names = [f"p{number}" for number in range(parties)]
    session = Session(b"", protocol, version, parameters, {}, names, "relay", None)
    sums, encoding = read_sums(session), planned.encoding
    assert (sums.quorum, sums.least, sums.corrupt) == (
        planned.plan.quorum,
        planned.plan.min_survivors,
        planned.plan.max_corrupt,
    )
    assert (sums.width, sums.bits, sums.elements) == (
        encoding.element_bytes,
        encoding.fractional_bits,
        encoding.ring_length,
    )
    assert (sums.is_checked, sums.has_checkers, sums.is_certified, sums.is_noisy) == (
        planned.is_checked,
        planned.has_checkers,
        planned.deals_shares,
        planned.is_signed,
    )
    assert min(sums.lows) == encoding.lowest
    assert max(sums.highs) == encoding.highest


@pytest.mark.parametrize(("protocol", "parties"), [("secagg", 4), ("secagg", MOST_SHOWN + 1), ("gopa", 4)])
@pytest.mark.parametrize("total", [None, "unchecked", "checked"])
def test_statistics_of_records_are_checked_by_their_elements(
    protocol: str, parties: int, total: str | None
) -> None:
    parameters: dict[str, Any] = {"records": {}} | ({} if total is None else {"total": total})
    names = [f"p{number}" for number in range(parties)]
    version = session_protocol(protocol).version
    sums = read_sums(Session(b"", protocol, version, parameters, {}, names, "relay", None))
    by_default = total is None and (protocol, parties) == ("secagg", 4)
    assert sums.of_total(MOST_BY_DEFAULT).is_checked is (by_default or total == "checked")
    assert sums.of_total(MOST_BY_DEFAULT + 1).is_checked is (total == "checked")


@pytest.mark.parametrize(
    ("length", "more", "radii"),
    [
        (2, {"lower": -2.0, "upper": 2.0, "precision": 0.01}, 1),
        (3, {"lower": [-1.5, 0.0, 1.0], "upper": [3.0, 0.1, 1.7]}, 1),
        (1000, {"lower": -0.3, "upper": 1.7}, 1),
        (5, {"l2_bound": 2.5}, 1),
        # The half diagonal, 2^9 times 2^20 steps, is known to a step.
        (1 << 18, {"lower": -1.0, "upper": 1.0, "precision": 2.0**-20}, 2),
    ],
)
def test_the_norm_of_private_weights_is_that_of_the_plan(
    length: int, more: dict[str, Any], radii: int
) -> None:
    parameters = {"length": length, "epsilon": 1.0, "delta": 1e-6, "max_weight": 1000} | more
    described = session_protocol("secagg")
    check = described.checker(described.version)
    assert check is not None
    planned, issues = check(parameters, 4)
    assert not issues
    names = [f"p{number}" for number in range(4)]
    sums = read_sums(Session(b"", "secagg", described.version, parameters, {}, names, "relay", None))
    assert planned.encoding.highest in sums.radii
    assert len(sums.radii) == radii
