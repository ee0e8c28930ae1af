"""The session log: what a party refuses, and what relay and party keep on disk."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from smpc_dp.errors import ConfigError, LocalError, VerificationError
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.board import BoardFolder
from smpc_dp.logs.checkpoint import Checkpoint, read_checkpoint
from smpc_dp.logs.keeping import Board, MemoryBoard
from smpc_dp.logs.log import Chain, Entry, Header, encode_line
from smpc_dp.logs.runs import NO_HEAD, CertifiedLine, MemorySessionLog, Shown, check_shown, read_all, start_of
from smpc_dp.logs.seen import SeenRuns
from smpc_dp.seen import NOTHING_SEEN, Seen, scope_of_group
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership, default_key
from smpc_dp.session.session_file import load_session

SESSION = b"s" * 32
RUNS = [bytes([number]) * 32 for number in range(1, 7)]
ENDS = [bytes([100 + number]) * 32 for number in range(1, 7)]


def log_of(runs: int, *, other: int = 0) -> MemorySessionLog:
    """Return a session log of so many runs; run number `other` is another one."""
    log = MemorySessionLog(SESSION, SESSION)
    for number in range(runs):
        run_id = b"o" * 32 if number + 1 == other else RUNS[number]
        log.begin(1, run_id, NO_HEAD if number == 0 else ENDS[number - 1])
    return log


def seen_of(log: MemorySessionLog, closed: int = 0) -> Seen:
    """Return what a party keeps that has signed the whole log, and saw run `closed` end."""
    return Seen(len(log.lines), log.head(), closed, ENDS[closed - 1] if closed else b"")


def shown(log: MemorySessionLog, seen: Seen) -> bytes:
    return check_shown(seen, SESSION, *log.since(seen.number))


def test_who_has_signed_three_runs_goes_on_with_the_fifth() -> None:
    assert shown(log_of(5), seen_of(log_of(3), closed=3)) == log_of(5).head()
    assert shown(log_of(5), NOTHING_SEEN) == log_of(5).head()
    assert shown(log_of(1), NOTHING_SEEN) == log_of(1).head()


def before_changed(log: MemorySessionLog) -> tuple[int, bytes, list[Shown]]:
    base, head, lines = log.since(3)
    request, run_id, _ = lines[0]
    return base, head, [(request, run_id, b"x" * 32), *lines[1:]]


def begun_anew(_log: MemorySessionLog) -> tuple[int, bytes, list[Shown]]:
    return log_of(1).since(0)


CHEATS: dict[str, tuple[Callable[[MemorySessionLog], tuple[int, bytes, list[Shown]]], str]] = {
    "rolled-back": (lambda _: log_of(3).since(3), "it was rolled back"),
    "begun-anew": (begun_anew, "it was rolled back"),
    "a-run-exchanged": (lambda _: log_of(5, other=2).since(1), "another session log than was signed"),
    "a-run-omitted": (
        lambda log: (2, log.head(2), [item for item in log.since(2)[2] if item[1] != RUNS[2]] * 2),
        "another session log than was signed",
    ),
    "cut-in-front": (lambda log: (4, log.head(4), log.since(4)[2]), "shows the session log from run 4 on"),
    "another-end": (before_changed, "another end of run 3"),
    "of-another-session": (
        lambda log: (0, start_of(b"t" * 32), log.since(0)[2] * 5),
        "session log of another session",
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_party_refuses_another_list_than_it_has_signed(cheat: str) -> None:
    show, why = CHEATS[cheat]
    with pytest.raises(VerificationError, match=why):
        check_shown(seen_of(log_of(3), closed=3), SESSION, *show(log_of(5)))


def test_a_first_run_that_another_was_before_is_refused() -> None:
    with pytest.raises(VerificationError, match="a run was before the first"):
        check_shown(NOTHING_SEEN, SESSION, 0, start_of(SESSION), [(1, RUNS[0], ENDS[0])])


def test_a_group_has_a_log_of_its_own() -> None:
    groups = [scope_of_group(SESSION, names) for names in (("ann", "ben"), ("ann", "cyd"), ("annben",))]
    assert len({SESSION, *groups}) == 4


def test_an_exported_log_reads_the_same() -> None:
    log = log_of(4)
    again = read_all(log.export().splitlines())
    assert (again.head(), again.lines) == (log.head(), log.lines)
    with pytest.raises(VerificationError, match="run 3 where 2 is due"):
        read_all(line for number, line in enumerate(log.export().splitlines()) if number != 2)


# on disk


def header(number: int, runs: bytes) -> Header:
    return Header(
        format="smpc-dp board",
        version=2,
        session="{}",
        request=1,
        operation="",
        number=number,
        runs=runs.hex(),
        before=NO_HEAD.hex(),
        present=b"",
        root=bytes(32),
        run_id=RUNS[number - 1].hex(),
    )


def test_a_relay_that_is_started_again_goes_on_with_its_list(tmp_path: Path) -> None:
    first = BoardFolder(tmp_path / "board", "{}")
    line = first.runs(SESSION, SESSION).begin(1, RUNS[0], NO_HEAD)
    first.begin(header(1, start_of(SESSION)))
    ended = first.head_of(line)
    first.close()
    path = tmp_path / "board" / f"session-{SESSION.hex()[:16]}.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # Killed in the middle of the next line, which it had not shown to anybody.
    with path.open("ab") as file:
        file.write(b'{"number":2,"requ')
    again = BoardFolder(tmp_path / "board", "{}")
    log = again.runs(SESSION, SESSION)
    assert [result.run_id for result in log.lines] == [RUNS[0].hex()]
    assert again.head_of(log.lines[0]) == ended != NO_HEAD
    log.begin(1, RUNS[1], ended)
    assert BoardFolder(tmp_path / "board", "{}").runs(SESSION, SESSION).head() == log.head()


def test_a_damaged_list_is_not_gone_on_with(tmp_path: Path) -> None:
    folder = BoardFolder(tmp_path, "{}")
    folder.runs(SESSION, SESSION).begin(1, RUNS[0], NO_HEAD)
    path = tmp_path / f"session-{SESSION.hex()[:16]}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"number":1', b'"number":2'))
    with pytest.raises(LocalError, match="run 2 where 1 is due"):
        BoardFolder(tmp_path, "{}").runs(SESSION, SESSION)
    path.unlink()
    BoardFolder(tmp_path, "{}").runs(b"t" * 32, SESSION)
    path.write_bytes((tmp_path / f"group-{SESSION.hex()[:16]}.jsonl").read_bytes())
    with pytest.raises(LocalError, match="of another session or group"):
        BoardFolder(tmp_path, "{}").runs(SESSION, SESSION)


def test_a_line_that_the_disk_refused_is_not_left_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay goes on with the next request: a line with the same number after it would end the session."""
    log = BoardFolder(tmp_path, "{}").runs(SESSION, SESSION)
    log.begin(1, RUNS[0], NO_HEAD)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LocalError, match="cannot write the session log"):
            log.begin(2, RUNS[1], NO_HEAD)
    log.begin(3, RUNS[2], NO_HEAD)
    again = BoardFolder(tmp_path, "{}").runs(SESSION, SESSION)
    assert [line.request for line in again.lines] == [1, 3]
    assert again.head() == log.head()


@pytest.mark.parametrize("left", ["nothing", "a database without a header"])
def test_a_crash_before_the_header_of_a_run_does_not_end_the_session(tmp_path: Path, left: str) -> None:
    folder = BoardFolder(tmp_path, "{}")
    line = folder.runs(SESSION, SESSION).begin(1, RUNS[0], NO_HEAD)
    index = tmp_path / f"request-1-{line.run_id[:16]}.board"
    index.touch()
    if left != "nothing":
        with contextlib.closing(sqlite3.connect(index)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    assert BoardFolder(tmp_path, "{}").head_of(line) == NO_HEAD
    index.write_bytes(b"something else")
    with pytest.raises(LocalError):
        BoardFolder(tmp_path, "{}").head_of(line)


def test_two_processes_add_a_line_once(tmp_path: Path) -> None:
    one, other = (BoardFolder(tmp_path, "{}").runs(SESSION, SESSION) for _ in range(2))
    line = one.copy().begin(1, RUNS[0], NO_HEAD)
    assert one.lines == []
    one.keep(line)
    other.keep(line)
    certified = CertifiedLine(1, "gopa", 4, b"", b"", b"")
    other.keep(certified)
    one.keep(certified)
    assert one.head() == other.head()
    # Another run, or other signatures, with the same number; a line that does not follow.
    for log, wrong in (
        (one, replace(line, run_id=RUNS[1].hex())),
        (other, replace(certified, signers=b"x")),
        (one, replace(line, number=3)),
        (other, replace(certified, certifies=2)),
    ):
        with pytest.raises(LocalError, match="cannot follow"):
            log.keep(wrong)
    other.keep(replace(line, number=2, run_id=RUNS[1].hex()))
    one.refresh()
    again = BoardFolder(tmp_path, "{}").runs(SESSION, SESSION)
    assert again.lines == one.lines == other.lines
    assert len(again.lines) == 2


def test_a_cut_line_is_removed_before_it_is_written_again(tmp_path: Path) -> None:
    log = BoardFolder(tmp_path, "{}").runs(SESSION, SESSION)
    [path] = tmp_path.glob("session-*.jsonl")
    line = log.copy().begin(1, RUNS[0], NO_HEAD)
    path.write_bytes(path.read_bytes() + encode_line(line)[:30])
    log.keep(line)
    assert BoardFolder(tmp_path, "{}").runs(SESSION, SESSION).lines == [line]


def test_the_log_of_a_run_is_gone_on_with(tmp_path: Path) -> None:
    """Entries that are there are skipped; another one, a gap, or one of another log is an error."""
    folders = [BoardFolder(tmp_path, "{}") for _ in range(2)]
    line = folders[0].runs(SESSION, SESSION).begin(1, RUNS[0], NO_HEAD)
    head = header(1, start_of(SESSION))
    boards: list[Board] = [*folders, MemoryBoard("{}")]
    for board in boards[0], boards[2]:
        board.begin(head)
        chain = Chain(head)
        assert board.resume(line) == (0, chain.head)
        entries = [chain.append("ann", "coin", bytes([number]), bytes(64)) for number in range(4)]
        board.append(entries[:2])
        board.begin(head)
        board.append(entries[:3])
        board.append(entries[1:2])
        if board is boards[0]:
            boards[1].begin(head)
            boards[1].append(entries[:3])
        for wrong in (
            replace(entries[1], payload=b"x"),
            replace(entries[3], previous=entries[2].previous),
            chain.append("ann", "coin", b"5", bytes(64)),
        ):
            with pytest.raises(LocalError, match="does not follow"):
                board.append([wrong])
        assert board.resume(line) == (3, chain_of(head, entries[:3]).head)
    with pytest.raises(LocalError, match=r"is the log of another run|set back"):
        folders[0].begin(replace(head, root=b"1" * 32))
    for board in boards:
        with pytest.raises(LocalError, match=r"no log of this run|is not there"):
            board.resume(replace(line, run_id=RUNS[1].hex()))


def chain_of(head: Header, entries: Sequence[Entry]) -> Chain:
    chain = Chain(head)
    for entry in entries:
        chain.follow(entry)
    return chain


def test_what_a_party_has_signed_outlives_its_process(tmp_path: Path) -> None:
    path = tmp_path / "ann.runs"
    seen = seen_of(log_of(3), closed=2)
    assert SeenRuns(path).get(SESSION) == NOTHING_SEEN
    SeenRuns(path).put(SESSION, NOTHING_SEEN, seen)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SeenRuns(path).get(SESSION) == seen
    assert SeenRuns(path).get(b"t" * 32) == NOTHING_SEEN


def test_what_is_kept_never_becomes_less(tmp_path: Path) -> None:
    path = tmp_path / "ann.runs"
    seen = seen_of(log_of(3), closed=2)
    SeenRuns(path).put(SESSION, NOTHING_SEEN, seen)
    for less in (NOTHING_SEEN, seen_of(log_of(2), closed=2), seen_of(log_of(3), closed=1)):
        with pytest.raises(LocalError, match="never becomes less"):
            SeenRuns(path).put(SESSION, seen, less)
    assert SeenRuns(path).get(SESSION) == seen


@pytest.mark.parametrize("field", ["head", "closed_head"])
def test_what_is_kept_never_becomes_another(tmp_path: Path, field: str) -> None:
    """A restored run comes after another process of the party has attested a line of the same number."""
    path = tmp_path / "ann.runs"
    seen = seen_of(log_of(3), closed=2)
    SeenRuns(path).put(SESSION, NOTHING_SEEN, seen)
    with pytest.raises(LocalError, match=r"line [23] of a session log is kept with another head"):
        SeenRuns(path).put(SESSION, seen, replace(seen, **{field: bytes(32)}))
    assert SeenRuns(path).get(SESSION) == seen


def test_parties_whose_keys_differ_in_their_suffix_have_files_of_their_own(tmp_path: Path) -> None:
    """With one file for both, each would be told that another process has its key."""
    parameters = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.1, "dropout": 0.0, "corrupt": 0.0}
    session = create_local_session(tmp_path, ("ann", "ben", "cyd"), parameters)
    files = set[Path]()
    for name in ("ann", "ben"):
        key = default_key(session, name).rename(tmp_path / f"site.{name}")
        files.add(Membership.load(session, name, key).runs_seen.path)
    assert files == {tmp_path / "ann.runs", tmp_path / "ben.runs"}


def test_two_processes_with_one_key_do_not_sign_two_lists(tmp_path: Path) -> None:
    """Both begin from the same state: whoever is second may not sign."""
    path = tmp_path / "ann.runs"
    one, other = seen_of(log_of(1)), seen_of(log_of(1, other=1))
    SeenRuns(path).put(SESSION, NOTHING_SEEN, one)
    with pytest.raises(LocalError, match="another process has taken part"):
        SeenRuns(path).put(SESSION, NOTHING_SEEN, other)
    assert SeenRuns(path).get(SESSION) == one


def test_a_file_that_others_can_write_or_that_is_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ann.runs"
    SeenRuns(path).put(SESSION, NOTHING_SEEN, seen_of(log_of(1)))
    os.chmod(path, 0o620)
    with pytest.raises(LocalError, match="lets others write it"):
        SeenRuns(path).get(SESSION)
    path.unlink()
    path.write_bytes(b"something else that is no database")
    os.chmod(path, 0o600)
    with pytest.raises(LocalError, match="cannot be used"):
        SeenRuns(path).get(SESSION)


def test_the_relay_signs_a_checkpoint_of_each_line(tmp_path: Path) -> None:
    signer = Identity.generate("checkpoints")
    log = BoardFolder(tmp_path, "{}", signer).runs(SESSION, SESSION)
    log.begin(1, RUNS[0], NO_HEAD)
    [path] = tmp_path.glob("*.checkpoint")
    note = path.read_bytes()
    assert path.stem == f"session-{SESSION.hex()[:16]}"
    assert read_checkpoint(note, signer.public_key)[0] == Checkpoint.of(log)
    # Cosignatures of the same lines stay; another line has another checkpoint.
    path.write_bytes(note + b"\xe2\x80\x94 w QUFBQUFBQUE=\n")
    again = BoardFolder(tmp_path, "{}", signer).runs(SESSION, SESSION)
    again.keep(again.lines[0])
    assert path.read_bytes() != note
    again.begin(2, RUNS[1], ENDS[0])
    assert read_checkpoint(path.read_bytes(), signer.public_key)[0].size == 3


def test_the_key_of_checkpoints_is_that_of_the_session(tmp_path: Path) -> None:
    path = create_local_session(
        tmp_path,
        ["ann", "ben", "cyd"],
        {"length": 1, "lower": 0, "upper": 1, "epsilon": 4.0, "delta": 1e-3, "verifiable": True},
        protocol="gopa",
    )
    signer = Identity.generate("checkpoints")
    text = path.read_text().replace(
        'certificate = "', f'checkpoint_key = "{signer.public_key.hex()}"\ncertificate = "', 1
    )
    path.write_text(text)
    with pytest.raises(LocalError, match=r"aggregator\.checkpoints"):
        Membership.load(path, "aggregator", role="aggregator").checkpoint_identity()
    Identity.generate("checkpoints").save(tmp_path / "keys" / "aggregator.checkpoints")
    with pytest.raises(ConfigError, match="is not the one of the key file"):
        Membership.load(path, "aggregator", role="aggregator").checkpoint_identity()
    (tmp_path / "keys" / "aggregator.checkpoints").unlink()
    signer.save(tmp_path / "keys" / "aggregator.checkpoints")
    identity = Membership.load(path, "aggregator", role="aggregator").checkpoint_identity()
    assert identity is not None
    assert identity.public_key == signer.public_key
    # It is a key of its own, and an aggregator's.
    own = Membership.load(path, "ann").identity.public_key.hex()
    for changed, reason in (
        (text.replace(signer.public_key.hex(), own), "the same as"),
        (
            path.read_text().replace('role = "party"', f'role = "party"\ncheckpoint_key = "{"0" * 64}"', 1),
            "no checkpoints",
        ),
        (text.replace(signer.public_key.hex(), "0"), "64 lower-case hex"),
    ):
        path.write_text(changed)
        with pytest.raises(ConfigError, match=reason):
            load_session(path)
