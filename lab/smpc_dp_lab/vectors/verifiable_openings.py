"""Runs with rounds of openings, in which parties open falsely or the aggregator cheats, one change each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.statements import (
    OPENING,
    OPENING_BOUNDS,
    OPENING_MALFORMED,
    OPENING_OTHER,
)
from smpc_dp.errors import LocalError
from smpc_dp.wire.sets import pack_set
from smpc_dp_lab.vectors.verifiable_cheat import EXCLUDED, REFUSED, ROUNDS_BASE, Cheat
from smpc_dp_lab.vectors.verifiable_host import (
    END,
    HEADS,
    ORDER,
    SIGNATURE,
    Change,
    changed_log,
    entries,
    replaced,
    rewritten,
)
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, GRID, OTHER, at, off_by_one, with_body
from smpc_dp_lab.vectors.verifiable_runs import (
    NINE,
    RELAY,
    Cheater,
    RecordedRun,
    Tamper,
    entry_of,
    execute,
    message_of,
)

# Who opens something false in the second round, where one does.
THIRD = "eve"
OPEN_2, CERTIFY_2 = v.in_round(v.OPEN, 2), v.in_round(v.CERTIFY_EXCLUSIONS, 2)
Opening = Callable[[Cheater, msgspec.Struct], msgspec.Struct]


def opened(message: msgspec.Struct) -> v.Open:
    """Return the message as an opening of edges; raise LocalError for another message."""
    if not isinstance(message, v.Open):
        raise LocalError("not an opening")
    return message


def to_something_else(party: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Return a party's opening of edges with a wrong blinding."""
    return replace(opened(message), blindings=party.fresh_blinding())


def too_far_out(_party: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Return a party's opening with a term beyond the permitted bound of pairwise noise."""
    deltas = np.frombuffer(opened(message).deltas, dtype=GRID) + (1 << 40)
    return replace(opened(message), deltas=deltas.astype(GRID).tobytes())


def nothing(_party: Cheater, _message: msgspec.Struct) -> msgspec.Struct:
    """Return an opening that falsely claims that there is no edge to open."""
    return v.Open(b"", b"", b"")


def one_more(party: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Return a party's opening with one edge more, to a party that has sent nothing false."""
    return party.open_too(opened(message))


def too_long(_party: Cheater, message: msgspec.Struct) -> msgspec.Struct:
    """Return a party's opening with 4,096 bytes too many."""
    return replace(opened(message), deltas=opened(message).deltas + bytes(4096))


def in_rounds(*openings: Opening) -> RecordedRun:
    """Run nine parties, one of which publishes a wrong sum; then others open falsely.

    The first one in the first round, the second one, which opens the edge to the first, in the second.
    """
    tampers: dict[str, Tamper] = {CHEAT: off_by_one}
    for number, (name, opening) in enumerate(zip((OTHER, THIRD), openings, strict=False), 1):
        tampers[name] = at(v.in_round(v.OPEN, number), opening)
    return execute(tampers, setting=NINE)


@functools.cache
def in_one_round() -> RecordedRun:
    """Return the run in which an opening of the first round is false."""
    return in_rounds(to_something_else)


@functools.cache
def in_two_rounds() -> RecordedRun:
    """Return the run in which one opening of the first round and one of the second are false."""
    return in_rounds(to_something_else, too_far_out)


def all_cheats() -> Iterator[Cheat]:
    """Yield all test vectors of logs with false openings of edges, or false rounds of openings."""
    yield from _parties()
    yield from _relays()


def _parties() -> Iterator[Cheat]:
    """Yield cheats of parties that open edges falsely."""
    for name, about, check, opening in (
        ("opening-false", "to something else than it has committed to", OPENING, to_something_else),
        ("opening-out-of-bounds", "to more than pairwise noise can be", OPENING_BOUNDS, too_far_out),
        ("opening-malformed", "with what is no message", OPENING_MALFORMED, with_body(b"\x93")),
        ("opening-too-long", "with 4,096 bytes too many", OPENING_MALFORMED, too_long),
        ("opening-left-out", "by saying that it has none", OPENING_OTHER, nothing),
        ("opening-of-an-honest-edge", "and one to a user that said nothing false", OPENING_OTHER, one_more),
    ):
        about = f"A user opens its edge to another, excluded one {about}; it is excluded in the next round."
        make = functools.partial(lambda opening: in_rounds(opening).lines, opening)
        yield Cheat(name, about, check, EXCLUDED, (OTHER, CHEAT), make, ROUNDS_BASE)
    yield Cheat(
        "opening-false-and-too-few-left",
        "A user opens its edge to another, excluded one to something else, and without it there is no "
        "quorum: the run stops, and the log has no end.",
        END,
        REFUSED,
        (),
        lambda: execute({CHEAT: off_by_one, OTHER: at(v.OPEN, to_something_else)}).lines,
    )


def _relays() -> Iterator[Cheat]:
    """Yield cheats of aggregators that leave out or change rounds of openings."""
    made = functools.partial(changed_log, ran=in_one_round, base=ROUNDS_BASE)
    reason = "who was shown false is excluded"

    def without(*kinds: str) -> Change:
        return lambda ran: ran.log([entry for entry in ran.entries if entry.kind not in kinds])

    about = "A user opens something false, and no round follows in which its edges are opened."
    yield made("round-left-out", about, reason, without(CERTIFY_2, OPEN_2), RELAY, OTHER)
    about = "A user publishes something false, and no edge of it is opened."
    none = without(v.CERTIFY_EXCLUSIONS, v.OPEN, CERTIFY_2, OPEN_2)
    yield made("rounds-left-out", about, reason, none, RELAY, CHEAT)
    about = "Edges are opened, and no quorum has signed whose."
    yield made("round-without-its-certificate", about, ORDER, without(v.CERTIFY_EXCLUSIONS))
    about = "A user's opening of the first round stands as its opening of the second."
    moved = replaced(OPEN_2, THIRD, lambda ran, _: replace(entry_of(ran, v.OPEN, THIRD), kind=OPEN_2))
    yield made("opening-of-another-round", about, SIGNATURE, moved)
    about = "A user that was excluded opens an edge."
    by_excluded = entries(v.OPEN, THIRD, 1, lambda ran, one: [ran.sign(replace(one[0], party=CHEAT)), *one])
    yield made("opening-by-an-excluded-user", about, "who may open edges", by_excluded, RELAY, CHEAT)
    about = "A user that said nothing false does not go on to the second round."
    left_out = rewritten(CERTIFY_2, RELAY, {"members": pack_set([1, 3, 5, 6, 7, 8], len(NINE.inputs))})
    yield made("honest-user-not-in-the-round", about, "who goes on", left_out, RELAY, "ivy")
    about = "The head before the second round has one signature."
    signers = pack_set([1], len(NINE.inputs))
    few = rewritten(CERTIFY_2, RELAY, {"signers": signers, "signatures": lambda packed: packed[:64]})
    yield made("round-without-a-quorum", about, HEADS, few, RELAY)
    about = "The tally counts a user that opened something false."
    with_other = pack_set([1, 2, 3, 5, 6, 7, 8, 9], len(NINE.inputs))
    counted = rewritten(v.TALLY, RELAY, {"counted": with_other})
    yield made("false-opener-counted", about, "who is counted", counted, RELAY, OTHER)

    def with_one_more(total: bytes) -> bytes:
        last = message_of(in_one_round(), OPEN_2, v.Open, "ivy")
        less: NDArray[np.uint64] = np.frombuffer(total, "<u8") + np.frombuffer(last.deltas, "<u8")
        return less.tobytes()

    about = "Pairwise noise that was opened in the second round is in the total."
    one_less = rewritten(v.TALLY, RELAY, {"total": with_one_more})
    yield made("opened-noise-in-the-total", about, "the total", one_less, RELAY)
    about = "Edges are opened in a run in which nobody said anything false."
    reasonless = entries(
        v.TALLY,
        RELAY,
        0,
        lambda ran, _: [ran.sign(replace(entry_of(ran, v.CERTIFY_COINS), kind=v.CERTIFY_EXCLUSIONS))],
    )
    yield changed_log("round-without-a-reason", about, reason, reasonless, RELAY)
