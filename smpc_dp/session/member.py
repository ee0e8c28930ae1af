"""A member of a session on this machine: its session file, key, endpoint and contexts."""

from __future__ import annotations

import asyncio
import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.decoding import Buffer
from smpc_dp.errors import Check, ConfigCheck, ConfigError, PeerFault
from smpc_dp.identity.address import WebAddress, is_web_address, split_address
from smpc_dp.identity.keys import CHECKPOINTS, Identity, checkpoint_key_file
from smpc_dp.logs.seen import SUFFIX, SeenRuns
from smpc_dp.session.room import check_room
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.session.tasks import task_of
from smpc_dp.transport.endpoint import SMALL_BUDGET, Endpoint
from smpc_dp.transport.framing import MAX_FRAME, InflightBudget
from smpc_dp.transport.interfaces import PeerEndpoint
from smpc_dp.transport.spool import SpoolFolder
from smpc_dp.web_settings import DEFAULT, WebSettings
from smpc_dp.wire.envelope import EVERYONE, Envelope
from smpc_dp.wire.large_fields import LARGE
from smpc_dp.wire.signing import Context, decode_envelope, envelope_buffers, group_operation

if TYPE_CHECKING:
    from smpc_dp.encoding import Encoding
    from smpc_dp.engine.run import Run
    from smpc_dp.engine.session_protocol import OpenedOnce
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.sampling import NoiseSource
    from smpc_dp.session.memory.one_process import OneProcess

# Bytes of large messages that a member receives at a time, or four messages if that is more: on disk where it
# is an aggregator, else in memory.
MIN_BUDGET = 64 << 20
# Least time, in seconds, before a message is too slow for a budget that others wait for.
MIN_GRACE = 0.25
# The name of the folder of certificates.
CERTIFICATES = "certificates"
# The request number precedes the envelope, so that an aggregator can store early messages.
_REQUEST = struct.Struct(">I")


class ConnectedMember(Protocol):
    """Interface of a member, as connections need it: name, session, identity, and message coding."""

    @property
    def name(self) -> str:
        """The name of this member."""

    @property
    def session(self) -> SessionFile:
        """The checked session file of this member."""
        ...

    @property
    def identity(self) -> Identity:
        """The key pair and name of this member."""

    def largest_message(self) -> int:
        """The greatest length in bytes of a message that the member accepts."""

    def to_wire(self, request: int, envelope: Envelope) -> tuple[Any, ...]:
        """Encode a message of a request as the buffers that a channel sends."""

    def from_wire(self, message: Any, sender: str) -> tuple[int, Envelope]:
        """Decode what a peer sent into (request, message); raise PeerFault if it is malformed."""


@dataclass(frozen=True, slots=True)
class Membership:
    """One member of a session in this process: its checked session file, identity and parameters.

    `parameters`: of the session's sums, as of `requests_of`. `group`: the parties of a group's request, in
    roster order; None: all parties. `one_process`: the objects that the members of a simulation share. `web`:
    settings of connections over HTTPS.
    """

    session: SessionFile
    identity: Identity
    parameters: Any
    key_file: Path
    group: tuple[str, ...] | None = None
    one_process: OneProcess | None = None
    web: WebSettings = DEFAULT

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        name: str | None,
        key: str | os.PathLike[str] | None = None,
        role: str = "party",
        loaded: SessionFile | None = None,
        web: WebSettings | None = None,
    ) -> Membership:
        """Read a member's session file and key, and return the member; an error if anything is wrong.

        Args:
            path: the session file.
            name: the member; it must be in the roster, in this role. None: the session's aggregator.
            key: its identity file; by default `keys/NAME.key` beside the session file.
            loaded: the session file, where it has been read before.
            web: settings of connections over HTTPS, where the aggregator has an address `wss://host/path`.

        Raises:
            ConfigError, LocalError: the file, the name or the key is wrong.
        """
        session = loaded or load_session(path)
        # Each request of a learner has its own parameters: `of_group`.
        parameters = requests_of(session)[0]
        names = [member.name for member in session.roster]
        aggregator = session.roster.aggregator
        if name is None:
            if aggregator is None:
                raise ConfigError.at("roster", "has no aggregator", ConfigCheck.MISSING)
            name = aggregator.name
        if name not in names:
            reason = f"{name!r} is not in {path} (members: {', '.join(names[:20])})"
            raise ConfigError.at("roster", reason, ConfigCheck.UNKNOWN_NAME)
        member = session.roster.member(name)
        if member.role != role:
            raise ConfigError.at(
                "roster", f"'{name}' is {member.role}, not {role}, in {path}", ConfigCheck.CONFLICT
            )
        served = aggregator is not None and is_web_address(aggregator.address or "")
        if web is not None and not served:
            reason = "settings of HTTPS are for an aggregator at wss://, which this session has not"
            raise ConfigError.at("web", reason, ConfigCheck.CONFLICT)
        key_file = Path(key if key is not None else default_key(path, name))
        identity = load_identity(key_file, name, member.public_key, f"roster[{name}].public_key")
        return cls(session, identity, parameters, key_file, web=web or DEFAULT)

    @property
    def name(self) -> str:
        """The name of the member that this process acts for."""
        return self.identity.name

    def checkpoint_identity(self) -> Identity | None:
        """Return the key that signs an aggregator's log checkpoints; None if there are none.

        Raises LocalError if there is no such file, ConfigError if it has another key than the session names.
        """
        expected = self.session.roster.member(self.name).checkpoint_key
        if expected is None:
            return None
        key_file = checkpoint_key_file(self.key_file)
        return load_identity(key_file, CHECKPOINTS, expected, f"roster[{self.name}].checkpoint_key")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parties of a request (of all, or of a group), in roster order."""
        if self.group is not None:
            return self.group
        return self.session.roster.party_names

    def of_group(self, parameters: Any, names: tuple[str, ...]) -> Membership:
        """Return a copy for a request of the named group, with parameters for the group's size.

        `names` are in roster order.
        """
        return replace(self, parameters=parameters, group=names)

    def address(self, listen_on: str | None) -> tuple[str, int]:
        """Return host and port to bind, by default those of the roster; raise ConfigError for no address."""
        try:
            address = self.session.roster.member(self.name).address or ""
            if listen_on is None and is_web_address(address):
                return WebAddress.parse(address)[:2]
            return split_address(listen_on or address)
        except ValueError as error:
            raise ConfigError.at("listen_on", str(error), ConfigCheck.FORMAT) from None

    def endpoint(self, *, aggregator: bool = False) -> PeerEndpoint:
        """Return the member's transport endpoint, with size and time limits of the session.

        An aggregator stores large messages on disk and bounds that, and with it the time of each. Raises
        LocalError unless it has that disk, and the memory for totals.
        """
        timeouts = self.session.timeouts
        if self.one_process is not None:
            return self.one_process.connections.endpoint(self.name, timeouts.connect)
        largest, others = self.largest_message(), max(1, len(self.session.roster) - 1)
        inflight = max(MIN_BUDGET, 4 * largest)
        spools = SpoolFolder.of_system() if aggregator and largest > MAX_FRAME else None
        if spools is not None:
            # As much again of messages that were too slow.
            check_room(spools, 2 * inflight, largest)
        return Endpoint(
            identity=self.identity,
            roster=self.session.roster,
            session_digest=self.session.digest,
            session=self.session.canonical,
            connect_timeout=timeouts.connect,
            frame_timeout=timeouts.step,
            message_timeout=timeouts.step / 2 if aggregator else math.inf,
            max_message=largest,
            budget=_budget(inflight, largest, others, timeouts.step, spools),
            small_budget=_budget(SMALL_BUDGET, min(largest, MAX_FRAME), others, timeouts.step),
            web=self.web,
        )

    @property
    def aggregator(self) -> str:
        """The name of the aggregator, or the constant EVERYONE in a session without one."""
        aggregator = self.session.roster.aggregator
        return EVERYONE if aggregator is None else aggregator.name

    @property
    def certificate_folder(self) -> Path:
        """The folder of certificates that convict other parties of cheating, beside the key."""
        return self.key_file.with_name(CERTIFICATES)

    @property
    def runs_seen(self) -> SeenRuns:
        """The party's stored record of session logs that it has seen, in a file beside its key."""
        # By the member's name: key files need no suffix.
        return SeenRuns(self.key_file.with_name(self.name + SUFFIX))

    @property
    def opened_tables(self) -> OpenedOnce | None:
        """The party's record of which exact tables were opened; None if the session opens none."""
        return self.session.described.opened_once(self)

    @property
    def servers(self) -> tuple[str, ...]:
        """Names of the session's computing servers, in roster order."""
        return tuple(member.name for member in self.session.roster.servers)

    @property
    def encoding(self) -> Encoding:
        """Encoding of the session's vectors; raises ConfigError if it has none."""
        task = task_of(self.session)
        if not task.has_vectors:
            raise task.error_of_other_request(self.session)
        encoding: Encoding = self.parameters.sum_encoding
        return encoding

    def refuse_others(self, *tasks: str) -> None:
        """Raise ConfigError unless the session's task (what it computes) is among those named."""
        task = task_of(self.session)
        if task.name not in tasks:
            raise task.error_of_other_request(self.session)

    async def load_generators(self) -> None:
        """Load the commitment generators in a thread; does nothing unless totals are checked."""
        await asyncio.to_thread(self.load_generators_blocking)

    def load_generators_blocking(self) -> None:
        """Load the commitment generators in this thread, if the session checks totals."""
        lengths = [one.shape[0] for one in self.session.checked_parameters.requests if one.is_checked]
        if lengths:
            # Not at the top: most sessions need none.
            from smpc_dp import generator_cache

            generator_cache.load_generators(max(lengths), 2)

    def context(self, request: int, operation: str = "") -> Context:
        """Return the context (session, request, names, keys) that the messages of a request are bound to."""
        names, keys = self.names, self.session.roster.keys
        protocol, version = self.session.protocol, self.session.version
        if self.group is not None:
            # A party that takes this request for another group's has another operation, and is not added up.
            operation = group_operation(operation, names)
            protocol, version = self.parameters.protocol, self.parameters.group_version
            speakers = {*names, self.aggregator, *self.servers}
            keys = {name: key for name, key in keys.items() if name in speakers}
        return Context(
            protocol=protocol,
            version=version,
            session_digest=self.session.digest,
            request=request,
            names=names,
            aggregator=self.aggregator,
            keys=keys,
            operation=operation,
            grouped=self.group is not None,
        )

    def event(self) -> Event:
        """Return the privacy event that a ledger charges for one request."""
        return self.session.described.event(self.parameters)

    def maker(self, make: Callable[..., Run[Any]]) -> Callable[..., Run[Any]]:
        """Return `make`, or in a simulation a version that gives runs the member's seeded randomness."""
        return make if self.one_process is None else self.one_process.maker(self.name, make)

    def claim(self, planned: str) -> str:
        """Return a learner's privacy claim, marked as a simulation's if it is one."""
        return planned if self.one_process is None else f"a simulation of: {planned}"

    @property
    def random(self) -> Randomness:
        """Source of random bytes for draws outside of runs: the system's, or a simulation's seed."""
        seeded = {} if self.one_process is None else self.one_process.sources
        return seeded.get(self.name) or SystemRandomness()

    def noise_source(self) -> NoiseSource:
        """Return a noise source outside of runs: the system's, or a new one of a simulation."""
        if self.one_process is not None:
            return self.one_process.noise_source(self.name)
        # Not at the top: few sessions have such noise.
        from smpc_dp.privacy.sampling import NoiseSource

        return NoiseSource.system()

    def to_wire(self, request: int, envelope: Envelope) -> tuple[Any, ...]:
        """Return what a channel sends for a message: encoded buffers, or the object in a simulation."""
        return to_wire(request, envelope) if self.one_process is None else (request, envelope)

    def from_wire(self, message: Any, sender: str) -> tuple[int, Envelope]:
        """Return (request number, envelope) of a received message; raise PeerFault if malformed."""
        received: tuple[int, Envelope] = from_wire(message, sender) if self.one_process is None else message
        return received

    def largest_message(self) -> int:
        """Return an upper bound in bytes on valid messages; larger ones are refused."""
        planned = (self.parameters,) if self.group is not None else requests_of(self.session)
        servers = len(self.servers)
        bounds: list[int] = [one.largest_message(servers) for one in planned]
        return max(bounds)


def _budget(
    size: int, largest: int, others: int, step: float, spools: SpoolFolder | None = None
) -> InflightBudget:
    """Return a limit on the bytes of messages under way, with the least speed at which each peer must send.

    While some wait, each must come as fast as it takes for all to come in time.
    """
    seconds = step * (size // largest) / others
    return InflightBudget(size, largest / seconds, max(seconds / 4, MIN_GRACE), spools)


def requests_of(session: SessionFile) -> tuple[Any, ...]:
    """Return the parameters of each kind of request in a session; raise ConfigError if it cannot run."""
    result = session.checked_parameters.requests
    aggregator = session.roster.aggregator
    if not result or (aggregator is None and session.topology == "aggregator"):
        raise ConfigError.at("protocol", f"{session.protocol!r} cannot be run", ConfigCheck.UNSUPPORTED)
    session.described.check_requests(session.parameters, result)
    if aggregator is not None and aggregator.address is None:
        raise ConfigError.at(
            "roster", f"the aggregator '{aggregator.name}' has no address", ConfigCheck.MISSING
        )
    return result


def load_identity(key_file: str | os.PathLike[str], name: str, public_key: bytes, where: str) -> Identity:
    """Read a member's key file; raise ConfigError unless it has the expected public key."""
    identity = Identity.load(key_file, name)
    if identity.public_key != public_key:
        raise ConfigError.at(where, "is not the one of the key file", ConfigCheck.DIFFERS)
    return identity


def default_key(session: str | os.PathLike[str], name: str) -> Path:
    """Return the default path of a member's key file, `keys/NAME.key` beside the session file."""
    return Path(session).parent / "keys" / f"{name}.key"


def to_wire(request: int, envelope: Envelope) -> tuple[Buffer, ...]:
    """Encode a request number and an envelope as buffers to send, without copying the body."""
    return _REQUEST.pack(request), *envelope_buffers(envelope)


def from_wire(data: Buffer, sender: str) -> tuple[int, Envelope]:
    """Decode received bytes to (request number, envelope); raise PeerFault that names `sender`.

    The body of a large message is a read-only view of it.
    """
    if len(data) < _REQUEST.size:
        raise PeerFault(sender, "sent a message that is too short", Check.WRONG_LENGTH)
    (request,) = _REQUEST.unpack_from(data)
    encoded = data if len(data) <= LARGE else memoryview(data).toreadonly()
    return request, decode_envelope(encoded[_REQUEST.size :], sender)
