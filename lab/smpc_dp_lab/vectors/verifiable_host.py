"""Cheats of whoever holds the log: what is changed in it, one thing each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from smpc_dp.board.log import Entry, decode_line, encode_line
from smpc_dp.protocols.envelope import decode, encode
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp_lab.vectors.verifiable_cheat import REFUSED, SESSION, Cheat
from smpc_dp_lab.vectors.verifiable_runs import RELAY, Played, entry_of, honest
from smpc_dp_lab.vectors.verifiable_users import CHEAT, OTHER

Change = Callable[[Played], list[bytes]]
CHAIN, SIGNATURE, ORDER, FORMAT = "the chain of heads", "signatures", "the order of entries", "the format"
HEADS, HEADER = "the quorum's signatures on the head", "the run id"


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat of whoever holds the log."""
    yield from _lines()
    yield from _format()
    yield from _signatures()


def changed_log(name: str, about: str, check: str, change: Change, *culprits: str) -> Cheat:
    """Return the cheat of changing an honest run's log, which the audit refuses."""
    return Cheat(name, about, check, REFUSED, culprits, lambda: change(honest()))


def place_of(played: Played, kind: str, party: str = RELAY) -> int:
    """Return the place of an entry among the lines."""
    return entry_of(played, kind, party).sequence


def replaced(played: Played, kind: str, party: str, change: Callable[[Entry], Entry]) -> list[bytes]:
    """Return the log with one entry changed, and numbers and heads that fit."""
    entries = played.entries
    place = place_of(played, kind, party) - 1
    entries[place] = change(entries[place])
    return played.log(entries)


def rewritten(
    played: Played, kind: str, party: str, change: Callable[[bytes], msgspec.Struct | bytes]
) -> list[bytes]:
    """Return the log with one payload changed and signed by its party, and numbers and heads that fit."""

    def resigned(entry: Entry) -> Entry:
        payload = change(entry.payload)
        return played.sign(entry, payload if isinstance(payload, bytes) else encode(payload))

    return replaced(played, kind, party, resigned)


def _lines() -> Iterator[Cheat]:
    def swapped(played: Played) -> list[bytes]:
        lines, place = list(played.lines), place_of(played, v.COIN, "ann")
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
        return lines

    yield changed_log("lines-swapped", "Two lines are exchanged.", CHAIN, swapped)

    def dropped(played: Played) -> list[bytes]:
        place = place_of(played, v.COIN, "ben")
        return played.lines[:place] + played.lines[place + 1 :]

    yield changed_log("line-dropped", "A line is left out.", CHAIN, dropped)

    def duplicated(played: Played) -> list[bytes]:
        place = place_of(played, v.COIN, "ben")
        return [*played.lines[: place + 1], *played.lines[place:]]

    yield changed_log("line-duplicated", "A line is there twice.", CHAIN, duplicated)
    yield changed_log(
        "log-truncated", "The last entry is left out.", "the log has an end", lambda played: played.lines[:-1]
    )
    yield changed_log(
        "log-truncated-before-the-tally",
        "The log ends after the publications.",
        "the log has an end",
        lambda played: played.lines[: place_of(played, v.TALLY)],
    )

    def appended(played: Played) -> list[bytes]:
        last = played.sign(replace(entry_of(played, v.TALLY), kind=v.OPEN, party="ann"))
        return played.log([*played.entries, last])

    yield changed_log("entry-after-the-end", "An entry follows the last one.", ORDER, appended)

    def previous(played: Played) -> list[bytes]:
        place = place_of(played, v.COIN, "ben")
        entry = decode_line(played.lines[place], Entry)
        changed = replace(entry, previous=entry.previous[::-1])
        return [*played.lines[:place], encode_line(changed), *played.lines[place + 1 :]]

    yield changed_log("head-changed", "An entry names another head.", CHAIN, previous)


def _format() -> Iterator[Cheat]:
    def at(change: Callable[[bytes], bytes], place: int = 2) -> Change:
        return lambda played: [*played.lines[:place], change(played.lines[place]), *played.lines[place + 1 :]]

    def respelt(line: bytes) -> bytes:
        return line.replace(b",", b", ", 1)

    yield changed_log("spelling-with-a-space", "A line has a space.", FORMAT, at(respelt))

    def reordered(line: bytes) -> bytes:
        fields = json.loads(line)
        return json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode()

    yield changed_log("fields-reordered", "The fields of a line are in another order.", FORMAT, at(reordered))

    def repeated(line: bytes) -> bytes:
        return line[:-1] + b',"kind":"commit"}'

    yield changed_log("field-twice", "A line has a field twice.", FORMAT, at(repeated))

    def unknown(line: bytes) -> bytes:
        return line[:-1] + b',"more":1}'

    yield changed_log("field-unknown", "A line has a field more.", FORMAT, at(unknown))

    def missing(line: bytes) -> bytes:
        fields = json.loads(line)
        del fields["signature"]
        return json.dumps(fields, separators=(",", ":")).encode()

    yield changed_log("field-missing", "A line has no signature.", FORMAT, at(missing))

    def upper(line: bytes) -> bytes:
        fields = json.loads(line)
        fields["signature"] = fields["signature"].upper()
        return json.dumps(fields, separators=(",", ":")).encode()

    yield changed_log("digits-in-upper-case", "A signature is in upper case.", FORMAT, at(upper))
    about = "The header is of version 3 of the board."
    newer = at(lambda line: line.replace(b'"version":2', b'"version":3', 1), 0)
    yield changed_log("version-unknown", about, FORMAT, newer)
    about = "The first line is JSON of something else."
    yield changed_log("header-of-something-else", about, FORMAT, at(lambda _line: b'{"format":"other"}', 0))

    def long_form(payload: bytes) -> bytes:
        # bin 16 where bin 8 would do
        message = decode(payload, v.Coin, "")
        return b"\x91\xc5\x00\x20" + message.coin

    def bad_point(payload: bytes) -> msgspec.Struct:
        return replace(decode(payload, v.Commit, ""), value=b"\xff" * 32)

    def bad_scalar(payload: bytes) -> msgspec.Struct:
        return replace(decode(payload, v.Publish, ""), blinding=b"\xff" * 32)

    def signed(name: str, about: str, kind: str, how: Callable[[bytes], msgspec.Struct | bytes]) -> Cheat:
        return changed_log(name, about, FORMAT, lambda played: rewritten(played, kind, CHEAT, how), CHEAT)

    about = "A user's entry is signed, and its MessagePack takes more bytes than it needs."
    yield signed("payload-not-canonical", about, v.COIN, long_form)
    about = "A user signs a commitment that is the encoding of no point."
    yield signed("point-not-canonical", about, v.COMMIT, bad_point)
    about = "A user signs a blinding above the order of the group."
    yield signed("scalar-not-canonical", about, v.PUBLISH, bad_scalar)


def _signatures() -> Iterator[Cheat]:
    def flipped(entry: Entry) -> Entry:
        last = "0" if entry.signature[-1] != "0" else "1"
        return replace(entry, signature=entry.signature[:-1] + last)

    def other(name: str, about: str, kind: str, how: Callable[[Entry], Entry]) -> Cheat:
        return changed_log(name, about, SIGNATURE, lambda played: replaced(played, kind, CHEAT, how))

    yield other("signature-flipped", "One digit of a signature is another.", v.COMMIT, flipped)
    about = "A user's entry is signed by another user."
    yield other("signature-by-another-key", about, v.COMMIT, lambda entry: honest().sign(entry, signer=OTHER))
    about = "A user's entry stands under the name of another."
    yield other("entry-in-anothers-name", about, v.COIN, lambda entry: replace(entry, party="eve"))
    about = "A user's coin stands as its opening."
    yield other("entry-of-another-kind", about, v.COIN, lambda entry: replace(entry, kind=v.OPEN))
    about = "A user's commitments are those that it signed in another run."
    yield other("entry-of-another-run", about, v.COMMIT, lambda _: entry_of(honest(run=2), v.COMMIT, CHEAT))
    about = "An entry is of somebody who is not in the roster."
    yield other("entry-of-a-stranger", about, v.COMMIT, lambda entry: replace(entry, party="mallory"))
    yield Cheat(
        "log-wholly-re-signed",
        "A whole run among made-up identities with the same names.",
        "the session digest, where it is given",
        SESSION,
        (),
        lambda: honest(keys=1).lines,
    )
