"""The first phase of a sum: fresh keys, and a random graph of parties that no member chooses.

Each party draws its neighbours, makes a masking key, and advertises commitments to both. It opens them when
one root binds all advertisements: nobody chooses a draw or a masking key after it has seen another's.
Steps: hello, start, advertise, roll, reveal, neighbours.
Specification: protocols/secagg/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from smpc_dp.crypto import agree
from smpc_dp.crypto.labels import Label
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import Collector, CollectorRow, CollectorState, Item
from smpc_dp.engine.party import Member, PartyState, Row
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.checked_total import Committed, commit_vector, value_commitments_of
from smpc_dp.engine.phases.draws import draw_neighbours
from smpc_dp.engine.phases.last_results import Held, HeldResult, SentResults, are_sound
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment, check_merkle_commitment
from smpc_dp.engine.phases.operation import agree_on_operation
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.signed_result import RunRoots, RunStart
from smpc_dp.engine.state import Secret, State, Transition
from smpc_dp.errors import Check, Code, PeerFault, TimeoutFault, VerificationError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_list, pack_set, unpack_list
from smpc_dp.wire.signing import Context, decode, encode

P_co = TypeVar("P_co", bound=SumParameters, covariant=True)
Watch = Callable[[str, RingVector], None]

# The party's side


@dataclass(frozen=True, slots=True)
class SumMember(Member[P_co]):
    """Constant values of a party's run of a secure sum: context, key, parameters, and earlier results.

    Attributes:
        fixed: the survivors of the session's exact sums, where these must be the same.
        last: the last result that the party has accepted in the session; None where it has one request.
    """

    fixed: FixedSurvivors | None = None
    last: HeldResult | None = None

    def enter(self, state: State) -> None:
        """Record the survivors that the party signs, and the result, for the session's later sums."""
        survivors = getattr(state, "survivors", None)
        if self.fixed is not None and survivors is not None:
            self.fixed.fix(self.context, survivors)
        if self.last is not None and isinstance(state, PartyState) and state.outcome is not None:
            *_, (step, signed) = state.progress.received.items()
            self.last.hold(Held(*self.context.bound, state.run_id, step, *signed))

    def contradicted(self, fault: PeerFault) -> None:
        """Record evidence that the aggregator named another result than it had sent earlier."""
        if self.last is not None and fault.check == Check.OTHER_RESULT:
            self.last.record_refusal(fault.evidence)


class Drawn(Secret, frozen=True):
    """What a party has drawn after the run's start: neighbours, secret keys, and its advertisement's hash."""

    start: RunStart
    neighbours: tuple[int, ...]
    blinder: bytes
    seal_secret: bytes
    mask_secret: bytes
    advertisement: bytes
    value_commitment: bytes = b""


class Advertised(Secret, frozen=True):
    """What a party keeps once it knows the Merkle roots over all parties' keys and commitments."""

    neighbours: tuple[int, ...]
    seal_secret: bytes
    mask_secret: bytes
    roots: RunRoots
    digest: bytes


class Graph(Secret, frozen=True):
    """A party's part of the graph: its neighbours, their masking keys, and its own masking secret.

    Attributes:
        revealed: the parties that have opened their draws.
        holders: the revealed parties that this party drew, ascending; they hold its shares.
        drew_me: the revealed parties that drew this party, ascending.
        mask_secret: of this party's masking key.
        mask_keys: the masking keys of its neighbours.
        digest: of all advertisements; roots: what it covers, None in the direct topology.
    """

    revealed: PartySet
    holders: tuple[int, ...]
    drew_me: tuple[int, ...]
    mask_secret: bytes
    mask_keys: dict[int, bytes]
    digest: bytes
    roots: RunRoots | None = None

    def mask_seeds(
        self, member: Member[Any], run_id: bytes, participants: PartySet
    ) -> tuple[list[bytes], list[int]]:
        """Return the seeds of pairwise masks with participating neighbours, and this party's sign of each."""
        seeds, signs, index = [], [], member.index
        for peer, mask_key in self.mask_keys.items():
            if peer in participants:
                secret, name = self.mask_secret, member.name_of(peer)
                seeds.append(keys.pair_mask_seed(member.context, run_id, secret, member.name, name, mask_key))
                signs.append(1 if index < peer else -1)
        return seeds, signs


class Sealing(Secret, frozen=True):
    """Keys with which a party encrypts messages for its neighbours and decrypts theirs."""

    secret: bytes
    peer_keys: dict[int, bytes]

    def key(self, member: Member[Any], run_id: bytes, peer: int, *, sending: bool) -> bytes:
        """Return the key that encrypts messages from this party to `peer`, or from `peer` to this party."""
        name = member.name_of(peer)
        sender, receiver = (member.name, name) if sending else (name, member.name)
        return keys.seal_key(
            member.context, run_id, self.secret, name, self.peer_keys[peer], sender, receiver
        )


class Ready(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has encoded its vector and has not sent anything in the run."""

    vector: RingVector


class AwaitStart(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has sent a hello with a fresh nonce and waits for the start of the run."""

    expects: ClassVar[str] = m.START
    renews: ClassVar[bool] = True
    vector: RingVector
    nonce: bytes


class AwaitMerkleCommitment(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has committed to drawn neighbours and masking key, and waits for all."""

    expects: ClassVar[str] = m.MERKLE_COMMITMENT
    vector: RingVector
    drawn: Drawn
    committed: Committed | None = None
    warning: str = ""


class AwaitNeighbours(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party that has opened its commitments and waits for its neighbours."""

    expects: ClassVar[str] = m.NEIGHBOURS
    vector: RingVector
    advertised: Advertised
    committed: Committed | None = None


def say_hello(member: SumMember[SumParameters], state: Ready) -> Transition:
    """Begin a run: send a hello with a fresh nonce; raise PeerFault if a refusal ended the session."""
    if member.last is not None:
        member.last.check_open(member.context.aggregator)
    nonce = member.random.bytes(32)
    message = member.write(member.context.session_digest, m.HELLO, hello(member, nonce))
    return Transition(AwaitStart(vector=state.vector, nonce=nonce), (message,))


def on_start(member: SumMember[SumParameters], state: AwaitStart, body: bytes) -> Transition:
    """After a valid start: draw neighbours, make keys, and send commitments to both; else PeerFault."""
    context = member.context
    start = decode(body, m.FollowingStart, context.aggregator)
    present = check_present(member, state.nonce, start)
    if not are_sound(start.named, len(present)):
        raise member.refuse("names last results in no order, or too many", Check.WRONG_ORDER)
    warning = "" if member.last is None else member.last.check(context, start.named)
    bound = RunStart(present, start.root, start.nonce, start.named)
    run_id = keys.run_identifier(context, context.operation, start.present, start.root, bound.following)
    bound = context.remember(("start", run_id), lambda: bound)
    vector, committed = commit_vector(member, state.vector)
    drawn, message = draw(member, run_id, bound, committed)
    after = AwaitMerkleCommitment(
        run_id=run_id, vector=vector, drawn=drawn, committed=committed, warning=warning
    )
    return Transition(after, (member.write(run_id, m.ADVERTISE, message),))


def on_merkle_commitment(
    member: Member[SumParameters], state: AwaitMerkleCommitment, body: bytes
) -> Transition:
    """Reveal drawn neighbours and masking key, now that the commitments of all are fixed."""
    run_id = state.run_id
    advertised, message = open_draw(member, run_id, state.drawn, body)
    after = AwaitNeighbours(vector=state.vector, advertised=advertised, committed=state.committed)
    return Transition(after, (member.write(run_id, m.REVEAL, message),))


PARTY_ROWS = (
    Row(
        AwaitStart,
        on_start,
        (AwaitMerkleCommitment,),
        (m.ADVERTISE,),
        "another draw or masking key: commitments bind them; another run: its id binds the nonces of all",
    ),
    Row(
        AwaitMerkleCommitment,
        on_merkle_commitment,
        (AwaitNeighbours,),
        (m.REVEAL,),
        "a party that joins: the root binds the advertisements of all",
    ),
)


def members_of(
    member: Member[SumParameters],
    packed: bytes,
    within: PartySet | None,
    reason: str,
    least: int | None = None,
) -> PartySet:
    """Decode a set; PeerFault unless it lies in `within`, has this party, and `least` parties in all."""
    context, least = member.context, member.parameters.plan.min_survivors if least is None else least
    members = context.remember(
        ("set", packed), lambda: PartySet.unpack(packed, member.parties, context.aggregator)
    )
    if within is not None and not members <= within:
        raise member.refuse(f"{reason} has parties that were out before", Check.SET_GREW)
    if member.index not in members:
        raise member.refuse(f"left {member.name} out of the {reason}", Check.NOT_INCLUDED)
    if len(members) < least:
        raise member.refuse(f"{reason} has {len(members)} parties, at least {least} due", Check.SET_TOO_SMALL)
    return members


def hello(member: Member[SumParameters], nonce: bytes) -> m.Hello:
    """Return a party's hello with the given nonce of 32 bytes."""
    plan, context = member.parameters.plan, member.context
    return m.Hello(
        context.session_digest,
        context.request,
        nonce,
        plan.degree,
        plan.threshold,
        plan.quorum,
        context.operation,
    )


def check_start(member: Member[SumParameters], nonce: bytes, body: bytes) -> tuple[bytes, RunStart]:
    """Check the start of a run with a public log; return the run id and the values that it depends on."""
    context = member.context
    start = decode(body, m.Start, context.aggregator)
    bound = RunStart(check_present(member, nonce, start), start.root)
    run_id = keys.run_identifier(context, context.operation, start.present, start.root)
    return run_id, context.remember(("start", run_id), lambda: bound)


def check_present(member: Member[SumParameters], nonce: bytes, start: m.Start) -> PartySet:
    """Return the parties present in a run; raise PeerFault unless this party's nonce is included."""
    present = members_of(member, start.present, None, "present parties")
    given = {member.index: nonce}
    _check_bound(member, Label.NONCES, start.root, present, given, start.proof, "start", "nonce")
    return present


def draw(
    member: Member[SumParameters], run_id: bytes, start: RunStart, committed: Committed | None = None
) -> tuple[Drawn, m.Advertise]:
    """Draw neighbours and make fresh keys for a run; return both, and the message that commits to them."""
    context, random = member.context, member.random
    neighbours = draw_neighbours(member.index, member.parties, member.parameters.plan.degree, random)
    blinder, seal_secret, mask_secret = random.bytes(32), random.bytes(32), random.bytes(32)
    draw_commitment = keys.neighbour_commitment(context, run_id, member.name, pack_list(neighbours), blinder)
    key_commitment = keys.key_commitment(context, run_id, member.name, agree.public_key(mask_secret))
    values: tuple[bytes, ...] = ()
    if committed is not None:
        values = (keys.value_commitment(context, run_id, member.name, committed.point),)
    message = member.parameters.kinds.advertise(
        agree.public_key(seal_secret), draw_commitment, key_commitment, *values
    )
    advertisement = sha256(encode(message)).digest()
    return Drawn(start, neighbours, blinder, seal_secret, mask_secret, advertisement, *values), message


def open_draw(
    member: Member[SumParameters], run_id: bytes, drawn: Drawn, body: bytes
) -> tuple[Advertised, m.Reveal]:
    """Return what a party keeps, and the message that opens its commitments, once a Merkle root has them."""
    message = decode(body, member.parameters.kinds.merkle_commitment, member.context.aggregator)
    members = members_of(member, message.advertised, drawn.start.present, "roll")
    _check_advertised(member, message.root, members, {member.index: drawn.advertisement}, message.proof)
    values_root = b""
    if isinstance(message, m.CheckedMerkleCommitment):
        given = {member.index: drawn.value_commitment}
        values_root, proof = message.values_root, message.values_proof
        _check_bound(member, Label.VALUES, values_root, members, given, proof, "roll", "commitment")
    roots = RunRoots(drawn.start, members, message.root, values_root)
    digest = keys.merkle_commitment_digest(member.context, run_id, message.advertised, *roots.roots)
    roots = member.context.remember(("roots", digest), lambda: roots)
    advertised = Advertised(drawn.neighbours, drawn.seal_secret, drawn.mask_secret, roots, digest)
    mask_key = agree.public_key(drawn.mask_secret)
    return advertised, m.Reveal(pack_list(drawn.neighbours), drawn.blinder, mask_key)


def join_graph(
    member: Member[SumParameters], run_id: bytes, advertised: Advertised, body: bytes
) -> tuple[Graph, Sealing]:
    """Check the message about neighbours, else PeerFault; return this party's part of the graph, and keys."""
    message = decode(body, m.Neighbours, member.context.aggregator)
    revealed = members_of(member, message.revealed, advertised.roots.advertised, "revealed parties")
    drew_me = tuple(opening.party for opening in message.openings)
    if drew_me != tuple(sorted(set(drew_me))) or any(party not in revealed for party in drew_me):
        raise member.refuse("openings are not of revealed parties in roster order", Check.WRONG_ORDER)
    holders = tuple(party for party in advertised.neighbours if party in revealed)
    advertisements = _advertisements(member, run_id, advertised, message, {*holders, *drew_me})
    mask_keys = _mask_keys(member, run_id, message.mask_keys, advertisements)
    for opening in message.openings:
        _check_opening(member, run_id, opening, advertisements[opening.party])
    member.parameters.check_neighbourhood(member.name, len(holders), len(drew_me))
    seal_keys = {party: advertise.seal_key for party, advertise in advertisements.items()}
    secret, digest, roots = advertised.mask_secret, advertised.digest, advertised.roots
    graph = Graph(revealed, holders, drew_me, secret, mask_keys, digest, roots)
    return graph, Sealing(advertised.seal_secret, seal_keys)


def check_forwarded(
    member: Member[Any], run_id: bytes, step: str, forwarded: m.Advertisement | m.Opening
) -> str:
    """Return a forwarded message's author; PeerFault naming the aggregator unless the author signed it.

    A wrong signature is the aggregator's fault.
    """
    context, name = member.context, member.name_of(forwarded.party)
    try:
        context.check_detached(run_id, step, name, context.aggregator, forwarded.body, forwarded.signature)
    except PeerFault:
        raise member.refuse(
            f"forwarded a message of step '{step}' that {name} did not sign", Check.NOT_SIGNED
        ) from None
    return name


def _check_advertised(
    member: Member[Any], root: bytes, members: PartySet, given: Mapping[int, bytes], proof: bytes
) -> None:
    """Raise PeerFault unless the Merkle root includes these parties' messages, given by SHA-256."""
    _check_bound(member, Label.ADVERTISEMENTS, root, members, given, proof, "roll", "advertisement")


def _check_bound(
    member: Member[Any],
    purpose: Label,
    root: bytes,
    members: PartySet,
    given: Mapping[int, bytes],
    proof: bytes,
    where: str,
    reason: str,
) -> None:
    """Raise PeerFault unless a Merkle root includes the values given by these parties."""
    try:
        check_merkle_commitment(member.context, purpose, root, members, given, proof)
    except VerificationError as error:
        names = ", ".join(member.name_of(party) for party in sorted(given)[:5])
        raise member.refuse(
            f"{where} does not have the {reason} of {names}: {error}", Check.NOT_IN_TREE
        ) from None


def _advertisements(
    member: Member[Any],
    run_id: bytes,
    advertised: Advertised,
    message: m.Neighbours,
    neighbours: Collection[int],
) -> dict[int, m.Advertise]:
    """Return the neighbours' signed key messages; raise PeerFault unless the root includes each."""
    expected = tuple(sorted(neighbours))
    if tuple(item.party for item in message.advertisements) != expected:
        raise member.refuse(
            f"advertisements are not those of the {len(expected)} neighbours of {member.name}",
            Check.SET_DIFFERS,
        )
    advertisements: dict[int, m.Advertise] = {}
    for item in message.advertisements:
        name = check_forwarded(member, run_id, m.ADVERTISE, item)
        advertisements[item.party] = member.context.remember(
            ("advertised", item.body), partial(decode, item.body, member.parameters.kinds.advertise, name)
        )
    if expected:
        given = {item.party: sha256(item.body).digest() for item in message.advertisements}
        roots = advertised.roots
        _check_advertised(member, roots.root, roots.advertised, given, message.proof)
    elif message.proof:
        raise member.refuse("proved advertisements of nobody", Check.NOT_IN_TREE)
    return advertisements


def _mask_keys(
    member: Member[Any], run_id: bytes, packed: bytes, advertisements: Mapping[int, m.Advertise]
) -> dict[int, bytes]:
    """Return the neighbours' masking keys; raise PeerFault for a key that its commitment does not match."""
    if len(packed) != m.KEY_BYTES * len(advertisements):
        raise member.refuse("forwarded other than one masking key of each neighbour", Check.NOT_ONE_EACH)
    mask_keys = dict(zip(advertisements, m.pieces(packed, m.KEY_BYTES), strict=True))
    for party, mask_key in mask_keys.items():
        name, committed = member.name_of(party), advertisements[party].key_commitment
        if keys.key_commitment(member.context, run_id, name, mask_key) != committed:
            raise member.refuse(f"forwarded a key that {name} had not committed to", Check.BAD_OPENING)
    return mask_keys


def _check_opening(
    member: Member[SumParameters], run_id: bytes, opening: m.Opening, advertise: m.Advertise
) -> None:
    """Raise PeerFault unless a party opens its commitments and has drawn this party."""
    name = check_forwarded(member, run_id, m.REVEAL, opening)
    context, degree = member.context, member.parameters.plan.degree
    revealed = context.remember(
        ("opened", run_id, opening.party, opening.body, advertise),
        lambda: read_reveal(context, degree, run_id, opening.party, opening.body, advertise),
    )
    if member.index not in revealed.drawn:
        raise member.refuse(
            f"forwarded the opening of {name}, which did not draw {member.name}", Check.NOT_PRESENT
        )


class Revealed(NamedTuple):
    """A party's opened commitments: the neighbours that it drew, and its masking key."""

    drawn: tuple[int, ...]
    mask_key: bytes


def read_reveal(
    context: Context, degree: int, run_id: bytes, party: int, body: bytes, advertise: m.Advertise
) -> Revealed:
    """Return a party's opened draw and masking key; raise PeerFault unless they are as committed."""
    reveal = decode(body, m.Reveal, context.names[party - 1])
    draw, key = advertise.draw_commitment, advertise.key_commitment
    return check_openings(context, degree, run_id, party, reveal, draw=draw, key=key)


def check_openings(
    context: Context, degree: int, run_id: bytes, party: int, reveal: m.Reveal, *, draw: bytes, key: bytes
) -> Revealed:
    """Return a party's opened draw and masking key; raise PeerFault unless they are as committed.

    A draw has `degree` others. The masking key may be no point of small order: others would know what it
    agrees on.
    """
    name = context.names[party - 1]
    shown = keys.neighbour_commitment(context, run_id, name, reveal.neighbours, reveal.blinder)
    if shown != draw:
        raise PeerFault(name, "revealed neighbours that it had not committed to", Check.BAD_OPENING)
    if keys.key_commitment(context, run_id, name, reveal.mask_key) != key:
        raise PeerFault(name, "revealed a masking key that it had not committed to", Check.BAD_OPENING)
    check_key(name, reveal.mask_key)
    drawn = unpack_list(reveal.neighbours, len(context.names), name)
    if len(drawn) != degree or party in drawn:
        raise PeerFault(name, f"must draw {degree} neighbours other than itself", Check.BAD_DRAW)
    return Revealed(drawn, reveal.mask_key)


def check_key(name: str, key: bytes) -> None:
    """Raise PeerFault naming the party if its public key is a curve point of small order."""
    try:
        agree.check_public_key(key)
    except VerificationError as error:
        raise PeerFault(name, str(error), error.check) from None


# The aggregator's side


@dataclass(frozen=True, slots=True)
class SumAggregator(Collector[P_co]):
    """Constant values of the aggregator's run of a secure sum: context, key, parameters.

    Attributes:
        threads: threads for the removal of masks.
        watch: called with each party's name and vector as it arrives, to show what an aggregator sees.
        fixed: the survivors of the session's exact sums, where these must be the same: other parties are left
            out, and without one of them the run stops at once.
        last: the last results of the session, which `start` names.
    """

    threads: int = 1
    watch: Watch | None = None
    fixed: FixedSurvivors | None = None
    last: SentResults = dataclass_field(default_factory=SentResults)

    def enter(self, state: State) -> None:
        """Record the result, before it is sent, for the session's later sums."""
        if isinstance(state, Summed):
            names = map(self.name_of, state.inbox.alive)
            self.last.add(self.context, state.run_id, state.body_hash, names)


class Begun(NamedTuple):
    """A run that begins: its id and operation, the parties present, and the start message for each."""

    run_id: bytes
    operation: str
    present: bytes
    root: bytes
    messages: list[Envelope]


class Commitments(msgspec.Struct, frozen=True):
    """All parties' key messages at the aggregator, and the digest of the Merkle roots over them.

    `value_commitments`: of all parties that advertised, where totals are checked.
    """

    forwarded: dict[int, m.Advertisement]
    advertised: dict[int, m.Advertise]
    digest: bytes
    value_commitments: dict[int, bytes] = msgspec.field(default_factory=dict)


class Edges(msgspec.Struct, frozen=True):
    """The aggregator's graph of neighbours, with the masking keys that parties have opened.

    Attributes:
        mask_keys: of all parties that revealed theirs.
        drawn: for each party the revealed parties that it drew, ascending.
        neighbours: for each party the revealed parties that it drew or that drew it, ascending.
        digest: of all advertisements.
        value_commitments: of all parties that advertised, where totals are checked.
    """

    mask_keys: dict[int, bytes]
    drawn: dict[int, tuple[int, ...]]
    neighbours: dict[int, tuple[int, ...]]
    digest: bytes
    value_commitments: dict[int, bytes] = msgspec.field(default_factory=dict)


class CollectHello(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of the aggregator before a run begins: parties may still join."""

    expects: ClassVar[str] = m.HELLO


class CollectAdvertise(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of the aggregator that collects commitments to drawn neighbours and masking keys."""

    expects: ClassVar[str] = m.ADVERTISE


class Summed(CollectorState, frozen=True, kw_only=True, eq=False):
    """Final state of the aggregator: the sum is known and was sent."""

    over: ClassVar[bool] = True
    outcome: Outcome
    body_hash: bytes


class CollectReveal(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of the aggregator that collects the openings of the parties' commitments."""

    expects: ClassVar[str] = m.REVEAL
    commitments: Commitments


def send_result(
    aggregator: SumAggregator[Any],
    state: CollectorState,
    step: str,
    message: msgspec.Struct,
    outcome: Outcome,
) -> Transition:
    """Return the final state and the message with the sum to all remaining parties."""
    # Of attested totals signatures count although all parties are lost: there may be nobody to send it to.
    after = Summed(outcome=outcome, body_hash=sha256(encode(message)).digest())
    return Transition(after, aggregator.broadcast(state, step, message))


def accept_hello(
    collector: Collector[SumParameters], _state: CollectorState, _party: int, envelope: Envelope
) -> Item:
    """Return a party's hello; raise PeerFault if it is for another session, request or plan."""
    return check_hello(collector, envelope, m.Hello)


def check_hello(collector: Collector[SumParameters], envelope: Envelope, kind: type[m.Hello]) -> Item:
    """Return a party's hello of type `kind`; PeerFault if it is for another session, request or plan."""
    context, plan = collector.context, collector.parameters.plan
    claimed = decode(envelope.body, kind, envelope.sender)
    if claimed.session_digest != context.session_digest:
        raise PeerFault(envelope.sender, "has a differing session file", Check.OTHER_SESSION)
    if claimed.request != context.request:
        raise PeerFault(
            envelope.sender,
            f"asks for request {claimed.request}, this is {context.request}",
            Check.OTHER_REQUEST,
        )
    theirs = (claimed.degree, claimed.threshold, claimed.quorum)
    ours = (plan.degree, plan.threshold, plan.quorum)
    if theirs != ours:
        raise PeerFault(
            envelope.sender,
            f"plans (degree, threshold, quorum) = {theirs}, the aggregator {ours}",
            Check.OTHER_PLAN,
        )
    return Item(claimed, b"", envelope.signature)


def begin(
    collector: Collector[SumParameters],
    state: CollectorState,
    fixed: FixedSurvivors | None = None,
    last: SentResults | None = None,
) -> Begun:
    """Choose the operation of most parties, and exclude others; return the run; TimeoutFault if too few.

    `last`: the results that `start` names; None in a run with a log.
    """
    context, inbox = collector.context, state.inbox
    hellos: dict[int, m.Hello] = {party: inbox.items[party].message for party in sorted(inbox.alive)}
    requested = {party: claimed.operation for party, claimed in hellos.items()}
    operation = agree_on_operation(collector, state, requested)
    for party in [] if fixed is None else fixed.outside(inbox.alive):
        reason = "earlier sums of the session are without its vector (same_survivors)"
        late = TimeoutFault({collector.name_of(party)}, m.HELLO, reason, code=Code.EARLIER)
        collector.exclude(state, party, late)
    least = collector.parameters.plan.min_survivors
    if len(inbox.alive) < least:
        raise collector.too_few(state, least)
    present = pack_set(inbox.alive, collector.parties)
    nonces = MerkleCommitment(context, Label.NONCES, {party: hellos[party].nonce for party in inbox.alive})
    following = () if last is None else (last.nonce, last.named(map(collector.name_of, inbox.alive)))
    run_id = keys.run_identifier(context, operation, present, nonces.root, following)

    def start(party: int) -> m.Start:
        plain = (present, nonces.root, nonces.prove((party,)))
        return m.FollowingStart(*plain, *following) if following else m.Start(*plain)

    messages = collector.to_each(run_id, inbox, m.START, start)
    return Begun(run_id, operation, present, nonces.root, messages)


def accept_advertise(
    collector: Collector[Any], _state: CollectorState, _party: int, envelope: Envelope
) -> Item:
    """Return a party's keys and commitments; raise PeerFault if its encryption key has small order."""
    advertise = decode(envelope.body, collector.parameters.kinds.advertise, envelope.sender)
    check_key(envelope.sender, advertise.seal_key)
    return Item(advertise, envelope.body, envelope.signature)


def merkle_commitment_of(context: Context, forwarded: Mapping[int, m.Advertisement]) -> MerkleCommitment:
    """Return the Merkle tree over all parties' signed key messages."""
    given = {party: sha256(advertisement.body).digest() for party, advertisement in forwarded.items()}
    return MerkleCommitment(context, Label.ADVERTISEMENTS, given)


def bind_commitments(collector: Collector[Any], state: CollectorState) -> tuple[Commitments, list[Envelope]]:
    """Return all advertisements with a digest of Merkle roots over them, and a proof for each party."""
    inbox, context = state.inbox, collector.context
    packed = pack_set(inbox.alive, collector.parties)
    forwarded = {
        party: m.Advertisement(party, item.body, item.signature) for party, item in inbox.items.items()
    }
    sent = {party: item.message for party, item in inbox.items.items()}
    # A saved state has one type of advertisements: what those of checked totals have besides is apart.
    advertised = {party: m.Advertise.of(message) for party, message in sent.items()}
    trees = [merkle_commitment_of(context, forwarded)]
    if values := value_commitments_of(sent):
        trees.append(MerkleCommitment(context, Label.VALUES, values))
    digest = keys.merkle_commitment_digest(context, state.run_id, packed, *(tree.root for tree in trees))

    def message(party: int) -> m.MerkleCommitment:
        shown = [part for tree in trees for part in (tree.root, tree.prove((party,)))]
        kind: type[m.MerkleCommitment] = collector.parameters.kinds.merkle_commitment
        return kind(packed, *shown)

    messages = collector.to_each(state.run_id, inbox, m.MERKLE_COMMITMENT, message)
    return Commitments(forwarded, advertised, digest, values), messages


def accept_reveal(
    collector: Collector[SumParameters], state: CollectReveal, party: int, envelope: Envelope
) -> Item:
    """Return a party's drawn neighbours and masking key; raise PeerFault unless they are as committed."""
    return check_reveal(collector, state.run_id, state.commitments, party, envelope)


def check_reveal(
    collector: Collector[SumParameters],
    run_id: bytes,
    commitments: Commitments,
    party: int,
    envelope: Envelope,
) -> Item:
    """Return a party's drawn neighbours and masking key; raise PeerFault unless they are as committed."""
    advertise = commitments.advertised[party]
    degree = collector.parameters.plan.degree
    revealed = read_reveal(collector.context, degree, run_id, party, envelope.body, advertise)
    return Item(revealed, envelope.body, envelope.signature)


def connect_graph(
    collector: Collector[Any], state: CollectorState, commitments: Commitments
) -> tuple[Edges, list[Envelope]]:
    """Return the graph of the parties that revealed draws, and each one's message about its neighbours."""
    run_id, inbox = state.run_id, state.inbox
    revealed, forwarded = sorted(inbox.alive), commitments.forwarded
    merkle_commitment = merkle_commitment_of(collector.context, forwarded)
    mask_keys = {party: inbox.items[party].message.mask_key for party in revealed}
    drawn: dict[int, tuple[int, ...]] = {}
    drew: dict[int, list[int]] = {party: [] for party in revealed}
    for party in revealed:
        drawn[party] = tuple(other for other in inbox.items[party].message.drawn if other in inbox.alive)
        for other in drawn[party]:
            drew[other].append(party)
    neighbours = {party: tuple(sorted({*drawn[party], *drew[party]})) for party in revealed}
    packed = pack_set(revealed, collector.parties)

    def message(party: int) -> m.Neighbours:
        return m.Neighbours(
            packed,
            [forwarded[other] for other in neighbours[party]],
            b"".join(mask_keys[other] for other in neighbours[party]),
            [
                m.Opening(other, inbox.items[other].body, inbox.items[other].signature)
                for other in drew[party]
            ],
            merkle_commitment.prove(neighbours[party]),
        )

    edges = Edges(mask_keys, drawn, neighbours, commitments.digest, commitments.value_commitments)
    return edges, collector.to_each(run_id, inbox, m.NEIGHBOURS, message)


def finish_hello(aggregator: SumAggregator[SumParameters], state: CollectHello) -> Transition:
    """Begin the run with the parties present, and send each the start message."""
    begun = begin(aggregator, state, aggregator.fixed, aggregator.last)
    return Transition(CollectAdvertise(run_id=begun.run_id), begun.messages)


def finish_advertise(aggregator: SumAggregator[SumParameters], state: CollectAdvertise) -> Transition:
    """End the collection of commitments: send all parties the Merkle root over them."""
    commitments, messages = bind_commitments(aggregator, state)
    after = CollectReveal(commitments=commitments)
    return Transition(after, messages)


def min_survivors(aggregator: Collector[SumParameters], _state: CollectorState) -> int:
    """Return the least number of parties that must remain for a step to end."""
    return aggregator.parameters.plan.min_survivors


ROWS = (
    CollectorRow(
        CollectHello,
        accept_hello,
        finish_hello,
        min_survivors,
        (CollectAdvertise,),
        (m.START,),
        "a party that joins, another operation",
    ),
    CollectorRow(
        CollectAdvertise,
        accept_advertise,
        finish_advertise,
        min_survivors,
        (CollectReveal,),
        (m.MERKLE_COMMITMENT,),
        "another draw or masking key: the root binds the commitments of all",
    ),
)
