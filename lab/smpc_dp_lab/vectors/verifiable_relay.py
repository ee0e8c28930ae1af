"""Cheats of a relay: entries, header, certificates and tally, one thing each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.protocols.envelope import decode, encode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.secagg.graph import pack_list, pack_set
from smpc_dp_lab.vectors.verifiable_cheat import REFUSED, Cheat
from smpc_dp_lab.vectors.verifiable_host import (
    FORMAT,
    HEADER,
    HEADS,
    ORDER,
    Change,
    changed_log,
    place_of,
    replaced,
    rewritten,
)
from smpc_dp_lab.vectors.verifiable_runs import RELAY, USERS, Played, entry_of, honest, play
from smpc_dp_lab.vectors.verifiable_users import CHEAT, OTHER, off_by_one


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat of a relay."""
    yield from _entries()
    yield from _header()
    yield from _tally()
    yield from _certificates()
    yield from _coin()


def _entries() -> Iterator[Cheat]:
    def reordered(played: Played) -> list[bytes]:
        entries, place = played.entries, place_of(played, v.COIN, "ann") - 1
        entries[place], entries[place + 1] = entries[place + 1], entries[place]
        return played.log(entries)

    yield changed_log("entries-reordered", "Two coins are exchanged, with heads that fit.", ORDER, reordered)

    def without(kind: str, party: str) -> Change:
        return lambda played: played.log(
            [entry for entry in played.entries if (entry.kind, entry.party) != (kind, party)]
        )

    yield changed_log(
        "commitments-dropped", "A user's commitments are left out.", HEADS, without(v.COMMIT, CHEAT), RELAY
    )
    yield changed_log(
        "coin-dropped",
        "A user's coin is left out.",
        "every participant's coin",
        without(v.COIN, CHEAT),
        RELAY,
    )
    yield changed_log(
        "publication-dropped",
        "A user's publication is left out.",
        "who is counted",
        without(v.PUBLISH, CHEAT),
        RELAY,
    )
    yield changed_log(
        "certificate-dropped",
        "The heads of the coins are not certified.",
        ORDER,
        without(v.CERTIFY_COINS, RELAY),
    )

    def twice(played: Played) -> list[bytes]:
        entries, place = played.entries, place_of(played, v.PUBLISH, CHEAT)
        return played.log([*entries[:place], *entries[place - 1 :]])

    yield changed_log("publication-twice", "A user's publication is there twice.", ORDER, twice)

    def late(played: Played) -> list[bytes]:
        entries, place = played.entries, place_of(played, v.COMMIT, "eve") - 1
        moved = entries.pop(place)
        return played.log([*entries[: place + 1], moved, *entries[place + 1 :]])

    yield changed_log(
        "commitments-after-the-heads", "A user's commitments follow the certificate.", HEADS, late, RELAY
    )

    def again(played: Played) -> list[bytes]:
        other = entry_of(play({CHEAT: _another_coin}), v.COMMIT, CHEAT)
        return replaced(played, v.COMMIT, CHEAT, lambda _entry: other)

    yield changed_log(
        "commitments-exchanged",
        "A user has signed two sets of commitments in one run, and the log has not the agreed ones.",
        HEADS,
        again,
        RELAY,
    )

    def users_tally(played: Played) -> list[bytes]:
        return replaced(
            played, v.TALLY, RELAY, lambda entry: played.sign(replace(entry, party=CHEAT), signer=CHEAT)
        )

    yield changed_log("tally-by-a-user", "A user signs the tally.", ORDER, users_tally, CHEAT)

    def opened(played: Played) -> list[bytes]:
        message = v.Open(pack_list([1]), bytes(16), bytes(32))
        entry = played.sign(replace(entry_of(played, v.PUBLISH, OTHER), kind=v.OPEN), encode(message))
        entries, place = played.entries, place_of(played, v.TALLY) - 1
        return played.log([*entries[:place], entry, *entries[place:]])

    yield changed_log(
        "edge-of-an-honest-user-opened",
        "A user's opening of an edge to one that published nothing false is on the board.",
        ORDER,
        opened,
    )


def _another_coin(_user: object, step: str, message: msgspec.Struct) -> msgspec.Struct:
    """Commit to another coin."""
    if step == v.COMMIT and isinstance(message, v.Commit):
        return replace(message, coin=bytes(32))
    return message


def _header() -> Iterator[Cheat]:
    def changed(**fields: object) -> Change:
        return lambda played: played.log(played.entries, replace(played.header, **fields))

    def session(old: str, new: str) -> Change:
        return lambda played: played.log(
            played.entries, replace(played.header, session=played.header.session.replace(old, new, 1))
        )

    yield changed_log(
        "bounds-changed", "The header has wider bounds.", HEADER, session('"upper":4', '"upper":5')
    )
    yield changed_log(
        "epsilon-changed",
        "The header has another epsilon.",
        HEADER,
        session('"epsilon":8.0', '"epsilon":7.0'),
    )
    yield changed_log("session-respelt", "The session in the header has a space.", FORMAT, session(",", ", "))
    yield changed_log("run-id-changed", "The header has another run id.", HEADER, changed(run_id="ab" * 32))
    yield changed_log(
        "request-changed", "The header has another number of the request.", HEADER, changed(request=2)
    )
    yield changed_log(
        "question-changed", "The header says that a sum was asked for.", HEADER, changed(question="sum 3/7b")
    )
    yield changed_log(
        "nonce-changed",
        "The header has another nonce of a user.",
        HEADER,
        changed(root=bytes(32)),
    )
    yield changed_log(
        "present-changed",
        "The header leaves a user out of those that were present.",
        HEADER,
        changed(present=pack_set([1, 2, 3], len(USERS))),
    )


def _cheat(name: str, about: str, check: str, make: Callable[[], list[bytes]]) -> Cheat:
    """Return a cheat that is the relay's fault and is refused."""
    return Cheat(name, about, check, REFUSED, (RELAY,), make)


def _tally() -> Iterator[Cheat]:
    def tally(
        change: Callable[[v.Tally], v.Tally], base: Callable[[], Played] = honest
    ) -> Callable[[], list[bytes]]:
        return lambda: rewritten(base(), v.TALLY, RELAY, lambda payload: change(decode(payload, v.Tally, "")))

    def total(message: v.Tally, add: int = 1) -> v.Tally:
        return replace(message, total=_plus(message.total, add))

    yield _cheat(
        "total-changed",
        "The total is one more than the sum of what was published.",
        "the total",
        tally(total),
    )

    def residual(message: v.Tally) -> v.Tally:
        return replace(message, residual_pairs=message.residual_pairs + 1)

    yield _cheat(
        "residual-pairs-changed", "The tally counts a pair that cancels.", "residual pairs", tally(residual)
    )

    def uncounted(message: v.Tally) -> v.Tally:
        return replace(message, counted=pack_set([1, 2, 3, 4], len(USERS)))

    yield _cheat(
        "honest-user-not-counted", "The tally leaves a user out.", "who is counted", tally(uncounted)
    )

    def counted(message: v.Tally) -> v.Tally:
        return replace(message, counted=pack_set(range(1, 6), len(USERS)))

    def cheated() -> Played:
        return play({CHEAT: off_by_one})

    yield _cheat(
        "cheat-counted",
        "The tally counts a user whose x_hat is false.",
        "who is counted",
        tally(counted, cheated),
    )


def _certificates() -> Iterator[Cheat]:
    def members(message: v.Certified) -> v.Certified:
        return replace(message, members=pack_set([1, 2, 3, 4], len(USERS)))

    def few(message: v.Certified) -> v.Certified:
        return replace(message, signers=pack_set([1], len(USERS)), signatures=message.signatures[:64])

    def forged(message: v.Certified) -> v.Certified:
        return replace(message, signatures=message.signatures[64:128] + message.signatures[64:])

    def certified(change: Callable[[v.Certified], v.Certified], kind: str) -> Callable[[], list[bytes]]:
        return lambda: rewritten(honest(), kind, RELAY, lambda body: change(decode(body, v.Certified, "")))

    yield _cheat(
        "honest-user-left-out",
        "A user whose commitments are right is not let in.",
        "who takes part",
        certified(members, v.CERTIFY_COMMITMENTS),
    )
    for stage, kind in (("commitments", v.CERTIFY_COMMITMENTS), ("tally", v.CERTIFY_TALLY)):
        about = f"The head of the {stage} has one signature."
        yield _cheat(f"{stage}-without-a-quorum", about, HEADS, certified(few, kind))
        about = f"A signature on the head of the {stage} is another user's."
        yield _cheat(f"{stage}-with-a-forged-signature", about, HEADS, certified(forged, kind))

    def reused(_body: bytes) -> bytes:
        return entry_of(honest(), v.CERTIFY_COMMITMENTS).payload

    yield _cheat(
        "certificate-reused",
        "The certificate of the commitments stands for that of the coins.",
        HEADS,
        lambda: rewritten(honest(), v.CERTIFY_COINS, RELAY, reused),
    )


def _coin() -> Iterator[Cheat]:
    def own_coin(payload: bytes) -> msgspec.Struct:
        del payload
        return v.Coin(bytes(32))

    yield Cheat(
        "coin-exchanged",
        "A user has signed a second coin, for which the noise would be better.",
        "the coin is what was committed to",
        REFUSED,
        (CHEAT,),
        lambda: rewritten(honest(), v.COIN, CHEAT, own_coin),
    )


def _plus(packed: bytes, value: int) -> bytes:
    lanes = np.frombuffer(packed, dtype="<u8").copy()
    lanes[0] += np.uint64(value)
    return lanes.tobytes()
