"""`smpc-dp vectors`: the published test vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.cli.output import print_json
from smpc_dp.errors import LocalError
from smpc_dp.simulate import vectors

app = typer.Typer(name="vectors", help="Make or check the published test vectors.", no_args_is_help=True)

FOLDER = Path("protocols/secagg/vectors")


@app.callback()
def _group() -> None:
    pass


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Where the published vectors are.")] = FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove that the published vectors are byte for byte what the code produces."""
    if not folder.is_dir():
        raise LocalError(f"{folder}: no such folder; run this in a checkout, or name the folder")
    differences = vectors.check(folder)
    if as_json:
        print_json({"folder": str(folder), "ok": not differences, "differences": differences})
    else:
        for line in differences:
            typer.echo(f"smpc-dp: {folder / line}", err=True)
        if not differences:
            typer.echo(f"{len(vectors.generate())} files in {folder} are what the code produces")
    if differences:
        raise typer.Exit(1)


@app.command()
def write(folder: Annotated[Path, typer.Argument(help="Where to write them.")] = FOLDER) -> None:
    """Write the vectors, over what is there."""
    try:
        names = vectors.write(folder)
    except OSError as error:
        raise LocalError(f"{folder}: cannot write the vectors ({error.strerror})") from None
    typer.echo(f"{len(names)} files written to {folder}")
