"""`smpc-dp vectors`: the published test vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.console.output import print_json
from smpc_dp.errors import LocalError

app = typer.Typer(name="vectors", help="Make or check the published test vectors.", no_args_is_help=True)

FOLDER = Path("protocols")


@app.callback()
def _group() -> None:
    pass


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Where NAME/vectors of each protocol is.")] = FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that the code produces the published vectors, byte for byte."""
    from smpc_dp_lab import vectors

    if not folder.is_dir():
        raise LocalError(f"{folder}: no such folder; run this in a checkout, or name the folder")
    folders = {protocol: folder / protocol / "vectors" for protocol in vectors.PROTOCOLS}
    differences = [
        str(path.relative_to(folder) / line)
        for protocol, path in folders.items()
        for line in vectors.check(path, protocol)
    ]
    if as_json:
        print_json({"folder": str(folder), "ok": not differences, "differences": differences})
    else:
        for line in differences:
            typer.echo(f"smpc-dp: {folder / line}", err=True)
        if not differences:
            count = sum(len(list(path.glob("*.json"))) for path in folders.values())
            typer.echo(f"{count} files in {folder} are what the code produces")
    if differences:
        raise typer.Exit(1)


@app.command()
def write(
    folder: Annotated[Path, typer.Argument(help="Where to write NAME/vectors of each protocol.")] = FOLDER,
) -> None:
    """Write the vectors, over what is there."""
    from smpc_dp_lab import vectors

    try:
        count = sum(
            len(vectors.write(folder / protocol / "vectors", protocol)) for protocol in vectors.PROTOCOLS
        )
    except OSError as error:
        raise LocalError(f"{folder}: cannot write the vectors ({error.strerror})") from None
    typer.echo(f"{count} files written to {folder}")
