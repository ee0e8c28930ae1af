"""`smpc-dp keygen`: a new identity."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from smpc_dp.console.output import print_struct
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.identity.address import check_address
from smpc_dp.identity.keys import CHECKPOINTS, Identity, checkpoint_key_file
from smpc_dp.identity.roster import Role
from smpc_dp.identity.words import entry_words
from smpc_dp.session.session_file import roster_entry


class PrintedIdentity(msgspec.Struct, frozen=True):
    """JSON output: a new member's roster entry, its words to compare, and where its secret key is."""

    name: str
    role: Role
    address: str | None
    public_key: str
    certificate: str
    words: str
    key_file: str
    checkpoint_key: str | None


def keygen(
    name: Annotated[str, typer.Argument(help="Who: a-z, 0-9, '_', '.', '-'; at most 63 characters.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.key.")] = Path("keys"),
    role: Annotated[Role, typer.Option(help="Role in the printed entry.")] = "party",
    address: Annotated[
        str | None,
        typer.Option(
            help="host:port, or of an aggregator wss://host/path, in the printed entry; needed unless it is "
            "a party."
        ),
    ] = None,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints", help="Of an aggregator: also a key for checkpoints, in NAME.checkpoints."
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the entry of an existing key, make none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entry as JSON.")] = False,
) -> None:
    """Make a new identity and print its roster entry.

    Writes an Ed25519 key to NAME.key (mode 0600; never over an existing one). The entry is public and
    goes into the session file; its words are for comparing it by voice.
    """
    _check_address(role, address)
    if checkpoints and role != "aggregator":
        raise ConfigError.at("--checkpoints", f"a {role} signs no checkpoints", ConfigCheck.CONFLICT)
    path = out / f"{name}.key"
    identity = Identity.load(path, name) if show else Identity.generate(name)
    second = checkpoint_key_file(path) if checkpoints else None
    signer = None
    if second is not None:
        signer = Identity.load(second, CHECKPOINTS) if show else Identity.generate(CHECKPOINTS)
    member = identity.entry(role, address, None if signer is None else signer.public_key)
    entry = roster_entry(member)
    if not show:
        try:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{out}: cannot make the folder ({error.strerror})") from None
        identity.save(path)
        if second is not None and signer is not None:
            signer.save(second)
    if as_json:
        print_struct(
            PrintedIdentity(
                name=name,
                role=role,
                address=address,
                public_key=member.public_key.hex(),
                certificate=b64encode(member.certificate).decode("ascii"),
                words=entry_words(member),
                key_file=str(path),
                checkpoint_key=None if signer is None else signer.public_key.hex(),
            )
        )
        return
    if not show:
        typer.echo(f"{path}: the secret key of '{name}', for this machine only", err=True)
    typer.echo(f"words of the entry: {entry_words(member)}", err=True)
    typer.echo(entry)


def _check_address(role: Role, address: str | None) -> None:
    """Raise ConfigError for an invalid address, or for a missing one if the role needs an address."""
    if address is None:
        if role != "party":
            raise ConfigError.at(
                "--address", f"is needed for the role '{role}': host:port", ConfigCheck.MISSING
            )
        return
    try:
        check_address(address, role)
    except ValueError as error:
        raise ConfigError.at("--address", str(error), ConfigCheck.FORMAT) from None
