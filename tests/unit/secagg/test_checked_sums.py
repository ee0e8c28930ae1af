"""Checked totals: which sessions may have them, and how much noise they have."""

from __future__ import annotations

import pytest

from smpc_dp.crypto.prg import add_masks
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases import checked_total
from smpc_dp.engine.phases.masks import Masks
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import ConfigIssue
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg import params
from smpc_dp.secagg.params import SecAggParameters
from tests.faults.checked_totals import ORDER
from tests.reference.masks import keystream

BOUNDS: dict[str, object] = {"lower": 0.0, "upper": 1.0, "precision": 2.0**-16, "corrupt": 0.0}
PRIVACY: dict[str, object] = {"epsilon": 1.0, "delta": 1e-6}


def issues_of(protocol: str, parties: int, **given: object) -> list[ConfigIssue]:
    parameters, issues = checker_of(protocol, session_protocol(protocol).version)(given, parties)
    assert (parameters is None) == bool(issues)
    return list(issues)


@pytest.mark.parametrize("total", [True, "Checked", "", 1])
def test_another_value_is_refused(total: object) -> None:
    [issue] = issues_of("secagg", 6, length=2, total=total, **BOUNDS)
    assert issue.where == "total"
    assert "must be 'checked' or 'unchecked'" in issue.reason


RECORDS: dict[str, object] = {
    **PRIVACY,
    "ask": ["count"],
    "records": {"max_rows": 10, "columns": {"age": {"lower": 0.0, "upper": 100.0}}},
}


def test_statistics_of_records_are_checked_too() -> None:
    assert not issues_of("secagg", 6, total="checked", **RECORDS)
    check = checker_of("secagg", session_protocol("secagg").version)
    for parties, has_checkers in ((6, False), (10_001, True)):
        parameters, _ = check({**RECORDS, "total": "checked"}, parties)
        assert parameters is not None
        assert parameters.has_checkers is has_checkers


FITTED: dict[str, object] = {"ask": "logistic(ill ~ age)", "steps": 2}
ROWS: dict[str, object] = {
    "max_rows": 100,
    "rows_expected": 500,
    "columns": {
        "age": {"lower": 0.0, "upper": 100.0},
        "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0},
        "sex": {"values": ["f", "m"]},
    },
}


@pytest.mark.parametrize(
    "asked",
    [
        PRIVACY | {"ask": ["count"]},
        PRIVACY | {"ask": "sex", "corrupt": 0.0, "dropout": 0.0},
        PRIVACY | FITTED,
        FITTED,
        {"ask": "random_effects(age, 100)"},
    ],
    ids=["count", "table", "noisy fit", "exact fit", "exact effects"],
)
def test_every_request_about_records_is_checked(asked: dict[str, object]) -> None:
    """All requests that the parameters stand for, each step of a regression among them."""
    check = checker_of("secagg", session_protocol("secagg").version)
    for written, is_checked in (({}, True), ({"total": "checked"}, True), ({"total": "unchecked"}, False)):
        parameters, issues = check({**asked, "records": ROWS, **written}, 6)
        assert parameters is not None, issues
        assert {one.is_checked for one in (parameters, *parameters.requests)} == {is_checked}


@pytest.mark.parametrize("asked", [PRIVACY | {"ask": ["count"]}, PRIVACY | FITTED, FITTED])
def test_the_default_counts_the_elements_of_what_is_asked(
    asked: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No schema that is quick to plan has 100,000 elements: the bound is lowered to those of this one."""
    check = checker_of("secagg", session_protocol("secagg").version)
    given = {**asked, "records": ROWS}
    elements = check(given, 6)[0].encoding.ring_length
    for bound, is_checked in ((elements, True), (elements - 1, False)):
        monkeypatch.setattr(params, "MAX_BY_DEFAULT", bound)
        parameters, issues = check(given, 6)
        assert (issues, parameters.is_checked) == ([], is_checked)


@pytest.mark.parametrize(("precision", "lane"), [(1e-3, 4), (1e-12, 8)])
def test_the_mask_of_a_blinding_follows_the_masks_of_the_elements(precision: float, lane: int) -> None:
    """64 bytes of the keystream of AES-256-CTR after the lanes of the elements: none hides two secrets."""
    encoding = Encoding.plan(length=3, lower=-9.0, upper=9.0, precision=precision, parties=4)
    parameters = SecAggParameters(encoding, plan_secagg(4, dropout=0.0, corrupt=0.0), total="checked")
    seed, after = bytes(range(32)), lane * encoding.ring_length
    assert (encoding.element_bytes <= 4) == (lane == 4)
    mask = int.from_bytes(keystream(seed, after, 64), "little") % ORDER
    for sign in (1, -1):
        masks = Masks([seed], sign, [], [])
        masked = checked_total._with_masks(parameters, (7).to_bytes(32, "little"), masks)
        assert int.from_bytes(masked, "little") == (7 + sign * mask) % ORDER
    # What comes before hides the elements.
    zeros = encoding.zeros()
    add_masks(zeros, [seed], [1])
    assert zeros.astype(f"<u{lane}").tobytes() == keystream(seed, 0, after)
