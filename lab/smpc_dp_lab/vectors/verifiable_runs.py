"""Small verifiable runs with fixed randomness, in which parties or the aggregator may deviate."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.check import check_for_version
from smpc_dp.capabilities.gopa.verifiable import committing, joining, publishing
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.committing import AwaitCoinsCertificate, AwaitCommitmentsCertificate
from smpc_dp.capabilities.gopa.verifiable.follow import Term, VerifiableMember
from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.capabilities.gopa.verifiable.joining import AwaitNeighbours
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.publishing import AwaitExclusionsCertificate
from smpc_dp.capabilities.gopa.verifiable.statements import signed
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR, PARTY, aggregator, party
from smpc_dp.capabilities.gopa.versions import EARLIER_VERSION, UNBOUNDED_VERSION, VERSION
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.events import Cancellation, Event
from smpc_dp.engine.party import Apply, PartyState
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.engine.state import Transition
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.logs.log import Chain, Entry, Header, decode_line, encode_line
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.canonical_session import canonical_session, session_digest, session_json
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_list
from smpc_dp.wire.signing import Context, decode

S = TypeVar("S", bound=msgspec.Struct)

RELAY = "relay"
# In this one the noise of dan, who cheats, is not 0 in both coordinates, and not the same in both.
RUN = 7
PARTIES = ("ann", "ben", "cyd", "dan", "eve")
PARAMETERS: dict[str, object] = {
    "kind": "integer",
    "length": 2,
    "lower": 0,
    "upper": 4,
    "epsilon": 8.0,
    "delta": 1e-3,
    "dropout": 0.2,
    "corrupt": 0.2,
    "verifiable": True,
}
INPUTS = {"ann": (0, 4), "ben": (1, 3), "cyd": (2, 2), "dan": (4, 1), "eve": (3, 0)}
# The same with a bound on the norm: squares that sum to 25.
BALL_PARAMETERS: dict[str, object] = {
    key: value for key, value in PARAMETERS.items() if key not in ("lower", "upper")
} | {"l2_bound": 5.0}
BALL_INPUTS = {"ann": (-3, 4), "ben": (0, -5), "cyd": (2, 2), "dan": (4, 3), "eve": (-1, 0)}
# The same with bounds of its own for each coordinate: neither box holds the other.
BOX_PARAMETERS: dict[str, object] = PARAMETERS | {"lower": [1, -1], "upper": [4, 3]}
BOX_INPUTS = {"ann": (1, 3), "ben": (4, -1), "cyd": (2, 0), "dan": (4, 2), "eve": (1, -1)}


@dataclass(frozen=True, eq=False)
class Setting:
    """The parties of a run with their values, and the session's parameters and version as a file has them."""

    inputs: Mapping[str, Sequence[int]]
    declared: Mapping[str, object]
    version: int = EARLIER_VERSION


SETTING = Setting(INPUTS, PARAMETERS)
# As logs of earlier versions have it.
OF_VERSION_2 = Setting(INPUTS, PARAMETERS, UNBOUNDED_VERSION)
OF_VERSION_3 = Setting(INPUTS, PARAMETERS, 3)
# Nothing is said of lost and of colluding parties: one is lost, and of version 5 one colludes.
UNSAID = {key: value for key, value in PARAMETERS.items() if key not in ("dropout", "corrupt")}
OF_VERSION_4 = Setting(INPUTS, UNSAID)
OF_VERSION_5 = Setting(INPUTS, UNSAID, VERSION)
BALL = Setting(BALL_INPUTS, BALL_PARAMETERS)
BOX = Setting(BOX_INPUTS, BOX_PARAMETERS)
# As few parties as have a sparse graph, and as little noise.
SPARSE = Setting(
    {f"user-{number:02d}": (number % 3,) for number in range(1, 67)},
    PARAMETERS | {"length": 1, "upper": 2, "epsilon": 4.0, "dropout": 0.05, "corrupt": 0.05},
)
# Of nine parties three may be excluded, and a quorum is left; for the third epsilon is computed anew.
NINE = Setting(
    {
        name: (number % 3,)
        for number, name in enumerate(("ann", "ben", "cyd", "dan", "eve", "fay", "gus", "hal", "ivy"))
    },
    PARAMETERS | {"length": 1, "upper": 2, "epsilon": 3.0, "dropout": 0.12, "corrupt": 0.23},
)

# (the cheater, the step, what it would say) -> what it says instead
Tamper = Callable[["Cheater", str, msgspec.Struct], msgspec.Struct]


class WatchedSecret(proofs.NoiseSecret):
    """Secret bits that record the noise they gave, and may use other coins than the given ones."""

    def __init__(self, drawn: proofs.NoiseSecret) -> None:
        self.use(drawn)
        self.coins_instead: bytes | None = None
        self.given: tuple[int, ...] = ()
        self.blinding = b""

    def use(self, drawn: proofs.NoiseSecret) -> None:
        """Set the secret bits from which noise is then made."""
        self.length, self.bits, self.commitment = drawn.length, drawn.bits, drawn.commitment
        self._drawn = drawn

    def noise(self, coins: bytes) -> list[int]:
        """Return the noise for these coins (or for `coins_instead`), and record it in `given`."""
        noise = self._drawn.noise(coins if self.coins_instead is None else self.coins_instead)
        self.given = tuple(noise)
        return noise

    def prove(
        self, context: bytes, coins: bytes, blinding: bytes, randomness: Randomness
    ) -> tuple[bytes, bytes]:
        """Return commitment and proof of the noise, and record the blinding."""
        self.blinding = blinding
        used = coins if self.coins_instead is None else self.coins_instead
        return self._drawn.prove(context, used, blinding, randomness)


@dataclass(frozen=True, slots=True)
class WatchedMember(VerifiableMember):
    """A party whose secret bits are watched, once it has drawn them."""

    watched: list[WatchedSecret] = field(default_factory=list)

    def noise_secret(self, drawn: proofs.SecretBytes) -> proofs.NoiseSecret:
        """Return the secret bits, one object for all that are made for the party."""
        made = VerifiableMember.noise_secret(self, drawn)
        if self.watched:
            self.watched[0].use(made)
        else:
            self.watched.append(WatchedSecret(made))
        return self.watched[0]


# What a party says after each of these states is an entry of the board.
ENTRIES: tuple[tuple[type[PartyState], Apply, type[msgspec.Struct]], ...] = (
    (AwaitNeighbours, joining.on_neighbours, v.Commit),
    (AwaitCommitmentsCertificate, committing.on_commitments_certificate, v.Coin),
    (AwaitCoinsCertificate, committing.on_coins_certificate, v.Publish),
    (AwaitExclusionsCertificate, publishing.on_exclusions_certificate, v.Open),
)


class Cheater(Run[Outcome]):
    """A party that may send changed messages of its own, and the methods that make them.

    `next` is the state that follows what it says, which it may change as well; `last` the newest one, but for
    that in which it has stopped.
    """

    def __init__(self, run: Run[Outcome], tamper: Tamper | None = None) -> None:
        role = PARTY
        for state, apply, kind in ENTRIES:
            role = role.with_row(state, functools.partial(self._say, apply, kind))
        given = {field.name: getattr(run.member, field.name) for field in dataclasses.fields(run.member)}
        super().__init__(role, WatchedMember(**given), run.state)
        self.next: Any = run.state
        self.last: Any = run.state
        self._tamper = tamper

    @property
    def secret(self) -> WatchedSecret:
        """The party's watched secret bits; raises LocalError before it has committed to them."""
        if not self.member.watched:
            raise LocalError(f"{self.name} has committed to nothing")
        secret: WatchedSecret = self.member.watched[0]
        return secret

    def handle(self, event: Event) -> Sequence[Envelope]:
        """Pass an event to the role, and record its state for later deviations; return messages."""
        try:
            return super().handle(event)
        finally:
            if not isinstance(event, Cancellation):
                self.last = self.state

    def _say(
        self, apply: Apply, kind: type[msgspec.Struct], member: VerifiableMember, state: Any, body: bytes
    ) -> Transition:
        self.next, [sent] = apply(member, state, body)
        if self._tamper is None or self.next.entry is None:
            return Transition(self.next, (sent,))
        message = self._tamper(self, sent.step, decode(sent.body, kind, ""))
        entry = member.write(sent.run_id, sent.step, message)
        return Transition(replace(self.next, entry=entry), (entry,))

    def _change_secrets(self, **changes: Any) -> None:
        self.next = replace(self.next, secrets=replace(self.next.secrets, **changes))

    def fresh_blinding(self) -> bytes:
        """Return a new random blinding of a commitment."""
        return commit.fresh_blinding(self.member.random)

    def fresh_coin(self) -> bytes:
        """Return a new random coin, 32 bytes, which the party has not committed to."""
        coin: bytes = self.member.random.bytes(32)
        return coin

    def use_values(self, values: Sequence[int]) -> bytes:
        """Use other values from now on, and return their commitment with the blinding of the true ones."""
        vector = (np.array(values, dtype=np.int64) + self.member.parameters.centre).view(np.uint64)
        self._change_secrets(vector=vector)
        return commit.commit(values, self.next.secrets.value_blinding)

    def prove_range(self, values: Sequence[int], low: proofs.Bound, high: proofs.Bound) -> bytes:
        """Prove, with the blinding of the true values, that other values are within some bounds."""
        context = self.member.rules(self.run_id).proof_context(self.name)
        blinding = self.next.secrets.value_blinding
        return proofs.prove_range(context, values, blinding, low, high, self.member.random)

    def draw_again(self) -> None:
        """Replace the secret bits by newly drawn ones, after the first ones were committed to."""
        secret = self.secret
        drawn = proofs.draw_secret_bytes(secret.length, secret.bits, self.member.random)
        self._change_secrets(noise_secret=drawn)

    def with_noise(self, message: v.Publish, noise: Sequence[int], *, committed: bool) -> v.Publish:
        """Return a publication with other noise in x_hat, and, if `committed`, in its commitment."""
        x_hat = np.frombuffer(message.x_hat, dtype="<i8") + np.subtract(noise, self.secret.given)
        point = commit.commit(noise, self.secret.blinding) if committed else message.noise
        return replace(message, x_hat=x_hat.astype("<i8").tobytes(), noise=point)

    def without_edge(self, message: v.Publish) -> v.Publish:
        """Return the publication with the first edge's term subtracted from it."""
        delta, blinding = self.next.terms[min(self.next.terms)]
        x_hat = np.frombuffer(message.x_hat, dtype="<i8") - delta.view(np.int64)
        left = commit.add_blindings([message.blinding], [blinding])
        return replace(message, x_hat=x_hat.astype("<i8").tobytes(), blinding=left)

    def use_edges(self, edges: Mapping[int, bytes], terms: Mapping[int, Term] | None = None) -> None:
        """Use other commitments to pairwise terms from now on, and other terms."""
        terms = self.next.terms if terms is None else terms
        self.next = replace(self.next, edges=dict(edges), terms=dict(terms))

    def leave_out(self, message: v.Commit, peer: int) -> v.Commit:
        """Return what a party commits to without an edge, which it does not use from now on."""
        edges = {other: edge for other, edge in self.next.edges.items() if other != peer}
        self.use_edges(edges)
        return replace(message, neighbours=pack_list(edges), edges=b"".join(edges.values()))

    def open_too(self, message: v.Open) -> v.Open:
        """Return an opening of one edge more, the last of those to parties that sent nothing false."""
        peer = max(self.next.terms)
        delta, blinding = self.next.terms[peer]
        parties = pack_list([*np.frombuffer(message.parties, "<u2").tolist(), peer])
        packed = self.member.parameters.encoding.pack(delta)
        return v.Open(parties, message.deltas + packed, message.blindings + blinding)

    def shift_edge(self, peer: int, shift: int) -> bytes:
        """Add `shift` to an edge's term from now on, and return the new commitment."""
        delta, blinding = self.next.terms[peer]
        shifted = delta + np.uint64(shift)
        edge = commit.commit(signed(shifted), blinding)
        self.use_edges(self.next.edges | {peer: edge}, self.next.terms | {peer: (shifted, blinding)})
        return edge


@dataclass(frozen=True)
class Host:
    """A cheating or honest aggregator of a run: what it signs and logs, its states, and its run.

    Attributes:
        member: what it signs and logs, and how.
        role: the table of its states.
        run: what holds its state.
    """

    member: type[VerifiableAggregator] = VerifiableAggregator
    role: CollectorRole = AGGREGATOR
    run: type[Run[Outcome]] = Run

    def of(self, run: Run[Outcome]) -> Run[Outcome]:
        """Return the run of this aggregator in the place of an honest one."""
        given = {field.name: getattr(run.member, field.name) for field in dataclasses.fields(run.member)}
        return self.run(self.role, self.member(**given), run.state)


HONEST = Host()


@dataclass(slots=True)
class RecordedRun:
    """A run that has ended: its log, who raised what, and the keys to sign something else with."""

    lines: list[bytes]
    errors: dict[str, SmpcError]
    context: Context
    identities: dict[str, Identity]
    relay: Run[Outcome] = field(repr=False)
    parties: dict[str, Cheater] = field(repr=False)

    @property
    def header(self) -> Header:
        """The header of the run's log."""
        return decode_line(self.lines[0], Header)

    @property
    def entries(self) -> list[Entry]:
        """The entries of the run's log, in order."""
        return [decode_line(line, Entry) for line in self.lines[1:]]

    def sign(self, entry: Entry, payload: bytes | None = None, signer: str | None = None) -> Entry:
        """Return an entry with this payload, signed by its party or by `signer`, as if by it."""
        body = entry.payload if payload is None else payload
        statement = self.context.statement(
            bytes.fromhex(self.header.run_id),
            entry.kind,
            entry.party,
            RELAY,
            hashlib.sha256(body).digest(),
        )
        signature = self.identities[signer or entry.party].sign(statement).hex()
        return replace(entry, payload=body, signature=signature)

    def log(self, entries: Sequence[Entry], header: Header | None = None) -> list[bytes]:
        """Return the lines of a log with these entries in this order: numbers and heads are made to fit."""
        chain = Chain(header or self.header)
        fitting = [
            chain.append(entry.party, entry.kind, entry.payload, bytes.fromhex(entry.signature))
            for entry in entries
        ]
        return [encode_line(chain.header), *map(encode_line, fitting)]


@functools.cache
def parameters(setting: Setting = SETTING, *, ball: bool = False) -> VerifiableParameters:
    """Return the checked parameters of `setting`, or with `ball` of the runs that bound the norm."""
    setting = BALL if ball else setting
    checked, faults = check_for_version(setting.version, setting.declared, len(setting.inputs))
    if not isinstance(checked, VerifiableParameters):
        raise LocalError(f"the parameters of the vectors are wrong: {faults}")
    return checked


@functools.cache
def _identities(keys: int, setting: Setting) -> dict[str, Identity]:
    return {
        name: Identity.from_seed(name, SeededRandomnessForSimulation(keys, f"key {name}").bytes(32))
        for name in (RELAY, *setting.inputs)
    }


def members(keys: int = 0, setting: Setting = SETTING) -> list[Member]:
    """Return the roster's members for a setting, with the identities that `keys` selects."""
    return [
        identity.entry("aggregator", "relay.example:4433") if name == RELAY else identity.entry()
        for name, identity in _identities(keys, setting).items()
    ]


def execute(
    tampers: Mapping[str, Tamper] | None = None,
    *,
    relay: Host = HONEST,
    kill: Mapping[str, int] | None = None,
    run: int = RUN,
    keys: int = 0,
    setting: Setting = SETTING,
    unchecked: Collection[str] = (),
    memo: bool = False,
    ball: bool = False,
    request: int | None = None,
    board: MemoryBoard | None = None,
    seen: Mapping[str, Seen] | None = None,
) -> RecordedRun:
    """Run verifiable GOPA among a setting's parties, with these deviations; return the recorded run.

    Args:
        tampers: who says something else, and what.
        relay: how the aggregator deviates.
        kill: parties that fall silent, with the number of the message that they do not send any more.
        run: which run; another one has other randomness.
        keys: which set of identities.
        setting: parties, values and parameters.
        unchecked: parties that do not add up the total.
        memo: whether parties share what each would find by itself.
        ball: whether the norm is bounded and not the coordinates, in place of a setting.
        request: number of the request; by default that of the run.
        board: one with earlier runs of the session, on which this one goes on.
        seen: what parties keep of the session log.
    """
    setting = BALL if ball else setting
    identities = _identities(keys, setting)
    checked = parameters(setting)
    session = session_json(
        canonical_session("gopa", setting.version, setting.declared, members(keys, setting))
    )
    names = tuple(setting.inputs)
    context = Context(
        protocol="gopa",
        version=setting.version,
        session_digest=session_digest(session),
        request=run if request is None else request,
        names=names,
        aggregator=RELAY,
        keys={name: identity.public_key for name, identity in identities.items()},
        operation=f"average {checked.planned()}",
        memo={} if memo else None,
    )
    board = MemoryBoard(session.decode("ascii")) if board is None else board
    deviations = Deviations(tampers or {}, relay, kill or {}, unchecked, seen or {})
    return run_protocol(context, checked, identities, setting.inputs, board, deviations, run)


@dataclass(frozen=True)
class Deviations:
    """Deviations of a run: tampering parties, aggregator, kills, and members that skip checks."""

    tampers: Mapping[str, Tamper] = field(default_factory=dict)
    relay: Host = HONEST
    kill: Mapping[str, int] = field(default_factory=dict)
    unchecked: Collection[str] = ()
    seen: Mapping[str, Seen] = field(default_factory=dict)


def run_protocol(
    context: Context,
    checked: VerifiableParameters,
    identities: Mapping[str, Identity],
    inputs: Mapping[str, Sequence[int]],
    board: MemoryBoard,
    deviations: Deviations,
    run: int = RUN,
) -> RecordedRun:
    """Run the protocol in this context, among the parties that have inputs; see `execute`."""
    parties: list[Cheater] = []
    for name in context.names:
        ring_vector, _ = checked.encoding.encode(np.array(inputs[name]), party=name)
        randomness = SeededRandomnessForSimulation(run, name)
        sender = party(
            context,
            checked,
            identities[name],
            ring_vector,
            randomness,
            seen=deviations.seen.get(name, NOTHING_SEEN),
            check_total=name not in deviations.unchecked,
        )
        parties.append(Cheater(sender, deviations.tampers.get(name)))
    host = deviations.relay.of(aggregator(context, checked, identities[RELAY], board=board))
    errors = drive([host, *parties], MemoryNetwork(Faults(kill=dict(deviations.kill))), RELAY)
    return RecordedRun(
        board.lines, errors, context, dict(identities), host, {sender.name: sender for sender in parties}
    )


@functools.cache
def honest(run: int = RUN, keys: int = 0, *, ball: bool = False, setting: Setting = SETTING) -> RecordedRun:
    """Run the protocol without deviations, and return the recorded run; cached."""
    return execute(run=run, keys=keys, ball=ball, setting=setting)


def entry_of(ran: RecordedRun, kind: str, party: str = RELAY) -> Entry:
    """Return the first entry of this kind and party in a run's log."""
    return next(entry for entry in ran.entries if (entry.kind, entry.party) == (kind, party))


def message_of(ran: RecordedRun, kind: str, message: type[S], party: str = RELAY) -> S:
    """Return the decoded message of type `message` in the entry of this kind and party."""
    return decode(entry_of(ran, kind, party).payload, message, "")


def lines_of(tampers: Mapping[str, Tamper] | None = None, **given: Any) -> list[bytes]:
    """Run the protocol with these deviations, and return the lines of its log."""
    return execute(tampers, **given).lines
