"""What the parties of a session compute: the tasks by name, which sessions and commands ask.

A session has one task, as its protocol says (`SessionProtocol.task`); "pairs" and "circuit" are requests
beside the task of a session too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.net.session_file import SessionFile
from smpc_dp.protocols.registry import CAPABILITIES, imported

if TYPE_CHECKING:
    from smpc_dp.net.member import Membership
    from smpc_dp.privacy.accountant.ledger import Ledger

# By its name, where each task is, in the attribute TASKS of the module.
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "vector": "smpc_dp.net.vector_task",
        "records": "smpc_dp.net.records_task",
        "pairs": f"{CAPABILITIES}.pairs.capability",
        "circuit": f"{CAPABILITIES}.pairs.capability",
        "learner": f"{CAPABILITIES}.learn.capability",
        "report": f"{CAPABILITIES}.reports.capability",
    }
)


class Task:
    """One thing that parties compute together. Functions of a task import what they need themselves.

    Attributes:
        name: of the task.
        has_vectors: whether requests have vectors of an encoding.
        is_long_to_plan: whether to plan a session may take an auditor long.
    """

    name: ClassVar[str]
    has_vectors: ClassVar[bool] = True
    is_long_to_plan: ClassVar[bool] = False

    def other(self, session: SessionFile) -> ConfigError:
        """Return the error of a request for another task in a session of this one."""
        reason = f"'{session.protocol}' has no such requests"
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    def lacking(self, session: SessionFile) -> ConfigError:
        """Return the error of a request for this task in a session of another one."""
        reason = f"is '{session.protocol}', which has no such requests"
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    def check_ledger(self, ledger: Ledger, membership: Membership) -> None:
        """Raise PrivacyError or ConfigError for a ledger that is no use in a session, before it connects."""


def find_task(name: str) -> Task:
    """Return the task of this name; raise LookupError if its capability is absent."""
    module = imported(BUILT_IN[name])
    tasks: tuple[Task, ...] = () if module is None else module.TASKS
    for task in tasks:
        if task.name == name:
            return task
    raise LookupError(f"the task {name!r} is absent")


def task_of(session: SessionFile) -> Task:
    """Return what the parties of a session compute."""
    return find_task(session.described.task(session.parameters))


def checked_for(session: SessionFile, task: str) -> Any:
    """Return the checked parameters of a session with this task; raise ConfigError for another session."""
    if task_of(session).name != task:
        raise find_task(task).lacking(session)
    return session.checked_parameters
