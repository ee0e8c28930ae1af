"""`smpc-dp bench`."""

import typer

app = typer.Typer(name="bench", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass
