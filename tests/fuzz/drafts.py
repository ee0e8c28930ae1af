"""Logs of runs from drafts.

A draft is the content of a log before anything is hashed or signed, as values of MessagePack. What follows
from the rest may be missing in it, as None: the run id, signatures of certificates, the root over
commitments. So a changed draft gives a log whose chain and signatures are right, and the change meets the
checks behind these.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.pairs.garbled.draw import commit
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.messages import OPERATION
from smpc_dp.capabilities.pairs.ustatistic.terms import (
    again_identifier,
    commitment_run,
    run_identifier,
    start_root,
)
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as common
from smpc_dp.engine.phases.begin import attestation_digest
from smpc_dp.errors import SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.hash_tree import HashTree
from smpc_dp.logs.log import FORMAT, VERSION, Chain, Entry, Header, decode_line, encode_line
from smpc_dp.logs.runs import head_after, start_of
from smpc_dp.logs.signed_note import COSIGNATURE, NoteKey, cosigned
from smpc_dp.wire.canonical_session import session_json
from smpc_dp.wire.sets import PartySet, pack_list
from smpc_dp.wire.signing import Context

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
# What values that are no draft raise.
NO_DRAFT = (
    *(msgspec.MsgspecError, SmpcError),
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
)


class DraftHeader(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a header says of a run, besides its session; `runs` None: the run is the first one."""

    request: int
    question: str | None
    number: int
    runs: bytes | None
    before: bytes
    present: bytes
    root: bytes | None


class Draft(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A log before it is signed: of each entry author, kind and fields of the payload, or the payload.

    Fields of a certificate are members, signers, signatures (None: right ones), and the list of those whose
    edges are to be opened, where there is one. `given`: session, run, head and request as a party gives them;
    True: those of the log.
    """

    header: DraftHeader
    entries: list[tuple[str, str, Any]]
    given: list[Any]


@dataclass(frozen=True)
class Signed:
    """A log, and what says which it is."""

    log: bytes
    session: str
    run: str
    head: str
    request: int


# Those of the seeds come again; each input has others, of which a run of hours would remember gigabytes.
@functools.lru_cache(1 << 14)
def _signature(identity: Identity, statement: bytes) -> bytes:
    return identity.sign(statement)


@dataclass(frozen=True)
class Case:
    """A session, and the keys of its members; `context` is that of its runs, but for the request."""

    session: str
    context: Context
    identities: Mapping[str, Identity]

    def sign(self, draft: Draft) -> Signed:
        """Return the log of a draft; raise one of `NO_DRAFT` for what fits none."""
        drawn = self.filled(draft)
        header = drawn.header
        context = dataclasses.replace(self.context, request=header.request)
        run_id = self.run_id(context, header)
        runs = start_of(context.scope) if header.runs is None else header.runs
        written = Header(
            *(FORMAT, VERSION, self.session, header.request, header.question or "", header.number),
            *(runs.hex(), header.before.hex(), header.present, header.root or b"", run_id.hex()),
        )
        chain, lines = Chain(written), [encode_line(written)]
        begun = head_after(runs, header.number, header.request, run_id, header.before)
        signing = Signing(self, context, run_id, begun, header.present)
        for party, kind, fields in drawn.entries:
            payload = (
                fields if isinstance(fields, bytes) else encode(signing.fields_of(party, kind, fields, chain))
            )
            entry = chain.append(party, kind, payload, signing.signature(party, kind, payload))
            lines.append(encode_line(entry))
        log = b"".join(line + b"\n" for line in lines)
        shown = self.shown_run_id(signing).hex()
        return Signed(log, context.session_digest.hex(), shown, chain.head.hex(), header.request)

    def filled(self, draft: Draft) -> Draft:
        """Return a draft with what its header leaves out."""
        return draft

    def run_id(self, context: Context, header: DraftHeader) -> bytes:
        """Return the run id of a header."""
        return keys.run_identifier(context, header.question or "", header.present, header.root or b"")

    def shown_run_id(self, signing: Signing) -> bytes:
        """Return the run id in results."""
        return signing.run_id

    def signer(self, name: str) -> Identity:
        """Return who signs as a member: itself, or for a stranger the aggregator."""
        return self.identities.get(name) or self.identities[self.context.aggregator]


class Signing:
    """The signatures of one log, whose entries come in order."""

    def __init__(self, case: Case, context: Context, run_id: bytes, begun: bytes, present: bytes) -> None:
        self.case, self.context, self.begun = case, context, begun
        # That of the header, and that of the current draw of a statistic.
        self.first = self.run_id = run_id
        self.attempt = 1
        self.present, self.partners, self.labels = present, 0, dict[str, int]()

    def fields_of(self, party: str, kind: str, fields: Any, chain: Chain) -> Any:
        """Return the fields of a payload, with those that the draft leaves out."""
        if not isinstance(fields, list):
            return fields
        if kind.startswith("certify") and len(fields) >= 3:
            members, signers, signatures, *false = fields
            if signatures is None:
                signatures = self._certified(kind, members, signers, false, chain.head)
            return [members, signers, signatures]
        if kind == m.OUTCOME and len(fields) == 9:
            *figures, pairs, failed, before = fields
            before = chain.head if before is None else before
            return [*figures, self._drawn() - len(failed) if pairs is None else pairs, failed, before]
        if kind == m.TERMS and len(fields) == 2:
            partners = fields[0].get("partners") if isinstance(fields[0], dict) else None
            self.partners = partners if isinstance(partners, int) else 0
            return [terms_bytes(fields[0]), fields[1]]
        if kind == m.HELLO and len(fields) == 7:
            self.labels[party] = fields[5]
        return fields

    def _certified(self, kind: str, members: Any, signers: Any, false: list[Any], head: bytes) -> bytes:
        """Return the signatures of a certificate over what is due at its place."""
        step = kind.replace("certify", "attest", 1)
        head = self.begun if kind == common.CERTIFY_BEGIN else head
        if not all(isinstance(part, bytes) for part in (members, signers, *false)):
            return b""
        parts = (*self.context.bound, self.first, step.encode(), head, members, *false)
        return quorum_signatures(
            self.case, self.context, self.first, step, digest(Label.BOARD_ATTESTATION, *parts), signers
        )

    def signature(self, party: str, kind: str, payload: bytes) -> bytes:
        """Return the author's signature of an entry."""
        run_id = self.run_id
        if kind == m.HELLO:
            run_id = self.context.session_digest
        elif kind in m.AGAINS:
            self.present = _only(payload)
            self.attempt += 1
            self.run_id = run_id = again_identifier(self.context, self.run_id, self.attempt, self.present)
        body = hashlib.sha256(payload).digest()
        statement = self.context.statement(run_id, kind, party, self.context.aggregator, body)
        return _signature(self.case.signer(party), statement)

    def _drawn(self) -> int:
        """Return how many pairs the last draw has."""
        numbers = PartySet.unpack(self.present, len(self.context.names), "")
        labels = [self.labels.get(self.context.names[number - 1], -1) for number in numbers]
        each = min(labels.count(0), labels.count(1)) if max(labels, default=-1) >= 0 else len(labels) // 2
        return self.partners * each


def quorum_signatures(
    case: Case, context: Context, run_id: bytes, step: str, attested: bytes, signers: bytes
) -> bytes:
    """Return the signatures of a set of parties on a digest; none if the set is malformed."""
    try:
        who = PartySet.unpack(signers, len(context.names), context.aggregator)
    except SmpcError:
        return b""
    body = hashlib.sha256(encode([attested])).digest()
    names = [context.names[party - 1] for party in who]
    return b"".join(
        _signature(case.signer(name), context.statement(run_id, step, name, context.aggregator, body))
        for name in names
    )


def _only(payload: bytes) -> bytes:
    """Return the one field of a message, or nothing."""
    try:
        [field] = decode(payload)
    except (msgspec.MsgspecError, ValueError, TypeError):
        return b""
    return field if isinstance(field, bytes) else b""


def terms_bytes(terms: Any) -> Any:
    """Return the terms of a statistic as a log has them, if they are plain data."""
    return session_json(terms) if isinstance(terms, dict) else terms


def asked_of(question: str) -> bytes:
    """Return the digest of the statistic that a question asks for."""
    try:
        return bytes.fromhex(question.removeprefix(OPERATION))
    except ValueError:
        return b""


@dataclass(frozen=True)
class StatisticCase(Case):
    """A session with pairwise statistics."""

    def filled(self, draft: Draft) -> Draft:
        """Return a draft with the question about its terms, its commitments, and the root over these."""
        header = draft.header
        question, root = header.question, header.root
        if question is None:
            terms = [fields for _, kind, fields in draft.entries if kind == m.TERMS]
            text, circuit = (terms_bytes(terms[0][0]), terms[0][1]) if terms else (b"", b"")
            question = OPERATION + digest(Label.STATISTIC_TERMS, text, circuit).hex()
        context = dataclasses.replace(self.context, request=header.request)
        coins = {
            (party, kind): fields[0] for party, kind, fields in draft.entries if kind in m.COINS and fields
        }
        entries = [
            (party, kind, _hello(context, asked_of(question), party, fields, coins))
            if kind == m.HELLO and isinstance(fields, list)
            else (party, kind, fields)
            for party, kind, fields in draft.entries
        ]
        if root is None:
            hellos = [fields for _, kind, fields in entries if kind == m.HELLO]
            labels = bytes(hello[5] + 1 for hello in hellos)
            root = start_root(b"".join(hello[2] for hello in hellos), labels)
        return Draft(
            DraftHeader(
                *(header.request, question, header.number, header.runs, header.before, header.present, root)
            ),
            entries,
            draft.given,
        )

    def run_id(self, context: Context, header: DraftHeader) -> bytes:
        """Return the run id of a header."""
        asked = asked_of(header.question or "")
        return run_identifier(context, asked, header.present, header.root or b"")


def _hello(
    context: Context, asked: bytes, party: str, fields: list[Any], coins: Mapping[tuple[str, str], Any]
) -> list[Any]:
    """Return the fields of a hello, with those that the draft leaves out; commitments follow from coins."""
    due = (context.session_digest, context.request, None, asked)
    filled = [due[i] if i < len(due) and field is None else field for i, field in enumerate(fields)]
    if isinstance(filled[2], list):
        filled[2] = b"".join(
            commit(commitment_run(context, asked, attempt), party, coins[party, m.COINS[attempt - 1]])
            if given is None
            else given
            for attempt, given in enumerate(filled[2], 1)
        )
    return filled


def draft_of(lines: Sequence[bytes], case: Case) -> Draft:
    """Return the draft of a log of a session, in which all that is signed is missing."""
    statistic = isinstance(case, StatisticCase)
    first, entries = decode_line(lines[0], Header), [decode_line(line, Entry) for line in lines[1:]]
    wanted = DraftHeader(
        *(first.request, None if statistic else first.operation, first.number),
        *(bytes.fromhex(first.runs), bytes.fromhex(first.before), first.present),
        None if statistic else first.root,
    )
    drafted: list[tuple[str, str, Any]] = []
    context, parties = dataclasses.replace(case.context, request=first.request), len(case.context.names)
    for entry in entries:
        drafted.append((entry.party, entry.kind, _drafted(entry, drafted, parties)))
        if statistic and entry.kind in m.COINS:
            _leave_out_commitment(context, asked_of(first.operation), entry, drafted)
    return Draft(wanted, drafted, [True, True, True, True])


def _leave_out_commitment(
    context: Context, asked: bytes, entry: Any, drafted: Sequence[tuple[str, str, Any]]
) -> None:
    """Take the commitment to a coin out of the hello of its author, if it is right."""
    attempt, coin = m.COINS.index(entry.kind) + 1, _only(entry.payload)
    hello = next(fields for party, kind, fields in drafted if (party, kind) == (entry.party, m.HELLO))
    if hello[2][attempt - 1] == commit(commitment_run(context, asked, attempt), entry.party, coin):
        hello[2][attempt - 1] = None


def _drafted(entry: Any, before: Sequence[tuple[str, str, Any]], parties: int) -> Any:
    """Return the fields of an entry without signatures; the payload, if it is malformed."""
    try:
        fields = decode(entry.payload)
    except msgspec.MsgspecError:
        return entry.payload
    if encode(fields) != entry.payload or not isinstance(fields, list):
        return entry.payload
    if entry.kind.startswith("certify"):
        fields[2] = None
        if entry.kind.startswith(v.CERTIFY_EXCLUSIONS):
            fields.append(_shown_false(fields[0], before, parties))
    elif entry.kind == m.OUTCOME:
        fields[6] = fields[8] = None
    elif entry.kind == m.TERMS:
        fields[0] = json.loads(fields[0])
    elif entry.kind == m.HELLO:
        fields[0] = fields[1] = fields[3] = None
        fields[2] = [fields[2][32 * i : 32 * i + 32] for i in range(m.ATTEMPTS)]
    return fields


def _shown_false(members: bytes, before: Sequence[tuple[str, str, Any]], parties: int) -> bytes:
    """Return the list of those shown false before a round of openings."""
    rounds = [fields[0] for _, kind, fields in before if kind.startswith(v.CERTIFY_EXCLUSIONS)]
    begun = next(fields[0] for _, kind, fields in before if kind == v.CERTIFY_COMMITMENTS)
    # In these runs all participants publish.
    earlier = PartySet.unpack(rounds[-1] if rounds else begun, parties, "")
    return pack_list(sorted({*earlier} - {*PartySet.unpack(members, parties, "")}))


# What is given beside a log: a session log, a checkpoint of it, a receipt.


class DraftNote(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A checkpoint before it is signed; None: what follows from the session log.

    Of each signature the name (None: that of the key), whose key signs ("log", "witness"; another text stands
    as it is for what would be signed), and for a witness the time.
    """

    origin: str | None
    size: int | None
    root: str | None
    head: str | None
    more: str
    signatures: list[tuple[str | None, str, int]]


class DraftBeside(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What is given beside a log: a session log, a checkpoint, a receipt, each a draft or the file; or None.

    `runs`: fields of the first line, then of lines of runs and of certificates, then whether the last one
    ends. `receipt`: keys with their values. `given`: as in a draft.
    `least`: how many of one witness must have cosigned; None: no witness is known.
    """

    runs: list[Any] | bytes | None
    note: DraftNote | bytes | None
    receipt: list[Any] | bytes | None
    given: list[Any]
    least: int | None


class Runs(NamedTuple):
    """A session log, and the head after each of its lines."""

    content: bytes
    heads: list[bytes]


_FIRST = ("format", "version", "session", "scope")
_RUN = ("number", "request", "run_id", "before")
_CERTIFIED = ("certifies", "protocol", "version", "members", "signers", "signatures")


def session_log_of(case: Case, signed: Signed, lines: Sequence[Any]) -> Runs:
    """Return the session log of a draft; raise one of `NO_DRAFT` for what fits none."""
    first, *rest, ends = lines
    due = (None, None, case.context.session_digest, case.context.scope)
    written = [_line(_FIRST, [right if one is None else one for one, right in zip(first, due, strict=False)])]
    head, last, log_head = start_of(case.context.scope), bytes.fromhex(signed.run), bytes.fromhex(signed.head)
    heads = [head]
    for line in rest:
        if line and len(line) <= len(_RUN):
            due = (None, None, bytes.fromhex(signed.run), log_head)
            given: list[Any] = [right if one is None else one for one, right in zip(line, due, strict=False)]
            written.append(_line(_RUN, given))
            # A line of other types has no head.
            with suppress(AttributeError, OverflowError, TypeError, ValueError):
                head, last = _head_after(head, given), given[2]
        else:
            written.append(_line(_CERTIFIED, _certified(case, line, last, head)))
        heads.append(head)
    return Runs(b"\n".join([*written, b""] if ends else written), heads)


def _head_after(head: bytes, given: Sequence[Any]) -> bytes:
    """Return the head after the line of a run; raise what Python raises for values of other types."""
    number, request, run_id, before = given
    return head_after(head, number, request, run_id, before)


def _line(names: Sequence[str], values: Sequence[Any]) -> bytes:
    """Return a line with these fields, of any types: byte strings of 32 bytes in hex, others in base64."""
    return msgspec.json.encode(
        {
            name: value.hex() if isinstance(value, bytes) and name in ("session", "scope", *_RUN) else value
            for name, value in zip(names, values, strict=False)
        }
    )


def _certified(case: Case, line: Sequence[Any], run_id: Any, head: bytes) -> Sequence[Any]:
    """Return the fields of a certificate, with the signatures of its signers if the draft has none."""
    if len(line) < len(_CERTIFIED) or line[5] is not None:
        return line
    _, protocol, version, members, signers, _ = line
    signatures = b""
    with suppress(AttributeError, OverflowError, TypeError, ValueError):
        context = dataclasses.replace(case.context, protocol=protocol, version=version)
        attested = attestation_digest(context, run_id, head, members)
        signatures = quorum_signatures(case, context, run_id, common.ATTEST_BEGIN, attested, signers)
    return [*line[:5], signatures]


def note_bytes(note: DraftNote, runs: Runs, keys: Mapping[str, tuple[NoteKey, Identity]]) -> bytes:
    """Return the checkpoint of a draft, for a session log; `keys`: those of the log and of a witness.

    Raises one of `NO_DRAFT` for what fits none.
    """
    tree = HashTree()
    for line in runs.content.removesuffix(b"\n").split(b"\n"):
        tree.append(line)
    size = len(tree) if note.size is None else note.size
    known = 1 <= size <= len(runs.heads)
    root = b64encode(tree.root(size) if known else bytes(32)).decode() if note.root is None else note.root
    head = (runs.heads[size - 1] if known else bytes(32)).hex() if note.head is None else note.head
    origin = keys["log"][0].name if note.origin is None else note.origin
    text = f"{origin}\n{size}\n{root}\nhead {head}\n{note.more}".encode()
    return text + b"\n" + b"".join(_signature_line(text, keys, *each) for each in note.signatures)


def _signature_line(
    text: bytes, keys: Mapping[str, tuple[NoteKey, Identity]], name: str | None, signer: str, time: int
) -> bytes:
    """Return a line of a signature; of a signer that is no key its name is the base64 of the signature."""
    if signer not in keys:
        return f"— {name or signer} {signer}\n".encode()
    key, identity = keys[signer]
    signature = identity.sign(text)
    if key.kind == COSIGNATURE:
        signature = time.to_bytes(8) + identity.sign(cosigned(text, time))
    encoded = b64encode(key.identifier + signature).decode("ascii")
    return f"— {key.name if name is None else name} {encoded}\n".encode()


def receipt_bytes(fields: Sequence[Any]) -> bytes:
    """Return a receipt as JSON, of keys and values; an array of both is another object."""
    return _object(fields).encode()


def _object(fields: Sequence[Any]) -> str:
    """Return a JSON object with these keys and values, which may be there twice."""
    members = (
        f"{json.dumps(key)}:{_object(value) if isinstance(value, list) else json.dumps(value)}"
        for key, value in fields
    )
    return f"{{{','.join(members)}}}"
