"""A progress bar on standard error."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from smpc_dp.console.output import progress_console


class Bar:
    """Display of progress on standard error: a bar on a terminal, else one line for each activity."""

    def __init__(self, unit: str, quiet: bool) -> None:
        console = progress_console()
        self._lines = console if not console.is_terminal and not quiet else None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed}}/{{task.total}} {unit}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None)
        self._activity = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._activity:
            self._progress.stop()

    def show(self, activity: str, done: int, of: int) -> None:
        """Show that `done` of `of` steps of an activity are done, on a terminal as a bar."""
        if not self._activity:
            self._progress.start()
        if self._lines is not None and activity != self._activity:
            self._lines.print(activity)
        self._activity = activity
        self._progress.update(self._task, description=activity, completed=done, total=of)
