"""What every driver of a role does, whatever connects the role to the others: events in, messages out."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.errors import SmpcError
from smpc_dp.protocols.engine.events import Cancellation, Event
from smpc_dp.protocols.engine.run import Machine
from smpc_dp.wire.envelope import Envelope


class Driver:
    """Takes one role through one run; it sends nothing, reads no clock and never waits.

    Attributes:
        run: the role in the run.
        error: the error that has ended the run for the role; None while there is none.
    """

    def __init__(self, run: Machine) -> None:
        self.run = run
        self.error: SmpcError | None = None
        self._reported = ("", -1)

    def act(self, event: Event) -> Sequence[Envelope]:
        """Give the role an event; return what is to be sent, also where the run ends with an error."""
        if self.error is not None:
            return ()
        try:
            return self.run.handle(event)
        except SmpcError as error:
            return self.cancel(error)

    def cancel(self, error: SmpcError) -> Sequence[Envelope]:
        """End the run with an error, unless one has ended it; return what the others are told."""
        if self.error is not None:
            return ()
        self.error = error
        return self.run.handle(Cancellation(error))

    def progressed(self) -> bool:
        """Tell whether step, or how many are waited for, differ from those at the last call."""
        before, self._reported = self._reported, (self.run.step, len(self.run.waiting_for))
        return self._reported != before
