"""Falsified session logs, one change each, which a reader of the file, an audit or a party refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from smpc_dp.engine.phases.messages import Begin
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.log import encode_line
from smpc_dp.logs.runs import CertifiedLine, start_of
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.sets import pack_set
from smpc_dp_lab.vectors.verifiable_listed import QUORUM, listed, packed, shown_line, with_fields

# The run whose log is audited; the last one, which a party is shown.
AUDITED, LAST = 4, 5
# Who refuses.
READER, AUDIT, PARTY = "reader", "audit", "party"
FORMAT, ORDER, SESSION = "the format", "the order of lines", "the session and its scope"
LISTED, ENDED, GIVEN = "the run is a line", "the end of the run before", "the head that was given"
QUORUMS, SIGNED, ASKED = (
    "the quorum's signatures on the head",
    "what the party has signed",
    "this run is last",
)
OTHER = bytes(range(32))

File = Callable[[], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Falsified:
    """Test vector of a falsified session log: how it is made, and which check must refuse it.

    Attributes:
        name, about: what is done, one thing.
        check: what refuses it, in words.
        by: who refuses it.
        make: returns the lines of the file, or what a party is shown.
        session_head: whether the auditor has the head after the last run of the valid list, and not the last
            one of the run's log.
    """

    name: str
    about: str
    check: str
    by: str
    make: Callable[[], Sequence[bytes] | Begin]
    session_head: bool = False


def all_falsified() -> Iterator[Falsified]:
    """Yield all test vectors of falsified session logs."""
    for name, about, make in _spelling():
        yield Falsified(name, about, FORMAT, READER, make)
    for name, about, make in _order():
        yield Falsified(name, about, ORDER, READER, make)
    yield from _content()
    for name, about, make in _certificates():
        yield Falsified(name, about, QUORUMS, AUDIT, make)
    yield from _shown()


def _with(index: int, *lines: bytes) -> list[bytes]:
    """Return the lines of the valid session log with one line replaced by these."""
    known = listed().lines
    index %= len(known)
    return [*known[:index], *lines, *known[index + 1 :]]


def _at(index: int, change: Callable[[bytes], bytes]) -> File:
    """Return a function that makes the valid file with one line changed."""
    return lambda: _with(index, change(listed().lines[index]))


def _run(run: int, **fields: object) -> File:
    """Return a function that makes the valid file with other fields in a run's line."""
    return lambda: _with(listed().index(run), with_fields(listed().line(run), **fields))


def _spelling() -> Iterator[tuple[str, str, File]]:
    """Yield name, description and content of session logs whose lines are not canonical JSON."""

    def field_missing(line: bytes) -> bytes:
        fields = json.loads(line)
        del fields["before"]
        return msgspec.json.encode(fields)

    def upper(line: bytes) -> bytes:
        fields = json.loads(line)
        return msgspec.json.encode(fields | {"run_id": fields["run_id"].upper()})

    def of_run(change: Callable[[bytes], bytes]) -> File:
        return lambda: _at(listed().index(LAST), change)()

    yield "empty", "There is no line.", lambda: []
    yield "of-something-else", "The format is another.", _at(0, lambda x: x.replace(b"session log", b"board"))
    newer = _at(0, lambda x: x.replace(b'"version":1', b'"version":2'))
    yield "version-unknown", "The first line has version 2.", newer
    yield "first-line-missing", "It begins with run 1.", lambda: listed().lines[1:]
    yield "first-line-twice", "The file is there twice, one after the other.", lambda: 2 * listed().lines
    yield "line-truncated", "The last line is cut in the middle.", _at(-1, lambda x: x[: len(x) // 2])
    yield "line-empty", "An empty line follows the last one.", lambda: [*listed().lines, b""]
    yield "field-unknown", "Run 5 has a field more.", of_run(lambda x: x[:-1] + b',"more":1}')
    yield "field-missing", "Run 5 has no `before`.", of_run(field_missing)
    yield "spelling-with-a-space", "Run 5 has a space.", of_run(lambda x: x.replace(b",", b", ", 1))
    yield "digits-in-upper-case", "The id of run 5 is in upper case.", of_run(upper)


def _order() -> Iterator[tuple[str, str, File]]:
    """Yield name, description and content of session logs with lines in a wrong order."""

    def twice() -> list[bytes]:
        line = encode_line(listed().line(3))
        return _with(listed().index(3), line, line)

    def swapped() -> list[bytes]:
        lines, index = list(listed().lines), listed().index(3)
        lines[index], lines[index + 1] = lines[index + 1], lines[index]
        return lines

    yield "line-dropped", "Run 3 is left out.", lambda: _with(listed().index(3))
    yield "line-twice", "Run 3 is there twice.", twice
    yield "lines-swapped", "Runs 3 and 4 are exchanged.", swapped
    yield "number-wrong", "Run 5 has number 6.", _run(LAST, number=6)
    about = "The last certificate is there twice."
    yield "certificate-twice", about, lambda: [*listed().lines, listed().lines[-1]]
    about = "The certificate of run 4 follows run 5."
    yield "certificate-late", about, _at(-1, lambda _line: encode_line(listed().certificate(4)))
    about = "The certificate of run 5 stands before its line."
    yield "certificate-early", about, lambda: [*listed().lines[:-2], *listed().lines[:-3:-1]]


def _content() -> Iterator[Falsified]:
    """Yield falsified session logs with false content in valid lines."""

    def refused(name: str, about: str, check: str, make: File, session_head: bool = False) -> Falsified:
        return Falsified(name, about, check, AUDIT, make, session_head)

    def first(field: str) -> File:
        return _at(0, lambda line: msgspec.json.encode(json.loads(line) | {field: OTHER.hex()}))

    def omitted() -> list[bytes]:
        return listed().listing([listed().line(number) for number in (2, 3, 4, 5)])

    def two_lists() -> list[bytes]:
        runs = [listed().line(number) for number in (1, 2, 3, 4)]
        return listed().listing([*runs[:3], replace(runs[3], run_id=OTHER.hex())])

    def cut(number: int) -> File:
        return lambda: listed().lines[: listed().index(number)]

    yield refused("of-another-session", "The session digest is another.", SESSION, first("session"))
    yield refused("of-another-scope", "The scope is a group's.", SESSION, first("scope"))
    yield refused("run-id-wrong", "Run 1 has another id.", LISTED, _run(1, run_id=OTHER.hex()))
    yield refused("request-wrong", "Run 4 is of request 3.", LISTED, _run(AUDITED, request=3))
    about = "The line of run 2 has another end of run 1."
    yield refused("head-before-wrong", about, LISTED, _run(2, before=OTHER.hex()))
    about = "The line of run 5 has another end of run 4."
    yield refused("head-of-the-run-wrong", about, ENDED, _run(LAST, before=OTHER.hex()))
    about = "Run 1 is left out and those after it are numbered anew; all users have signed."
    yield refused("run-omitted", about, LISTED, omitted)
    about = "All users have signed another list, with another run 4."
    yield refused("two-lists", about, LISTED, two_lists)
    yield refused("cut-before-the-run", "It ends after run 3.", LISTED, cut(AUDITED))
    about = "It ends after run 4; the auditor has the head of the session log after run 5."
    yield refused("cut-before-the-head", about, GIVEN, cut(LAST), True)


def _certificates() -> Iterator[tuple[str, str, File]]:
    """Yield files in which the last certificate, that of run 5, is invalid."""

    def last(change: Callable[[CertifiedLine], CertifiedLine]) -> File:
        def changed(line: bytes) -> bytes:
            return encode_line(change(msgspec.json.decode(line, type=CertifiedLine)))

        return _at(-1, changed)

    def signed(signers: Sequence[str] = QUORUM, **other: object) -> File:
        return last(lambda _: listed().certificate(LAST, signers=signers, **other))  # type: ignore[arg-type]

    def by_a_stranger() -> Sequence[bytes]:
        stranger = Identity.from_seed("ann", SeededRandomnessForSimulation(0, "key stranger").bytes(32))
        keys = listed().runs[-1].identities | {"ann": stranger}
        return signed(keys=keys)()

    def twice(line: CertifiedLine) -> CertifiedLine:
        return replace(line, signatures=line.signatures[:64] + line.signatures[:64] + line.signatures[128:])

    def other_session() -> Sequence[bytes]:
        return signed(head=start_of(OTHER))()

    def as_run_4() -> Sequence[bytes]:
        return signed(run_id=bytes.fromhex(listed().line(4).run_id))()

    def flipped(line: CertifiedLine) -> CertifiedLine:
        return replace(line, signatures=line.signatures[:-1] + bytes([line.signatures[-1] ^ 1]))

    def others(line: CertifiedLine) -> CertifiedLine:
        return replace(line, members=packed(QUORUM))

    def outside(line: CertifiedLine) -> CertifiedLine:
        return replace(line, members=packed(("ben", "cyd", "dan", "eve")))

    def cut_after_the_line() -> Sequence[bytes]:
        return listed().lines[: listed().index(AUDITED) + 1]

    yield (
        "certificates-dropped",
        "No certificate is there.",
        lambda: [line for line in listed().lines if not line.startswith(b'{"certifies"')],
    )
    about = "It ends with the line of run 4; the last certificate is that of run 2."
    yield "certificate-of-the-run-dropped", about, cut_after_the_line
    yield "quorum-too-small", "Three users have signed.", signed(QUORUM[:3])
    yield "signature-of-a-stranger", "In the place of ann somebody else has signed.", by_a_stranger
    yield "signature-twice", "The signature of ann stands for ben as well.", last(twice)
    yield "signature-flipped", "One bit of a signature is another.", last(flipped)
    about = "A signature is missing; the set of signers has its author."
    yield "signature-missing", about, last(lambda x: replace(x, signatures=x.signatures[:-64]))
    yield "signatures-on-another-session", "Signed is the head of another session's log.", other_session
    about = "The signatures are those on the head after run 4."
    of_run_4 = last(lambda _: replace(listed().certificate(4), certifies=LAST))
    yield "signatures-on-another-run", about, of_run_4
    about = "The users have signed the head after run 5 as that of run 4."
    yield "signatures-with-another-run-id", about, as_run_4
    yield "members-changed", "Those present are others than were signed.", last(others)
    yield "signer-not-present", "Ann has signed, and was not present.", last(outside)
    about = "The set of those present has a bit more than there are users."
    yield "members-not-canonical", about, last(lambda x: replace(x, members=b"\0\xff"))
    about = "The set of signers has nobody."
    yield "signers-empty", about, last(lambda x: replace(x, signers=pack_set([], 5), signatures=b""))
    yield "protocol-wrong", "It is a certificate of secagg.", last(lambda x: replace(x, protocol="secagg"))
    about = "It is a certificate of version 1 of gopa."
    yield "protocol-version-wrong", about, last(lambda x: replace(x, version=1))


def _shown() -> Iterator[Falsified]:
    """Yield lists to show when run 5 begins to a party that has signed run 4 and seen its end."""

    def refused(name: str, about: str, check: str, make: Callable[[], Begin]) -> Falsified:
        return Falsified(f"shown-{name}", about, check, PARTY, make)

    def after(base: int, *numbers: int, head: bytes | None = None, **fields: object) -> Callable[[], Begin]:
        """Return a function that shows runs after a head.

        0 is a run that never was; `fields` change the first run.
        """

        def make() -> Begin:
            known = listed()
            runs = [
                known.line(number) if number else replace(known.line(LAST), run_id=OTHER.hex())
                for number in numbers
            ]
            if runs:
                runs[0] = replace(runs[0], **fields)
            start = known.log.head(base) if head is None else head
            return Begin(base, start, [shown_line(run) for run in runs])

        return make

    yield refused("rolled-back", "Run 5 is shown in the place of run 4.", SIGNED, after(3, 5))
    about = "The list is begun anew with run 5."
    yield refused("begun-anew", about, SIGNED, after(0, 5, before=bytes(32).hex()))
    yield refused("another-list", "Another run stands in the place of run 4.", SIGNED, after(3, 0, 5))
    about = "Run 3 is left out, and one that never was follows run 4."
    yield refused("run-omitted", about, SIGNED, after(2, 4, 0, 5))
    yield refused("another-head", "The head after run 4 is another.", SIGNED, after(4, 5, head=OTHER))
    about = "A run that never was stands between runs 4 and 5, and is not shown."
    yield refused("cut-in-front", about, SIGNED, after(5, 5))
    about = "The line of run 5 has another end of run 4."
    yield refused("another-end", about, ENDED, after(4, 5, before=OTHER.hex()))
    of_another = after(0, 1, 2, 3, 4, 5, head=start_of(OTHER))
    yield refused("of-another-session", "The list is of another session.", SESSION, of_another)
    about = "The first line has an end of a run before."
    yield refused("run-before-the-first", about, ENDED, after(0, 1, 2, 3, 4, 5, before=OTHER.hex()))
    yield refused("without-this-run", "A run that never was follows run 4.", ASKED, after(4, 0))
    about = "Run 5 is listed with request 1."
    yield refused("with-another-request", about, ASKED, after(4, 5, request=1))
    yield refused("without-a-line", "No line is shown.", FORMAT, after(4))
