"""Cheats of parties: one false message each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.collecting import CollectCoin
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.statements import (
    BOUNDS,
    COMMIT_MALFORMED,
    MALFORMED,
    NOISE,
    RANGE,
    SUM,
)
from smpc_dp.capabilities.gopa.verifiable.states import AGGREGATOR
from smpc_dp.crypto import proofs
from smpc_dp.engine.collector import Item
from smpc_dp.engine.phases.run_log import Statement
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.fault import altered, flip
from smpc_dp_lab.vectors.verifiable_cheat import BASE, EXCLUDED, REFUSED, VERSION_2_BASE, VOID, Cheat
from smpc_dp_lab.vectors.verifiable_runs import (
    OF_VERSION_2,
    RUN,
    SETTING,
    Cheater,
    Host,
    RecordedRun,
    Setting,
    Tamper,
    execute,
    honest,
    lines_of,
    message_of,
)

# Who cheats, and who would be copied.
CHEAT, OTHER = "dan", "ben"
GRID = np.dtype("<i8")


def all_cheats() -> Iterator[Cheat]:
    """Yield all test vectors of logs in which a party has sent false messages."""
    yield from _ranges()
    yield from _noises()
    yield from _sums()
    yield from _edges()
    yield from _coins()
    yield from _before()


def at(step: str, change: Callable[[Cheater, Any], msgspec.Struct]) -> Tamper:
    """Return a function that changes a cheating party's message of one step, and no other message."""

    def tamper(party: Cheater, now: str, message: msgspec.Struct) -> msgspec.Struct:
        return change(party, message) if now == step else message

    return tamper


def instead(step: str, **fields: object) -> Tamper:
    """Return a function that replaces fields of one step's message, by values or functions of the old."""
    return at(step, lambda _party, message: altered(message, fields))


def copied(step: str, *fields: str, party: str = OTHER, run: int = RUN, setting: Setting = SETTING) -> Tamper:
    """Return a function that copies another party's fields into one step's message, or another run's."""

    def change(_party: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        claimed = message_of(honest(run, setting=setting), step, type(message), party)
        return replace(message, **{field: getattr(claimed, field) for field in fields})

    return at(step, change)


def excluded(
    name: str, about: str, check: str, tamper: Tamper, setting: Setting = SETTING, base: str = BASE
) -> Cheat:
    """Return the test vector of a cheat for which the party at fault must be excluded."""
    make = partial(lines_of, {CHEAT: tamper}, setting=setting)
    return Cheat(name, about, check, EXCLUDED, (CHEAT,), make, base)


def flip_last(data: bytes) -> bytes:
    """Return a copy of the bytes with the lowest bit of the last one flipped."""
    return flip(data, -1)


def longer(data: bytes) -> bytes:
    """Return the bytes with 4,096 zero bytes appended."""
    return data + bytes(4096)


# the value


def out_of_range(values: Sequence[int]) -> Tamper:
    """Return a function that commits to these values, with a proof about the nearest permitted ones."""
    return at(v.COMMIT, lambda party, message: replace(message, value=party.use_values(values)))


def with_body(body: bytes) -> Callable[[Cheater, msgspec.Struct], msgspec.Struct]:
    """Return a function that replaces a party's message by these bytes, which are then signed."""
    return lambda _party, _message: cast("msgspec.Struct", msgspec.Raw(body))


def _ranges() -> Iterator[Cheat]:
    """Yield cheats that commit to values out of range."""
    yield excluded("range-off-by-one", "A value is one above the upper bound.", RANGE, out_of_range((4, 5)))
    about = "The vector that is committed to has the coordinates of the proven one, exchanged."
    yield excluded("range-coordinates-swapped", about, RANGE, out_of_range((1, 4)))
    yield excluded("range-negative", "A value is below the lower bound.", RANGE, out_of_range((-1, 1)))
    about = "A value is far out, so that another user's could wrap."
    yield excluded("range-by-the-group-order", about, RANGE, out_of_range((4, 1 << 61)))
    about = "Value and range proof are the user's own, from another run."
    replayed = copied(v.COMMIT, "value", "range_proof", party=CHEAT, run=2)
    yield excluded("range-proof-of-another-run", about, RANGE, replayed)
    about = "The commitment to the value and its proof are those of another user of the run."
    yield excluded("value-commitment-reused", about, RANGE, copied(v.COMMIT, "value", "range_proof"))
    about = "One bit of the range proof is flipped."
    yield excluded("range-proof-flipped", about, RANGE, instead(v.COMMIT, range_proof=flip_last))
    about = "What a user signs as its commitments is no message."
    yield excluded("commitments-of-nothing", about, COMMIT_MALFORMED, at(v.COMMIT, with_body(b"\x93")))
    about = "A range proof is followed by 4,096 bytes."
    yield excluded("commitments-too-long", about, COMMIT_MALFORMED, instead(v.COMMIT, range_proof=longer))
    about = "A commitment to pairwise noise is the encoding of no point."
    no_point = instead(v.COMMIT, edges=lambda packed: b"\xff" * 32 + packed[32:])
    yield excluded("commitment-of-no-point", about, COMMIT_MALFORMED, no_point)


# noise


def with_noise(noise: Callable[[Cheater], Sequence[int]]) -> Tamper:
    """Return a function that publishes with chosen noise, but the proof of the true noise."""
    return at(v.PUBLISH, lambda party, message: party.with_noise(message, noise(party), committed=True))


def one_more_noise(party: Cheater) -> Sequence[int]:
    """Return the party's noise, with 1 added in the first coordinate."""
    return (party.secret.given[0] + 1, *party.secret.given[1:])


def swapped_noise(party: Cheater) -> Sequence[int]:
    """Return the party's noise in reversed order of coordinates."""
    return party.secret.given[::-1]


def _noises() -> Iterator[Cheat]:
    """Yield cheats with independent noise that is not the proven one."""
    yield excluded("noise-none", "The noise is zero.", NOISE, with_noise(lambda _party: (0, 0)))
    yield excluded("noise-chosen", "The noise is chosen.", NOISE, with_noise(lambda _party: (6, -6)))
    about = "One coordinate of the noise is one more than the bits and the coins give."
    yield excluded("noise-off-by-one", about, NOISE, with_noise(one_more_noise))
    about = "The noise of the first coordinate is in the second, and the other way round."
    yield excluded("noise-coordinates-swapped", about, NOISE, with_noise(swapped_noise))

    def other_secret(party: Cheater, message: v.Commit) -> v.Commit:
        party.draw_again()
        return message

    about = "The noise and its proof are of other secret bits than those committed to."
    yield excluded("noise-from-another-seed", about, NOISE, at(v.COMMIT, other_secret))

    def other_coins(party: Cheater, message: v.Commit) -> v.Commit:
        secret = party.secret
        secret.coins_instead = bytes(proofs.coin_bytes(secret.length, secret.bits))
        return message

    about = "The noise and its proof are for coins of the user's own."
    yield excluded("noise-from-other-coins", about, NOISE, at(v.COMMIT, other_coins))
    about = "The commitment to the secret bits is another user's."
    yield excluded("noise-commitment-reused", about, NOISE, copied(v.COMMIT, "noise_secret"))
    about = "Noise and noise proof are the user's own, from another run."
    replayed = copied(v.PUBLISH, "noise", "noise_proof", party=CHEAT, run=2)
    yield excluded("noise-proof-of-another-run", about, NOISE, replayed)
    about = "Noise and noise proof are those of another user of the run."
    yield excluded("noise-proof-of-another-user", about, NOISE, copied(v.PUBLISH, "noise", "noise_proof"))


# the sum


def shifted(change: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Tamper:
    """Return a function that changes the published vector x_hat by `change`."""
    return instead(v.PUBLISH, x_hat=lambda x_hat: change(np.frombuffer(x_hat, dtype=GRID)).tobytes())


def swap(x_hat: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the published vector in reversed order of coordinates."""
    return x_hat[::-1]


off_by_one = shifted(lambda x_hat: x_hat + np.eye(1, x_hat.size, dtype=GRID)[0])


def far_out(of: Callable[[VerifiableParameters], int]) -> Tamper:
    """Return a function that sets the first coordinate of the published vector to `of(parameters)`."""

    def publish(party: Cheater, message: v.Publish) -> v.Publish:
        x_hat = np.frombuffer(message.x_hat, dtype=GRID).copy()
        x_hat[0] = of(party.member.parameters)
        return replace(message, x_hat=x_hat.tobytes())

    return at(v.PUBLISH, publish)


too_far_out = far_out(lambda parameters: parameters.greatest_published + 1)


def cut_proof(_party: Cheater, message: v.Publish) -> v.Publish:
    """Return a publication whose noise proof lacks its last byte."""
    return replace(message, noise_proof=message.noise_proof[:-1])


def _sums() -> Iterator[Cheat]:
    """Yield cheats whose published vector is not the sum of the committed terms."""
    yield excluded("sum-off-by-one", "x_hat is one more than the sum.", SUM, off_by_one)
    yield excluded("sum-coordinates-swapped", "The coordinates of x_hat are swapped.", SUM, shifted(swap))
    about = "x_hat is with another value, within the bounds, chosen once the noise was known."
    three_more = shifted(lambda x_hat: x_hat + np.array([0, 3]))
    yield excluded("input-chosen-after-the-coins", about, SUM, three_more)

    def without_noise(party: Cheater, message: v.Publish) -> v.Publish:
        return party.with_noise(message, (0, 0), committed=False)

    about = "The noise is proven, and left out of x_hat."
    yield excluded("noise-left-out", about, SUM, at(v.PUBLISH, without_noise))

    def other_blinding(party: Cheater, message: v.Publish) -> v.Publish:
        return replace(message, blinding=party.fresh_blinding())

    yield excluded("blinding-wrong", "The blinding of x_hat is another.", SUM, at(v.PUBLISH, other_blinding))
    about = "One pairwise term that was committed to is left out of x_hat, with its blinding."
    yield excluded("edge-left-out", about, SUM, at(v.PUBLISH, Cheater.without_edge))
    about = "x_hat is one step further out than noise of the plan, with terms of any choice."
    yield excluded("x-hat-out-of-bounds", about, BOUNDS, too_far_out)
    about = "x_hat is as far out as an honest user's can be, and another than the sum."
    yield excluded("x-hat-at-its-bound", about, SUM, far_out(lambda checked: checked.greatest_published))
    about = "A noise proof lacks its last byte."
    yield excluded("noise-proof-too-short", about, MALFORMED, at(v.PUBLISH, cut_proof))
    about = "A noise proof is followed by 4,096 bytes."
    yield excluded("publication-too-long", about, MALFORMED, instead(v.PUBLISH, noise_proof=longer))


# edges


def _edges() -> Iterator[Cheat]:
    """Yield cheats with pairwise noise that the two ends of an edge do not share."""

    def one_sided(party: Cheater, message: v.Commit) -> v.Commit:
        return party.leave_out(message, min(party.next.edges))

    def other_noise(party: Cheater, message: v.Commit) -> v.Commit:
        edge = party.shift_edge(min(party.next.terms), 1000)
        return replace(message, edges=edge + message.edges[32:])

    check = "the two commitments of an edge cancel"
    for name, about, change in (
        ("edge-on-one-side", "A user claims no edge where its neighbour does.", one_sided),
        (
            "edge-that-does-not-cancel",
            "A user commits to another pairwise term than its neighbour.",
            other_noise,
        ),
    ):
        make = partial(lines_of, {CHEAT: at(v.COMMIT, change)})
        yield Cheat(name, about, check, VOID, ("ann", CHEAT), make)


def without_an_edge() -> RecordedRun:
    """Return a run in which the two ends of an edge leave it out, as they do if its term is too large."""
    ann, dan = 1, 4
    return execute(
        {
            name: at(v.COMMIT, partial(Cheater.leave_out, peer=peer))
            for name, peer in (("ann", dan), ("dan", ann))
        }
    )


# coins


def _take_coin(_relay: object, state: CollectCoin, party: int, envelope: Envelope) -> Item:
    """Record and return a party's coin without a check, as a deviating aggregator does."""
    decode(envelope.body, v.Coin, envelope.sender)
    item = Item(None, envelope.body, envelope.signature)
    state.coins[party] = Statement.of(item)
    return item


_TAKES_COINS = Host(role=AGGREGATOR.with_row(CollectCoin, accept=_take_coin))


def _coins() -> Iterator[Cheat]:
    """Yield cheats with coins that differ from the committed ones."""
    of_commit, of_coin = copied(v.COMMIT, "coin"), copied(v.COIN, "coin")

    def copy(party: Cheater, step: str, message: msgspec.Struct) -> msgspec.Struct:
        return of_coin(party, step, of_commit(party, step, message))

    another = at(v.COIN, lambda party, _message: v.Coin(party.fresh_coin()))
    check = "the coin is what was committed to"
    for name, about, tamper in (
        ("coin-other-than-committed", "A user opens another coin, and the relay takes it.", another),
        (
            "coin-commitment-copied",
            "A user copies another one's coin commitment, and then its coin; the relay takes it.",
            copy,
        ),
    ):
        make = partial(lines_of, {CHEAT: tamper}, relay=_TAKES_COINS)
        yield Cheat(name, about, check, REFUSED, (CHEAT,), make)
    about = "A user does not open its coin: the run stops, and the log has no end."
    make = partial(lines_of, kill={CHEAT: 7})
    yield Cheat("coin-withheld", about, "the log has an end", REFUSED, (), make)
    about = "A user leaves once it has seen its noise. Silence excludes nobody; its pairwise terms stay."
    make = partial(lines_of, kill={CHEAT: 9})
    yield Cheat("publication-withheld", about, "every pairwise term cancels", REFUSED, (CHEAT,), make)


# logs of version 2


def _before() -> Iterator[Cheat]:
    """Yield false statements in logs of version 2: what exceeds its bound on x_hat is no cheat."""
    of_two = far_out(lambda parameters: -parameters.greatest_published_before - 1)
    about = "A user is excluded for an x_hat beyond the bound of version 2, which shows nothing."
    make = partial(lines_of, {CHEAT: of_two}, setting=OF_VERSION_2)
    check = "an honest user cannot exceed the bound"
    yield Cheat("version-2-x-hat-out-of-bounds", about, check, REFUSED, (CHEAT,), make, VERSION_2_BASE)
    about = "In a log of version 2 a value is one above the upper bound."
    wide = out_of_range((4, 5))
    yield excluded("version-2-range-off-by-one", about, RANGE, wide, OF_VERSION_2, VERSION_2_BASE)
