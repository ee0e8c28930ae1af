"""A whole session in one process: all its members, each with the `Session` or the server of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

from smpc_dp.encoding import shown
from smpc_dp.engine.phases.parameters import MAX_PARTIES
from smpc_dp.engine.registry import find_protocol
from smpc_dp.errors import ConfigCheck, ConfigError, Issues, LocalError, PrivacyError, SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Role, entry_of
from smpc_dp.session.aggregator import log_folder, open_aggregator
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.session.member import Membership, default_key, requests_of
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.randomness import checked_seed, randomness_of
from smpc_dp.session.memory.simulated_run import AGGREGATOR, draw_signers, party_names
from smpc_dp.session.opening import open_connection
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import SessionFile, Timeouts, check_document
from smpc_dp.session.tasks import task_of
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.values import plain_value

T = TypeVar("T")

# Longer than any request of a session with the default timeouts.
QUIET_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class SimulatedSession:
    """A session whose members all run in this process: its session content and all keys.

    Attributes:
        session: the checked content of its file.
        identities: by member.
        shared: by all members.
    """

    session: SessionFile
    identities: Mapping[str, Identity]
    shared: OneProcess

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of the parties, in the roster's order."""
        return self.session.roster.party_names

    def membership(self, name: str, folder: Path) -> Membership:
        """Return the named member of the simulated session, whose files are in `folder`."""
        parameters = requests_of(self.session)[0]
        key_file = default_key(folder / "session.toml", name)
        return Membership(self.session, self.identities[name], parameters, key_file, one_process=self.shared)


@dataclass(frozen=True, slots=True)
class Simulated(Generic[T]):
    """Result of a simulated session: what each party and the aggregator returned, and who was killed.

    Attributes:
        results: by party, its result or the error that ended it.
        served: the results that the aggregator has served, as of `serve`; None without one.
        killed: the parties that were to be killed, and when.
    """

    results: Mapping[str, T | SmpcError]
    served: Any
    killed: Mapping[str, int]

    def result(self, leader: str = "") -> T:
        """Return the result of `leader`, or else a party's; raise the error that explains a failure.

        Raises the error that explains the others. A party's ConfigError, PrivacyError or LocalError, as of
        its input, comes first; then the aggregator's error. Without an aggregator the error of the `leader`
        comes first, then that of any party that was not killed. Where nobody has a result, it raises the
        error of the first party.
        """
        errors = {name: each for name, each in self.results.items() if isinstance(each, SmpcError)}
        for error in errors.values():
            if isinstance(error, ConfigError | PrivacyError | LocalError):
                raise error
        if isinstance(self.served, Sequence) and self.served and isinstance(self.served[0], SmpcError):
            raise self.served[0]
        for name in (leader, *errors):
            if self.served is None and name in errors and name not in self.killed:
                raise errors[name]
        for name in (leader, *self.results):
            if name in self.results and not isinstance(result := self.results[name], SmpcError):
                return result
        raise next(iter(errors.values()))


def simulated_session(
    protocol: str,
    parameters: Mapping[str, object],
    parties: int,
    *,
    seed_for_simulation: int | None = None,
    shared: OneProcess | None = None,
    timeouts: Timeouts | None = None,
    renamed: Mapping[str, str] | None = None,
) -> SimulatedSession:
    """Return a session of so many parties, and an aggregator if needed, in one process; or ConfigError.

    Args:
        protocol, parameters: as in a session file; a key with None is not there, and numbers may be NumPy's.
        seed_for_simulation: determines every secret, so that nothing is secret; None: real randomness.
        shared: the objects that the members share, without their keys and sources.
        timeouts: None: those of a session file.
        renamed: how the caller calls a key, or the roster, in errors.

    Raises:
        ConfigError: every fault of the parameters, named as in `parameters`; there are fewer than 2 parties,
            or more than `MAX_PARTIES`; servers compute.
    """
    renamed = {"roster": "parties", **(renamed or {})}
    if isinstance(parties, bool) or not isinstance(parties, Integral) or not 2 <= parties <= MAX_PARTIES:
        reason = f"2 to {MAX_PARTIES} are needed, not {shown(parties)}"
        raise ConfigError.at(renamed["roster"], reason, ConfigCheck.RANGE)
    described = find_protocol(protocol)
    topology = "aggregator" if described is None else described.topology(parameters)
    if topology not in ("aggregator", "direct"):
        reason = f"a session of '{protocol}' is not simulated as a whole: others than its parties compute"
        raise ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)
    roles: dict[str, Role] = dict.fromkeys(party_names(parties), "party")
    if topology != "direct":
        roles = {AGGREGATOR: "aggregator", **roles}
    seed = checked_seed(seed_for_simulation)
    sources = {name: randomness_of(seed, name) for name in roles}
    keys = {name: signer.key for name, signer in draw_signers(sources).items()}
    identities = {name: Identity(name, key) for name, key in keys.items()}
    members = [
        identities[name].entry(role, f"{name}:1" if role != "party" or topology == "direct" else None)
        for name, role in roles.items()
    ]
    document: dict[str, object] = {
        "protocol": protocol,
        "version": 1 if described is None else described.version,
        "parameters": _plain(parameters),
        "roster": [entry_of(member) for member in members],
    }
    if timeouts is not None:
        document["timeouts"] = asdict(timeouts)
    shared = replace(shared or OneProcess(MemoryConnections()), keys=keys)
    if seed is not None:
        shared = replace(shared, sources=sources)
    try:
        return SimulatedSession(check_document(document), identities, shared)
    except ConfigError as error:
        # The caller gave parameters alone.
        named = {key if key == "roster" else f"parameters.{key}": name for key, name in renamed.items()}
        issues = [
            one._replace(where=named.get(one.where, one.where.removeprefix("parameters.")))
            for one in error.issues
        ]
        raise ConfigError(issues) from None


def refuse_derived(given: Mapping[str, object], derived: Set[str]) -> None:
    """Raise ConfigError that names every given parameter that must not be given, since it is derived."""
    issues = Issues()
    for key in sorted(derived & given.keys()):
        issues.add_issue(key, "follows from the other arguments", ConfigCheck.CONFLICT)
    issues.raise_issues()


def _plain(value: Any) -> Any:
    """Convert a parameter's value to what a session file holds: tuples to lists, and None left out."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else plain_value(value)


async def run_members(
    simulated: SimulatedSession,
    compute: Callable[[Session], Awaitable[T]],
    *,
    folder: Path | None = None,
    on_event: OnEvent = ignore,
) -> Simulated[T]:
    """Run a simulated session: call `compute` with each party's Session, and return all results.

    Run it in a simulation's event loop: with `run_simulation`.

    Args:
        compute: what a party does in its session, which is closed afterwards.
        folder: where the files of the members are, in `keys` and `board`; None: in one that is deleted.
        on_event: called with every event of every member.

    Raises what `compute` and `on_event` raise but for `SmpcError` of `compute`, and the errors of
    `Task.serve_opened`. Where nothing is sent for `QUIET_SECONDS` of simulated time it raises LocalError that
    names the parties that still compute.
    """
    if folder is None:
        with TemporaryDirectory(prefix="smpc-dp-") as made:
            return await run_members(simulated, compute, folder=Path(made), on_event=on_event)
    (folder / "keys").mkdir(exist_ok=True)
    failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def observe(event: Event) -> None:
        try:
            on_event(event)
        except Exception as error:
            # It would end a task of a connection alone.
            if not failed.done():
                failed.set_exception(error)
            raise

    async def take_part(name: str) -> T | SmpcError:
        membership = simulated.membership(name, folder)
        try:
            connection = await open_connection(membership, observe)
            session = Session(membership, connection, observe)
            try:
                return await compute(session)
            finally:
                if not session.closed:
                    await session.close()
        except SmpcError as error:
            return error

    parties = {name: asyncio.ensure_future(take_part(name)) for name in simulated.parties}
    tasks = list[asyncio.Future[Any]](parties.values())
    aggregator = simulated.session.roster.aggregator
    if aggregator is not None:
        serving = _serve(simulated.membership(aggregator.name, folder), folder, observe)
        tasks.append(asyncio.ensure_future(serving))
    tasks.append(asyncio.ensure_future(_watch(simulated.shared.connections, parties)))
    ended = asyncio.gather(*tasks[:-1])
    first: list[asyncio.Future[Any]] = [failed, tasks[-1], ended]
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        await next(one for one in first if one.done())
    finally:
        for task in (*first, *tasks):
            task.cancel()
        await asyncio.gather(*first, *tasks, return_exceptions=True)
    results = {name: task.result() for name, task in parties.items()}
    served = None if aggregator is None else tasks[-2].result()
    return Simulated(results, served, simulated.shared.connections.kill)


async def _watch(connections: MemoryConnections, parties: Mapping[str, asyncio.Future[Any]]) -> None:
    """Wait until nothing is sent for QUIET_SECONDS of simulated time; then raise LocalError."""
    sent = -1
    while connections.sent != sent:
        sent = connections.sent
        await asyncio.sleep(QUIET_SECONDS)
    waiting = [name for name, task in parties.items() if not task.done()]
    names = ", ".join(waiting[:20]) or AGGREGATOR
    raise LocalError(f"nothing was sent for {QUIET_SECONDS} simulated seconds, and there still are: {names}")


async def _serve(membership: Membership, folder: Path, on_event: OnEvent) -> Any:
    """Run the aggregator of a simulated session until all parties have left; return its results."""
    logs = log_folder(membership, folder / "session.toml", None)
    opening = open_aggregator(membership, logs=logs, on_event=on_event)
    return await task_of(membership.session).serve_opened(membership, opening, on_event)
