"""Vectors of the session log: one of five runs with their logs, its checkpoints, and each falsified list."""

from __future__ import annotations

from smpc_dp.engine.phases.messages import Begin
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.checkpoint import Checkpoint, inclusion_proof, log_key, sign_checkpoint, witness_request
from smpc_dp.logs.runs import read_all
from smpc_dp.logs.signed_note import COSIGNATURE, NoteKey, cosign_note
from smpc_dp.seen import Seen
from smpc_dp.wire.signing import encode
from smpc_dp_lab.vectors.runs import header
from smpc_dp_lab.vectors.verifiable_listed import RUNS, Listed, listed
from smpc_dp_lab.vectors.verifiable_lists import AUDITED, LAST, Falsified, all_falsified

BASE = "session-log"
# Of the cosignature, in seconds since the epoch.
TIME = 1_800_000_000


def generate() -> dict[str, dict[str, object]]:
    """Return the content of every file by its name; the same on every host."""
    base = listed()
    false = {f"{BASE}-negative-{item.name}": _falsified(item, base) for item in all_falsified()}
    return {BASE: _valid(base), f"{BASE}-checkpoints": checkpoints(base), **false}


def checkpoints(base: Listed) -> dict[str, object]:
    """Return the test vector of checkpoints of all sizes, proofs, and a witness's cosignature."""
    signer, cosigner = Identity.from_seed("checkpoints", b"c" * 32), Identity.from_seed("w1", b"w" * 32)
    logs = [read_all(base.lines[:size]) for size in range(1, len(base.lines) + 1)]
    notes = [sign_checkpoint(log, signer) for log in logs]
    key = NoteKey(cosigner.name, COSIGNATURE, cosigner.public_key)
    last = Checkpoint.of(logs[-1])
    about = "Of the lines of session-log.json: note i is of the first i + 1. Seeds are the secret keys."
    return {
        **header("session-log-checkpoints", "checkpoints", about),
        "base": f"{BASE}.json",
        "seed": (b"c" * 32).hex(),
        "checkpoint_key": signer.public_key.hex(),
        "key": str(log_key(last.origin, signer.public_key)),
        "notes": [note.decode() for note in notes],
        "inclusion": [inclusion_proof(logs[-1], index, notes[-1]).decode() for index in range(len(logs))],
        "requests": [witness_request(logs[-1], old, notes[-1]).decode() for old in range(len(logs) + 1)],
        "witness": str(key),
        "witness_seed": (b"w" * 32).hex(),
        "time": TIME,
        "cosignature": cosign_note(last.text(), key, cosigner, TIME).decode(),
    }


def _valid(base: Listed) -> dict[str, object]:
    """Return the test vector of the valid session log of five runs."""
    about = (
        "Five users. Run 1 stops, since ben withholds its coin; run 3 has no quorum; the others end."
        " Runs 1 and 2 are of request 1, the others of request 2."
    )
    return {
        **header("session-log", "five-runs", about),
        "session": base.context.session_digest.hex(),
        "scope": base.context.scope.hex(),
        "log": [line.decode("ascii") for line in base.lines],
        "runs": [_run(base, number) for number in range(1, len(RUNS) + 1)],
    }


def _run(base: Listed, number: int) -> dict[str, object]:
    """Return a run: heads of both logs, the party's stored state before it and its view, and the log."""
    return {
        "number": number,
        "session_head": base.log.head(number).hex(),
        "head": base.end(number).hex(),
        "seen": _seen(base.seen[number - 1]),
        "begin": _body(base.shown(number)),
        "log": [line.decode("ascii") for line in base.runs[number - 1].lines],
    }


def _falsified(item: Falsified, base: Listed) -> dict[str, object]:
    """Return a falsified list; a line that is also in the valid file is its index there."""
    made = item.make()
    content: dict[str, object]
    if isinstance(made, Begin):
        content = {"run": LAST, "seen": _seen(base.seen[LAST - 1]), "begin": _body(made)}
    else:
        known: dict[bytes, object] = {line: index for index, line in enumerate(base.lines)}
        head = base.log.head() if item.session_head else base.end(AUDITED)
        log = [known.get(line, line.decode("ascii")) for line in made]
        content = {"run": AUDITED, "head": head.hex(), "log": log}
    return {
        **header("session-log-negative", item.name, item.about),
        "base": f"{BASE}.json",
        "check": item.check,
        "expect": {"refused_by": item.by},
        **content,
    }


def _body(shown: Begin) -> str:
    return encode(shown).hex()


def _seen(seen: Seen) -> dict[str, object]:
    """Return, as JSON data, what a party has seen of a session log."""
    return {
        "number": seen.number,
        "head": seen.head.hex(),
        "closed": seen.closed,
        "closed_head": seen.closed_head.hex(),
    }
