"""Five runs of one session with their session log, and other lists that its parties might sign."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.begin import attestation_digest
from smpc_dp.engine.phases.messages import Attestation, Begin
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.logs.log import Chain, encode_line
from smpc_dp.logs.runs import CertifiedLine, MemorySessionLog, RunLine, Shown
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context, encode
from smpc_dp_lab.vectors.verifiable_runs import PARTIES, RELAY, RecordedRun, execute, honest

# Request, randomness, and who falls silent instead of sending its message of that number: ben before it opens
# its coin; ann and ben before they sign the session log, so that there is no quorum.
RUNS: tuple[tuple[int, int, Mapping[str, int]], ...] = (
    (1, 21, {"ben": 7}),
    (1, 22, {}),
    (2, 23, {"ann": 2, "ben": 2}),
    (2, 24, {}),
    (2, 25, {}),
)
# Whose view of the list the vectors have.
PARTY = "ann"
QUORUM = PARTIES[:4]


@dataclass(frozen=True, slots=True)
class Listed:
    """Five runs of one session, their session log, and what `PARTY` had stored before each run."""

    runs: tuple[RecordedRun, ...]
    seen: tuple[Seen, ...]
    log: MemorySessionLog
    lines: tuple[bytes, ...]

    @property
    def context(self) -> Context:
        """The context of the last of the runs."""
        return self.runs[-1].context

    def line(self, number: int) -> RunLine:
        """Return the session log's line of run `number`, from 1."""
        return self.log.lines[number - 1]

    def index(self, number: int) -> int:
        """Return the index of run `number`'s line in the session log's file."""
        return self.lines.index(encode_line(self.line(number)))

    def end(self, number: int) -> bytes:
        """Return the last hash of the log of run `number`."""
        ran = self.runs[number - 1]
        chain = Chain(ran.header)
        for entry in ran.entries:
            chain.follow(entry)
        return chain.head

    def shown(self, number: int) -> Begin:
        """Return the part of the list that `PARTY` was shown when a run began."""
        known = self.seen[number - 1].number
        base = min(known, number - 1) if known else number - 1
        return Begin(base, self.log.head(base), [shown_line(line) for line in self.log.lines[base:number]])

    def listing(self, runs: Sequence[RunLine]) -> list[bytes]:
        """Return the file of another list, with these runs in this order, signed by all parties."""
        log = MemorySessionLog(self.context.session_digest, self.context.scope)
        for run in runs:
            log.begin(*shown_line(run))
        last = runs[-1]
        log.keep(self.certificate(len(runs), log.head(), bytes.fromhex(last.run_id)))
        return log.export().splitlines()

    def certificate(
        self,
        number: int,
        head: bytes | None = None,
        run_id: bytes | None = None,
        *,
        signers: Sequence[str] = QUORUM,
        keys: Mapping[str, Identity] | None = None,
    ) -> CertifiedLine:
        """Return the certificate of the list up to a run, with the signatures of `signers`.

        Args:
            number: of the run.
            head, run_id: what is signed in the place of the head after that run, and in the place of its id.
            signers: whose signatures it claims to have.
            keys: whose key is used in the place of a signer's own.
        """
        context, ran = self.context, self.runs[-1]
        head = self.log.head(number) if head is None else head
        run_id = bytes.fromhex(self.line(number).run_id) if run_id is None else run_id
        members = packed(PARTIES)
        body = encode(Attestation(attestation_digest(context, run_id, head, members)))
        digest = hashlib.sha256(body).digest()
        signatures = [
            (keys or ran.identities)[name].sign(
                context.statement(run_id, m.ATTEST_BEGIN, name, RELAY, digest)
            )
            for name in signers
        ]
        return CertifiedLine(
            number, context.protocol, context.version, members, packed(signers), b"".join(signatures)
        )


@functools.cache
def listed() -> Listed:
    """Run the five runs, one after the other, and return them with their session log; cached."""
    board, retained = MemoryBoard(honest().header.session), dict[str, Seen]()
    ran: list[RecordedRun] = []
    seen: list[Seen] = []
    for request, randomness, kill in RUNS:
        seen.append(retained.get(PARTY, NOTHING_SEEN))
        run = execute(run=randomness, request=request, kill=kill, board=board, seen=retained)
        ran.append(run)
        retained = {name: party.state.seen for name, party in run.parties.items()}
    context = ran[-1].context
    log = board.runs(context.session_digest, context.scope)
    return Listed(tuple(ran), tuple(seen), log, tuple(log.export().splitlines()))


def packed(names: Sequence[str]) -> bytes:
    """Encode a set of parties, given by name, as messages do."""
    return pack_set([PARTIES.index(name) + 1 for name in names], len(PARTIES))


def shown_line(line: RunLine) -> Shown:
    """Return a run's line of the session log in the form in which messages show it."""
    return line.request, bytes.fromhex(line.run_id), bytes.fromhex(line.before)


def with_fields(line: RunLine, **fields: object) -> bytes:
    """Return a run's line of the session log, as bytes, with some fields replaced."""
    return encode_line(replace(line, **fields))
