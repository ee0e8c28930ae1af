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
    """Error: a saved request cannot be resumed after its process ended, and was given up."""


class SessionState:
    """What a member keeps of its session between requests; this base class keeps it in memory only.

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
        """Return a new, empty record of the survivors over which all exact sums are taken."""
        return FixedSurvivors()

    def sent(self, random: Randomness) -> SentResults:
        """Return an empty store of the results that the aggregator sends, with a fresh nonce."""
        return SentResults(random)

    def held(self, path: Path, key: bytes) -> StoredResult:
        """Return the store of a party's last result, and of its refusal in the file at `path`."""
        return StoredResult(path, key)

    def exclusions(self) -> dict[str, SmpcError]:
        """Return parties that are excluded from all requests; here none."""
        return {}

    def keep_exclusions(self, errors: Mapping[str, SmpcError]) -> None:
        """Store the excluded parties for later processes; does nothing where state is in memory."""

    # A party's calls

    @property
    def is_under_way(self) -> bool:
        """Whether a saved request waits to be resumed; never where state is in memory."""
        return False

    def following(self, number: int) -> int:
        """Return the number for a call without one, given the last call's number: the next."""
        return number + 1

    def least(self, number: int) -> int:
        """Return the smallest number that a call may give, given the last call's number."""
        return number + 1

    def following_call(self, label: str, steps: int) -> int:  # noqa: ARG002 - of saved runs
        """Return the first request number for a call that gives none: the next one."""
        return self.following(self.number)

    def is_open(self, number: int, scope: bytes = b"") -> bool:  # noqa: ARG002 - of saved runs
        """Return whether a request's run is saved and has not ended; here always false.

        `scope`: of a learner's group; by default that of the last call.
        """
        return False

    def begin_call(self, number: int, operation: str, *, chosen: bool, scope: bytes = b"") -> int:  # noqa: ARG002
        """Note that the request of a call begins, and return its number.

        `chosen`: whether the caller gave the number; `scope`: as of `is_open`. Raises ConfigError where
        another request is under way.
        """
        self.number = number
        return number

    def count_charge(self, number: int) -> None:
        """Count a request as charged, unless it was counted just before."""
        if number != self._counted:
            self._counted, self.charged = number, self.charged + 1

    def is_counted(self, number: int) -> bool:
        """Return whether this request is the one that was counted last."""
        return number == self._counted

    def charge_to(
        self, ledger: Ledger | None, event: Callable[[], Event], *, counts: bool = True, once: bool = False
    ) -> None:
        """Set the ledger for saved runs; does nothing where runs are not saved.

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
        """Return (the party's run, whether it was restored); here the given run, and false.

        Until the release a run goes on with the same input alone. None: it is not compared, and the one of
        the run counts. Raises LostRunError.
        """
        return run, False

    def earlier_messages(self) -> tuple[int, Sequence[Envelope]]:
        """Return the last ended request and this party's messages in it; here (0, ()).

        For parties without an aggregator; nothing where it is not saved any more.
        """
        return 0, ()

    def answer(self, number: int, *, with_result: bool) -> None:
        """Note that the caller has a request's result or error; does nothing where state is in memory."""

    def interrupt(self) -> None:
        """Note that the caller's program fails; does nothing where state is in memory."""

    def end_session(self) -> bool:
        """Return whether a saved run is left to be resumed; here always false."""
        return False

    # An aggregator's requests

    def first_request(self) -> int:
        """Return the number of the first request that this process serves; here 1."""
        return 1

    def last_request(self, count: int) -> int:
        """Return the number of the last of `count` requests that this process serves."""
        return count

    def beside(self, number: int) -> str:  # noqa: ARG002 - of saved runs
        """Return the kind of a saved request that is no sum; here always ""."""
        return ""

    def restored_collection(self, run: Run[Any]) -> Run[Any] | None:  # noqa: ARG002 - of saved runs
        """Return the aggregator's restored run of a request; here always None.

        Raises LostRunError.
        """
        return None

    def begin_collection(self, run: Run[Any], operation: str = "") -> Run[Any]:  # noqa: ARG002
        """Return the aggregator's run of a new request, in a saved form; here the given run."""
        return run

    def end_collection(self, number: int) -> None:
        """Destroy saved states of earlier requests; does nothing where state is in memory."""

    def end_command(self) -> None:
        """Note that all requests of a command are served; does nothing where state is in memory."""

    def close(self) -> None:
        """Release the state to other processes; does nothing where state is in memory."""


def check_can_save(session: SessionFile) -> None:
    """Raise ConfigError if the requests of this session cannot be saved and resumed."""
    unsaved = session.described.unsaved
    reasons = [f"'{session.protocol}' is not saved yet"]
    if unsaved is not None:
        reasons = [unsaved(session.parameters, one) for one in session.checked_parameters.requests]
    for reason in filter(None, reasons):
        raise ConfigError.at("state", f"is not for this session: {reason}", ConfigCheck.UNSUPPORTED)
