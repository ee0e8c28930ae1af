"""`smpc-dp schema`: the schemas of what `--json` prints, and the keys of learners in a session file."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from smpc_dp.console.output import print_table
from smpc_dp.console.schemas import SCHEMAS, schema_of
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.extensions import imported

# A remark with a link, which documents alone have.
_REMARK = re.compile(r" \(\[[^]]*\]\([^)]*\)\)")


def schema(
    name: Annotated[str | None, typer.Argument(help="A schema; without it all are listed.")] = None,
    learner: Annotated[str | None, typer.Option(help="Print the keys of this learner instead.")] = None,
) -> None:
    """Print the JSON Schema of what --json prints, or the keys of a learner.

    A printed object has the name and the version of its schema in `schema` and `schema_version`. Keys of a
    learner stand below [parameters] of a session file: default, range and meaning of each.
    """
    if learner is not None:
        if name is not None:
            raise ConfigError.at("--learner", f"stands without NAME, here {name!r}", ConfigCheck.CONFLICT)
        registry = imported("smpc_dp.capabilities.learn.registry")
        if registry is None:
            raise ConfigError.at("--learner", "learners are not installed", ConfigCheck.UNSUPPORTED)
        typer.echo(_REMARK.sub("", "\n".join(registry.keys_of(learner))))
        return
    if name is None:
        rows = [(known, listed.version, listed.about) for known, listed in SCHEMAS.items()]
        print_table(None, ("name", "version", "printed by"), rows)
        return
    typer.echo(json.dumps(schema_of(name), indent=2))
