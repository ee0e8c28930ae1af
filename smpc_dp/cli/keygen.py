"""`smpc-dp keygen`: a new identity."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Annotated, Literal

import typer

from smpc_dp.cli.output import print_json
from smpc_dp.errors import LocalError
from smpc_dp.identity import Identity
from smpc_dp.runtime.session_file import roster_entry


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(keygen)


def keygen(
    name: Annotated[str, typer.Argument(help="Who: a-z, 0-9, '_', '.', '-'; at most 63 characters.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.key.")] = Path("keys"),
    role: Annotated[
        Literal["party", "aggregator"], typer.Option(help="Role in the printed entry.")
    ] = "party",
    address: Annotated[str | None, typer.Option(help="host:port in the printed entry.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entry as JSON.")] = False,
) -> None:
    """Write a new Ed25519 identity (mode 0600) and print its roster entry for the session file."""
    identity = Identity.generate(name)
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"{out}: cannot make the folder ({error.strerror})") from None
    path = out / f"{name}.key"
    member = identity.entry(role, address)
    entry = roster_entry(member)
    identity.save(path)
    if as_json:
        print_json(
            {
                "name": name,
                "role": role,
                "address": address,
                "public_key": member.public_key.hex(),
                "certificate": b64encode(member.certificate).decode("ascii"),
                "key_file": str(path),
            }
        )
        return
    typer.echo(f"{path}: the secret key of '{name}', for this machine only", err=True)
    typer.echo(entry)
