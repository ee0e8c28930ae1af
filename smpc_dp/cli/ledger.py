"""`smpc-dp ledger`: make and show a party's privacy ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table

from smpc_dp.console.output import console, print_struct
from smpc_dp.privacy.guarantee import Unit


class PrintedCharge(msgspec.Struct, frozen=True, kw_only=True):
    """JSON output: one charge of a privacy ledger, with its own epsilon (None if infinite or unknown)."""

    number: int
    run: str
    label: str
    mechanism: str
    epsilon: float | None
    delta: float | None
    unit: Unit
    date: str | None
    digest: str


class PrintedLedger(msgspec.Struct, frozen=True, kw_only=True):
    """JSON output: a privacy ledger's terms, spent budget (None if infinite) and charges."""

    party: str
    dataset: str
    relation: Literal["substitution", "add-remove"]
    epsilon: float | None
    delta: float
    composition: Literal["fixed", "adaptive"]
    exact: Literal["refused", "outside"]
    identifier: str
    unit: Unit
    spent_epsilon: float | None
    exact_releases: int
    charges: tuple[PrintedCharge, ...]


app = typer.Typer(name="ledger", help="A party's privacy ledger.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Do nothing: group of the commands about privacy ledgers (`smpc-dp ledger ...`)."""
    pass


@app.command()
def create(
    path: Annotated[Path, typer.Argument(help="The new file; never over an existing one.")],
    party: Annotated[str, typer.Option(help="Whose ledger.")],
    dataset: Annotated[str, typer.Option(help="A name for the data that it protects.")],
    epsilon: Annotated[float | None, typer.Option(help="Budget; without it there is a record only.")] = None,
    delta: Annotated[float, typer.Option(help="Budget: 0, or at least 1e-11.")] = 0.0,
    relation: Annotated[
        Literal["substitution", "add-remove"], typer.Option(help="Which inputs are neighbours.")
    ] = "substitution",
    composition: Annotated[
        Literal["fixed", "adaptive"],
        typer.Option(help="adaptive: noise levels may depend on earlier results; costs more."),
    ] = "fixed",
    exact: Annotated[
        Literal["refused", "outside"],
        typer.Option(help="Exact releases: refused, or recorded outside of the budget."),
    ] = "refused",
    unit: Annotated[
        Literal["record", "person", "party"],
        typer.Option(help="What the budget protects: one record, one person's records, or the whole party."),
    ] = "party",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a ledger (mode 0600); what is given here never changes."""
    from smpc_dp.privacy.accountant.ledger import Ledger

    Ledger.create(
        path,
        party=party,
        dataset=dataset,
        relation=relation,
        epsilon=epsilon,
        delta=delta,
        composition=composition,
        exact=exact,
        unit=unit,
    )
    _show(path, as_json)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="The ledger.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a ledger and print its budget, what is spent, and every charge."""
    _show(path, as_json)


def _show(path: Path, as_json: bool) -> None:
    """Print a ledger's terms and charges, as text or JSON."""
    from smpc_dp.privacy.accountant.ledger import Ledger

    ledger = Ledger.open(path)
    entries, terms = ledger.entries(), ledger.terms
    spent = ledger.spent()
    if as_json:
        charges = [
            PrintedCharge(
                number=entry.number,
                run=entry.run,
                label=entry.label,
                mechanism=entry.event.mechanism,
                epsilon=entry.epsilon,
                delta=entry.delta,
                unit=terms.unit,
                date=entry.date,
                digest=entry.digest,
            )
            for entry in entries
        ]
        print_struct(
            PrintedLedger(
                **msgspec.structs.asdict(terms),
                spent_epsilon=spent.epsilon,
                exact_releases=spent.exact_releases,
                charges=tuple(charges),
            )
        )
        return
    out = console()
    whose = f"{terms.relation} of one {terms.unit}"
    out.print(f"{terms.party}: '{terms.dataset}', {whose}, {terms.composition} composition")
    limit = "" if terms.epsilon is None else f"budget epsilon = {terms.epsilon:g} at delta = {terms.delta:g}"
    amount = "without bound" if spent.epsilon is None else f"epsilon = {spent.epsilon:.6g}"
    out.print(f"{limit or 'no budget: a record only'}; spent {amount}")
    if spent.exact_releases:
        out.print(f"{spent.exact_releases} exact releases, exact ones being {terms.exact}")
    table = Table("number", "date", "run", "label", "epsilon", "mechanism")
    for entry in entries:
        alone = "" if entry.epsilon is None else f"{entry.epsilon:.6g}"
        run = f"{entry.run[:16]}…"
        table.add_row(str(entry.number), entry.date or "", run, entry.label, alone, entry.event.mechanism)
    if entries:
        out.print(table)
