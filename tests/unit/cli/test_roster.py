"""`smpc-dp roster`: assembles what members send, in the order given, and shows words that tell keys apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from smpc_dp.errors import LocalError
from smpc_dp.identity.words import entry_words, words_of
from smpc_dp.session.session_file import load_session
from smpc_dp.session.terms import write_new
from tests.command import smpc_dp

NAMES = ("hub", "dan", "ann", "cyd", "ben")
TERMS = """\
protocol = "secagg"
version = 3
# terms
[parameters]
length = 1
lower = 0
upper = 9
kind = "integer"
"""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with terms and an entry of each member, as `keygen` prints it."""
    folder = tmp_path_factory.mktemp("sent")
    (folder / "terms.toml").write_text(TERMS)
    for name in (*NAMES, "hub2"):
        more = ("--role", "aggregator", "--address", "192.0.2.7:7100") if name.startswith("hub") else ()
        done = smpc_dp("keygen", name, *more, cwd=folder)
        (folder / f"{name}.toml").write_text(done.stdout)
        (folder / f"{name}.words").write_text(done.stderr.splitlines()[-1])
    return folder


def assemble(sent: Path, out: Path, entries: Sequence[str] = NAMES, terms: str = "terms.toml") -> list[str]:
    done = smpc_dp("roster", terms, *(f"{name}.toml" for name in entries), "--out", str(out), cwd=sent)
    assert (done.returncode == 0) == out.exists()
    return done.stderr.splitlines()


def test_entries_keep_the_order_in_which_they_are_given(sent: Path, tmp_path: Path) -> None:
    assert assemble(sent, tmp_path / "s.toml") == []
    session = load_session(tmp_path / "s.toml")
    assert [member.name for member in session.roster] == [*NAMES]
    assert (tmp_path / "s.toml").read_text().startswith(TERMS)
    assemble(sent, tmp_path / "other.toml", ("hub", "ann", "ben", "cyd", "dan"))
    assert load_session(tmp_path / "other.toml").digest != session.digest


def test_words_are_those_that_each_member_was_shown(sent: Path, tmp_path: Path) -> None:
    assemble(sent, tmp_path / "s.toml")
    session = load_session(tmp_path / "s.toml")
    printed = json.loads(smpc_dp("roster", str(tmp_path / "s.toml"), "--json").stdout)
    assert printed["session_words"] == words_of(session.digest)
    for member in session.roster:
        assert printed["entry_words"][member.name] == entry_words(member)
        assert (sent / f"{member.name}.words").read_text() == f"words of the entry: {entry_words(member)}"
    shown = smpc_dp("roster", str(tmp_path / "s.toml")).stdout
    assert f"session words  {words_of(session.digest)}" in shown


def test_a_replaced_entry_has_other_words(sent: Path, tmp_path: Path) -> None:
    forged = smpc_dp("keygen", "ann", "--out", str(tmp_path), cwd=sent).stdout
    (tmp_path / "ann.toml").write_text(forged)
    assemble(sent, tmp_path / "true.toml")
    assemble(
        sent, tmp_path / "forged.toml", [str(tmp_path / "ann") if name == "ann" else name for name in NAMES]
    )
    honest, other = (
        json.loads(smpc_dp("roster", str(tmp_path / name), "--json").stdout)
        for name in ("true.toml", "forged.toml")
    )
    assert honest["session_words"] != other["session_words"]
    differ = [name for name in NAMES if honest["entry_words"][name] != other["entry_words"][name]]
    assert differ == ["ann"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            (*NAMES, "ann"),
            [
                "ann.toml (roster[5].name): the same as in roster[2]",
                "ann.toml (roster[5].public_key): the same",
            ],
        ),
        (("dan", "ann", "cyd", "ben"), ["roster: no member has the role 'aggregator'"]),
        (
            (*NAMES, "hub2"),
            ["hub2.toml (roster[5].address): the same", "roster: one aggregator at most, not 2"],
        ),
        (("hub", "ann"), ["roster: 1 is not an integer in 3.."]),
    ],
)
def test_a_wrong_set_of_entries_writes_nothing(
    sent: Path, tmp_path: Path, entries: Sequence[str], expected: Sequence[str]
) -> None:
    lines = assemble(sent, tmp_path / "s.toml", entries)
    assert len(lines) == len(expected)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(f"smpc-dp: {start}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "roster: has no table [[roster]]"),
        ("[roster]\nname = 'ann'\n", "roster: has no table [[roster]]"),
        ("[[roster]]\nname = 'ann'\n", "roster[0].role: missing"),
        ("[parameters]\nepsilon = 9\nENTRY", "parameters: is no part of a roster entry"),
        ("ENTRY\nENTRY", "roster: has 2 entries: a file has the one of its sender"),
        ("ENTRYsecret = 1\n", "roster[0].secret: unknown key"),
        ("name = ", "no TOML (Invalid value"),
    ],
)
def test_a_file_of_anything_else_than_entries_is_refused(
    sent: Path, tmp_path: Path, content: str, expected: str
) -> None:
    path = tmp_path / "ann.toml"
    path.write_text(content.replace("ENTRY", (sent / "ann.toml").read_text()))
    entries = [str(tmp_path / "ann") if name == "ann" else name for name in NAMES]
    line, *_ = assemble(sent, tmp_path / "s.toml", entries)
    assert line.startswith(f"smpc-dp: {path}: {expected}")


def test_terms_with_a_fault_write_nothing(sent: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.toml").write_text(TERMS.replace("lower = 0", "lower = 10"))
    lines = assemble(sent, tmp_path / "s.toml", terms=str(tmp_path / "terms.toml"))
    assert lines == ["smpc-dp: parameters.lower: must be below upper = 9, is 10"]


def test_a_session_file_is_never_overwritten(sent: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("mine")
    assert assemble_over(sent, tmp_path / "s.toml") == [
        f"smpc-dp: {tmp_path}/s.toml: exists already, and nothing is overwritten"
    ]
    assert (tmp_path / "s.toml").read_text() == "mine"


def test_a_fault_of_an_entry_in_the_terms_is_at_its_place(sent: Path, tmp_path: Path) -> None:
    text = TERMS + "\n" + (sent / "ann.toml").read_text().replace('"ann"', '"Ann"')
    (tmp_path / "terms.toml").write_text(text)
    line, *_ = assemble(sent, tmp_path / "s.toml", ("hub", "dan", "cyd"), str(tmp_path / "terms.toml"))
    assert line.startswith("smpc-dp: roster[0].name: 'Ann' is not")


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.toml"
    monkeypatch.setattr("smpc_dp.session.terms.check_new", lambda made: made.write_text("mine"))
    with pytest.raises(LocalError, match="exists already"):
        write_new(path, "other")
    assert path.read_text() == "mine"


def assemble_over(sent: Path, out: Path) -> list[str]:
    done = smpc_dp("roster", "terms.toml", *(f"{name}.toml" for name in NAMES), "--out", str(out), cwd=sent)
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_out_and_entries_go_together(sent: Path) -> None:
    done = smpc_dp("roster", "terms.toml", "ann.toml", cwd=sent)
    assert done.stderr == "smpc-dp: --out: is needed with ENTRIES: the session file to write\n"
    done = smpc_dp("roster", "terms.toml", "--out", "x.toml", cwd=sent)
    assert done.stderr == "smpc-dp: --out: is for ENTRIES: there is nothing to write\n"
