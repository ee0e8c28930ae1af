"""`smpc-dp audit --checkpoint`: a checkpoint of the session log, and the auditor's witnesses."""

from __future__ import annotations

import dataclasses
import html
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.errors import Check, ConfigError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.audit_selection import CheckpointPolicy
from smpc_dp.logs.audits.second import audit_twice
from smpc_dp.logs.checkpoint import Checkpoint, Witness, log_key, sign_checkpoint, witness_request
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.logs.runs import MemorySessionLog
from smpc_dp.logs.signed_note import sign_note
from smpc_dp.wire.canonical_session import canonical_session, session_json
from smpc_dp_lab.vectors import verifiable_runs as lab
from tests.audits import ONE
from tests.fuzz.audits import judge

SIGNER, WITNESS = (Identity.from_seed(name, name[:1].encode() * 32) for name in ("checkpoints", "witness"))


@dataclass
class Files:
    folder: Path
    run: lab.RecordedRun
    log: MemorySessionLog

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def audit(self, note: bytes, witnesses: tuple[str, ...] = (), least: int | None = None) -> Report:
        """Audit by both auditors, with a checkpoint; they agree."""
        report = self.audit_by(audit_twice, note, witnesses, least)
        assert report.second is not None
        assert not report.second.differences
        return report

    def audit_by(
        self,
        auditor: Callable[..., Report],
        note: bytes,
        witnesses: tuple[str, ...] = (),
        least: int | None = None,
    ) -> Report:
        policy = CheckpointPolicy.of(self.write("checkpoint", note), witnesses, least)
        return auditor(
            self.write("log.jsonl", b"".join(line + b"\n" for line in self.run.lines)),
            session=self.run.context.session_digest.hex(),
            session_log=self.write("session.jsonl", self.log.export()),
            run=self.run.header.run_id,
            checkpoint=policy,
            threads=1,
        )

    def cosign(self, note: bytes) -> bytes:
        witness = Witness(WITNESS, self.folder / "witness")
        return note + witness.cosign(witness_request(self.log, 0, note), SIGNER.public_key, 1_800_000_000)

    def forge(self, **changes: bytes) -> bytes:
        checkpoint = dataclasses.replace(Checkpoint.of(self.log), **changes)  # type: ignore[arg-type]
        return sign_note(checkpoint.text(), log_key(checkpoint.origin, SIGNER.public_key), SIGNER)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    plain = lab.members

    def members(*given: object) -> list[Member]:
        """Return the members of the vectors, the aggregator with a key of checkpoints."""
        return [
            replace(member, checkpoint_key=SIGNER.public_key) if member.role == "aggregator" else member
            for member in plain(setting=ONE)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab, "members", members)
        session = session_json(canonical_session("gopa", ONE.version, ONE.declared, members()))
        board = MemoryBoard(session.decode("ascii"))
        run = lab.execute(setting=ONE, board=board)
    log = board.runs(run.context.session_digest, run.context.session_digest)
    return Files(tmp_path_factory.mktemp("audit"), run, log)


def test_a_checkpoint_that_a_witness_has_cosigned(files: Files) -> None:
    from smpc_dp.logs.signed_note import COSIGNATURE, NoteKey

    trusted = str(NoteKey("witness", COSIGNATURE, WITNESS.public_key))
    note = sign_checkpoint(files.log, SIGNER)
    report = files.audit(files.cosign(note), (trusted,))
    assert report.ok, report.conclusion
    assert report.checkpoint is not None
    assert (report.checkpoint.size, report.checkpoint.witnesses) == (3, ("witness",))
    assert "was only appended to, not that it is right" in report.limits
    # Without witnesses it is the aggregator's word, and the report does not speak of them.
    alone = files.audit_by(audit, note)
    assert alone.ok
    assert "appended" not in alone.limits
    missing = files.audit_by(audit, note, (trusted,))
    assert (missing.code, missing.check) == (1, Check.NOT_WITNESSED)
    done = CliRunner().invoke(
        app,
        [
            *("audit", str(files.folder / "log.jsonl"), "--session", files.run.context.session_digest.hex()),
            *("--session-log", str(files.folder / "session.jsonl"), "--run", files.run.header.run_id),
            *("--checkpoint", str(files.write("cosigned", note)), "--witness", trusted, "--witnesses", "0"),
            *("--report", str(files.folder / "report.html")),
        ],
    )
    # The report's command demands the same witnesses.
    page = (files.folder / "report.html").read_text("utf-8")
    shown = html.unescape(re.sub("<[^>]*>", "", page))
    assert f"cosigned --witnesses 0 --witness {trusted}" in shown
    assert done.exit_code == 0
    assert "the session log fits the checkpoint of 3 lines" in done.output


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"root": bytes(32)}, "the root of the checkpoint"),
        ({"head": bytes(32)}, "the head in the checkpoint"),
    ],
)
def test_root_and_head_are_computed_again(files: Files, changed: dict[str, bytes], named: str) -> None:
    report = files.audit_by(audit, files.forge(**changed))
    assert (report.code, report.check) == (1, Check.BAD_CHECKPOINT)
    assert named in report.conclusion


def test_both_auditors_read_one_checkpoint_though_its_file_is_replaced(files: Files) -> None:
    note = sign_checkpoint(files.log, SIGNER)
    log = files.write("log.jsonl", b"".join(line + b"\n" for line in files.run.lines))
    session_log, path = files.write("session.jsonl", files.log.export()), files.write("checkpoint", note)
    policy = CheckpointPolicy.of(path)
    path.write_bytes(b"another\n")
    digest = files.run.context.session_digest.hex()
    report = audit_twice(
        log, session=digest, session_log=session_log, run=files.run.header.run_id, checkpoint=policy
    )
    assert report.ok, report.conclusion


def test_a_checkpoint_before_the_run_says_nothing_of_it(files: Files) -> None:
    first = MemorySessionLog(files.run.context.session_digest, files.run.context.session_digest)
    report = files.audit_by(audit, sign_checkpoint(first, SIGNER))
    assert (report.code, report.check) == (1, Check.NOT_LOGGED)


def test_a_checkpoint_of_a_key_that_the_session_does_not_name(files: Files) -> None:
    report = files.audit(sign_checkpoint(files.log, WITNESS))
    assert (report.code, report.check) == (1, Check.NOT_SIGNED)


@pytest.mark.parametrize(
    ("name", "length", "code"),
    [
        ("someone", 8000, 0),
        ("someone", 5, 0),
        ("someone", 4, 1),
        ("x" * 300, 68, 0),
        ("some\x7fone", 68, 0),
        ("some\u00a0one", 68, 1),
        ("some+one", 68, 1),
    ],
)
def test_signatures_of_unknown_keys_have_any_length_and_name(
    files: Files, name: str, length: int, code: int
) -> None:
    signature = f"— {name} {b64encode(bytes(length)).decode()}\n".encode()
    log = b"".join(line + b"\n" for line in files.run.lines)
    note = files.write("checkpoint", sign_checkpoint(files.log, SIGNER) + signature)
    beside = {"session_log": files.write("session.jsonl", files.log.export()), "checkpoint": note}
    digest, run = files.run.context.session_digest.hex(), files.run.header.run_id
    assert judge(log, {"session": digest, "run": run, **beside}) == code


def test_arguments(files: Files, tmp_path: Path) -> None:
    from smpc_dp.logs.signed_note import COSIGNATURE, NOTE, NoteKey

    note = files.write("checkpoint", sign_checkpoint(files.log, SIGNER))
    key = NoteKey("witness", COSIGNATURE, WITNESS.public_key)
    for witnesses, least, reason in (
        ([str(key)], 2, "2 of 1 witnesses"),
        (
            [str(key), str(NoteKey("other", COSIGNATURE, WITNESS.public_key))],
            None,
            "two witnesses with one key",
        ),
        ([str(NoteKey("witness", NOTE, WITNESS.public_key))], None, "not a witness's key"),
    ):
        with pytest.raises(ConfigError, match=reason):
            CheckpointPolicy.of(note, witnesses, least)
    log = files.write("log.jsonl", b"".join(line + b"\n" for line in files.run.lines))
    for options in (["--checkpoint", str(note)], ["--witness", str(key)]):
        done = CliRunner().invoke(app, ["audit", str(log), *options])
        assert isinstance(done.exception, ConfigError)
