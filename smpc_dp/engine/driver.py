"""Common part of all drivers of a role, whatever the connections: events in, messages out."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.engine.events import Cancellation, Event
from smpc_dp.engine.run import RunningRole
from smpc_dp.errors import SmpcError
from smpc_dp.wire.envelope import Envelope


class Driver:
    """Feeds events to one protocol role through a run; itself sends nothing, reads no clock, never waits.

    Attributes:
        run: the role in the run.
        error: the error that has ended the run for the role; None while there is none.
    """

    def __init__(self, run: RunningRole) -> None:
        self.run = run
        self.error: SmpcError | None = None
        self._reported = ("", -1)

    def act(self, event: Event) -> Sequence[Envelope]:
        """Pass an event to the role; return messages to send, also if the run fails; none after that."""
        if self.error is not None:
            return ()
        try:
            return self.run.handle(event)
        except SmpcError as error:
            return self.cancel(error)

    def cancel(self, error: SmpcError) -> Sequence[Envelope]:
        """End the run with an error, return messages that tell the others; () if an error has ended it."""
        if self.error is not None:
            return ()
        self.error = error
        return self.run.handle(Cancellation(error))

    def progressed(self) -> bool:
        """Tell whether the step, or the number of expected messages, has changed since the last call."""
        before, self._reported = self._reported, (self.run.step, self.run.waiting_count)
        return self._reported != before
