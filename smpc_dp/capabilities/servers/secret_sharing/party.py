"""A party of a computation on shares: it shares its record among the servers and receives the result."""

from __future__ import annotations

from collections.abc import Sequence, Set

from smpc_dp.capabilities.servers.secret_sharing import messages as m
from smpc_dp.capabilities.servers.secret_sharing.agreement import (
    NO_SURVIVAL,
    MakeTerms,
    Member,
    common,
    run_identifier,
)
from smpc_dp.capabilities.servers.secret_sharing.sharing import split
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    PeerFault,
    PrivacyError,
    SmpcError,
    TimeoutFault,
)
from smpc_dp.wire.abort import ABORT, LEAVE, NOT_CONNECTED, abort_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context, Signer, decode


class PartyRun(Member):
    """A party's role in one computation on shares: it sends shares to servers, and learns the result.

    `record` holds its integers; `public_label` is its public label, -1 for none. `make` derives the terms
    from the context's operation, the same way for all. `fewest`: the number of parties with which it shares
    its record, and accepts a result.
    """

    releases = frozenset({m.SHARES})

    def __init__(
        self,
        context: Context,
        servers: Sequence[str],
        identity: Signer,
        make: MakeTerms,
        record: Sequence[int],
        *,
        threshold: int,
        fewest: int,
        public_label: int = -1,
        randomness: Randomness | None = None,
    ) -> None:
        super().__init__(context, servers, identity)
        self._make = make
        self._record = tuple(record)
        self._threshold = threshold
        self._fewest = fewest
        self._public_label = public_label
        self._random = randomness or SystemRandomness()
        self._index = context.number(identity.name)
        self._shared = False
        self._start: m.Start | None = None
        self._terms: ProgramTerms | None = None
        self._starts: dict[str, m.Start] = {}
        self._outputs: dict[str, m.Output] = {}

    def __repr__(self) -> str:
        return f"UserMachine({self.name!r}, waits for {len(self.waiting_for)} in {self.step!r})"

    @property
    def step(self) -> str:
        """Name of the server message that the party waits for next, or "done"."""
        return "done" if self._over else m.OUTPUT if self._shared else m.START

    @property
    def waiting_for(self) -> frozenset[str]:
        """The names of servers whose messages of this step are missing."""
        if self._over:
            return frozenset()
        return frozenset(self._servers) - self._done - self._reports.keys() - self._gone

    @property
    def _done(self) -> Set[str]:
        """The names of servers whose messages of this step have arrived."""
        return (self._outputs if self._shared else self._starts).keys()

    def _on_start(self) -> Sequence[Envelope]:
        """Return the hello for every server."""
        context = self._context
        hello = m.Hello(
            context.session_digest,
            context.request,
            context.operation,
            self._public_label,
            self._random.bytes(16),
        )
        return self._write(m.HELLO, self._servers, hello)

    def _on_message(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take a server's message and return the answers; any fault ends the run."""
        if self._over:
            return ()
        try:
            return self._receive(envelope)
        except SmpcError:
            self._end()
            raise

    def _on_lost(self, peers: Sequence[str]) -> Sequence[Envelope]:
        """End the run with TimeoutFault if a server is lost whose output is still needed."""
        servers = frozenset(self._servers) - self._outputs.keys() - self._reports.keys()
        gone = [peer for peer in peers if peer in servers]
        if self._over or not gone:
            return ()
        if self._reports:
            self._gone.update(gone)
            return self._stop_if_all_reported()
        step = self.step
        self._end()
        raise TimeoutFault(gone, step, f"{NOT_CONNECTED}; {NO_SURVIVAL}", code=Code.LOST)

    def _on_deadline(self) -> Sequence[Envelope]:
        """End the run with TimeoutFault that names the servers whose messages have not come."""
        if self._over:
            return ()
        if self._reports:
            self._gone.update(self.waiting_for)
            return self._stop_if_all_reported()
        step, missing = self.step, self.waiting_for
        self._end()
        raise TimeoutFault(missing, step)

    def _on_cancelled(self, error: SmpcError) -> Sequence[Envelope]:
        """Return messages that tell the servers that this party leaves the run."""
        self._end()
        return self._write(LEAVE, self._servers, abort_of(error))

    def _end(self) -> None:
        """Mark the run as ended, and delete the party's record from it."""
        self._over = True
        self._record = ()

    def _receive(self, envelope: Envelope) -> Sequence[Envelope]:
        """Check and store a server's message; return answers once all servers' messages are there."""
        sender = envelope.sender
        if sender not in self._servers:
            raise PeerFault(sender, "only servers speak to a party", Check.WRONG_SENDER)
        if not self._is_new(envelope):
            return ()
        if envelope.step == ABORT:
            self._take_report(envelope)
            return self._stop_if_all_reported()
        if envelope.step == m.START and not self._shared:
            self._starts[sender] = decode(envelope.body, m.Start, sender)
            # Signed under the run that it begins.
            if envelope.run_id != run_identifier(self._context, self._starts[sender]):
                raise PeerFault(sender, f"sent '{m.START}' of another run", Check.OTHER_RUN)
            return self._stop_if_all_reported() if self._reports or self.waiting_for else self._share()
        if envelope.step == m.OUTPUT and self._shared:
            self._check_run(envelope, early=False)
            self._outputs[sender] = decode(envelope.body, m.Output, sender)
            return self._stop_if_all_reported() if self._reports or self.waiting_for else self._finish()
        raise PeerFault(sender, f"sent '{envelope.step}' where '{self.step}' is due", Check.UNEXPECTED_STEP)

    def _stop_if_all_reported(self) -> Sequence[Envelope]:
        """End the run with TimeoutFault once every server has said why it stopped, or is gone."""
        if self._reports and not self.waiting_for:
            raise self._unexplained(self.step, self._done)
        return ()

    def _share(self) -> Sequence[Envelope]:
        """Check that all servers agree on participants and terms; return the shares for each server."""
        starts = {name: self._starts[name] for name in self._servers}
        for name, start in starts.items():
            self._check_start(name, start)
        common(
            {name: (start.present, start.hellos, start.public_labels) for name, start in starts.items()},
            "begins with other parties",
        )
        start = starts[self._servers[0]]
        present = PartySet.unpack(start.present, len(self._context.names), self._servers[0])
        if self._index not in present:
            raise TimeoutFault({self.name}, m.HELLO, "not all servers had this party's hello in time")
        public_labels = (
            () if self._public_label < 0 else tuple(public_label - 1 for public_label in start.public_labels)
        )
        terms = self._make(self._context.operation, len(present), public_labels, start.hellos)
        for name, start in starts.items():
            if terms.digest != start.terms:
                reason = "computes something else than this party asked for"
                raise PeerFault(name, reason, Check.OTHER_PLAN)
        shares = self._split(terms)
        self._start, self._terms = start, terms
        self._run_id = run_identifier(self._context, start)
        self._shared = True
        self._record = ()
        return [
            envelope
            for server, packed_shares in zip(self._servers, shares, strict=True)
            for envelope in self._write(m.SHARES, (server,), m.Shares(packed_shares))
        ]

    def _check_start(self, name: str, start: m.Start) -> None:
        """Raise PeerFault for a server's start message that is wrong in itself."""
        present = PartySet.unpack(start.present, len(self._context.names), name)
        if len(present) < self._fewest:
            raise PeerFault(
                name, f"begins with {len(present)} parties, {self._fewest} are needed", Check.SET_TOO_SMALL
            )
        labels = start.public_labels
        own = present.index(self._index) if self._index in present else None
        if len(labels) != len(present) or (own is not None and labels[own] != self._public_label + 1):
            raise PeerFault(name, "begins with another mark of this party than it gave", Check.LABEL_DIFFERS)
        if max(labels) > 2 or (self._public_label < 0) != (max(labels) == 0):
            raise PeerFault(name, "begins with marks where none are due, or without", Check.LABEL_DIFFERS)

    def _check_included(self, included: Sequence[str]) -> None:
        """Raise PeerFault if the result includes too few parties, or not this party."""
        leader = self._servers[0]
        if len(included) < self._fewest:
            reason = f"and all servers opened a value over {len(included)} parties, {self._fewest} are needed"
            raise PeerFault(leader, reason, Check.SET_TOO_SMALL)
        if self.name not in included:
            raise PeerFault(
                leader, "and all servers left this party out, and did not say so", Check.NOT_INCLUDED
            )

    def _split(self, terms: ProgramTerms) -> list[bytes]:
        """Return each server's encoded share of the record; ConfigError or PrivacyError if it is unfit."""
        record = self._record
        if len(record) != terms.length:
            raise ConfigError.at(
                "record", f"has {len(record)} integers, {terms.length} are due", ConfigCheck.SHAPE
            )
        for index, value in enumerate(record):
            if type(value) is not int:
                raise ConfigError.at(
                    f"record[{index}]", f"must be an integer, is {type(value).__name__}", ConfigCheck.TYPE
                )
            if not terms.lower[index] <= value <= terms.upper[index]:
                low, high = terms.lower[index], terms.upper[index]
                raise PrivacyError(f"{self.name}: record[{index}] is outside {low}..{high}")
        return split(record, terms.prime, self._threshold, len(self._servers))

    def _finish(self) -> Sequence[Envelope]:
        """Check that servers' outputs agree; store the opened integers; end the run; return no messages."""
        if self._terms is not None and self._start is not None:
            outputs = {name: self._outputs[name] for name in self._servers}
            opened = self._open(self._terms, self._start, outputs)
            self._check_included(opened.included)
            self._outcome = opened
        self._end()
        return ()
