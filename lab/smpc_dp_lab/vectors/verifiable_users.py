"""Cheats of users: what they say instead of the truth, one thing each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.crypto import proofs
from smpc_dp.errors import LocalError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.collector import Item
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.collecting import CollectCoin
from smpc_dp.protocols.gopa.verifiable.statements import (
    BOUNDS,
    COMMIT_MALFORMED,
    MALFORMED,
    NOISE,
    RANGE,
    SUM,
)
from smpc_dp.protocols.gopa.verifiable.states import AGGREGATOR
from smpc_dp_lab.vectors.verifiable_cheat import EXCLUDED, REFUSED, VOID, Cheat
from smpc_dp_lab.vectors.verifiable_runs import HONEST, Cheater, Host, Tamper, entry_of, honest, play

# Who cheats, and who would be copied.
CHEAT, OTHER = "dan", "ben"
GRID = np.dtype("<i8")


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat of a user."""
    yield from _ranges()
    yield from _noises()
    yield from _sums()
    yield from _edges()
    yield from _coins()


def at(step: str, change: Callable[[Cheater, msgspec.Struct], msgspec.Struct]) -> Tamper:
    """Return what changes the message of one step."""

    def tamper(user: Cheater, now: str, message: msgspec.Struct) -> msgspec.Struct:
        return change(user, message) if now == step else message

    return tamper


def _excluded(name: str, about: str, check: str, tamper: Tamper) -> Cheat:
    return Cheat(name, about, check, EXCLUDED, (CHEAT,), lambda: play({CHEAT: tamper}).lines)


def commit_of(message: msgspec.Struct) -> v.Commit:
    """Return the message, which must be commitments."""
    if not isinstance(message, v.Commit):
        raise LocalError("not a commit")
    return message


def _published(message: msgspec.Struct) -> v.Publish:
    if not isinstance(message, v.Publish):
        raise LocalError("not a publication")
    return message


# the value


def out_of_range(values: Sequence[int]) -> Tamper:
    """Commit to these values, with a proof for the nearest ones within the bounds."""

    def change(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        return replace(commit_of(message), value=user.use_values(values))

    return at(v.COMMIT, change)


def _ranges() -> Iterator[Cheat]:
    yield _excluded("range-off-by-one", "A value is one above the upper bound.", RANGE, out_of_range((4, 5)))
    yield _excluded(
        "range-coordinates-swapped",
        "The vector that is committed to has the coordinates of the proven one, exchanged.",
        RANGE,
        out_of_range((1, 4)),
    )
    yield _excluded("range-negative", "A value is below the lower bound.", RANGE, out_of_range((-1, 1)))
    yield _excluded(
        "range-by-the-group-order",
        "A value is far out, so that another user's could wrap.",
        RANGE,
        out_of_range((4, 1 << 61)),
    )

    def replayed(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        earlier = decode(entry_of(honest(run=2), v.COMMIT, CHEAT).payload, v.Commit, "")
        return replace(commit_of(message), value=earlier.value, range_proof=earlier.range_proof)

    about = "Value and range proof are the user's own, from another run."
    yield _excluded("range-proof-of-another-run", about, RANGE, at(v.COMMIT, replayed))

    def copied(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        others = decode(entry_of(honest(), v.COMMIT, OTHER).payload, v.Commit, "")
        return replace(commit_of(message), value=others.value, range_proof=others.range_proof)

    about = "The commitment to the value and its proof are those of another user of the run."
    yield _excluded("value-commitment-reused", about, RANGE, at(v.COMMIT, copied))

    def garbled(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        proof = commit_of(message).range_proof
        return replace(commit_of(message), range_proof=proof[:-1] + bytes([proof[-1] ^ 1]))

    yield _excluded(
        "range-proof-flipped", "One bit of the range proof is flipped.", RANGE, at(v.COMMIT, garbled)
    )
    for name, about, change in (
        ("commitments-of-nothing", "What a user signs as its commitments is no message.", says(b"\x93")),
        ("commitments-too-long", "A range proof is followed by 4,096 bytes.", _longer),
        ("commitment-of-no-point", "A commitment to pairwise noise is the encoding of no point.", _no_point),
    ):
        yield _excluded(name, about, COMMIT_MALFORMED, at(v.COMMIT, change))


def says(body: bytes) -> Callable[[Cheater, msgspec.Struct], msgspec.Struct]:
    """Sign these bytes, whatever is due."""
    return lambda _user, _message: cast("msgspec.Struct", msgspec.Raw(body))


def _longer(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    return replace(commit_of(message), range_proof=commit_of(message).range_proof + bytes(4096))


def _no_point(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    return replace(commit_of(message), edges=b"\xff" * 32 + commit_of(message).edges[32:])


# noise


def with_noise(noise: Callable[[Cheater], Sequence[int]]) -> Tamper:
    """Publish with a chosen noise, everything else to match, and the proof of the true noise."""

    def change(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        return user.with_noise(_published(message), noise(user), committed=True)

    return at(v.PUBLISH, change)


def _noises() -> Iterator[Cheat]:
    yield _excluded("noise-none", "The noise is zero.", NOISE, with_noise(lambda _user: (0, 0)))
    yield _excluded("noise-chosen", "The noise is chosen.", NOISE, with_noise(lambda _user: (6, -6)))
    yield _excluded(
        "noise-off-by-one",
        "One coordinate of the noise is one more than the bits and the coins give.",
        NOISE,
        with_noise(lambda user: (user.secret.given[0] + 1, *user.secret.given[1:])),
    )
    yield _excluded(
        "noise-coordinates-swapped",
        "The noise of the first coordinate is in the second, and the other way round.",
        NOISE,
        with_noise(lambda user: tuple(reversed(user.secret.given))),
    )

    def other_secret(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        user.draw_again()
        return message

    yield _excluded(
        "noise-from-another-seed",
        "The noise and its proof are of other secret bits than those committed to.",
        NOISE,
        at(v.COMMIT, other_secret),
    )

    def other_coins(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        secret = user.secret
        secret.coins_instead = bytes(proofs.coin_bytes(secret.length, secret.bits))
        return message

    yield _excluded(
        "noise-from-other-coins",
        "The noise and its proof are for coins of the user's own.",
        NOISE,
        at(v.COMMIT, other_coins),
    )

    def copied(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        others = decode(entry_of(honest(), v.COMMIT, OTHER).payload, v.Commit, "")
        return replace(commit_of(message), noise_secret=others.noise_secret)

    about = "The commitment to the secret bits is another user's."
    yield _excluded("noise-commitment-reused", about, NOISE, at(v.COMMIT, copied))

    def replayed(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        earlier = decode(entry_of(honest(run=2), v.PUBLISH, CHEAT).payload, v.Publish, "")
        return replace(_published(message), noise=earlier.noise, noise_proof=earlier.noise_proof)

    about = "Noise and noise proof are the user's own, from another run."
    yield _excluded("noise-proof-of-another-run", about, NOISE, at(v.PUBLISH, replayed))

    def of_other(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        others = decode(entry_of(honest(), v.PUBLISH, OTHER).payload, v.Publish, "")
        return replace(_published(message), noise=others.noise, noise_proof=others.noise_proof)

    about = "Noise and noise proof are those of another user of the run."
    yield _excluded("noise-proof-of-another-user", about, NOISE, at(v.PUBLISH, of_other))


# the sum


def shifted(change: Callable[[np.ndarray[tuple[int], np.dtype[np.int64]]], object]) -> Tamper:
    """Publish another x_hat."""

    def tampered(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        x_hat = np.frombuffer(_published(message).x_hat, dtype=GRID).copy()
        change(x_hat)
        return replace(_published(message), x_hat=x_hat.tobytes())

    return at(v.PUBLISH, tampered)


def _add(place: int, value: int) -> Callable[[np.ndarray[tuple[int], np.dtype[np.int64]]], object]:
    def change(x_hat: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        x_hat[place] += value

    return change


def swap(x_hat: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Exchange the coordinates."""
    x_hat[:] = x_hat[::-1].copy()


off_by_one = shifted(_add(0, 1))
too_far_out = shifted(_add(0, 1 << 40))


def cut_proof(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Publish with a noise proof that lacks its last byte."""
    return replace(_published(message), noise_proof=_published(message).noise_proof[:-1])


def _sums() -> Iterator[Cheat]:
    yield _excluded("sum-off-by-one", "x_hat is one more than the sum.", SUM, off_by_one)
    yield _excluded("sum-coordinates-swapped", "The coordinates of x_hat are swapped.", SUM, shifted(swap))
    yield _excluded(
        "input-chosen-after-the-coins",
        "x_hat is with another value, within the bounds, chosen once the noise was known.",
        SUM,
        shifted(_add(1, 3)),
    )

    def without_noise(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        return user.with_noise(_published(message), (0, 0), committed=False)

    about = "The noise is proven, and left out of x_hat."
    yield _excluded("noise-left-out", about, SUM, at(v.PUBLISH, without_noise))

    def other_blinding(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        return replace(_published(message), blinding=user.fresh_blinding())

    yield _excluded("blinding-wrong", "The blinding of x_hat is another.", SUM, at(v.PUBLISH, other_blinding))

    def without_edge(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        return user.without_edge(_published(message))

    about = "One pairwise term that was committed to is left out of x_hat, with its blinding."
    yield _excluded("edge-left-out", about, SUM, at(v.PUBLISH, without_edge))
    about = "x_hat is further out than any noise of the plan."
    yield _excluded("x-hat-out-of-bounds", about, BOUNDS, too_far_out)
    yield _excluded(
        "noise-proof-too-short", "A noise proof lacks its last byte.", MALFORMED, at(v.PUBLISH, cut_proof)
    )

    def longer(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        return replace(_published(message), noise_proof=_published(message).noise_proof + bytes(4096))

    about = "A noise proof is followed by 4,096 bytes."
    yield _excluded("publication-too-long", about, MALFORMED, at(v.PUBLISH, longer))


# edges


def _edges() -> Iterator[Cheat]:
    def one_sided(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        given = commit_of(message)
        user.drop_edge(min(user.next.edges))
        return replace(given, neighbours=given.neighbours[2:], edges=given.edges[32:])

    def other_noise(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        given = commit_of(message)
        return replace(given, edges=user.shift_edge(min(user.next.terms), 1000) + given.edges[32:])

    for name, about, change in (
        ("edge-on-one-side", "A user claims no edge where its neighbour does.", one_sided),
        (
            "edge-that-does-not-cancel",
            "A user commits to another pairwise term than its neighbour.",
            other_noise,
        ),
    ):
        tamper = at(v.COMMIT, change)
        make = _play({CHEAT: tamper})
        yield Cheat(name, about, "the two commitments of an edge cancel", VOID, ("ann", CHEAT), make)


# coins


def _take_coin(_relay: object, state: CollectCoin, party: int, envelope: Envelope) -> Item:
    """Take every coin, as a relay does that deviates."""
    decode(envelope.body, v.Coin, envelope.sender)
    state.coins[party] = Item(None, envelope.body, envelope.signature)
    return state.coins[party]


_TAKES_COINS = Host(role=AGGREGATOR.with_stage(CollectCoin, accept=_take_coin))


def _coins() -> Iterator[Cheat]:
    def another(user: Cheater, _message: msgspec.Struct) -> msgspec.Struct:
        return v.Coin(user.fresh_coin())

    tampers = {CHEAT: at(v.COIN, another)}
    check = "the coin is what was committed to"
    yield Cheat(
        "coin-other-than-committed",
        "A user opens another coin, and the relay takes it.",
        check,
        REFUSED,
        (CHEAT,),
        _play(tampers, relay=_TAKES_COINS),
    )

    def copied(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
        others = decode(entry_of(honest(), v.COMMIT, OTHER).payload, v.Commit, "")
        return replace(commit_of(message), coin=others.coin)

    def copy(user: Cheater, step: str, message: msgspec.Struct) -> msgspec.Struct:
        if step == v.COMMIT:
            return copied(user, message)
        if step == v.COIN:
            return decode(entry_of(honest(), v.COIN, OTHER).payload, v.Coin, "")
        return message

    yield Cheat(
        "coin-commitment-copied",
        "A user copies another one's coin commitment, and then its coin; the relay takes it.",
        check,
        REFUSED,
        (CHEAT,),
        _play({CHEAT: copy}, relay=_TAKES_COINS),
    )
    yield Cheat(
        "coin-withheld",
        "A user does not open its coin: the run stops, and the log has no end.",
        "the log has an end",
        REFUSED,
        (),
        lambda: play(kill={CHEAT: 7}).lines,
    )
    yield Cheat(
        "publication-withheld",
        "A user leaves once it has seen its noise. Silence excludes nobody; its pairwise terms stay.",
        "every pairwise term cancels",
        REFUSED,
        (CHEAT,),
        lambda: play(kill={CHEAT: 9}).lines,
    )


def _play(tampers: dict[str, Tamper], *, relay: Host = HONEST) -> Callable[[], list[bytes]]:
    return lambda: play(tampers, relay=relay).lines
