"""Runs with rounds of openings, in which users open something false or the relay cheats, one thing each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.errors import LocalError
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.statements import (
    OPENING,
    OPENING_BOUNDS,
    OPENING_MALFORMED,
    OPENING_OTHER,
)
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp_lab.vectors.verifiable_cheat import EXCLUDED, REFUSED, ROUNDS_BASE, Cheat
from smpc_dp_lab.vectors.verifiable_host import HEADS, ORDER, SIGNATURE, replaced, rewritten
from smpc_dp_lab.vectors.verifiable_runs import (
    NINE,
    RELAY,
    Cheater,
    Played,
    Tamper,
    entry_of,
    honest,
    play,
)
from smpc_dp_lab.vectors.verifiable_users import CHEAT, GRID, OTHER, at, off_by_one, says

# Who opens something false in the second round, where one does.
THIRD = "eve"
OPEN_2, CERTIFY_2 = v.in_round(v.OPEN, 2), v.in_round(v.CERTIFY_EXCLUSIONS, 2)
Opening = Callable[[Cheater, msgspec.Struct], msgspec.Struct]
Change = Callable[[Played], list[bytes]]


def opened(message: msgspec.Struct) -> v.Open:
    """Return the message, which must be an opening."""
    if not isinstance(message, v.Open):
        raise LocalError("not an opening")
    return message


def to_something_else(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Open an edge with another blinding."""
    return replace(opened(message), blindings=user.fresh_blinding())


def too_far_out(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Open an edge to more than pairwise noise can be."""
    deltas = np.frombuffer(opened(message).deltas, dtype=GRID) + (1 << 40)
    return replace(opened(message), deltas=deltas.astype(GRID).tobytes())


def nothing(_user: Cheater, _message: msgspec.Struct) -> msgspec.Struct:
    """Say that there is no edge to open."""
    return v.Open(b"", b"", b"")


def one_more(user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Open the edge to a user that said nothing false as well."""
    return user.open_too(opened(message))


def too_long(_user: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Open with 4,096 bytes too many."""
    return replace(opened(message), deltas=opened(message).deltas + bytes(4096))


def in_rounds(*openings: Opening) -> Played:
    """Play a run of nine in which one user publishes a wrong sum; then others open in a wrong way.

    The first one in the first round, the second one, which opens the edge to the first, in the second.
    """
    tampers: dict[str, Tamper] = {CHEAT: off_by_one}
    for number, (name, opening) in enumerate(zip((OTHER, THIRD), openings, strict=False), 1):
        tampers[name] = at(v.in_round(v.OPEN, number), opening)
    return play(tampers, setting=NINE)


@functools.cache
def in_one_round() -> Played:
    """Return the run in which an opening of the first round is false."""
    return in_rounds(to_something_else)


@functools.cache
def in_two_rounds() -> Played:
    """Return the run in which one of the first and one of the second are."""
    return in_rounds(to_something_else, too_far_out)


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat about openings."""
    yield from _users()
    yield from _relays()


def _users() -> Iterator[Cheat]:
    for name, about, check, opening in (
        ("opening-false", "to something else than it has committed to", OPENING, to_something_else),
        ("opening-out-of-bounds", "to more than pairwise noise can be", OPENING_BOUNDS, too_far_out),
        ("opening-malformed", "with what is no message", OPENING_MALFORMED, says(b"\x93")),
        ("opening-too-long", "with 4,096 bytes too many", OPENING_MALFORMED, too_long),
        ("opening-left-out", "by saying that it has none", OPENING_OTHER, nothing),
        ("opening-of-an-honest-edge", "and one to a user that said nothing false", OPENING_OTHER, one_more),
    ):
        yield Cheat(
            name,
            f"A user opens its edge to another, excluded one {about}; it is excluded in the next round.",
            check,
            EXCLUDED,
            (OTHER, CHEAT),
            functools.partial(_lines, opening),
            ROUNDS_BASE,
        )
    yield Cheat(
        "opening-false-and-too-few-left",
        "A user opens its edge to another, excluded one to something else, and without it there is no "
        "quorum: the run stops, and the log has no end.",
        "the log has an end",
        REFUSED,
        (),
        lambda: play({CHEAT: off_by_one, OTHER: at(v.OPEN, to_something_else)}).lines,
    )


def _lines(*openings: Opening) -> list[bytes]:
    return in_rounds(*openings).lines


def _relays() -> Iterator[Cheat]:
    def made(name: str, about: str, check: str, change: Change, *culprits: str) -> Cheat:
        make = functools.partial(_changed, change)
        return Cheat(name, about, check, REFUSED, culprits, make, ROUNDS_BASE)

    def without(*kinds: str) -> Change:
        return lambda played: played.log([entry for entry in played.entries if entry.kind not in kinds])

    yield made(
        "round-left-out",
        "A user opens something false, and no round follows in which its edges are opened.",
        "who was shown false is excluded",
        without(CERTIFY_2, OPEN_2),
        RELAY,
        OTHER,
    )
    yield made(
        "rounds-left-out",
        "A user publishes something false, and no edge of it is opened.",
        "who was shown false is excluded",
        without(v.CERTIFY_EXCLUSIONS, v.OPEN, CERTIFY_2, OPEN_2),
        RELAY,
        CHEAT,
    )
    yield made(
        "round-without-its-certificate",
        "Edges are opened, and no quorum has signed whose.",
        ORDER,
        without(v.CERTIFY_EXCLUSIONS),
    )

    def moved(played: Played) -> list[bytes]:
        first = entry_of(played, v.OPEN, THIRD)
        return replaced(played, OPEN_2, THIRD, lambda _entry: replace(first, kind=OPEN_2))

    about = "A user's opening of the first round stands as its opening of the second."
    yield made("opening-of-another-round", about, SIGNATURE, moved)

    def by_excluded(played: Played) -> list[bytes]:
        entries, place = played.entries, entry_of(played, v.OPEN, THIRD).sequence - 1
        own = replace(entries[place], party=CHEAT)
        return played.log([*entries[:place], played.sign(own), *entries[place:]])

    about = "A user that was excluded opens an edge."
    yield made("opening-by-an-excluded-user", about, "who may open edges", by_excluded, RELAY, CHEAT)

    def certified(change: Callable[[v.Certified], v.Certified]) -> Change:
        return lambda played: rewritten(
            played, CERTIFY_2, RELAY, lambda body: change(decode(body, v.Certified, ""))
        )

    def left_out(message: v.Certified) -> v.Certified:
        return replace(message, members=pack_set([1, 3, 5, 6, 7, 8], len(NINE.inputs)))

    about = "A user that said nothing false does not go on to the second round."
    yield made("honest-user-not-in-the-round", about, "who goes on", certified(left_out), RELAY, "ivy")

    def few(message: v.Certified) -> v.Certified:
        signers = pack_set([1], len(NINE.inputs))
        return replace(message, signers=signers, signatures=message.signatures[:64])

    about = "The head before the second round has one signature."
    yield made("round-without-a-quorum", about, HEADS, certified(few), RELAY)

    def counted(played: Played) -> list[bytes]:
        def with_other(body: bytes) -> msgspec.Struct:
            everybody = [1, 2, 3, 5, 6, 7, 8, 9]
            return replace(decode(body, v.Tally, ""), counted=pack_set(everybody, len(NINE.inputs)))

        return rewritten(played, v.TALLY, RELAY, with_other)

    about = "The tally counts a user that opened something false."
    yield made("false-opener-counted", about, "who is counted", counted, RELAY, OTHER)

    def one_opening_less(played: Played) -> list[bytes]:
        def with_one_more(body: bytes) -> msgspec.Struct:
            tally, last = decode(body, v.Tally, ""), entry_of(played, OPEN_2, "ivy")
            delta = np.frombuffer(decode(last.payload, v.Open, "").deltas, "<u8")
            return replace(tally, total=(np.frombuffer(tally.total, "<u8") + delta).tobytes())

        return rewritten(played, v.TALLY, RELAY, with_one_more)

    about = "Pairwise noise that was opened in the second round is in the total."
    yield made("opened-noise-in-the-total", about, "the total", one_opening_less, RELAY)
    yield Cheat(
        "round-without-a-reason",
        "Edges are opened in a run in which nobody said anything false.",
        "who was shown false is excluded",
        REFUSED,
        (RELAY,),
        _reasonless,
    )


def _changed(change: Change) -> list[bytes]:
    return change(in_one_round())


def _reasonless() -> list[bytes]:
    played = honest()
    entry = entry_of(played, v.CERTIFY_COINS)
    begun = played.sign(replace(entry, kind=v.CERTIFY_EXCLUSIONS))
    entries, place = played.entries, entry_of(played, v.TALLY).sequence - 1
    return played.log([*entries[:place], begun, *entries[place:]])
