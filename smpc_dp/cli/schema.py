"""`smpc-dp schema`: the schemas of what `--json` prints."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from smpc_dp.console.output import print_table
from smpc_dp.console.schemas import SCHEMAS, schema_of


def schema(
    name: Annotated[str | None, typer.Argument(help="A schema; without it all are listed.")] = None,
) -> None:
    """Print the JSON Schema of what --json prints.

    A printed object has the name and the version of its schema in `schema` and `schema_version`.
    """
    if name is None:
        rows = [(known, listed.version, listed.about) for known, listed in SCHEMAS.items()]
        print_table(None, ("name", "version", "printed by"), rows)
        return
    typer.echo(json.dumps(schema_of(name), indent=2))
