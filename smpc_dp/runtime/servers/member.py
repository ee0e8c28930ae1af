"""A user or a server of computations on shares: its session, its key, its endpoint, and what it compiles."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.identity import Identity
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.gopa.direct_messages import EVERYONE
from smpc_dp.protocols.mpyc.messages import MAX_QUESTION
from smpc_dp.protocols.mpyc.params import SharedParameters
from smpc_dp.protocols.mpyc.terms import MODULUS_BITS, ProgramTerms
from smpc_dp.runtime.member import MIN_BUDGET, Membership, load_identity
from smpc_dp.runtime.servers.programs import charge_of, compile_question
from smpc_dp.runtime.session_file import SessionFile, load_session
from smpc_dp.statistics.shared.pairs import MAX_PARTNERS
from smpc_dp.transport.endpoint import Endpoint
from smpc_dp.transport.framing import InflightBudget

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

# Bytes of one message of the bridge.
PIECE = 1 << 18
# Bytes of an opened integer and its place in a message, in decimal; of a fault; of half a pair's output.
OUTPUT_BYTES, FAULT_BYTES, PAIR_BYTES = 2 * MODULUS_BITS[-1] // 6, 512, 8


@dataclass(frozen=True, slots=True)
class SharedMembership:
    """A checked session file with servers, and the identity of the member that this process acts for."""

    session: SessionFile
    identity: Identity
    parameters: SharedParameters

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        name: str,
        key: str | os.PathLike[str] | None = None,
        role: str = "party",
        loaded: SessionFile | None = None,
    ) -> SharedMembership:
        """Load session file (unless it is `loaded`) and key; arguments and errors as of `Membership.load`."""
        session = loaded or load_session(path)
        parameters = session.checked_parameters
        if not isinstance(parameters, SharedParameters):
            raise ConfigError([Fault("protocol", f"{session.protocol!r} has no servers")])
        if parameters.encoding is not None:
            # What cannot be computed is refused before anybody connects.
            compile_question(parameters, "sum", parameters.users, (), b"")
        return cls(session, load_identity(session, path, name, key, role), parameters)

    @property
    def name(self) -> str:
        """The member's name."""
        return self.identity.name

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers, in roster order."""
        return tuple(member.name for member in self.session.roster.servers)

    def context(self, request: int, question: str = "") -> Context:
        """Return what the machines of request number `request` agree on, with a user's question."""
        roster = self.session.roster
        return Context(
            protocol=self.session.protocol,
            version=self.session.version,
            session_digest=self.session.digest,
            request=request,
            names=tuple(member.name for member in roster.parties),
            aggregator=EVERYONE,
            keys={member.name: member.public_key for member in roster},
            question=question,
        )

    def terms(self, question: str, users: int, marks: tuple[int, ...], seed: bytes) -> ProgramTerms:
        """Return the terms of what a user asks for."""
        return compile_question(self.parameters, question, users, marks, seed).terms

    def event(self) -> Event:
        """Return what one sum is to a privacy ledger."""
        return charge_of(compile_question(self.parameters, "sum", self.parameters.users, (), b""))

    def endpoint(self) -> Endpoint:
        """Return the member's side of its channels."""
        timeouts = self.session.timeouts
        largest = self.largest_message()
        return Endpoint(
            identity=self.identity,
            roster=self.session.roster,
            session_digest=self.session.digest,
            session=self.session.canonical(),
            connect_timeout=timeouts.connect,
            frame_timeout=timeouts.step,
            message_timeout=math.inf,
            max_message=largest,
            budget=InflightBudget(max(MIN_BUDGET, 4 * largest)),
        )

    def largest_message(self) -> int:
        """Return a bound in bytes on any message of a run: a question, a record's shares, what is opened."""
        encoding = self.parameters.encoding
        values = 64 if encoding is None else encoding.lanes
        return (
            (64 << 10)
            + MAX_QUESTION
            + PIECE
            + values * OUTPUT_BYTES
            + self.parameters.users * (64 + FAULT_BYTES + MAX_PARTNERS * PAIR_BYTES)
        )


def load_member(
    session: str | os.PathLike[str],
    name: str,
    key: str | os.PathLike[str] | None = None,
    role: str = "party",
) -> Membership | SharedMembership:
    """Load a member of a session of any protocol that can be run; arguments as of `Membership.load`."""
    loaded = load_session(session)
    if isinstance(loaded.checked_parameters, SharedParameters):
        return SharedMembership.load(session, name, key, role, loaded)
    return Membership.load(session, name, key, role, loaded)


def encoding_of(membership: Membership | SharedMembership) -> Encoding:
    """Return the encoding of a session's vectors; raise ConfigError if it has none."""
    parameters = membership.parameters
    return parameters.sums if isinstance(parameters, SharedParameters) else parameters.encoding
