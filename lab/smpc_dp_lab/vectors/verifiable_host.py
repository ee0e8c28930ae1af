"""Cheats of the holder of a log: one change each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.engine.phases import messages as m
from smpc_dp.logs.log import Entry, decode_line, encode_line
from smpc_dp.wire.signing import decode, encode
from smpc_dp_lab.vectors.fault import Fields, Kinds, altered
from smpc_dp_lab.vectors.verifiable_cheat import BASE, REFUSED, SESSION, Cheat
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, OTHER
from smpc_dp_lab.vectors.verifiable_runs import RELAY, RecordedRun, entry_of, honest

Change = Callable[[RecordedRun], list[bytes]]
CHAIN, SIGNATURE, ORDER, FORMAT = "the chain of heads", "signatures", "the order of entries", "the format"
HEADS, HEADER = "the quorum's signatures on the head", "the run id"
END = "the log has an end"
# What entries say.
KINDS: Kinds = {
    v.COMMIT: v.Commit,
    v.PUBLISH: v.Publish,
    v.TALLY: v.Tally,
    v.CERTIFY_COMMITMENTS: m.Certified,
    v.CERTIFY_TALLY: m.Certified,
    v.in_round(v.CERTIFY_EXCLUSIONS, 2): m.Certified,
}


def all_cheats() -> Iterator[Cheat]:
    """Yield all test vectors of logs that their holder has changed without any key."""
    yield from _lines()
    yield from _format()
    yield from _signatures()


def changed_log(
    name: str,
    about: str,
    check: str,
    change: Change,
    *culprits: str,
    ran: Callable[[], RecordedRun] = honest,
    base: str = BASE,
) -> Cheat:
    """Return the cheat of changing a run's log, by default an honest one's; the audit refuses it."""
    return Cheat(name, about, check, REFUSED, culprits, lambda: change(ran()), base)


def index_of(ran: RecordedRun, kind: str, party: str = RELAY) -> int:
    """Return the number of the line with the entry of this kind and party."""
    return entry_of(ran, kind, party).sequence


def entries(
    kind: str, party: str, size: int, change: Callable[[RecordedRun, list[Entry]], Sequence[Entry]]
) -> Change:
    """Return a change of so many entries of a log from this one on, with matching numbers and heads."""

    def changed(ran: RecordedRun) -> list[bytes]:
        known, index = ran.entries, index_of(ran, kind, party) - 1
        instead = change(ran, known[index : index + size])
        return ran.log([*known[:index], *instead, *known[index + size :]])

    return changed


def replaced(kind: str, party: str, change: Callable[[RecordedRun, Entry], Entry]) -> Change:
    """Return a change of one entry of a log, with matching numbers and heads."""
    return entries(kind, party, 1, lambda ran, one: [change(ran, one[0])])


def with_payload(kind: str, party: str, change: Callable[[bytes], bytes]) -> Change:
    """Return a change of an entry's payload, signed by its party, with matching numbers and heads."""
    return replaced(kind, party, lambda ran, entry: ran.sign(entry, change(entry.payload)))


def rewritten(kind: str, party: str, fields: Fields) -> Change:
    """Return a change of an entry's fields, signed by its party, with matching numbers and heads."""
    return with_payload(kind, party, lambda body: encode(altered(decode(body, KINDS[kind], ""), fields)))


def _lines() -> Iterator[Cheat]:
    """Yield cheats that remove, repeat, cut or exchange whole lines of a log."""

    def lines(party: str, size: int, change: Callable[[list[bytes]], Sequence[bytes]]) -> Change:
        """Return a change of so many lines from a party's coin on."""

        def changed(ran: RecordedRun) -> list[bytes]:
            known, index = ran.lines, index_of(ran, v.COIN, party)
            return [*known[:index], *change(known[index : index + size]), *known[index + size :]]

        return changed

    swapped = lines("ann", 2, lambda two: two[::-1])
    yield changed_log("lines-swapped", "Two lines are exchanged.", CHAIN, swapped)
    yield changed_log("line-dropped", "A line is left out.", CHAIN, lines("ben", 1, lambda _one: []))
    yield changed_log(
        "line-duplicated", "A line is there twice.", CHAIN, lines("ben", 1, lambda one: one * 2)
    )
    yield changed_log("log-truncated", "The last entry is left out.", END, lambda ran: ran.lines[:-1])
    yield changed_log(
        "log-truncated-before-the-tally",
        "The log ends after the publications.",
        END,
        lambda ran: ran.lines[: index_of(ran, v.TALLY)],
    )

    def appended(ran: RecordedRun) -> list[bytes]:
        last = ran.sign(replace(entry_of(ran, v.TALLY), kind=v.OPEN, party="ann"))
        return ran.log([*ran.entries, last])

    yield changed_log("entry-after-the-end", "An entry follows the last one.", ORDER, appended)

    def previous(one: list[bytes]) -> list[bytes]:
        return [encode_line(altered(decode_line(one[0], Entry), {"previous": lambda head: head[::-1]}))]

    yield changed_log("head-changed", "An entry names another head.", CHAIN, lines("ben", 1, previous))


def _format() -> Iterator[Cheat]:
    """Yield cheats that change the JSON form of a log's lines."""

    def at(change: Callable[[bytes], bytes], index: int = 2) -> Change:
        return lambda ran: [*ran.lines[:index], change(ran.lines[index]), *ran.lines[index + 1 :]]

    def as_json(change: Callable[[dict[str, str]], dict[str, str]]) -> Change:
        return at(lambda line: json.dumps(change(json.loads(line)), separators=(",", ":")).encode())

    def missing(fields: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in fields.items() if name != "signature"}

    respelt = at(lambda line: line.replace(b",", b", ", 1))
    yield changed_log("spelling-with-a-space", "A line has a space.", FORMAT, respelt)
    reordered = as_json(lambda fields: dict(reversed(fields.items())))
    yield changed_log("fields-reordered", "The fields of a line are in another order.", FORMAT, reordered)
    repeated = at(lambda line: line[:-1] + b',"kind":"commit"}')
    yield changed_log("field-twice", "A line has a field twice.", FORMAT, repeated)
    unknown = at(lambda line: line[:-1] + b',"more":1}')
    yield changed_log("field-unknown", "A line has a field more.", FORMAT, unknown)
    yield changed_log("field-missing", "A line has no signature.", FORMAT, as_json(missing))
    upper = as_json(lambda fields: fields | {"signature": fields["signature"].upper()})
    yield changed_log("digits-in-upper-case", "A signature is in upper case.", FORMAT, upper)
    about = "The header is of version 3 of the board."
    newer = at(lambda line: line.replace(b'"version":2', b'"version":3', 1), 0)
    yield changed_log("version-unknown", about, FORMAT, newer)
    about = "The first line is JSON of something else."
    yield changed_log("header-of-something-else", about, FORMAT, at(lambda _line: b'{"format":"other"}', 0))
    about = "A user's entry is signed, and its MessagePack takes more bytes than it needs."
    # bin 16 where bin 8 would do
    long_form = with_payload(v.COIN, CHEAT, lambda body: b"\x91\xc5\x00\x20" + decode(body, v.Coin, "").coin)
    yield changed_log("payload-not-canonical", about, FORMAT, long_form, CHEAT)
    about = "A user signs a commitment that is the encoding of no point."
    bad_point = rewritten(v.COMMIT, CHEAT, {"value": b"\xff" * 32})
    yield changed_log("point-not-canonical", about, FORMAT, bad_point, CHEAT)
    about = "A user signs a blinding above the order of the group."
    bad_scalar = rewritten(v.PUBLISH, CHEAT, {"blinding": b"\xff" * 32})
    yield changed_log("scalar-not-canonical", about, FORMAT, bad_scalar, CHEAT)


def _signatures() -> Iterator[Cheat]:
    """Yield cheats that change entries' signatures."""

    def flipped(signature: str) -> str:
        return signature[:-1] + ("0" if signature[-1] != "0" else "1")

    def other(name: str, about: str, kind: str, how: Callable[[Entry], Entry]) -> Cheat:
        return changed_log(name, about, SIGNATURE, replaced(kind, CHEAT, lambda _, entry: how(entry)))

    about = "One digit of a signature is another."
    yield other("signature-flipped", about, v.COMMIT, lambda entry: altered(entry, {"signature": flipped}))
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
