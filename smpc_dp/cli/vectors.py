"""`smpc-dp vectors`."""

import typer

app = typer.Typer(name="vectors", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass
