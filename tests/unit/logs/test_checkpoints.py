"""Checkpoints of session logs: RFC 6962 trees, signed notes, witnesses, and what an auditor refuses."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from base64 import b64encode
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.errors import Check, ConfigError, LocalError, VerificationError
from smpc_dp.files import lock_folder
from smpc_dp.identity.keys import Identity
from smpc_dp.logs.checkpoint import (
    Checkpoint,
    Witness,
    add_cosignatures,
    check_inclusion_proof,
    check_witnesses,
    inclusion_proof,
    log_key,
    read_checkpoint,
    sign_checkpoint,
    witness_request,
)
from smpc_dp.logs.hash_tree import HashTree, check_consistency, check_inclusion
from smpc_dp.logs.runs import NO_HEAD, MemorySessionLog
from smpc_dp.logs.signed_note import COSIGNATURE, NOTE, NoteKey, SignedNote, cosigned, sign_note
from smpc_dp.session.session_file import load_session
from smpc_dp_verify.checkpoint import check_checkpoint, tree_hash, witness_key
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.session_log import SessionLog as SecondLog

SIGNER = Identity.from_seed("checkpoints", b"c" * 32)
SESSION = b"s" * 32
# Leaves and roots of the reference implementation of Certificate Transparency.
LEAVES = [b"", b"\x00", b"\x10", b"\x20\x21", b"\x30\x31", b"\x40\x41\x42\x43", bytes(range(0x50, 0x58))]
LEAVES.append(bytes(range(0x60, 0x70)))
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
# A note of Go's sumdb, golang.org/x/mod/sumdb/note.
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n"
    "— PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def log_of(runs: int, *, other: int = 0) -> MemorySessionLog:
    """Return a session log of so many runs; run number `other` is another one."""
    log = MemorySessionLog(SESSION, SESSION)
    for number in range(1, runs + 1):
        log.begin(1, b"o" * 32 if number == other else bytes([number]) * 32, NO_HEAD)
    return log


def refused(check: Check) -> pytest.RaisesExc[VerificationError]:
    return pytest.RaisesExc(VerificationError, check=lambda error: error.check == check)


def test_roots_are_those_of_rfc_6962() -> None:
    tree = HashTree()
    assert tree.root().hex() == ROOTS[0]
    for leaf in LEAVES:
        tree.append(leaf)
        assert tree.root().hex() == ROOTS.get(len(tree), tree.root().hex())
        assert tree.root() == tree_hash(LEAVES[: len(tree)])


def test_every_proof_of_a_small_tree_holds_and_no_other() -> None:
    tree, leaves = HashTree(), [bytes([index]) * (index % 3) for index in range(17)]
    for leaf in leaves:
        tree.append(leaf)
    for size in range(1, len(leaves) + 1):
        root = tree.root(size)
        assert root == tree_hash(leaves[:size])
        for index in range(size):
            proof = tree.prove_inclusion(index, size)
            check_inclusion(leaves[index], index, size, root, proof)
            wrong = [
                (leaves[index] + b"x", index, size, root, proof),
                (leaves[index], index, size, root, [*proof, root]),
            ]
            wrong.append((leaves[index], size, size, root, proof))
            wrong += [
                (leaves[index], index, size, root, [*proof[:at], bytes(32), *proof[at + 1 :]])
                for at in range(len(proof))
            ]
            for given in wrong:
                with refused(Check.NOT_IN_TREE):
                    check_inclusion(*given)
        for old in range(size + 1):
            proof, before = tree.prove_consistency(old, size), tree.root(old)
            check_consistency(old, before, size, root, proof)
            others = [(bytes(32), root, proof), (before, root, [*proof, root])]
            others += [(before, bytes(32), proof)] if old else []
            others += [(before, root, [*proof[:at], bytes(32), *proof[at + 1 :]]) for at in range(len(proof))]
            for first, last, hashes in others:
                with refused(Check.SPLIT_VIEW):
                    check_consistency(old, first, size, last, hashes)


def test_a_note_of_another_implementation_is_verified() -> None:
    key = NoteKey.parse(GO_KEY)
    assert str(key) == GO_KEY
    assert SignedNote.parse(GO_NOTE.encode()).verified([key]) == {key}
    with refused(Check.BAD_SIGNATURE):
        SignedNote.parse(GO_NOTE.replace("answer", "Answer").encode()).verified([key])


@pytest.mark.skipif(
    not (shutil.which("go") and Path("/usr/share/gocode/src/golang.org/x/mod/sumdb/note").is_dir()),
    reason="needs Go and golang.org/x/mod (Debian: golang-go, golang-golang-x-mod-dev)",
)
def test_go_verifies_a_checkpoint(tmp_path: Path) -> None:
    note = sign_checkpoint(log_of(3), SIGNER)
    (tmp_path / "main.go").write_text(
        """package main
import ("fmt"; "io"; "os"; "golang.org/x/mod/sumdb/note")
func main() {
	key, err := note.NewVerifier(os.Args[1])
	if err == nil {
		content, _ := io.ReadAll(os.Stdin)
		var opened *note.Note
		opened, err = note.Open(content, note.VerifierList(key))
		if err == nil { fmt.Print(opened.Text); return }
	}
	fmt.Fprintln(os.Stderr, err); os.Exit(1)
}
"""
    )
    environment = os.environ | {
        "GO111MODULE": "off",
        "GOPATH": "/usr/share/gocode",
        "GOCACHE": str(tmp_path / "c"),
    }
    program = str(tmp_path / "verify")
    subprocess.run(["go", "build", "-o", program, "main.go"], cwd=tmp_path, env=environment, check=True)
    key = str(log_key(SESSION.hex(), SIGNER.public_key))
    done = subprocess.run([program, key], input=note, capture_output=True, check=True)
    assert done.stdout == Checkpoint.of(log_of(3)).text()
    assert subprocess.run([program, key], input=note.replace(b"head ", b"Head "), check=False).returncode == 1


def test_a_checkpoint_has_the_lines_and_the_head() -> None:
    log = log_of(3)
    lines = log.export().splitlines()
    root = b64encode(tree_hash(lines)).decode()
    text = f"{SESSION.hex()}\n4\n{root}\nhead {log.head().hex()}\n".encode()
    note = sign_checkpoint(log, SIGNER)
    assert note.startswith(text + b"\n" + f"— {SESSION.hex()} ".encode())
    checkpoint, _ = read_checkpoint(note, SIGNER.public_key)
    checkpoint.check(log_of(5))
    second = SecondLog(line.decode() for line in log_of(5).export().splitlines())
    check_checkpoint(note, second, SIGNER.public_key, 3, (), 0)


def forged(**changes: object) -> bytes:
    """Return a checkpoint with other contents, which the log's key has signed."""
    text = replace(Checkpoint.of(log_of(3)), **changes).text()  # type: ignore[arg-type]
    return sign_note(text, log_key(SESSION.hex(), SIGNER.public_key), SIGNER)


WRONG = {
    "a-changed-byte": (
        sign_checkpoint(log_of(3), SIGNER).replace(b"head ", b"head 0", 1)[:-1],
        Check.MALFORMED,
    ),
    "a-changed-digit": (sign_checkpoint(log_of(3), SIGNER).replace(b"\n4\n", b"\n3\n"), Check.BAD_SIGNATURE),
    "of-another-key": (sign_checkpoint(log_of(3), Identity.from_seed("x", b"x" * 32)), Check.NOT_SIGNED),
    "another-size": (forged(size=3), Check.BAD_CHECKPOINT),
    "another-root": (forged(root=bytes(32)), Check.BAD_CHECKPOINT),
    "another-head": (forged(head=bytes(32)), Check.BAD_CHECKPOINT),
    "more-lines": (sign_checkpoint(log_of(6), SIGNER), Check.LOG_CUT),
    "no-lines": (forged(size=0), Check.LOG_CUT),
    "of-another-line": (sign_checkpoint(log_of(3, other=2), SIGNER), Check.BAD_CHECKPOINT),
    "not-text": (b"\xff\n\n" + b"x\n", Check.MALFORMED),
    "a-control-character": (forged().replace(b"\n\n", b"\r\n\n"), Check.MALFORMED),
    "too-long": (forged() + b"x" * (1 << 16), Check.TOO_LONG),
    "no-signature": (forged().partition(b"\n\n")[0] + b"\n\n", Check.MALFORMED),
}


@pytest.mark.parametrize(("note", "check"), WRONG.values(), ids=[*WRONG])
def test_both_auditors_refuse_another_checkpoint(note: bytes, check: Check) -> None:
    log = log_of(4)
    with refused(check):
        read_checkpoint(note, SIGNER.public_key)[0].check(log)
    second = SecondLog(line.decode() for line in log.export().splitlines())
    with pytest.raises(Refused, match="checkpoint"):
        check_checkpoint(note, second, SIGNER.public_key, 3, (), 0)


def witness(folder: Path, name: str = "w1") -> Witness:
    return Witness(Identity.from_seed(name, hashlib.sha256(name.encode()).digest()), folder / name)


def ask(by: Witness, log: MemorySessionLog, old: int) -> bytes:
    note = sign_checkpoint(log, SIGNER)
    return by.cosign(witness_request(log, old, note), SIGNER.public_key, 1_700_000_000)


def test_a_witness_catches_a_split_view(tmp_path: Path) -> None:
    first = ask(witness(tmp_path), log_of(3), 0)
    # Another process of the same witness goes on; the same checkpoint again is no fault.
    assert ask(witness(tmp_path), log_of(3), 4) == first
    with refused(Check.SPLIT_VIEW):
        ask(witness(tmp_path), log_of(3, other=2), 4)
    with refused(Check.SPLIT_VIEW):
        ask(witness(tmp_path), log_of(6, other=2), 4)
    with refused(Check.ROLLED_BACK):
        ask(witness(tmp_path), log_of(2), 2)
    with refused(Check.ROLLED_BACK):
        ask(witness(tmp_path), log_of(6), 0)
    # None of these has changed what it knows.
    ask(witness(tmp_path), log_of(6), 4)
    shown_first = tmp_path / "w1" / f"{SESSION.hex()}.checkpoint"
    assert shown_first.read_bytes() == Checkpoint.of(log_of(6)).text()


def test_a_witness_catches_two_heads_of_one_tree(tmp_path: Path) -> None:
    ask(witness(tmp_path), log_of(3), 0)
    with refused(Check.SPLIT_VIEW):
        witness(tmp_path).cosign(b"old 4\n\n" + forged(head=bytes(32)), SIGNER.public_key, 1)


@pytest.mark.parametrize(
    "request_",
    [b"", b"old 04\n\n", b"old 0\nAA==\n\n", b"old 0\n" + b"A" * 43 + b"=\n\n", b"old 0\n" * 70 + b"\n"],
)
def test_a_witness_refuses_what_is_no_request(request_: bytes, tmp_path: Path) -> None:
    with refused(Check.MALFORMED):
        witness(tmp_path).cosign(request_ + forged(), SIGNER.public_key, 1)


def test_a_witness_without_its_memory_stops(tmp_path: Path) -> None:
    ask(witness(tmp_path), log_of(3), 0)
    [path] = (tmp_path / "w1").iterdir()
    path.write_bytes(b"")
    with pytest.raises(LocalError, match="a witness cannot go on without it"):
        ask(witness(tmp_path), log_of(4), 4)


def test_the_auditor_counts_the_witnesses_that_it_trusts(tmp_path: Path) -> None:
    log = log_of(3)
    note = sign_checkpoint(log, SIGNER)
    one, two, stranger = (witness(tmp_path, name) for name in ("w1", "w2", "w3"))
    lines = ask(one, log, 0) + ask(stranger, log, 0)
    signed = add_cosignatures(note, lines + lines, [one.key, two.key])
    assert signed == note + ask(one, log, 4)
    assert add_cosignatures(signed, lines, [one.key]) == signed
    _, parsed = read_checkpoint(signed, SIGNER.public_key)
    assert check_witnesses(parsed, [one.key, two.key], 1) == ("w1",)
    with refused(Check.NOT_WITNESSED):
        check_witnesses(parsed, [one.key, two.key], 2)
    second = SecondLog(line.decode() for line in log.export().splitlines())
    keys = str(one.key), str(two.key)
    assert [witness_key(key) for key in keys] == [one.key.public_key, two.key.public_key]
    check_checkpoint(signed, second, SIGNER.public_key, 3, keys, 1)
    with pytest.raises(Refused, match="witnesses"):
        check_checkpoint(signed, second, SIGNER.public_key, 3, keys, 2)
    # A cosignature of another time than it says.
    moved = note + one.key.signature_line((5).to_bytes(8) + parsed.signatures[1][2][8:])
    with refused(Check.BAD_SIGNATURE):
        check_witnesses(SignedNote.parse(moved), [one.key], 0)
    with pytest.raises(Refused, match="signature"):
        check_checkpoint(moved, second, SIGNER.public_key, 3, keys[:1], 0)


def cosigned_at(time: bytes, message: bytes) -> bytes:
    """Return a checkpoint with a witness's signature of a message, under a time."""
    note, identity = sign_checkpoint(log_of(3), SIGNER), Identity.from_seed("w1", b"w" * 32)
    key = NoteKey("w1", COSIGNATURE, identity.public_key)
    return note + key.signature_line(time + identity.sign(message))


TEXT = Checkpoint.of(log_of(3)).text()
NO_COSIGNATURES = {
    "without-a-time": cosigned_at(b"", TEXT),
    "a-time-that-is-not-signed": cosigned_at(bytes(8), TEXT),
    "too-late-a-time": cosigned_at((1 << 63).to_bytes(8), cosigned(TEXT, 1 << 63)),
    "half-a-time": cosigned_at(bytes(4), TEXT),
}


@pytest.mark.parametrize("note", NO_COSIGNATURES.values(), ids=[*NO_COSIGNATURES])
def test_both_auditors_take_a_cosignature_with_its_time_alone(note: bytes) -> None:
    key = NoteKey("w1", COSIGNATURE, Identity.from_seed("w1", b"w" * 32).public_key)
    last = cosigned_at(((1 << 63) - 1).to_bytes(8), cosigned(TEXT, (1 << 63) - 1))
    assert check_witnesses(SignedNote.parse(last), [key], 1) == ("w1",)
    second = SecondLog(line.decode() for line in log_of(3).export().splitlines())
    check_checkpoint(last, second, SIGNER.public_key, 3, [str(key)], 1)
    with refused(Check.BAD_SIGNATURE):
        check_witnesses(SignedNote.parse(note), [key], 1)
    with pytest.raises(Refused, match="signature"):
        check_checkpoint(note, second, SIGNER.public_key, 3, [str(key)], 1)


def test_both_auditors_refuse_a_signature_with_a_nonce_of_small_order() -> None:
    """The log's own key can make one, R = 0 and s = ha; OpenSSL verifies it, and libsodium does not."""
    expanded = bytearray(hashlib.sha512(b"c" * 32).digest()[:32])
    expanded[0], expanded[31] = expanded[0] & 248, expanded[31] & 127 | 64
    nonce = (1).to_bytes(32, "little")
    hashed = hashlib.sha512(nonce + SIGNER.public_key + TEXT).digest()
    order = (1 << 252) + 27742317777372353535851937790883648493
    product = int.from_bytes(hashed, "little") * int.from_bytes(expanded, "little") % order
    signature = nonce + product.to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(SIGNER.public_key).verify(signature, TEXT)
    note = TEXT + b"\n" + log_key(SESSION.hex(), SIGNER.public_key).signature_line(signature)
    with refused(Check.BAD_SIGNATURE):
        read_checkpoint(note, SIGNER.public_key)
    second = SecondLog(line.decode() for line in log_of(3).export().splitlines())
    with pytest.raises(Refused, match="signature"):
        check_checkpoint(note, second, SIGNER.public_key, 3, (), 0)


def test_a_proof_shows_one_line() -> None:
    log = log_of(5)
    lines = log.export().splitlines()
    proof = inclusion_proof(log, 2, sign_checkpoint(log, SIGNER))
    assert check_inclusion_proof(proof, lines[2], SIGNER.public_key)[0] == 2
    with refused(Check.NOT_IN_TREE):
        check_inclusion_proof(proof, lines[3], SIGNER.public_key)
    with refused(Check.NOT_IN_TREE):
        check_inclusion_proof(proof.replace(b"index 2", b"index 3"), lines[2], SIGNER.public_key)
    with refused(Check.MALFORMED):
        check_inclusion_proof(proof.replace(b"@v1", b"@v2"), lines[2], SIGNER.public_key)


@pytest.mark.parametrize(
    "text", ["", "w1", GO_KEY.replace("c74f20a3", "c74f20a4"), GO_KEY[:-4], GO_KEY.replace("+ARp", "+ARq")]
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no Ed25519 key of a signed note"):
        NoteKey.parse(text)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner()
    make = ["keygen", "relay", "--role", "aggregator", "--address", "127.0.0.1:7", "--checkpoints"]
    made = run.invoke(app, [*make, "--out", str(tmp_path)])
    assert made.exit_code == 0
    key = Identity.load(tmp_path / "relay.checkpoints", "checkpoints").public_key.hex()
    assert f'checkpoint_key = "{key}"' in made.stdout
    again = run.invoke(app, [*make, "--show", "--out", str(tmp_path)])
    assert again.stdout == made.stdout
    session = tmp_path / "session.toml"
    parties = [
        run.invoke(app, ["keygen", name, "--out", str(tmp_path)]).stdout for name in ("ann", "ben", "cyd")
    ]
    bounds = "length = 1\nlower = 0.0\nupper = 1.0\nprecision = 0.5\n"
    session.write_text(
        f'protocol = "secagg"\nversion = 2\n[parameters]\n{bounds}{made.stdout}' + "".join(parties)
    )
    log, note, asked = tmp_path / "session.jsonl", tmp_path / "c", tmp_path / "asked"
    digest = load_session(session).digest
    listed = MemorySessionLog(digest, digest)
    listed.begin(1, bytes(32), NO_HEAD)
    listed.begin(2, bytes(32), NO_HEAD)
    listed.begin(3, bytes(32), NO_HEAD)
    log.write_bytes(listed.export())
    note.write_text(
        run.invoke(
            app, ["board", "checkpoint", str(log), "--key", str(tmp_path / "relay.checkpoints")]
        ).stdout
    )
    prove = ["board", "prove", str(log), str(note)]
    proof = run.invoke(app, [*prove, "--line", "2"]).stdout.encode()
    assert check_inclusion_proof(proof, log.read_bytes().splitlines()[2], bytes.fromhex(key))[0] == 2
    assert run.invoke(app, [*prove, "--line", "4"]).exit_code == 1
    asked.write_text(run.invoke(app, [*prove, "--old", "0"]).stdout)
    run.invoke(app, ["keygen", "w1", "--out", str(tmp_path)])
    given = ["--session", str(session), "--key", str(tmp_path / "w1.key"), "--folder", str(tmp_path / "seen")]
    done = run.invoke(app, ["board", "cosign", str(asked), *given])
    assert done.exit_code == 0
    (tmp_path / "line").write_text(done.stdout)
    trusted = done.stderr.removeprefix("witness: ").strip()
    done = run.invoke(app, ["board", "accept", str(note), str(tmp_path / "line"), "--witness", trusted])
    assert "1 cosignatures added" in done.stdout
    _, parsed = read_checkpoint(note.read_bytes(), bytes.fromhex(key))
    assert check_witnesses(parsed, [NoteKey.parse(trusted)], 1) == ("w1",)
    # Another process adds to the file meanwhile: what it has added stays.
    command = ["board", "accept", str(note), str(tmp_path / "line"), "--witness", trusted]
    other = parsed.text + b"\n" + "".join(note.read_text("utf-8").splitlines(True)[5:6]).encode()
    added = other + b"\xe2\x80\x94 w2 AAAAAAAA\n"

    def wait(folder: Path) -> AbstractContextManager[None]:
        note.write_bytes(added)
        return lock_folder(folder)

    with monkeypatch.context() as patched:
        patched.setattr("smpc_dp.files.lock_folder", wait)
        assert run.invoke(app, command).exit_code == 0
    assert note.read_bytes().startswith(added)
    assert note.read_bytes() != added
    assert NoteKey.parse(str(log_key(SESSION.hex(), bytes.fromhex(key)))).kind == NOTE
    # The key of one session cannot replace what is remembered of another session's log.
    signer = Identity.load(tmp_path / "relay.checkpoints", "checkpoints")
    asked.write_bytes(witness_request(log_of(3), 0, sign_checkpoint(log_of(3), signer)))
    done = run.invoke(app, ["board", "cosign", str(asked), *given])
    assert "no log of the session" in str(done.exception)
    assert [path.name for path in (tmp_path / "seen").iterdir()] == [f"{digest.hex()}.checkpoint"]


@pytest.mark.parametrize("role", ["party", "server"])
def test_only_an_aggregator_signs_checkpoints(role: str, tmp_path: Path) -> None:
    given = [
        "keygen",
        "ann",
        "--role",
        role,
        "--address",
        "127.0.0.1:7",
        "--checkpoints",
        "--out",
        str(tmp_path),
    ]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 1
    assert f"a {role} signs no checkpoints" in str(done.exception)
    assert not [*tmp_path.iterdir()]
