"""A whole session in one process: all its members, each with the `Session` or the server of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import numpy as np

from smpc_dp.engine.registry import find_protocol
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, PrivacyError, SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Role, entry_of
from smpc_dp.session.aggregator import log_folder, open_aggregator
from smpc_dp.session.events import OnEvent, ignore
from smpc_dp.session.member import Membership, default_key, requests_of
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.randomness import checked_seed, randomness_of
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.session.opening import open_connection
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import SessionFile, check_document
from smpc_dp.session.tasks import task_of
from smpc_dp.transport.memory_connections import MemoryConnections

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SimulatedSession:
    """A session of this process: its content, and its members' keys.

    Attributes:
        session: the checked content of its file.
        identities: by member.
        shared: what the members share.
    """

    session: SessionFile
    identities: Mapping[str, Identity]
    shared: OneProcess

    @property
    def parties(self) -> list[str]:
        """The names of the parties, in the roster's order."""
        return [member.name for member in self.session.roster.parties]

    def membership(self, name: str, folder: Path) -> Membership:
        """Return a member whose files, if there are any, are in a folder."""
        parameters = requests_of(self.session)[0]
        key_file = default_key(folder / "session.toml", name)
        return Membership(self.session, self.identities[name], parameters, key_file, one_process=self.shared)


@dataclass(frozen=True, slots=True)
class Simulated(Generic[T]):
    """How a simulated session has ended.

    Attributes:
        results: by party, what it has computed, or the error that ended it.
        served: what the aggregator has served; None without one.
        killed: the parties that were to be killed, and when.
    """

    results: Mapping[str, T | SmpcError]
    served: Any
    killed: Mapping[str, int]

    def result(self, leader: str = "") -> T:
        """Return the result of the first party that has one, in a session of one request.

        Raises the error of a party of its own, such as one of its input; that of the aggregator, or without
        one of the `leader`; or that of a party that was not killed: the first that explains the others.
        """
        for each in self.results.values():
            if isinstance(each, ConfigError | PrivacyError | LocalError):
                raise each
        if self.served is not None and isinstance(self.served[0], SmpcError):
            raise self.served[0]
        for name in (leader, *self.results):
            error = self.results.get(name)
            if self.served is None and isinstance(error, SmpcError) and name not in self.killed:
                raise error
        return next(each for each in self.results.values() if not isinstance(each, SmpcError))


def simulated_session(
    protocol: str,
    parameters: Mapping[str, object],
    parties: int,
    *,
    seed_for_simulation: int | None = None,
    shared: OneProcess | None = None,
) -> SimulatedSession:
    """Return a session of so many parties, "party-00001" to "party-N", and an aggregator if it needs one.

    Args:
        protocol, parameters: as in a session file; a key with None is not there, and numbers may be NumPy's.
        seed_for_simulation: determines every secret, so that nothing is secret; None: real randomness.
        shared: what the members share but for their sources.

    Raises:
        ConfigError: every fault of the parameters, named as in `parameters`; servers compute.
    """
    described = find_protocol(protocol)
    topology = "aggregator" if described is None else described.topology(parameters)
    if topology not in ("aggregator", "direct"):
        reason = f"a session of '{protocol}' is not simulated as a whole: others than its parties compute"
        raise ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)
    names = [f"party-{number:05d}" for number in range(1, parties + 1)]
    roles: dict[str, Role] = dict.fromkeys(names, "party")
    if topology != "direct":
        roles = {AGGREGATOR: "aggregator", **roles}
    seed = checked_seed(seed_for_simulation)
    sources = {name: randomness_of(seed, name) for name in roles}
    identities = {name: Identity.from_seed(name, source.bytes(32)) for name, source in sources.items()}
    members = [
        identities[name].entry(role, f"{name}:1" if role != "party" or topology == "direct" else None)
        for name, role in roles.items()
    ]
    document: dict[str, object] = {
        "protocol": protocol,
        "version": 1 if described is None else described.version_for(parameters),
        "parameters": _plain(parameters),
        "roster": [entry_of(member) for member in members],
    }
    shared = shared or OneProcess(MemoryConnections())
    if seed is not None:
        shared = replace(shared, sources=sources)
    try:
        return SimulatedSession(check_document(document), identities, shared)
    except ConfigError as error:
        # The caller gave parameters alone.
        named = [one._replace(where=one.where.removeprefix("parameters.")) for one in error.issues]
        raise ConfigError(named) from None


def _plain(value: Any) -> Any:
    """Return a value of `[parameters]` as a session file has it: without None, NumPy's types and tuples."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


async def run_members(
    simulated: SimulatedSession,
    compute: Callable[[Session], Awaitable[T]],
    *,
    folder: Path | None = None,
    on_event: OnEvent = ignore,
) -> Simulated[T]:
    """Open the session of every party, call `compute` with each, and serve their requests meanwhile.

    Run it in a simulation's event loop: with `run_simulation`.

    Args:
        compute: what a party does in its session, which is closed afterwards.
        folder: where the files of the members are, in `keys` and `board`; None: in one that is deleted.
        on_event: called with every event of every member.

    Raises what `compute` raises but for `SmpcError`, and the errors of `Task.serve_opened`.
    """
    if folder is None:
        with TemporaryDirectory(prefix="smpc-dp-") as made:
            return await run_members(simulated, compute, folder=Path(made), on_event=on_event)
    (folder / "keys").mkdir(exist_ok=True)

    async def take_part(name: str) -> T | SmpcError:
        membership = simulated.membership(name, folder)
        try:
            connection = await open_connection(membership, on_event)
            session = Session(membership, connection, on_event)
            try:
                return await compute(session)
            finally:
                if not session.closed:
                    await session.close()
        except SmpcError as error:
            return error

    tasks: list[asyncio.Future[Any]] = []
    aggregator = simulated.session.roster.aggregator
    if aggregator is not None:
        tasks.append(
            asyncio.ensure_future(_serve(simulated.membership(aggregator.name, folder), folder, on_event))
        )
    parties = [asyncio.ensure_future(take_part(name)) for name in simulated.parties]
    try:
        results = await asyncio.gather(*parties)
        served = None if aggregator is None else await tasks[0]
    except BaseException:
        for task in [*tasks, *parties]:
            task.cancel()
        await asyncio.gather(*tasks, *parties, return_exceptions=True)
        raise
    killed = simulated.shared.connections.kill
    return Simulated(dict(zip(simulated.parties, results, strict=True)), served, killed)


async def _serve(membership: Membership, folder: Path, on_event: OnEvent) -> Any:
    """Serve all requests as the aggregator."""
    logs = log_folder(membership, folder / "session.toml", None)
    opening = open_aggregator(membership, logs=logs, on_event=on_event)
    return await task_of(membership.session).serve_opened(membership, opening, on_event)
