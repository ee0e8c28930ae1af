"""The task "vector": sums and averages of vectors, and of trees as vectors."""

from __future__ import annotations

from typing import ClassVar

from smpc_dp.net.tasks import Task


class VectorTask(Task):
    """Sums and averages of vectors."""

    name: ClassVar[str] = "vector"


TASKS = (VectorTask(),)
