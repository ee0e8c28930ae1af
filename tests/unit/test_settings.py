"""Tables of settings: what is checked, what is said of it, and what the reference says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from smpc_dp.errors import ConfigCheck
from smpc_dp.settings import help_of, items, read


class Table(msgspec.Struct, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, le=1 << 40, description="lines of a page")]
    share: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    side: Annotated[Literal["left", "right"], Meta(description="where")] = "right"
    deep: bool = False
    most: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(extra={"default": "as many as there are"})] = None
    names: list[str] = msgspec.field(default_factory=list)


def test_defaults_and_values() -> None:
    good, faults = read(Table, {"size": 3, "share": 0.25})
    assert faults == []
    assert good == {"size": 3, "share": 0.25, "side": "right", "deep": False, "most": None, "names": []}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("size", 0, "must be an integer from 1 to 2^40, is 0"),
        ("size", 2.5, "must be an integer from 1 to 2^40, is 2.5"),
        ("size", True, "must be an integer from 1 to 2^40, is True"),
        ("size", 1 << 2000, "must be an integer from 1 to 2^40, below 2^1023, is an integer of 2001 bits"),
        ("size", None, "is missing"),
        ("share", 1, "must be a number above 0 and below 1, is 1"),
        ("share", float("nan"), "must be a number above 0 and below 1, finite, is nan"),
        ("share", float("-inf"), "must be a number above 0 and below 1, finite, is -inf"),
        ("side", "up", "must be 'left' or 'right', is 'up'"),
        ("deep", 1, "must be true or false, is 1"),
        ("most", -1, "must be an integer of at least 0, is -1"),
        ("names", "ann", "must be an array, is 'ann'"),
        ("depth", 1, "unknown key (known: deep, more, most, names, share, side, size)"),
        ("gone", 1, "is of another table"),
    ],
)
def test_what_is_wrong_is_said(key: str, value: Any, reason: str) -> None:
    given = {"size": 3} | {key: value}
    good, faults = read(Table, given, "page.", refused={"gone": "is of another table"}, explained=("more",))
    assert [(fault.where, fault.reason) for fault in faults] == [(f"page.{key}", reason)]
    assert key not in good


@pytest.mark.parametrize(
    ("key", "value", "check"),
    [
        ("size", 0, ConfigCheck.RANGE),
        ("size", 1 << 2000, ConfigCheck.RANGE),
        ("size", 2.5, ConfigCheck.TYPE),
        ("size", True, ConfigCheck.TYPE),
        ("size", None, ConfigCheck.MISSING),
        ("share", 1, ConfigCheck.RANGE),
        ("share", float("nan"), ConfigCheck.RANGE),
        ("share", "half", ConfigCheck.TYPE),
        ("side", "up", ConfigCheck.CHOICE),
        ("deep", 1, ConfigCheck.TYPE),
        ("most", -1, ConfigCheck.RANGE),
        ("names", "ann", ConfigCheck.TYPE),
        ("names", [1], ConfigCheck.RANGE),
        ("depth", 1, ConfigCheck.UNKNOWN_KEY),
        ("gone", 1, ConfigCheck.UNSUPPORTED),
    ],
)
def test_each_fault_has_its_code(key: str, value: Any, check: ConfigCheck) -> None:
    _, [fault] = read(Table, {"size": 3} | {key: value}, refused={"gone": "is of another table"})
    assert fault.check == check


def test_every_fault_is_told() -> None:
    _, faults = read(Table, {"share": 2, "deep": "yes"})
    assert [fault.where for fault in faults] == ["size", "share", "deep"]


def test_the_reference_has_every_key() -> None:
    assert items(Table, without=["names"]) == [
        "- `size` (needed): 1 to 2^40: lines of a page.",
        "- `share` (0.5): (0, 1).",
        '- `side`: `"left"` or **`"right"`**: where.',
        "- `deep` (`false`): boolean.",
        "- `most` (as many as there are): integer, at least 0.",
    ]


def test_help_has_the_range_and_no_choices() -> None:
    assert help_of(Table, "size") == "Lines of a page (1 to 2^40)."
    assert help_of(Table, "share") == "share; range (0, 1)."
    assert help_of(Table, "side") == "Where."


def test_help_has_no_links() -> None:
    class Linked(msgspec.Struct):
        size: Annotated[int, Meta(description="lines of a page ([how many](#pages)), in all")] = 1

    assert help_of(Linked, "size") == "Lines of a page, in all."
    assert "(#pages)" in items(Linked)[0]
