"""The folders in which all members of a run on this machine are saved, and the request that they join."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.session.member import Membership, default_key
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.session_state import check_can_save
from smpc_dp.session.tasks import task_of

if TYPE_CHECKING:
    from smpc_dp.session.saved_session import SavedSessionState


class SavedMembers:
    """Folders for the saved states and counters of all members that run on this machine.

    Attributes:
        number: of the request: the latest one that is under way at a member, or else the next one of all.
            None where members number their requests by a plan.
    """

    number: int | None = None

    def __init__(
        self, session: SessionFile, path: Path, keys: Path | None, state: Path | None, counter: Path | None
    ) -> None:
        """`keys`: the folder of keys; `state`: None: nothing is saved.

        Raises ConfigError for a session that is not saved, and the errors of `SavedSessionState`.
        """
        self._state, self._counter = state, counter
        self._aggregator = None if session.roster.aggregator is None else session.roster.aggregator.name
        if state is None:
            if counter is not None:
                raise ConfigError.at("--counter", "is for --state", ConfigCheck.UNSUPPORTED)
            return
        check_can_save(session)
        # Not at the top: most runs are not saved.
        from smpc_dp.session.saved_session import SavedSessionState

        opened: dict[str, SavedSessionState] = {}
        try:
            for entry in session.roster:
                name = entry.name
                key = default_key(path, name) if keys is None else keys / f"{name}.key"
                member = Membership.load(path, name, key, entry.role, session)
                opened[name] = SavedSessionState(member, state / name, self._folder(name))
            if "--number" in task_of(session).refused:
                return
            parties = [opened[name] for name in session.roster.party_names]
            checked: Any = session.checked_parameters
            self.number = _joined([*opened.values()], parties, checked.steps)
            if self._aggregator is not None:
                opened[self._aggregator].skip_to(self.number)
        finally:
            for one in opened.values():
                one.close()

    def options(self, name: str) -> dict[str, object]:
        """Return a member's options for saved states, by name (None: not given); empty if none is saved."""
        if self._state is None or not name:
            return {}
        number = None if name == self._aggregator else self.number
        return {"--state": self._state / name, "--counter": self._folder(name), "--number": number}

    def _folder(self, name: str) -> Path | None:
        """Make and return the folder of a member's counter, None without --counter; LocalError on failure."""
        if self._counter is None:
            return None
        folder = self._counter / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{folder}: cannot make the folder ({error.strerror})") from None
        return folder


def _joined(members: Sequence[SavedSessionState], parties: Sequence[SavedSessionState], steps: int) -> int:
    """Return the number of the request that restarted members join, from their saved states."""
    if steps > 1:
        return max(party.following_call("", steps) for party in parties)
    under_way = [one.number for one in members if one.is_under_way]
    return max(under_way) if under_way else 1 + max(one.number for one in members)
