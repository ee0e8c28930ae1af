"""What a member keeps of its session from one request to the next, and the runs of its requests: in memory.

`saved_session.SavedSessionState` keeps the same on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from smpc_dp.engine.phases.last_results import SentResults
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.run import Run
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.session.progress import Progress
from smpc_dp.session.refusals import StoredResult
from smpc_dp.session.session_file import SessionFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from smpc_dp.crypto.randomness import Randomness
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.wire.envelope import Envelope


# A folder; or a state that the caller has opened, and closes.
StateFolder: TypeAlias = "str | os.PathLike[str] | SessionState"


class LostRunError(LocalError):
    """The run of a request ended with its process, and cannot be restored; it was given up."""


class SessionState:
    """What a member keeps of its session: here as long as its process lives, and nothing of runs.

    Attributes:
        saves: whether it outlives the process.
        number: of the newest request.
        operation: that is asked for in it; "" where it is not known.
        charged: how many requests were charged.
        progress: of a call that takes several requests.
    """

    saves: ClassVar[bool] = False
    operation = ""

    def __init__(self) -> None:
        self.number = self.charged = 0
        self._counted = 0
        self.progress = Progress()

    # From one request to the next

    def fixed(self, parties: int) -> FixedSurvivors:  # noqa: ARG002 - where they are read from a file
        """Return the survivors that all exact sums of the session have in common."""
        return FixedSurvivors()

    def sent(self, random: Randomness) -> SentResults:
        """Return the last results that the aggregator has sent; `random` draws its nonce."""
        return SentResults(random)

    def held(self, path: Path, key: bytes) -> StoredResult:
        """Return the last result of a party; arguments as of `StoredResult`."""
        return StoredResult(path, key)

    def exclusions(self) -> dict[str, SmpcError]:
        """Return the parties that the aggregator excludes from all requests, with their errors."""
        return {}

    def keep_exclusions(self, errors: Mapping[str, SmpcError]) -> None:
        """Keep the parties that are excluded from later requests."""

    # A party's calls

    @property
    def is_under_way(self) -> bool:
        """Whether the newest request is saved, and its result was not taken."""
        return False

    def following(self, number: int) -> int:
        """Return the number of a call that gives none; `number`: of the last call."""
        return number + 1

    def least(self, number: int) -> int:
        """Return the least number that a call may give; `number`: of the last call."""
        return number + 1

    def following_call(self, label: str, steps: int) -> int:  # noqa: ARG002 - of saved runs
        """Return the first request of a call of so many requests that gives no number."""
        return self.following(self.number)

    def is_open(self, number: int, scope: bytes = b"") -> bool:  # noqa: ARG002 - of saved runs
        """Tell whether the run of a request is saved, and is not over.

        `scope`: of a learner's group; by default that of the last call.
        """
        return False

    def begin_call(self, number: int, operation: str, *, chosen: bool, scope: bytes = b"") -> int:  # noqa: ARG002
        """Begin the request of a call, or go on with it; return its number.

        `chosen`: whether the caller gave the number; `scope`: as of `is_open`. Raises ConfigError where
        another request is under way.
        """
        self.number = number
        return number

    def count_charge(self, number: int) -> None:
        """Count a charged request, once."""
        if number != self._counted:
            self._counted, self.charged = number, self.charged + 1

    def is_counted(self, number: int) -> bool:
        """Tell whether the request is the last one that was charged."""
        return number == self._counted

    def charge_to(
        self, ledger: Ledger | None, event: Callable[[], Event], *, counts: bool = True, once: bool = False
    ) -> None:
        """Charge the releases of saved runs that follow to a ledger.

        Args:
            event: returns the privacy event of a request.
            counts: whether it is one of the requests that the session's budget is for.
            once: whether the event is of all requests together: it is charged with the first release alone.
        """

    def party_run(
        self,
        run: Run[Any],
        given: NDArray[Any] | None,  # noqa: ARG002 - of saved runs
    ) -> tuple[Run[Any], bool]:
        """Return the role of a party with its input as it is saved, and whether it goes on with a saved run.

        Until the release a run goes on with the same input alone. None: it is not compared, and the one of
        the run counts. Raises LostRunError.
        """
        return run, False

    def earlier_messages(self) -> tuple[int, Sequence[Envelope]]:
        """Return the last request that has ended, and what this party has sent in its run, which is over.

        For parties without an aggregator; nothing where it is not saved any more.
        """
        return 0, ()

    def answer(self, number: int, *, with_result: bool) -> None:
        """Record that the caller has the result, or the error, of a request."""

    def interrupt(self) -> None:
        """Record that the caller's program ends by an exception: it may not have stored its last result."""

    def end_session(self) -> bool:
        """Record durably what the caller has; return whether a run is open, which another process resumes."""
        return False

    # An aggregator's requests

    def first_request(self) -> int:
        """Return the first request that this process serves."""
        return 1

    def last_request(self, count: int) -> int:
        """Return the last request that the command serves, which is for so many."""
        return count

    def beside(self, number: int) -> str:  # noqa: ARG002 - of saved runs
        """Return the step that asks for a saved request beside the session's; "" for one of the session's."""
        return ""

    def restored_collection(self, run: Run[Any]) -> Run[Any] | None:  # noqa: ARG002 - of saved runs
        """Return the role of an aggregator in a request as it goes on, None if it was not begun.

        Raises LostRunError.
        """
        return None

    def begin_collection(self, run: Run[Any], operation: str = "") -> Run[Any]:  # noqa: ARG002
        """Return the role of an aggregator in a new request, for an operation, as it is saved."""
        return run

    def end_collection(self, number: int) -> None:
        """Destroy the states of requests before this one, which has ended."""

    def end_command(self) -> None:
        """Record that all requests of the command are served."""

    def close(self) -> None:
        """Let other processes use the state."""


def check_can_save(session: SessionFile) -> None:
    """Raise ConfigError where the requests of a session are not saved."""
    unsaved = session.described.unsaved
    reasons = [f"'{session.protocol}' is not saved yet"]
    if unsaved is not None:
        reasons = [unsaved(session.parameters, one) for one in session.checked_parameters.requests]
    for reason in filter(None, reasons):
        raise ConfigError.at("state", f"is not for this session: {reason}", ConfigCheck.UNSUPPORTED)
