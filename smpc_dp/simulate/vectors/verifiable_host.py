"""Cheats of whoever holds the log: what is changed in it, one thing each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.board.log import Entry, decode_line, encode_line
from smpc_dp.protocols.envelope import decode, encode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.secagg.graph import pack_list, pack_set
from smpc_dp.simulate.vectors.verifiable_cheat import REFUSED, ROSTER, Cheat
from smpc_dp.simulate.vectors.verifiable_runs import RELAY, USERS, Played, entry_of, honest, play
from smpc_dp.simulate.vectors.verifiable_users import CHEAT, OTHER, off_by_one

Change = Callable[[Played], list[bytes]]
CHAIN, SIGNATURE, ORDER, FORMAT = "the chain of heads", "signatures", "the order of entries", "the format"
HEADS, HEADER = "the quorum's signatures on the head", "the run id"


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat of whoever holds the log."""
    yield from _lines()
    yield from _format()
    yield from _signatures()
    yield from _entries()
    yield from _header()
    yield from _relay()


def _cheat(name: str, about: str, check: str, change: Change, *culprits: str) -> Cheat:
    return Cheat(name, about, check, REFUSED, culprits, lambda: change(honest()))


def _place(played: Played, kind: str, party: str = RELAY) -> int:
    """Return the place of an entry among the lines."""
    return entry_of(played, kind, party).sequence


def _replaced(played: Played, kind: str, party: str, change: Callable[[Entry], Entry]) -> list[bytes]:
    """Return the log with one entry changed, and numbers and heads that fit."""
    entries = played.entries
    place = _place(played, kind, party) - 1
    entries[place] = change(entries[place])
    return played.log(entries)


def _rewritten(
    played: Played, kind: str, party: str, change: Callable[[bytes], msgspec.Struct | bytes]
) -> list[bytes]:
    """Return the log with one payload changed and signed by its party, and numbers and heads that fit."""

    def resigned(entry: Entry) -> Entry:
        payload = change(entry.payload)
        return played.sign(entry, payload if isinstance(payload, bytes) else encode(payload))

    return _replaced(played, kind, party, resigned)


def _lines() -> Iterator[Cheat]:
    def swapped(played: Played) -> list[bytes]:
        lines, place = list(played.lines), _place(played, v.COIN, "ann")
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
        return lines

    yield _cheat("lines-swapped", "Two lines are exchanged.", CHAIN, swapped)

    def dropped(played: Played) -> list[bytes]:
        place = _place(played, v.COIN, "ben")
        return played.lines[:place] + played.lines[place + 1 :]

    yield _cheat("line-dropped", "A line is left out.", CHAIN, dropped)

    def duplicated(played: Played) -> list[bytes]:
        place = _place(played, v.COIN, "ben")
        return [*played.lines[: place + 1], *played.lines[place:]]

    yield _cheat("line-duplicated", "A line is there twice.", CHAIN, duplicated)
    yield _cheat(
        "log-truncated", "The last entry is left out.", "the log has an end", lambda played: played.lines[:-1]
    )
    yield _cheat(
        "log-truncated-before-the-tally",
        "The log ends after the publications.",
        "the log has an end",
        lambda played: played.lines[: _place(played, v.TALLY)],
    )

    def appended(played: Played) -> list[bytes]:
        last = played.sign(replace(entry_of(played, v.TALLY), kind=v.OPEN, party="ann"))
        return played.log([*played.entries, last])

    yield _cheat("entry-after-the-end", "An entry follows the last one.", ORDER, appended)

    def previous(played: Played) -> list[bytes]:
        place = _place(played, v.COIN, "ben")
        entry = decode_line(played.lines[place], Entry)
        changed = replace(entry, previous=entry.previous[::-1])
        return [*played.lines[:place], encode_line(changed), *played.lines[place + 1 :]]

    yield _cheat("head-changed", "An entry names another head.", CHAIN, previous)


def _format() -> Iterator[Cheat]:
    def at(change: Callable[[bytes], bytes], place: int = 2) -> Change:
        return lambda played: [*played.lines[:place], change(played.lines[place]), *played.lines[place + 1 :]]

    def respelt(line: bytes) -> bytes:
        return line.replace(b",", b", ", 1)

    yield _cheat("spelling-with-a-space", "A line has a space.", FORMAT, at(respelt))

    def reordered(line: bytes) -> bytes:
        fields = json.loads(line)
        return json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode()

    yield _cheat("fields-reordered", "The fields of a line are in another order.", FORMAT, at(reordered))

    def repeated(line: bytes) -> bytes:
        return line[:-1] + b',"kind":"commit"}'

    yield _cheat("field-twice", "A line has a field twice.", FORMAT, at(repeated))

    def unknown(line: bytes) -> bytes:
        return line[:-1] + b',"more":1}'

    yield _cheat("field-unknown", "A line has a field more.", FORMAT, at(unknown))

    def missing(line: bytes) -> bytes:
        fields = json.loads(line)
        del fields["signature"]
        return json.dumps(fields, separators=(",", ":")).encode()

    yield _cheat("field-missing", "A line has no signature.", FORMAT, at(missing))

    def upper(line: bytes) -> bytes:
        fields = json.loads(line)
        fields["signature"] = fields["signature"].upper()
        return json.dumps(fields, separators=(",", ":")).encode()

    yield _cheat("digits-in-upper-case", "A signature is in upper case.", FORMAT, at(upper))
    about = "The header is of version 2 of the board."
    newer = at(lambda line: line.replace(b'"version":1', b'"version":2', 1), 0)
    yield _cheat("version-unknown", about, FORMAT, newer)
    about = "The first line is JSON of something else."
    yield _cheat("header-of-something-else", about, FORMAT, at(lambda _line: b'{"format":"other"}', 0))

    def long_form(payload: bytes) -> bytes:
        # bin 16 where bin 8 would do
        message = decode(payload, v.Coin, "")
        return b"\x91\xc5\x00\x20" + message.coin

    yield _cheat(
        "payload-not-canonical",
        "A user's entry is signed, and its MessagePack takes more bytes than it needs.",
        FORMAT,
        lambda played: _rewritten(played, v.COIN, CHEAT, long_form),
        CHEAT,
    )

    def bad_point(payload: bytes) -> msgspec.Struct:
        return replace(decode(payload, v.Commit, ""), value=b"\xff" * 32)

    yield _cheat(
        "point-not-canonical",
        "A user signs a commitment that is the encoding of no point.",
        FORMAT,
        lambda played: _rewritten(played, v.COMMIT, CHEAT, bad_point),
        CHEAT,
    )

    def bad_scalar(payload: bytes) -> msgspec.Struct:
        return replace(decode(payload, v.Publish, ""), blinding=b"\xff" * 32)

    yield _cheat(
        "scalar-not-canonical",
        "A user signs a blinding above the order of the group.",
        FORMAT,
        lambda played: _rewritten(played, v.PUBLISH, CHEAT, bad_scalar),
        CHEAT,
    )


def _signatures() -> Iterator[Cheat]:
    def flipped(entry: Entry) -> Entry:
        last = "0" if entry.signature[-1] != "0" else "1"
        return replace(entry, signature=entry.signature[:-1] + last)

    yield _cheat(
        "signature-flipped",
        "One digit of a signature is another.",
        SIGNATURE,
        lambda played: _replaced(played, v.COMMIT, CHEAT, flipped),
    )
    yield _cheat(
        "signature-by-another-key",
        "A user's entry is signed by another user.",
        SIGNATURE,
        lambda played: _replaced(played, v.COMMIT, CHEAT, lambda entry: played.sign(entry, signer=OTHER)),
    )
    yield _cheat(
        "entry-in-anothers-name",
        "A user's entry stands under the name of another.",
        SIGNATURE,
        lambda played: _replaced(played, v.COIN, CHEAT, lambda entry: replace(entry, party="eve")),
    )
    yield _cheat(
        "entry-of-another-kind",
        "A user's coin stands as its opening.",
        SIGNATURE,
        lambda played: _replaced(played, v.COIN, CHEAT, lambda entry: replace(entry, kind=v.OPEN)),
    )
    yield _cheat(
        "entry-of-another-run",
        "A user's commitments are those that it signed in another run.",
        SIGNATURE,
        lambda played: _replaced(
            played, v.COMMIT, CHEAT, lambda _entry: entry_of(honest(run=2), v.COMMIT, CHEAT)
        ),
    )
    yield _cheat(
        "entry-of-a-stranger",
        "An entry is of somebody who is not in the roster.",
        SIGNATURE,
        lambda played: _replaced(played, v.COMMIT, CHEAT, lambda entry: replace(entry, party="mallory")),
    )
    yield Cheat(
        "log-wholly-re-signed",
        "A whole run among made-up identities with the same names.",
        "the roster, where it is given",
        ROSTER,
        (),
        lambda: honest(keys=1).lines,
    )


def _entries() -> Iterator[Cheat]:
    def reordered(played: Played) -> list[bytes]:
        entries, place = played.entries, _place(played, v.COIN, "ann") - 1
        entries[place], entries[place + 1] = entries[place + 1], entries[place]
        return played.log(entries)

    yield _cheat("entries-reordered", "Two coins are exchanged, with heads that fit.", ORDER, reordered)

    def without(kind: str, party: str) -> Change:
        return lambda played: played.log(
            [entry for entry in played.entries if (entry.kind, entry.party) != (kind, party)]
        )

    yield _cheat(
        "commitments-dropped", "A user's commitments are left out.", HEADS, without(v.COMMIT, CHEAT), RELAY
    )
    yield _cheat("coin-dropped", "A user's coin is left out.", "every participant's coin", without(v.COIN, CHEAT), RELAY)
    yield _cheat(
        "publication-dropped", "A user's publication is left out.", "who is counted", without(v.PUBLISH, CHEAT), RELAY
    )
    yield _cheat("certificate-dropped", "The heads of the coins are not certified.", ORDER, without(v.CERTIFY_COINS, RELAY))

    def twice(played: Played) -> list[bytes]:
        entries, place = played.entries, _place(played, v.PUBLISH, CHEAT)
        return played.log([*entries[:place], *entries[place - 1 :]])

    yield _cheat("publication-twice", "A user's publication is there twice.", ORDER, twice)

    def late(played: Played) -> list[bytes]:
        entries, place = played.entries, _place(played, v.COMMIT, "eve") - 1
        moved = entries.pop(place)
        return played.log([*entries[: place + 1], moved, *entries[place + 1 :]])

    yield _cheat("commitments-after-the-heads", "A user's commitments follow the certificate.", HEADS, late, RELAY)

    def again(played: Played) -> list[bytes]:
        other = entry_of(play({CHEAT: _another_coin}), v.COMMIT, CHEAT)
        return _replaced(played, v.COMMIT, CHEAT, lambda _entry: other)

    yield _cheat(
        "commitments-exchanged",
        "A user has signed two sets of commitments in one run, and the log has not those whose head was agreed.",
        HEADS,
        again,
        RELAY,
    )

    def users_tally(played: Played) -> list[bytes]:
        return _replaced(
            played, v.TALLY, RELAY, lambda entry: played.sign(replace(entry, party=CHEAT), signer=CHEAT)
        )

    yield _cheat("tally-by-a-user", "A user signs the tally.", ORDER, users_tally, CHEAT)

    def opened(played: Played) -> list[bytes]:
        message = v.Open(pack_list([1]), bytes(16), bytes(32))
        entry = played.sign(replace(entry_of(played, v.PUBLISH, OTHER), kind=v.OPEN), encode(message))
        entries, place = played.entries, _place(played, v.TALLY) - 1
        return played.log([*entries[:place], entry, *entries[place:]])

    yield _cheat("edge-of-an-honest-user-opened", "A user opens its edge to one that published nothing false.", "who may be opened", opened, OTHER)


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

    yield _cheat("bounds-changed", "The header has wider bounds.", HEADER, session('"upper":4', '"upper":5'))
    yield _cheat("epsilon-changed", "The header has another epsilon.", HEADER, session('"epsilon":8.0', '"epsilon":7.0'))
    yield _cheat("session-respelt", "The session in the header has a space.", FORMAT, session(",", ", "))
    yield _cheat("run-id-changed", "The header has another run id.", HEADER, changed(run_id="ab" * 32))
    yield _cheat("request-changed", "The header has another number of the request.", HEADER, changed(request=2))
    yield _cheat("question-changed", "The header says that a sum was asked for.", HEADER, changed(question="sum 3/7b"))
    yield _cheat("nonce-changed", "The header has another nonce of a user.", HEADER, changed(nonces=bytes(32 * len(USERS))))
    yield _cheat(
        "present-changed",
        "The header leaves a user out of those that were present.",
        HEADER,
        changed(present=pack_set([1, 2, 3], len(USERS))),
    )


def _relay() -> Iterator[Cheat]:
    def tally(change: Callable[[v.Tally], v.Tally], base: Callable[[], Played] = honest) -> Callable[[], list[bytes]]:
        return lambda: _rewritten(base(), v.TALLY, RELAY, lambda payload: change(decode(payload, v.Tally, "")))

    def total(message: v.Tally, add: int = 1) -> v.Tally:
        return replace(message, total=_plus(message.total, add))

    def made(name: str, about: str, check: str, make: Callable[[], list[bytes]]) -> Cheat:
        return Cheat(name, about, check, REFUSED, (RELAY,), make)

    yield made("total-changed", "The total is one more than the sum of what was published.", "the total", tally(total))

    def residual(message: v.Tally) -> v.Tally:
        return replace(message, residual_pairs=message.residual_pairs + 1)

    yield made("residual-pairs-changed", "The tally counts a pair that cancels.", "residual pairs", tally(residual))

    def uncounted(message: v.Tally) -> v.Tally:
        return replace(message, counted=pack_set([1, 2, 3, 4], len(USERS)))

    yield made("honest-user-not-counted", "The tally leaves a user out.", "who is counted", tally(uncounted))

    def counted(message: v.Tally) -> v.Tally:
        return replace(message, counted=pack_set(range(1, 6), len(USERS)))

    def cheated() -> Played:
        return play({CHEAT: off_by_one})

    yield made("cheat-counted", "The tally counts a user whose x_hat is false.", "who is counted", tally(counted, cheated))

    def members(message: v.Certified) -> v.Certified:
        return replace(message, members=pack_set([1, 2, 3, 4], len(USERS)))

    def few(message: v.Certified) -> v.Certified:
        return replace(message, signers=pack_set([1], len(USERS)), signatures=message.signatures[:64])

    def forged(message: v.Certified) -> v.Certified:
        return replace(message, signatures=message.signatures[64:128] + message.signatures[64:])

    def certified(change: Callable[[v.Certified], v.Certified], kind: str) -> Callable[[], list[bytes]]:
        return lambda: _rewritten(honest(), kind, RELAY, lambda body: change(decode(body, v.Certified, "")))

    yield made(
        "honest-user-left-out",
        "A user whose commitments are right is not let in.",
        "who takes part",
        certified(members, v.CERTIFY_COMMITMENTS),
    )
    for stage, kind in (("commitments", v.CERTIFY_COMMITMENTS), ("tally", v.CERTIFY_TALLY)):
        about = f"The head of the {stage} has one signature."
        yield made(f"{stage}-without-a-quorum", about, HEADS, certified(few, kind))
        about = f"A signature on the head of the {stage} is another user's."
        yield made(f"{stage}-with-a-forged-signature", about, HEADS, certified(forged, kind))

    def reused(_body: bytes) -> bytes:
        return entry_of(honest(), v.CERTIFY_COMMITMENTS).payload

    yield made(
        "certificate-reused",
        "The certificate of the commitments stands for that of the coins.",
        HEADS,
        lambda: _rewritten(honest(), v.CERTIFY_COINS, RELAY, reused),
    )

    def own_coin(payload: bytes) -> msgspec.Struct:
        del payload
        return v.Coin(bytes(32))

    yield Cheat(
        "coin-exchanged",
        "A user has signed a second coin, for which the noise would be better.",
        "the coin is what was committed to",
        REFUSED,
        (CHEAT,),
        lambda: _rewritten(honest(), v.COIN, CHEAT, own_coin),
    )


def _plus(packed: bytes, value: int) -> bytes:
    lanes = np.frombuffer(packed, dtype="<u8").copy()
    lanes[0] += np.uint64(value)
    return lanes.tobytes()

