"""Options of the command line that come from a table of settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
import typer
from msgspec import Meta
from typer.testing import CliRunner

from smpc_dp.console.options import option, with_settings


class Table(msgspec.Struct, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, description="lines of a page")]
    share: Annotated[float | int | list[float], Meta(description="of the ink")] = 0.5
    side: Annotated[Literal["left", "right"], Meta(description="where")] = "right"
    deep_print: Annotated[bool, Meta(description="whether `deep`")] = False
    most: Annotated[int | None, Meta(extra={"default": "as many as `size`"})] = None
    ink: str = "black"
    hidden: int = 1


@pytest.fixture
def given() -> dict[str, Any]:
    """What the command was called with."""
    return {}


@pytest.fixture
def app(given: dict[str, Any]) -> typer.Typer:
    made = typer.Typer(rich_markup_mode=None)

    @made.command()
    @with_settings(Table, without=("hidden",), side="left")
    def print_pages(
        pages: Annotated[int, typer.Option(help="How many.")],
        ink: Annotated[str | None, option(Table, "ink", default="any")] = None,
        **settings: Any,
    ) -> None:
        """Print."""
        given.update(settings, pages=pages, ink=ink)

    return made


def test_options_have_the_types_and_defaults_of_the_table(app: typer.Typer, given: dict[str, Any]) -> None:
    assert CliRunner().invoke(app, ["--pages", "2", "--size", "3"]).exit_code == 0
    assert given == {"pages": 2, "ink": None, "size": 3, "share": 0.5, "side": "left", "deep_print": False}
    arguments = [
        "--pages",
        "2",
        "--size",
        "3",
        "--share",
        "1",
        "--side",
        "right",
        "--deep-print",
        "--most",
        "7",
    ]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert given["most"] == 7
    assert (given["share"], type(given["share"])) == (1.0, float)
    assert (given["side"], given["deep_print"]) == ("right", True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pages", "2"],
        ["--pages", "2", "--size", "x"],
        ["--pages", "2", "--size", "3", "--side", "up"],
        ["--pages", "2", "--size", "3", "--hidden", "1"],
    ],
)
def test_wrong_usage(app: typer.Typer, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_help_is_that_of_the_table(app: typer.Typer) -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"], terminal_width=200).stdout.split())
    for text in (
        "Lines of a page (at least 1). [required]",
        "Of the ink. [default: 0.5]",
        "Where. [default: left]",
        "Whether deep. [default: no-deep-print]",
        "most. [default: (as many as size)]",
        "ink. [default: (any)]",
    ):
        assert text in shown
    assert "hidden" not in shown
