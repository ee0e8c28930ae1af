"""`smpc-dp init`: terms from options and from questions, what it refuses, and folders that it makes."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import subprocess
import sys
import termios
import tomllib
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.session_file import load_session
from tests.command import smpc_dp

FIVE = ("--parties", "ann,ben,cyd,dan,eve", "--lost", "1", "--collude", "1")
EXACT = ("--compute", "average", *FIVE, "--exact")
BOUNDS = ("--lower=-10", "--upper", "10")
STATISTICS = (
    *("--compute", "statistics", *FIVE, "--epsilon", "1", "--delta", "1e-6"),
    *("--ask", "mean(age)", "--ask", "count by sex", "--column", "age=0:120", "--column", "sex=f,m"),
    *("--max-rows", "50"),
)


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


def parameters(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))["parameters"]
    return table


def errors(folder: Path, *options: str) -> list[str]:
    done = smpc_dp("init", *options, cwd=folder)
    assert done.returncode == 1
    assert [*folder.glob("*.toml")] == []
    return done.stderr.splitlines()


def test_options_make_commented_terms(tmp_path: Path) -> None:
    done = smpc_dp("init", *EXACT, *BOUNDS, "--length", "2", "--precision", "1e-6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tolerates 1 lost, 1 corrupt of 5 parties" in done.stdout
    assert (tmp_path / "terms.toml").read_text("utf-8") == (
        "# Average, planned for 5 parties: ann, ben, cyd, dan, eve\n"
        "# All members have the same file: they compare the words that `smpc-dp roster` prints of it.\n"
        'protocol = "secagg"\nversion = 3\n\n[parameters]\n'
        "length = 2  # coordinates of a vector\n"
        "lower = -10.0  # least value of every coordinate, or of each; compared exactly\n"
        "upper = 10.0  # greatest value of every coordinate, or of each\n"
        "precision = 1e-06  # step of a real value, at most\n"
        "dropout = 0.2  # 1 of 5 parties may be lost\n"
        "corrupt = 0.2  # 1 of 5 parties may collude with the aggregator\n"
    )


def test_options_make_terms_of_statistics(tmp_path: Path) -> None:
    options = ("--rows-expected", "90", "--ask", "risk(ill) by sex", "--column", "ill=0:1:1")
    assert smpc_dp("init", *STATISTICS, *options, cwd=tmp_path).returncode == 0
    table = parameters(tmp_path / "terms.toml")
    assert table["ask"] == ["mean(age)", "count by sex", "risk(ill) by sex"]
    assert table["records"]["columns"] == {
        "age": {"lower": 0, "upper": 120},
        "sex": {"values": ["f", "m"]},
        "ill": {"lower": 0, "upper": 1, "step": 1},
    }
    assert (table["records"]["max_rows"], table["records"]["rows_expected"]) == (50, 90)


@pytest.mark.parametrize("options", [("--kind", "integer"), ("--max-weight", "4")])
def test_terms_of_an_average_with_privacy(tmp_path: Path, options: tuple[str, str]) -> None:
    private = (*FIVE, "--compute", "average", "--epsilon", "2", "--delta", "1e-5", "--length", "1")
    done = smpc_dp("init", *private, "--lower", "0", "--upper", "9", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = parameters(tmp_path / "terms.toml")
    assert (table["lower"], table["epsilon"], table["delta"]) == (0, 2, 1e-5)
    assert (table.get("kind"), table.get("max_weight")) in (("integer", None), (None, 4))


def test_integer_bounds_are_those_that_were_given(tmp_path: Path) -> None:
    bounds = ("--lower=-9007199254740993", "--upper", "9007199254740995")
    done = smpc_dp("init", *EXACT, "--kind", "integer", "--length", "1", *bounds, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = parameters(tmp_path / "terms.toml")
    assert (table["lower"], table["upper"]) == (-9007199254740993, 9007199254740995)
    (tmp_path / "public.txt").write_text("9007199254740993 0\n")
    options = ("--public", "public.txt", "--kind", "integer", "--out", "b.toml")
    assert smpc_dp("init", "--yes", *EXACT, *options, cwd=tmp_path).returncode == 0
    assert parameters(tmp_path / "b.toml")["upper"] == 9007199254740993


def test_without_a_terminal_every_missing_option_is_named(tmp_path: Path) -> None:
    [line] = errors(tmp_path)
    assert line.startswith("smpc-dp: --compute: is needed, and there is no terminal to ask on; --yes takes")
    lines = errors(tmp_path, "--compute", "sum", "--parties", "ann,ben,cyd")
    named = [line.split(": ")[1] for line in lines]
    assert named == ["--lost", "--collude", "--epsilon", "--delta", "--length", "--lower", "--upper"]
    lines = errors(tmp_path, "--yes", "--compute", "statistics", "--parties", "ann,ben,cyd")
    assert [line.split(": ")[1] for line in lines] == ["--epsilon", "--ask", "--column", "--max-rows"]


@pytest.mark.parametrize(
    ("count", "expected"), [(3, (0.0, 0.334)), (4, (0.0, 0.25)), (5, (0.2, 0.2)), (30, (0.1, 0.1))]
)
def test_yes_takes_what_a_session_tolerates_by_default(
    tmp_path: Path, count: int, expected: tuple[float, float]
) -> None:
    names = ",".join(f"p{number}" for number in range(count))
    done = smpc_dp(*("init", "--yes", "--parties", names, "--exact", "--length", "1", *BOUNDS), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = parameters(tmp_path / "terms.toml")
    assert (table["dropout"], table["corrupt"]) == expected
    # A power of ten below a 2^20th of the range.
    assert table["precision"] == 1e-5


def test_a_length_comes_from_a_file_and_its_bounds_do_not(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("1.5 2.5 -3\n")
    lines = errors(tmp_path, "--yes", *EXACT, "--length-from", "own.txt")
    assert [line.split(": ")[1] for line in lines] == ["--lower", "--upper"]
    assert "a party's own least and greatest values are private" in lines[0]
    assert smpc_dp("init", "--yes", *EXACT, "--length-from", "own.txt", *BOUNDS, cwd=tmp_path).returncode == 0
    table = parameters(tmp_path / "terms.toml")
    assert (table["length"], table["lower"], table["upper"]) == (3, -10, 10)


def test_bounds_come_from_a_file_of_public_values(tmp_path: Path) -> None:
    (tmp_path / "public.txt").write_text("1.5 2.5 -3\n")
    done = smpc_dp("init", "--yes", *EXACT, "--public", "public.txt", cwd=tmp_path)
    assert done.returncode == 0
    assert "public.txt: its least value -3 and its greatest 2.5 are suggested" in done.stderr
    assert "its values must be public" in " ".join(done.stderr.split())
    table = parameters(tmp_path / "terms.toml")
    assert (table["length"], table["lower"], table["upper"]) == (3, -3.0, 2.5)
    # What the user says goes before what a file suggests.
    done = smpc_dp(
        "init", "--yes", *EXACT, "--public", "public.txt", "--upper", "7", "--out", "b.toml", cwd=tmp_path
    )
    assert (done.returncode, parameters(tmp_path / "b.toml")["upper"]) == (0, 7)


@pytest.mark.parametrize(
    ("estimator", "classes", "length"),
    [("Ridge", "2", 5), ("LogisticRegression", "2", 5), ("RidgeClassifier", "3", 15)],
)
def test_a_length_comes_from_an_estimator(tmp_path: Path, estimator: str, classes: str, length: int) -> None:
    pytest.importorskip("sklearn")
    options = ("--estimator", estimator, "--features", "4", "--classes", classes)
    done = smpc_dp("init", "--yes", *EXACT, *BOUNDS, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert parameters(tmp_path / "terms.toml")["length"] == length


def test_an_estimator_that_cannot_be_averaged_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    [line] = errors(tmp_path, "--yes", *EXACT, *BOUNDS, "--estimator", "SVC", "--features", "4")
    assert line.startswith("smpc-dp: --estimator: 'SVC' is no model of sklearn.linear_model")
    [line] = errors(tmp_path, "--yes", *EXACT, *BOUNDS, "--estimator", "Ridge", "--features", "0")
    assert line == "smpc-dp: --features: 0 is below 1"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--lower", "5", "--upper", "1"), "--upper: 1 is not above the least value 5"),
        (("--lower", "nan", "--upper", "1"), "--lower: 'nan' is no finite number"),
        ((*BOUNDS, "--length", "0"), "--length: must be an integer from 1 to"),
        ((*BOUNDS, "--lost", "5"), "--lost: 5 is not from 0 to 4, of 5 parties"),
        ((*BOUNDS, "--collude", "-1"), "--collude: -1 is not from 0 to 4, of 5 parties"),
        ((*BOUNDS, "--lost", "4"), "--lost: 4 of 5 parties lost, 0 colluding: must be a number"),
        ((*BOUNDS, "--lost", "2"), "--lost: 2 of 5 parties lost, 0 colluding: no threshold t <= 2"),
        ((*BOUNDS, "--lost", "1", "--collude", "3"), "--collude: 1 of 5 parties lost, 3 colluding: "),
        ((*BOUNDS, "--parties", "ann,ben"), "--parties: number of parties: 2 is not an integer in 3.."),
        ((*BOUNDS, "--parties", "ann,Ben,cyd"), "--parties: 'Ben' is not 1 to 63 of a-z"),
        ((*BOUNDS, "--parties", "ann,ann,cyd"), "--parties: 'ann' is there twice"),
        (
            (*BOUNDS, "--parties", "ann,aggregator,cyd"),
            "--parties: 'aggregator' is the name of the aggregator",
        ),
        ((*BOUNDS, "--local", "trial", "--out", "a.toml"), "--out: is not for --local"),
        ((*BOUNDS, "--out", "."), ".: exists already"),
        ((*BOUNDS, "--out", "none/a.toml"), "none/a.toml: cannot write the file (there is no folder none)"),
        (("--example", "hospitals"), "--compute: is not for --example"),
        ((*BOUNDS, "--epsilon", "1"), "--epsilon: is not for exact results"),
        ((*BOUNDS, "--ask", "count"), "--ask: is not for 'average'"),
        ((*BOUNDS, "--rows-expected", "0"), "--rows-expected: is not for 'average'"),
        ((*BOUNDS, "--precision", "0"), "--precision: must be a number from"),
        ((*BOUNDS, "--max-weight", "-1"), "--max-weight (parameters.max_weight): must be an integer"),
        ((*BOUNDS, "--compute", "sum", "--max-weight", "3"), "--max-weight: is not for 'sum'"),
        ((*BOUNDS, "--features", "3"), "--features: is for --estimator"),
        (
            (*BOUNDS, "--kind", "integer", "--precision", "1"),
            "--precision (parameters.precision): is not for kind",
        ),
        ((*BOUNDS, "--kind", "integer", "--lower", "0.5"), "--lower: '0.5' is no whole number"),
        ((*BOUNDS, "--estimator", "Ridge", "--public", "a.txt"), "--public: is not for --estimator"),
    ],
)
def test_a_wrong_option_is_named_with_its_bound(
    tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    line, *_ = errors(tmp_path, "--yes", *EXACT, "--length", "2", *options)
    assert line.startswith(f"smpc-dp: {expected}")


def test_a_plan_that_fails_is_told_without_keys_of_a_file(tmp_path: Path) -> None:
    fewer = "plan for fewer lost or colluding parties"
    for lost, colluding, advice in (("2", "0", fewer), ("1", "3", "3 and twice 1 must stay below 5")):
        options = (*BOUNDS, "--length", "2", "--lost", lost, "--collude", colluding)
        lines = errors(tmp_path, "--yes", *EXACT, *options)
        assert lines[-1].endswith(f"; {advice}")


def test_a_sum_is_asked_for_by_its_members(tmp_path: Path) -> None:
    asked = "`smpc-dp run` and `smpc-dp party` take --operation sum"
    for compute in ("sum", "average"):
        options = (*BOUNDS, "--length", "2", "--compute", compute, "--out", f"{compute}.toml")
        done = smpc_dp("init", "--yes", *EXACT, *options, cwd=tmp_path)
        for text in (done.stdout, (tmp_path / f"{compute}.toml").read_text()):
            assert (asked in " ".join(text.split())) == (compute == "sum")


def test_a_quantity_s_name_alone_has_published_bounds(tmp_path: Path) -> None:
    options = [one if one != "age=0:120" else "age" for one in STATISTICS]
    done = smpc_dp("init", *options, "--column", "height_m", "--column", "sbp=0:900", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    columns = parameters(tmp_path / "terms.toml")["records"]["columns"]
    assert columns["age"] == {"lower": 0, "upper": 122}
    assert columns["height_m"] == {"lower": 0.783, "upper": 1.996}
    noted = " ".join(done.stderr.split())
    assert "age: age in years is from 0 to 122 (the longest life known, https://" in noted
    assert "height_m: body height in m is from 0.783 to 1.996 (NHANES" in noted
    assert "sbp:" not in noted
    assert "WARNING: sbp: bounds from 0 to 900 are 5.2 times as far" in " ".join(done.stdout.split())
    options = [one if one != "age=0:120" else "stay" for one in STATISTICS]
    (tmp_path / "none").mkdir()
    [line] = errors(tmp_path / "none", *options)
    assert "--column: 'stay' is not NAME=LOWER:UPPER" in line
    assert "nor one of age, height" in line


def test_statistics_need_privacy_and_name_what_is_wrong(tmp_path: Path) -> None:
    changed = [one if one != "mean(age)" else "mean(height)" for one in STATISTICS]
    assert errors(tmp_path, *changed) == [
        "smpc-dp: --ask (parameters.ask: 'mean(height)'): no column 'height' (columns: age, sex)"
    ]
    for column in ("age=", "age=0:1:1:1"):
        changed = [one if one != "age=0:120" else column for one in STATISTICS]
        [line] = errors(tmp_path, *changed)
        assert line.startswith(f"smpc-dp: --column: {column!r} is not NAME=LOWER:UPPER")
    exact = ("--exact", "--compute", "statistics", *FIVE, *STATISTICS[-10:])
    assert errors(tmp_path, *exact) == [
        "smpc-dp: --exact: is not for 'statistics', which have differential privacy always"
    ]
    assert errors(tmp_path, *STATISTICS, "--kind", "integer") == ["smpc-dp: --kind: is not for 'statistics'"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "terms.toml").write_text("mine")
    done = smpc_dp("init", *EXACT, *BOUNDS, "--length", "1", "--precision", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "smpc-dp: terms.toml: exists already, and nothing is overwritten\n"
    assert (tmp_path / "terms.toml").read_text() == "mine"
    # Before any question: answers would be lost.
    assert smpc_dp("init", cwd=tmp_path).stderr == done.stderr
    (tmp_path / "hospitals").mkdir()
    (tmp_path / "hospitals" / "notes").write_text("mine")
    done = smpc_dp("init", "--local", "hospitals", cwd=tmp_path)
    assert done.stderr == "smpc-dp: hospitals: exists already, and nothing is overwritten\n"
    assert smpc_dp("init", "--example", "hospitals", cwd=tmp_path).returncode == 1
    assert os.listdir(tmp_path / "hospitals") == ["notes"]


def test_answers_on_a_terminal_are_asked_again_until_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked = iter(
        [
            "mean",
            "sum",
            "ann ben",
            "ann ben ann",
            "ann ben cyd",
            "1",
            "",
            "3",
            "",
            "none",
            "two",
            "2",
            "0",
            "-1",
            "1",
            "",
        ]
    )
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(
        "typer.prompt",
        lambda _, default, **__: next(asked) or default,
    )
    done = smpc_dp("init", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [*asked] == []
    assert "'mean' is none of average, sum, statistics" in done.stderr
    assert "--parties: number of parties: 2 is not" in done.stderr
    assert "--parties: 'ann' is there twice" in done.stderr
    assert "--collude: 3 is not from 0 to 2, of 3 parties" in done.stderr
    assert "'two' is no finite number" in done.stderr
    assert "a party's own least and greatest values are private" in done.stderr
    assert parameters(tmp_path / "terms.toml") == {
        **{"length": 2, "lower": 0.0, "upper": 1.0, "precision": 1e-7},
        **{"dropout": 0.0, "corrupt": 0.334},
    }


@pytest.mark.parametrize(
    ("typed", "code", "last"), [(b"\x03", 130, ""), (b"\x04", 1, "--parties: has no answer")]
)
def test_ctrl_c_and_the_end_of_input_leave_nothing(
    tmp_path: Path, typed: bytes, code: int, last: str
) -> None:
    def controlled() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # Of what a shell starts in the background it is ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command = [sys.executable, "-m", "smpc_dp", "init", "--compute", "sum"]
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=inner,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=controlled,
    )
    os.close(inner)
    assert process.stderr is not None
    shown = b""
    while b"Names of the parties" not in shown:
        shown += os.read(process.stderr.fileno(), 4096)
    os.write(terminal, typed)
    shown += process.communicate()[1]
    os.close(terminal)
    assert process.returncode == code
    assert shown.decode().splitlines()[-1].removeprefix("smpc-dp: ").startswith(last)
    assert os.listdir(tmp_path) == []


def test_a_local_session_has_the_terms_and_all_keys(tmp_path: Path) -> None:
    options = ("--length", "1", "--precision", "1", *BOUNDS)
    done = smpc_dp("init", *EXACT, *options, "--local", "trial", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    session = load_session(tmp_path / "trial" / "session.toml")
    assert session.roster.party_names == ("ann", "ben", "cyd", "dan", "eve")
    keys = sorted(path.stem for path in (tmp_path / "trial" / "keys").iterdir())
    assert keys == ["aggregator", "ann", "ben", "cyd", "dan", "eve"]
    assert "# coordinates of a vector" in (tmp_path / "trial" / "session.toml").read_text()
    assert [*(tmp_path / "trial" / "inputs").iterdir()] == []
    assert not (tmp_path / "terms.toml").exists()


def test_the_example_has_tables_that_fit_its_terms_and_ledgers_that_afford_two_requests(
    tmp_path: Path,
) -> None:
    assert smpc_dp("init", "--example", "hospitals", "--local", "trial", cwd=tmp_path).returncode == 0
    folder = tmp_path / "trial"
    session = load_session(folder / "session.toml")
    [request] = session.checked_parameters.requests
    for name in session.roster.party_names:
        done = smpc_dp(
            *("statistics", "trial/session.toml", "--as", name, "--check"),
            *("--table", f"trial/inputs/{name}.csv"),
            cwd=tmp_path,
        )
        assert (done.returncode, "600 rows, all of which count" in done.stderr) == (0, True), done.stderr
        ledger = Ledger.open(folder / "ledgers" / f"{name}.ledger")
        for number in range(2):
            ledger.charge(bytes([number]) * 16, request.event())
