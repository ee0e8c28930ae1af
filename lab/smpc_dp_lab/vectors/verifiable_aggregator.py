"""Cheats of an aggregator: entries, header, certificates and tally, one change each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.wire.sets import pack_list, pack_set
from smpc_dp.wire.signing import encode
from smpc_dp_lab.vectors.fault import Fields, altered
from smpc_dp_lab.vectors.verifiable_cheat import VERSION_5_BASE, Cheat
from smpc_dp_lab.vectors.verifiable_host import (
    FORMAT,
    HEADER,
    HEADS,
    ORDER,
    Change,
    changed_log,
    entries,
    replaced,
    rewritten,
    with_payload,
)
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, OTHER, instead, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import (
    OF_VERSION_5,
    PARTIES,
    RELAY,
    RecordedRun,
    entry_of,
    execute,
    honest,
)


def all_cheats() -> Iterator[Cheat]:
    """Yield all test vectors of logs in which the aggregator has cheated."""
    yield from _entries()
    yield from _header()
    yield from _tally()
    yield from _certificates()


def _entries() -> Iterator[Cheat]:
    """Yield cheats of an aggregator that leaves out, adds or exchanges log entries."""

    def without(kind: str, party: str) -> Change:
        return entries(kind, party, 1, lambda _ran, _one: [])

    def exchanged(kind: str, party: str) -> Change:
        return entries(kind, party, 2, lambda _ran, two: two[::-1])

    about = "Two coins are exchanged, with heads that fit."
    yield changed_log("entries-reordered", about, ORDER, exchanged(v.COIN, "ann"))
    about = "A user's commitments are left out."
    yield changed_log("commitments-dropped", about, HEADS, without(v.COMMIT, CHEAT), RELAY)
    about, check = "A user's coin is left out.", "every participant's coin"
    yield changed_log("coin-dropped", about, check, without(v.COIN, CHEAT), RELAY)
    about, check = "A user's publication is left out.", "who is counted"
    yield changed_log("publication-dropped", about, check, without(v.PUBLISH, CHEAT), RELAY)
    about = "The heads of the coins are not certified."
    yield changed_log("certificate-dropped", about, ORDER, without(v.CERTIFY_COINS, RELAY))
    twice = entries(v.PUBLISH, CHEAT, 1, lambda _ran, one: one * 2)
    yield changed_log("publication-twice", "A user's publication is there twice.", ORDER, twice)
    about = "A user's commitments follow the certificate."
    yield changed_log("commitments-after-the-heads", about, HEADS, exchanged(v.COMMIT, "eve"), RELAY)
    another_coin = {CHEAT: instead(v.COMMIT, coin=bytes(32))}
    yield changed_log(
        "commitments-exchanged",
        "A user has signed two sets of commitments in one run, and the log has not the agreed ones.",
        HEADS,
        replaced(v.COMMIT, CHEAT, lambda _ran, _entry: entry_of(execute(another_coin), v.COMMIT, CHEAT)),
        RELAY,
    )
    by_a_party = replaced(
        v.TALLY, RELAY, lambda ran, entry: ran.sign(replace(entry, party=CHEAT), signer=CHEAT)
    )
    yield changed_log("tally-by-a-user", "A user signs the tally.", ORDER, by_a_party, CHEAT)
    message = encode(v.Open(pack_list([1]), bytes(16), bytes(32)))
    yield changed_log(
        "edge-of-an-honest-user-opened",
        "A user's opening of an edge to one that published nothing false is on the board.",
        ORDER,
        entries(
            v.TALLY,
            RELAY,
            0,
            lambda ran, _: [ran.sign(replace(entry_of(ran, v.PUBLISH, OTHER), kind=v.OPEN), message)],
        ),
    )
    about = "A user has signed a second coin, for which the noise would be better."
    own_coin, check = encode(v.Coin(bytes(32))), "the coin is what was committed to"
    yield changed_log("coin-exchanged", about, check, with_payload(v.COIN, CHEAT, lambda _: own_coin), CHEAT)


def _header() -> Iterator[Cheat]:
    """Yield cheats of an aggregator that changes the log's header."""

    def changed(**fields: object) -> Change:
        return lambda ran: ran.log(ran.entries, altered(ran.header, fields))

    def session(old: str, new: str) -> Change:
        return changed(session=lambda session: session.replace(old, new, 1))

    fewer = pack_set([1, 2, 3], len(PARTIES))
    for name, about, check, change in (
        ("bounds", "has wider bounds", HEADER, session('"upper":4', '"upper":5')),
        ("epsilon", "has another epsilon", HEADER, session('"epsilon":8.0', '"epsilon":7.0')),
        ("run-id", "has another run id", HEADER, changed(run_id="ab" * 32)),
        ("request", "has another number of the request", HEADER, changed(request=2)),
        ("question", "says that a sum was asked for", HEADER, changed(operation="sum 3/7b")),
        ("nonce", "has another nonce of a user", HEADER, changed(root=bytes(32))),
        ("present", "leaves a user out of those that were present", HEADER, changed(present=fewer)),
    ):
        yield changed_log(f"{name}-changed", f"The header {about}.", check, change)
    yield changed_log("session-respelt", "The session in the header has a space.", FORMAT, session(",", ", "))


def _tally() -> Iterator[Cheat]:
    """Yield cheats of an aggregator that announces a wrong tally."""

    def tally(name: str, about: str, check: str, **fields: object) -> Cheat:
        return changed_log(name, about, check, rewritten(v.TALLY, RELAY, fields), RELAY)

    about = "The total is one more than the sum of what was published."
    yield tally("total-changed", about, "the total", total=_one_more)
    about, check = "The tally counts a pair that cancels.", "residual pairs"
    yield tally("residual-pairs-changed", about, check, residual_pairs=lambda pairs: pairs + 1)
    about, check = "The tally leaves a user out.", "who is counted"
    yield tally("honest-user-not-counted", about, check, counted=pack_set([1, 2, 3, 4], len(PARTIES)))
    yield changed_log(
        "cheat-counted",
        "The tally counts a user whose x_hat is false.",
        check,
        rewritten(v.TALLY, RELAY, {"counted": pack_set(range(1, 6), len(PARTIES))}),
        RELAY,
        ran=lambda: execute({CHEAT: off_by_one}),
    )


def _certificates() -> Iterator[Cheat]:
    """Yield cheats of an aggregator that logs invalid certificates."""

    def certified(name: str, about: str, check: str, kind: str, fields: Fields) -> Cheat:
        return changed_log(name, about, check, rewritten(kind, RELAY, fields), RELAY)

    fewer = {"members": pack_set([1, 2, 3, 4], len(PARTIES))}
    few: Fields = {"signers": pack_set([1], len(PARTIES)), "signatures": lambda packed: packed[:64]}
    forged: Fields = {"signatures": lambda packed: packed[64:128] + packed[64:]}
    about, check = "A user whose commitments are right is not let in.", "who takes part"
    yield certified("honest-user-left-out", about, check, v.CERTIFY_COMMITMENTS, fewer)
    for setup, kind in (("commitments", v.CERTIFY_COMMITMENTS), ("tally", v.CERTIFY_TALLY)):
        about = f"The head of the {setup} has one signature."
        yield certified(f"{setup}-without-a-quorum", about, HEADS, kind, few)
        about = f"A signature on the head of the {setup} is another user's."
        yield certified(f"{setup}-with-a-forged-signature", about, HEADS, kind, forged)

    # Version 4 asks for as many where nothing is said of `corrupt`.
    three: Fields = {
        "signers": pack_set([1, 2, 3], len(PARTIES)),
        "signatures": lambda packed: packed[: 3 * 64],
    }
    yield changed_log(
        "version-5-without-a-quorum",
        "In a log of version 5 without `corrupt` the head of the commitments has three signatures.",
        HEADS,
        rewritten(v.CERTIFY_COMMITMENTS, RELAY, three),
        RELAY,
        ran=lambda: honest(setting=OF_VERSION_5),
        base=VERSION_5_BASE,
    )

    def reused(ran: RecordedRun) -> list[bytes]:
        other = entry_of(ran, v.CERTIFY_COMMITMENTS).payload
        return with_payload(v.CERTIFY_COINS, RELAY, lambda _: other)(ran)

    about = "The certificate of the commitments stands for that of the coins."
    yield changed_log("certificate-reused", about, HEADS, reused, RELAY)


def _one_more(packed: bytes) -> bytes:
    ring_vector = np.frombuffer(packed, dtype="<u8").copy()
    ring_vector[:1] += np.uint64(1)
    return ring_vector.tobytes()
