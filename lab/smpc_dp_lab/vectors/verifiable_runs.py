"""Small verifiable runs with fixed randomness, in which users or the relay may deviate."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.board.log import Chain, Entry, Header, decode_line, encode_line
from smpc_dp.board.memory import MemoryBoard
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.identity import Identity
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, decode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.party import VerifiablePartyMachine
from smpc_dp.protocols.gopa.verifiable.relay import VerifiableRelayMachine
from smpc_dp.protocols.gopa.verifiable.statements import signed
from smpc_dp.protocols.registry import check_gopa
from smpc_dp.protocols.secagg.graph import pack_list
from smpc_dp.protocols.session import canonical_session, session_digest, session_json
from smpc_dp.roster import Member
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.simulate.drive import drive
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation
from smpc_dp.transport.memory import Faults, MemoryNetwork

S = TypeVar("S", bound=msgspec.Struct)

RELAY = "relay"
# In this one no user's noise is 0 in both coordinates, or the same in both.
RUN = 7
USERS = ("ann", "ben", "cyd", "dan", "eve")
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
    """The users of a run with their values, and the session's parameters as a file would have them."""

    inputs: Mapping[str, Sequence[int]]
    declared: Mapping[str, object]


SETTING = Setting(INPUTS, PARAMETERS)
BALL = Setting(BALL_INPUTS, BALL_PARAMETERS)
BOX = Setting(BOX_INPUTS, BOX_PARAMETERS)
# As few users as have a sparse graph, and as little noise.
SPARSE = Setting(
    {f"user-{number:02d}": (number % 3,) for number in range(1, 67)},
    PARAMETERS | {"length": 1, "upper": 2, "epsilon": 4.0, "dropout": 0.05, "corrupt": 0.05},
)
# Of nine users three may be excluded, and a quorum is left; for the third epsilon is computed anew.
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
    """Secret bits that remember what noise they gave, and may take other coins than they are given."""

    coins_instead: bytes | None = None
    given: tuple[int, ...] = ()
    blinding = b""

    def noise(self, coins: bytes) -> list[int]:
        """Return the noise, and remember it."""
        noise = super().noise(coins if self.coins_instead is None else self.coins_instead)
        self.given = tuple(noise)
        return noise

    def prove(
        self, context: bytes, coins: bytes, blinding: bytes, randomness: Randomness
    ) -> tuple[bytes, bytes]:
        """Prove, and remember the blinding."""
        self.blinding = blinding
        used = coins if self.coins_instead is None else self.coins_instead
        return super().prove(context, used, blinding, randomness)


class Cheater(VerifiablePartyMachine):
    """A user that may say something else than it should, in any entry of its own; and what it then needs."""

    tamper: Tamper | None = None

    def _draw_secret(self) -> WatchedSecret:
        drawn = WatchedSecret.draw(self._parameters.encoding.length, self._verifiable.bits, self._random)
        self.secret = cast("WatchedSecret", drawn)
        return self.secret

    def _enter(self, step: str, message: msgspec.Struct) -> Sequence[Envelope]:
        return super()._enter(step, message if self.tamper is None else self.tamper(self, step, message))

    def fresh_blinding(self) -> bytes:
        """Return a blinding of nothing in particular."""
        return commit.fresh_blinding(self._random)

    def fresh_coin(self) -> bytes:
        """Return another coin."""
        return self._random.bytes(32)

    def use_values(self, values: Sequence[int]) -> bytes:
        """Take other values from now on, and return their commitment with the blinding of the true ones."""
        self._lanes = (np.array(values, dtype=np.int64) + self._verifiable.centre).view(np.uint64)
        return commit.commit(values, self._value_blinding)

    def prove_range(self, values: Sequence[int], low: proofs.Bound, high: proofs.Bound) -> bytes:
        """Prove, with the blinding of the true values, that others are within some bounds."""
        context = self._rules.proof_context(self.name)
        return proofs.prove_range(context, values, self._value_blinding, low, high, self._random)

    def draw_again(self) -> None:
        """Take other secret bits, once the first ones are committed to."""
        self._noise_secret = self._draw_secret()

    def with_noise(self, message: v.Publish, noise: Sequence[int], *, committed: bool) -> v.Publish:
        """Return a publication with other noise in x_hat, and, if `committed`, in its commitment."""
        x_hat = np.frombuffer(message.x_hat, dtype="<i8") + np.subtract(noise, self.secret.given)
        point = commit.commit(noise, self.secret.blinding) if committed else message.noise
        return replace(message, x_hat=x_hat.astype("<i8").tobytes(), noise=point)

    def without_edge(self, message: v.Publish) -> v.Publish:
        """Return a publication without the first pairwise term."""
        delta, blinding = self._deltas[min(self._agreed)]
        x_hat = np.frombuffer(message.x_hat, dtype="<i8") - delta.view(np.int64)
        left = commit.add_blindings([message.blinding], [blinding])
        return replace(message, x_hat=x_hat.astype("<i8").tobytes(), blinding=left)

    def drop_first_edge(self) -> None:
        """Know nothing of the first edge any more."""
        del self._own_edges[min(self._own_edges)]

    def open_too(self, message: v.Open) -> v.Open:
        """Return an opening of one edge more, the last of those to users who said nothing false."""
        peer = max(self._agreed)
        delta, blinding = self._deltas[peer]
        parties = pack_list([*np.frombuffer(message.parties, "<u2").tolist(), peer])
        packed = self._parameters.encoding.pack(delta)
        return v.Open(parties, message.deltas + packed, message.blindings + blinding)

    def shift_first_edge(self, shift: int) -> bytes:
        """Take another term for the first edge, and return its commitment."""
        first = min(self._deltas)
        delta, blinding = self._deltas[first]
        shifted = delta + np.uint64(shift)
        self._deltas[first] = shifted, blinding
        self._own_edges[first] = commit.commit(signed(shifted), blinding)
        return self._own_edges[first]


@dataclass(slots=True)
class Played:
    """A run that has ended: its log, who raised what, and the keys to sign something else with."""

    lines: list[bytes]
    errors: dict[str, SmpcError]
    context: Context
    identities: dict[str, Identity]
    relay: VerifiableRelayMachine = field(repr=False)
    users: dict[str, Cheater] = field(repr=False)

    @property
    def header(self) -> Header:
        """The header of the log."""
        return decode_line(self.lines[0], Header)

    @property
    def entries(self) -> list[Entry]:
        """The entries of the log."""
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
    """Return the checked parameters of all these runs, or of those with a bound on the norm."""
    setting = BALL if ball else setting
    checked, faults = check_gopa(setting.declared, len(setting.inputs))
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
    """Return the roster's members, with this set of identities."""
    return [
        identity.entry("aggregator", "relay.example:4433") if name == RELAY else identity.entry()
        for name, identity in _identities(keys, setting).items()
    ]


def play(
    tampers: Mapping[str, Tamper] | None = None,
    *,
    relay: type[VerifiableRelayMachine] = VerifiableRelayMachine,
    kill: Mapping[str, int] | None = None,
    run: int = RUN,
    keys: int = 0,
    setting: Setting = SETTING,
    user: type[Cheater] = Cheater,
    memo: bool = False,
    ball: bool = False,
    request: int | None = None,
    board: MemoryBoard | None = None,
    seen: Mapping[str, Seen] | None = None,
) -> Played:
    """Run the protocol among the users of a setting.

    Args:
        tampers: who says something else, and what.
        relay: the relay's machine.
        kill: users that fall silent, with the number of the message that they do not send any more.
        run: which run; another one has other randomness.
        keys: which set of identities.
        setting: users, values and parameters.
        user: the users' machine.
        memo: whether the machines share what each would find by itself.
        ball: whether the norm is bounded and not the coordinates, in place of a setting.
        request: number of the request; by default that of the run.
        board: one with earlier runs of the session, on which this one goes on.
        seen: what users keep of the session log.
    """
    setting = BALL if ball else setting
    identities = _identities(keys, setting)
    checked = parameters(setting)
    session = session_json(
        canonical_session("gopa", checked.version, setting.declared, members(keys, setting))
    )
    names = tuple(setting.inputs)
    context = Context(
        protocol="gopa",
        version=checked.version,
        session_digest=session_digest(session),
        request=run if request is None else request,
        names=names,
        aggregator=RELAY,
        keys={name: identity.public_key for name, identity in identities.items()},
        question=f"average {checked.planned()}",
        memo={} if memo else None,
    )
    users: list[Cheater] = []
    for name in names:
        lanes, _ = checked.encoding.encode(np.array(setting.inputs[name]), party=name)
        randomness = SeededRandomnessForSimulation(run, name)
        kept = (seen or {}).get(name, NOTHING_SEEN)
        machine = user(context, checked, identities[name], lanes, randomness, kept)
        machine.tamper = (tampers or {}).get(name)
        users.append(machine)
    board = MemoryBoard(session.decode("ascii")) if board is None else board
    host = relay(context, checked, identities[RELAY], board=board)
    errors = drive([host, *users], MemoryNetwork(Faults(kill=dict(kill or {}))), RELAY)
    return Played(
        board.lines, errors, context, identities, host, {machine.name: machine for machine in users}
    )


@functools.cache
def honest(run: int = RUN, keys: int = 0, *, ball: bool = False, setting: Setting = SETTING) -> Played:
    """Return a run in which nobody deviates."""
    return play(run=run, keys=keys, ball=ball, setting=setting)


def entry_of(played: Played, kind: str, party: str = RELAY) -> Entry:
    """Return the entry of this kind and party."""
    return next(entry for entry in played.entries if (entry.kind, entry.party) == (kind, party))


def message_of(played: Played, kind: str, message: type[S], party: str = RELAY) -> S:
    """Return what the entry of this kind and party says."""
    return decode(entry_of(played, kind, party).payload, message, "")


def lines_of(tampers: Mapping[str, Tamper] | None = None, **given: Any) -> list[bytes]:
    """Return the log of a run, with arguments as of `play`."""
    return play(tampers, **given).lines
