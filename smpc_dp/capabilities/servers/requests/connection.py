"""A party's connection to the servers of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.servers.requests.programs import (
    charge_of,
    compile_operation,
    statistic_outcome,
    sum_outcome,
    sum_record,
)
from smpc_dp.capabilities.servers.requests.shared import SHARED_HELLO
from smpc_dp.capabilities.servers.secret_sharing.params import threshold_of
from smpc_dp.capabilities.servers.secret_sharing.party import PartyRun
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.statistics.plan import Program
from smpc_dp.encoding import RingVector
from smpc_dp.engine import events
from smpc_dp.engine.result import Outcome
from smpc_dp.errors import LocalError, OtherRequestError, SmpcError
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.session.asked import OwnRequest
from smpc_dp.session.charging import Charge, charge_run
from smpc_dp.session.connection import Connection, Waits
from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.deadline import PATIENCE, StepTimer, hello_seconds
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import OnEvent
from smpc_dp.session.member import Membership
from smpc_dp.session.requests import ServerLostError, ends_session
from smpc_dp.wire.abort import ABORT
from smpc_dp.wire.signing import Context

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger


class _Request:
    """A party's state of one request to computing servers: its role, and the agreed program."""

    def __init__(
        self, membership: Membership, request: int, operation: str, record: list[int], public_label: int = -1
    ) -> None:
        self._parameters = membership.parameters
        self._program: Program | None = None
        self.request = request
        self.context: Context = membership.context(request, operation)
        self.machine = PartyRun(
            self.context,
            membership.servers,
            membership.identity,
            self._terms,
            record,
            threshold=threshold_of(len(membership.servers)),
            fewest=membership.parameters.fewest,
            public_label=public_label,
        )

    @property
    def program(self) -> Program:
        """Program that the servers compute; raises LocalError before it is agreed on."""
        if self._program is None:
            raise LocalError(f"{self.machine.name}: the run has not begun")
        return self._program

    def _terms(
        self, operation: str, parties: int, public_labels: tuple[int, ...], seed: bytes
    ) -> ProgramTerms:
        """Compile an operation; store its program, and return the terms that all members compare."""
        self._program = compile_operation(self._parameters, operation, parties, public_labels, seed)
        return self._program.terms


class ServerWaits(Waits):
    """Holder of a party's run with servers: time limits, and what servers say of another request."""

    def __init__(self, servers: Sequence[str], first: float, later: float, own: OwnRequest | None) -> None:
        super().__init__(first, later, own)
        self._servers = frozenset(servers)
        # By server, the request that it has shown to be the earliest that can be joined.
        self._shown: dict[str, int] = {}

    async def event_of(self, drive: Drive, inbound: InboundEvent) -> events.Event | None:
        """Return the event that an incoming message or lost connection means to the run, or None."""
        some = self._shown.keys() < self._servers and inbound.peer in self._shown
        if some and inbound.envelope is not None and inbound.envelope.step == ABORT and not drive.run.run_id:
            # It follows what this server has shown; others may still show the same.
            return None
        return await super().event_of(drive, inbound)

    def _is_shown(self, peer: str, error: OtherRequestError) -> bool:
        """Note which request a server names in a refusal; return whether most servers name that one."""
        self._shown[peer] = error.next
        return 2 * [*self._shown.values()].count(error.next) > len(self._servers)


class ServersConnection(Connection):
    """A party's connections to all computing servers of a session, over which it makes requests."""

    @classmethod
    async def open(cls, membership: Membership, on_event: OnEvent) -> ServersConnection:
        """Connect a party to all computing servers, and return the connection."""
        connection = cls(membership, on_event)
        endpoint = membership.endpoint()
        dialled = [asyncio.ensure_future(endpoint.dial(name)) for name in membership.servers]
        try:
            pool = connection.connections
            called = dict(zip(membership.servers, dialled, strict=True))
            pool.awaited.begin(0, "", lambda: [name for name, task in called.items() if not task.done()])
            for channel in await pool.awaited.follow(asyncio.gather(*dialled), endpoint.connect_timeout):
                pool.welcome(channel)
        except BaseException:
            for task in dialled:
                task.cancel()
            for ended in await asyncio.gather(*dialled, return_exceptions=True):
                if not isinstance(ended, BaseException):
                    ended.abort()
            raise
        return connection

    async def run(
        self,
        request: int,
        operation: str,
        ring_vector: RingVector,
        charge: Charge,
        membership: Membership | None = None,
        before: int = 0,
        label: str | None = None,
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in one sum of all parties or a group; return (result, ledger's receipt or None)."""
        member = membership or self.membership
        parameters, servers = member.parameters, len(member.servers)
        requested = _Request(
            member, request, operation, sum_record(parameters.sum_encoding, ring_vector.tolist())
        )
        own = OwnRequest.of(member, request, operation, label, SHARED_HELLO)
        receipt = await self._drive(requested, charge, before, own)
        opened = requested.machine.result
        return sum_outcome(requested.context, parameters, servers, requested.program, opened), receipt

    async def statistic(
        self,
        request: int,
        kernel: Kernel,
        data: Any,
        public_label: int | None,
        operation: str,
        zetas: tuple[float, float] | None,
        ledger: Ledger | None,
    ) -> StatisticResult:
        """Take part in one pairwise statistic; charge the ledger, send shares, return the result."""
        try:
            codes, label = kernel.record(data, public_label)
            await asyncio.to_thread(self._check_operation, operation, label)
        except SmpcError as error:
            await self.decline(request, error)
            raise
        requested = _Request(self.membership, request, operation, [int(code) for code in codes[0]], label)
        charge = partial(charge_run, ledger, lambda: charge_of(requested.program), request)
        receipt = await self._drive(requested, charge)
        opened, servers = requested.machine.result, len(self.membership.servers)
        return statistic_outcome(requested.context, servers, requested.program, opened, zetas).charged(
            receipt
        )

    def _check_operation(self, operation: str, label: int) -> None:
        """Raise ConfigError if no choice of public labels could make the operation possible."""
        parameters = self.membership.parameters
        parties = parameters.parties
        public_labels = () if label < 0 else (1 - label, *(label,) * (parties - 1))
        compile_operation(parameters, operation, parties, public_labels, bytes(32))

    def lost(self, request: int, error: SmpcError) -> SmpcError:
        """Return ServerLostError if `error` ends the session, else `error` itself; raises nothing."""
        at_fault = ends_session(error, self.membership.servers)
        return ServerLostError(f"request {request}: {error}") if at_fault else error

    def _declined(self, membership: Membership, request: int) -> PartyRun:
        """Return the run of a request that this party takes no part in: it has no input."""
        return _Request(membership, request, "", []).machine

    async def _drive(
        self, requested: _Request, charge: Charge, before: int = 0, own: OwnRequest | None = None
    ) -> Receipt | None:
        """Run the party's part to its end; return the ledger's receipt, None if nothing was charged."""
        timeouts = self._timeouts
        later = self.membership.parameters.seconds + PATIENCE * timeouts.step
        # Others may be at earlier requests, each of which may take all of its time.
        earlier = before * (hello_seconds(timeouts) + later)
        waits = ServerWaits(
            self.membership.servers, hello_seconds(timeouts) + timeouts.gather + earlier, later, own
        )
        drive = Drive(
            requested.request,
            requested.machine,
            self.connections,
            StepTimer(timeouts, first=False),
            waits,
            self._on_event,
            peers=self.membership.servers,
            charge=charge,
        )
        return await drive.to_end()
