"""Oblivious transfers of one garbler with one evaluator: set up once, for all evaluations of a run.

A setup costs as much as some hundred thousand transfers. Roles of several evaluations with the same peer are
given the same `Transfers`. It is held in memory alone, and so for one run of the programs.
"""

from __future__ import annotations

from smpc_dp.crypto.ot import MAX_INDEX, Receiver, Sender


class Transfers:
    """A side's state of oblivious transfers with one peer, kept over evaluations; empty before the first.

    Indices are counted through all evaluations. Both sides compare their next index before each, and make a
    new setup if they differ; a failure in between destroys the setup.
    """

    def __init__(self) -> None:
        self.context = b""
        self._end: Sender | Receiver | None = None

    def __repr__(self) -> str:
        return f"Transfers(next_index={self.next_index})"

    @property
    def next_index(self) -> int:
        """The number of the next oblivious transfer; 0 before a setup."""
        return 0 if self._end is None else self._end.next_index

    def keep(self, context: bytes, end: Sender | Receiver) -> None:
        """Store this side's end of a newly made setup of oblivious transfers, with its context."""
        self.context, self._end = context, end

    def destroy(self) -> None:
        """Delete the oblivious transfer setup, so that the next evaluation makes a new one."""
        self.context, self._end = b"", None

    def make_room(self, rows: int) -> None:
        """Destroy the setup if it has fewer than `rows` indices left; both sides decide alike."""
        if self.next_index + rows > MAX_INDEX:
            self.destroy()

    def sender(self) -> Sender | None:
        """Return the garbler's end of the transfers, or None if there is none."""
        return self._end if isinstance(self._end, Sender) else None

    def receiver(self) -> Receiver | None:
        """Return the evaluator's end of the transfers, or None if there is none."""
        return self._end if isinstance(self._end, Receiver) else None
