"""Two-party evaluations in a session: connection setup, and one evaluation at a time for each pair."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from smpc_dp.capabilities.pairs.garbled.evaluation import Evaluation, Operation
from smpc_dp.capabilities.pairs.garbled.messages import PAIRWISE, VERSION
from smpc_dp.capabilities.pairs.garbled.participant import Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.requests.convictions import Convictions
from smpc_dp.capabilities.pairs.requests.pairwise import (
    Conduit,
    Keep,
    PairwiseMember,
    Report,
    drive,
    run_role,
)
from smpc_dp.capabilities.pairs.roles import PairTransfers, fresh_transfers
from smpc_dp.errors import Code, ConfigCheck, ConfigError, ConfigIssue, TimeoutFault
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.session.deadline import now
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.threads import finish_in_thread
from smpc_dp.transport.acceptor import Acceptor, call
from smpc_dp.transport.blocking import BlockingChannel, Halt
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.endpoint import Endpoint
from smpc_dp.transport.tls import Contexts

OnStep = Callable[[str], None]


def _ignore(_step: str) -> None:
    """Do nothing: the default for callers that do not follow the progress of an evaluation."""
    return


@dataclass(frozen=True, slots=True)
class _PeerCall:
    """Description of one evaluation with a peer: the session of the two, and which of them listens."""

    member: PairwiseMember
    peer: str
    we_listen: bool


class Evaluations:
    """A party's manager of two-party evaluations with other parties of its session, over TLS."""

    def __init__(
        self, session: SessionFile, identity: Identity, contexts: Contexts, convictions: Convictions
    ) -> None:
        """`contexts`: the TLS contexts of the whole session; `convictions`: its parties that are refused."""
        self.convictions = convictions
        self._session = session
        self._identity = identity
        self._contexts = contexts
        self._acceptor: Acceptor | None = None
        self._opening = asyncio.Lock()
        self._locks: dict[str, asyncio.Lock] = {}
        self._transfers: dict[tuple[str, str, bool], PairTransfers] = {}

    def check_peer(self, peer: str) -> None:
        """Raise ConfigError unless `peer` is another party, and either of the two has an address."""
        roster, own = self._session.roster, self._identity.name
        others = [member.name for member in roster.parties if member.name != own]
        if peer not in others:
            raise ConfigError.at(
                "peer",
                f"{peer!r} is no other party (there are: {', '.join(others[:20])})",
                ConfigCheck.UNKNOWN_NAME,
            )
        if not self.is_reachable(peer):
            reason = f"neither '{own}' nor '{peer}' has an address: one of them must be reachable"
            raise ConfigError.at("roster", reason, ConfigCheck.MISSING)

    def is_reachable(self, peer: str) -> bool:
        """Return whether this party or `peer` has an address at which the other can connect."""
        return self._listener(peer) is not None

    async def evaluate(
        self, make: Callable[[], Operation], peer: str, label: str, on_step: OnStep
    ) -> Evaluation:
        """Evaluate a circuit with `peer`, which must ask for an equal evaluation; return the result.

        Evaluations with one peer run one after the other, in the order of the calls. `make` returns the
        operation, in a thread. Raises what `make` raises, ConfigError that names the differences from the
        peer's operation, PeerFault, TimeoutFault.
        """
        # Nothing is awaited before: a call whose operation is made sooner would overtake an earlier one.
        async with self._locks.setdefault(peer, asyncio.Lock()):
            operation = await asyncio.to_thread(make)
            self.convictions.check(peer)
            return await self._evaluate(operation, peer, label, on_step)

    async def _evaluate(self, operation: Operation, peer: str, label: str, on_step: OnStep) -> Evaluation:
        """Evaluate a circuit with `peer`, whose lock the caller holds; return the result."""
        pairing = self._peer_call(operation.plan, peer, label)
        parameters = operation.plan.parameters
        pair = (parameters.garbler, parameters.evaluator, parameters.malicious)
        # An evaluation that fails, or is cancelled while its thread still works, loses them.
        transfers = self._transfers.pop(pair, None) or fresh_transfers(operation.plan)
        role = await asyncio.to_thread(pairing.member.role, operation.rows, transfers=transfers)
        if pairing.we_listen:
            await self._listen()
        loop, halt = asyncio.get_running_loop(), Halt()

        def report_step(step: str) -> None:
            loop.call_soon_threadsafe(on_step, step)

        def work() -> Evaluation:
            patience = self._session.timeouts.gather
            report = self._drive(pairing, role, {}, report_step, halt, self.convictions.keep, patience)
            return operation.answer(report.evaluated, pairing.member.session.digest)

        try:
            answer = await run_role(role, work, halt.now)
        finally:
            halt.now()
        self._transfers[pair] = transfers
        return answer

    async def _listen(self) -> None:
        """Open the party's listening socket, unless it is open."""
        async with self._opening:
            if self._acceptor is None:
                self._acceptor = await finish_in_thread(
                    lambda: Acceptor(self._endpoint(self._session, self._session.timeouts.gather)),
                    Acceptor.close,
                )

    def close(self) -> None:
        """Stop listening at the party's address, and delete all state of oblivious transfers."""
        self._transfers.clear()
        if self._acceptor is not None:
            self._acceptor.close()

    def _listener(self, peer: str) -> str | None:
        """Return the name of the one of two parties that listens, or None if neither has an address."""
        ours = (self._identity.name, peer)
        return next(
            (member.name for member in self._session.roster if member.name in ours and member.address), None
        )

    def _peer_call(self, plan: Plan, peer: str, label: str) -> _PeerCall:
        """Return an evaluation with `peer` as a session of two; its digest binds session, circuit and roles.

        It also binds the label, the evaluator's inputs, the instances, the output, the mode and its level.
        """
        parameters = plan.parameters
        terms: dict[str, object] = {
            "session": self._session.digest.hex(),
            "circuit": plan.circuit.digest.hex(),
            "garbler": parameters.garbler,
            "evaluator": parameters.evaluator,
            "evaluator_inputs": list(plan.evaluator_values),
            "instances": parameters.instances,
            "output": parameters.output,
            "mode": parameters.mode,
            "label": label,
        }
        if parameters.covert:
            terms["covert"] = parameters.covert
        if parameters.malicious:
            terms["security"] = parameters.security
        pair = [self._session.roster.member(name) for name in (parameters.garbler, parameters.evaluator)]
        pair.sort(key=lambda member: self._session.roster.index(member.name))
        session = SessionFile(
            PAIRWISE,
            VERSION,
            terms,
            parameters,
            self._session.timeouts,
            Roster(pair, requires_aggregator=False),
        )
        member = PairwiseMember(session, self._identity, plan)
        return _PeerCall(member, peer, self._listener(peer) == self._identity.name)

    def _endpoint(self, session: SessionFile, patience: float) -> Endpoint:
        """Return this party's transport endpoint, which tries to reach a peer for `patience` seconds."""
        timeouts = session.timeouts
        return Endpoint(
            identity=self._identity,
            roster=session.roster,
            session_digest=session.digest,
            session=session.canonical,
            connect_timeout=patience,
            frame_timeout=timeouts.step,
            prepared=self._contexts,
        )

    async def drive(
        self,
        role: Participant,
        plan: Plan,
        peer: str,
        label: str,
        others: Mapping[str, Conduit],
        halt: Halt,
        keep: Keep,
        begins: float,
    ) -> Report:
        """Connect to `peer`, run a role of an evaluation over the connection, and return its report.

        `plan` and `label` must be the same for both. `halt` ends the evaluation from another thread. `keep`
        is as of `pairwise.drive`. `begins`: the loop's time until which the peer is waited for. Errors as for
        `evaluate`.
        """
        lock = self._locks.setdefault(peer, asyncio.Lock())
        try:
            async with asyncio.timeout_at(begins):
                await lock.acquire()
        except TimeoutError:
            raise TimeoutFault({peer}, "connect", "an earlier evaluation with it is not over") from None
        try:
            pairing = self._peer_call(plan, peer, label)
            if pairing.we_listen:
                await self._listen()
            patience = max(0.0, begins - now())
            return await run_role(
                role,
                lambda: self._drive(pairing, role, others, _ignore, halt, keep, patience),
                halt.now,
            )
        finally:
            halt.now()
            lock.release()

    def _drive(
        self,
        pairing: _PeerCall,
        role: Participant,
        others: Mapping[str, Conduit],
        report_step: OnStep,
        halt: Halt,
        keep: Keep,
        patience: float,
    ) -> Report:
        """Connect to the peer, run the role to its end, close the connection; return the report."""
        channel = self._connect(pairing, halt, patience)
        try:
            return drive(role, {pairing.peer: channel, **others}, report_step, keep)
        except ChannelClosed as closed:
            how = "hung up" if closed.clean else "was cut off"
            raise TimeoutFault({pairing.peer}, role.step, f"it {how}") from None
        finally:
            channel.close()

    def _connect(self, pairing: _PeerCall, halt: Halt, patience: float) -> BlockingChannel:
        """Return an open connection to the peer within `patience` seconds; TimeoutFault if there is none."""
        peer = pairing.peer
        endpoint = self._endpoint(pairing.member.session, patience)
        try:
            if pairing.we_listen and self._acceptor is not None:
                return self._acceptor.claim(endpoint, peer, patience, halt)
            return call(endpoint, peer, patience, halt)
        except ConfigError as error:
            where = f"our evaluation differs from that of '{peer}'"
            raise ConfigError(
                [ConfigIssue(where, issue.reason, issue.check) for issue in error.issues]
            ) from None
        except TimeoutFault as error:
            if error.step == "connect" and not pairing.we_listen:
                raise
            reason = f"it has not asked for an evaluation with '{self._identity.name}' in {patience:.3g} s"
            raise TimeoutFault({peer}, "connect", reason) from None
        except ChannelClosed:
            if halt.halted:
                # This party has cut the connection.
                raise TimeoutFault({peer}, "connect", "the wait for it was ended") from None
            reason = "hung up before the evaluation began"
            raise TimeoutFault({peer}, "connect", reason, code=Code.LOST) from None
