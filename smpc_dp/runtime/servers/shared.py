"""A user or a server of computations on shares: its session, its key, its endpoint, and what it compiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.protocols.envelope import Context, group_question
from smpc_dp.protocols.gopa.direct_messages import EVERYONE
from smpc_dp.protocols.mpyc.messages import MAX_QUESTION
from smpc_dp.protocols.mpyc.params import SharedParameters
from smpc_dp.protocols.mpyc.terms import MODULUS_BITS, ProgramTerms
from smpc_dp.protocols.names import MPYC
from smpc_dp.runtime.member import Joined, learning_of
from smpc_dp.runtime.servers.programs import charge_of, compile_question
from smpc_dp.runtime.session_file import SessionFile
from smpc_dp.statistics.shared.pairs import MAX_PARTNERS

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

# Bytes of one message of the bridge.
PIECE = 1 << 18
# Bytes of an opened integer and its place in a message, in decimal; of a fault; of half a pair's output.
OUTPUT_BYTES, FAULT_BYTES, PAIR_BYTES = 2 * MODULUS_BITS[-1] // 6, 32, 8


@dataclass(frozen=True, slots=True)
class SharedMembership(Joined[SharedParameters]):
    """A user or a server of a session that computes on shares."""

    @classmethod
    def _checked(cls, session: SessionFile) -> SharedParameters:
        planned = planned_of(session)
        for parameters in planned:
            if parameters.encoding is not None:
                # What cannot be computed is refused before anybody connects.
                compile_question(parameters, "sum", parameters.users, (), b"")
        # Every request of a learner has its own: `of_group`.
        return planned[0]

    @property
    def encoding(self) -> Encoding:
        """The encoding of the session's vectors; raise ConfigError if it has none."""
        return self.parameters.sums

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers, in roster order."""
        return tuple(member.name for member in self.session.roster.servers)

    def context(self, request: int, question: str = "") -> Context:
        """Return what the machines of request number `request` agree on, with a user's question."""
        roster, names, protocol = self.session.roster, self.names, self.session.protocol
        if self.group is not None:
            # Whoever takes this request for another group's asks something else, and is left out.
            question, protocol = group_question(question, names), MPYC
        return Context(
            protocol=protocol,
            version=self.session.version,
            session_digest=self.session.digest,
            request=request,
            names=names,
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

    def largest_message(self) -> int:
        """Return a bound in bytes on any message of a run: a question, a record's shares, what is opened."""
        planned = planned_of(self.session)
        values = max(64 if one.encoding is None else one.encoding.lanes for one in planned)
        users = max(one.users for one in planned)
        # A server says why it lacks a user's shares; what is opened has all servers' reasons, for few users.
        missing = max(one.users - one.fewest for one in planned)
        faults = max(users, missing * len(self.servers)) * FAULT_BYTES
        each = 64 + MAX_PARTNERS * PAIR_BYTES
        return (64 << 10) + MAX_QUESTION + PIECE + values * OUTPUT_BYTES + users * each + faults


def planned_of(session: SessionFile) -> tuple[SharedParameters, ...]:
    """Return the parameters of every kind of request to servers; raise ConfigError if there are none."""
    checked = session.checked_parameters
    if isinstance(checked, SharedParameters):
        return (checked,)
    learned = learning_of(session)
    if learned is not None and learned.shared:
        return learned.shared
    raise ConfigError([Fault("protocol", f"{session.protocol!r} has no servers")])
