"""What the parties of a session compute: the tasks by name, which sessions and commands ask.

A session has one task, as its protocol says (`SessionProtocol.task`); others are requests beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.net.session_file import SessionFile
from smpc_dp.protocols.registry import CAPABILITIES, imported

if TYPE_CHECKING:
    from smpc_dp.kernels.kernel import Kernel
    from smpc_dp.log.keeping import Board
    from smpc_dp.net.member import Membership
    from smpc_dp.net.party_requests import PartyRequests
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.protocols.engine.run import Run
    from smpc_dp.wire.signing import Context

# By its name, where each task is, in the attribute TASKS of the module.
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "vector": "smpc_dp.net.vector_task",
        "records": "smpc_dp.net.records_task",
        "pairs": f"{CAPABILITIES}.pairs.capability",
        "circuit": f"{CAPABILITIES}.pairs.capability",
        "similarities": f"{CAPABILITIES}.pairs.capability",
        "pairs-on-shares": f"{CAPABILITIES}.servers.capability",
        "learner": f"{CAPABILITIES}.learn.capability",
        "report": f"{CAPABILITIES}.reports.capability",
    }
)


# By the step of the hello that asks for it: what can be asked beside the sums of a session.
BESIDE: Mapping[str, str] = MappingProxyType({"statistic-hello": "pairs"})


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

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> Any:
        """Run one request of a party; arguments and result as of the method of `Session` for this task."""
        raise NotImplementedError

    def check_ledger(self, ledger: Ledger, membership: Membership) -> None:
        """Raise PrivacyError or ConfigError for a ledger that is no use in a session, before it connects."""


class BesideTask(Task):
    """A task of requests beside the sums of a session, through its aggregator, by a protocol of their own.

    Attributes:
        hello: the first step, a key of `BESIDE`.
        accuses: the step of a message with evidence against a party, which is stored at once.
    """

    hello: ClassVar[str]
    accuses: ClassVar[str]

    def context(self, context: Context) -> Context:
        """Return the context of a request, in the place of that of a sum."""
        raise NotImplementedError

    def aggregator(
        self, context: Context, membership: Membership, board: Board, kernels: Sequence[Kernel]
    ) -> Run[Any]:
        """Return the aggregator's role in a request with this context, of a sum."""
        raise NotImplementedError


def beside_task(name: str) -> BesideTask:
    """Return the task of this name, of requests beside sums; errors as of `find_task`."""
    return cast("BesideTask", find_task(name))


def beside_of(step: str) -> BesideTask | None:
    """Return the task that a hello of this step asks for; None for a sum, or where it is absent."""
    if step not in BESIDE or imported(BUILT_IN[BESIDE[step]]) is None:
        return None
    return beside_task(BESIDE[step])


def find_task(name: str) -> Task:
    """Return the task of this name; raise ConfigError where the folder of its capability is absent."""
    module = imported(BUILT_IN[name])
    tasks: tuple[Task, ...] = () if module is None else module.TASKS
    for task in tasks:
        if task.name == name:
            return task
    raise ConfigError.at("task", f"'{name}' is not in this installation", ConfigCheck.UNSUPPORTED)


def task_of(session: SessionFile) -> Task:
    """Return what the parties of a session compute."""
    return find_task(session.described.task(session.parameters))


def checked_for(session: SessionFile, task: str) -> Any:
    """Return the checked parameters of a session with this task; raise ConfigError for another session."""
    if task_of(session).name != task:
        raise find_task(task).lacking(session)
    return session.checked_parameters
