"""The peers of the two-party benchmarks: programs that print one measurement, here scripts that play them."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from smpc_dp.errors import LocalError
from smpc_dp_lab.bench import covert, drivers, pairwise, statistic, transfers
from smpc_dp_lab.bench.drivers import DRIVERS, DriverPeers
from smpc_dp_lab.bench.figures import Peer
from smpc_dp_lab.bench.garbling_core import Rates
from smpc_dp_lab.cli import bench as cli


def answer(name: str = "emp-ot", **figures: tuple[str, float]) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0.0 0123abcd",
        "checksum": "00ff",
        "figures": {figure: {"unit": unit, "value": value} for figure, (unit, value) in figures.items()},
    }


def execute(folder: Path, driver: str, script: str) -> None:
    program = folder / driver
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)


def says(folder: Path, driver: str, claimed: object) -> None:
    text = claimed if isinstance(claimed, str) else json.dumps(claimed)
    execute(folder, driver, f'echo "{driver} $*" >> {folder}/log\ncat <<"END"\n{text}\nEND')


def measured(folder: Path, figure: str = "setup", unit: str = "s") -> Peer | None:
    trial = DriverPeers(str(folder), ["emp_ot"]).trial("emp_ot", 2)
    trial()
    return trial.peer(figure, unit, "alone")


def test_a_peer_is_the_median_of_what_its_driver_printed(tmp_path: Path) -> None:
    for run, seconds in enumerate((0.5, 0.1, 0.2)):
        (tmp_path / f"answer{run}").write_text(json.dumps(answer(setup=("s", seconds))))
    execute(tmp_path, "emp_ot", f"cd {tmp_path}; set -- answer*; cat $1; rm $1")
    peers = DriverPeers(str(tmp_path), ["emp_ot"])
    trial = peers.trial("emp_ot", 2, 10)
    assert trial.peer("setup", "s", "alone") is None
    assert peers.versions == {"emp-ot": None}
    for _ in range(3):
        trial()
    assert trial.peer("setup", "s", "alone") == Peer("emp-ot, alone", "1.0.0 0123abcd", 0.2)
    assert trial.peer("setup", "s", "alone", lambda value: 1 / value) == Peer(
        "emp-ot, alone", "1.0.0 0123abcd", 5.0
    )
    assert peers.versions == {"emp-ot": "1.0.0 0123abcd"}


def test_without_a_folder_no_peer_is_measured() -> None:
    peers = DriverPeers(None, list(DRIVERS))
    trial = peers.trial("emp_ot", 2)
    trial()
    assert trial.peer("setup", "s", "alone") is None
    assert peers.versions == dict.fromkeys(DRIVERS.values())


GOOD = answer(setup=("s", 0.5))


@pytest.mark.parametrize(
    ("claimed", "why"),
    [
        ("", "printed no measurement"),
        ("0.5", "printed no measurement"),
        (json.dumps(GOOD) + "{}", "printed no measurement"),
        ({**GOOD, "note": "more"}, "unknown field `note`"),
        ({key: GOOD[key] for key in GOOD if key != "version"}, "missing required field `version`"),
        (answer(setup=("s", 0.0)), "printed no measurement"),
        (answer(setup=("s", -1.0)), "printed no measurement"),
        (json.dumps(GOOD).replace("0.5", "inf"), "printed no measurement"),
        (json.dumps(GOOD).replace("0.5", '"fast"'), "printed no measurement"),
        (answer("emp-tool", setup=("s", 0.5)), "measured 'emp-tool', not emp-ot"),
        (answer(total=("s", 0.5)), "gave no figure 'setup' in s"),
        (answer(setup=("ms", 0.5)), "gave no figure 'setup' in s"),
    ],
)
def test_what_is_no_measurement_is_refused(tmp_path: Path, claimed: object, why: str) -> None:
    says(tmp_path, "emp_ot", claimed)
    with pytest.raises(LocalError, match=why) as caught:
        measured(tmp_path)
    assert str(caught.value).startswith("emp_ot 2: ")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo first >&2; echo 'an output is wrong' >&2; exit 1", "emp_ot 2: failed: an output is wrong"),
        ("exit 3", "emp_ot 2: failed: no message"),
        ("printf 'bell\\a' >&2; exit 1", "emp_ot 2: failed: bell\\x07"),
        ("kill -9 $$", "emp_ot 2: failed: no message"),
    ],
)
def test_a_driver_that_fails_is_named_with_its_last_words(tmp_path: Path, script: str, why: str) -> None:
    execute(tmp_path, "emp_ot", script)
    with pytest.raises(LocalError) as caught:
        measured(tmp_path)
    assert str(caught.value) == why


def test_a_program_of_another_kind_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "emp_ot").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "emp_ot").chmod(0o700)
    with pytest.raises(LocalError, match="emp_ot 2: cannot be run"):
        measured(tmp_path)


@pytest.mark.parametrize("waits", ["sleep 600", "exit 0"])
def test_a_driver_that_hangs_is_ended_with_its_second_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    """Even if only the second process hangs: it holds the first one's output open."""
    monkeypatch.setattr(drivers, "DRIVER_SECONDS", 0.3)
    execute(tmp_path, "emp_ot", f"sleep 600 &\necho $! > {tmp_path}/second\n{waits}")
    with pytest.raises(LocalError, match=r"emp_ot 2: no answer within 0\.3 s"):
        measured(tmp_path)
    second = int((tmp_path / "second").read_text())
    for _ in range(100):
        status = Path(f"/proc/{second}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("the second process is still there")


def test_a_missing_driver_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    says(tmp_path, "emp_garbling", answer("emp-tool"))
    with pytest.raises(LocalError, match="no program 'emp_sh2pc'"):
        pairwise.run_garbling_bench(1, emp=str(tmp_path))
    (tmp_path / "emp_sh2pc").write_text("not executable")
    with pytest.raises(LocalError, match="no program 'emp_sh2pc'"):
        pairwise.run_compare_bench(1, emp=str(tmp_path))
    assert not (tmp_path / "log").exists()
    result = CliRunner().invoke(cli.app, ["ot", "--emp", str(tmp_path / "nowhere"), "--json"])
    assert isinstance(result.exception, LocalError)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our own measurements are made up and written into the log that the drivers write, too."""

    def pair(circuit: str, instances: int, reason: str) -> dict[str, Any]:
        with (tmp_path / "log").open("a") as log:
            log.write(f"ours {circuit} {instances}\n")
        steps = {"transfers": 0.125, "inputs": 0.25, "done": 0.5}
        rates = {"transfers, k = 2": 4e6, "transfers, k = 4": 3e6}
        return {"steps": steps, "bytes": 100, "channel": 1e9, **rates}

    def rates(circuit: object, instances: int, *, mode: object, tile: int, runs: int) -> Rates:
        with (tmp_path / "log").open("a") as log:
            log.write(f"ours {instances} {runs}\n")
        return Rates(instances, (1.0,) * runs, (0.5,) * runs)

    monkeypatch.setattr(pairwise, "_pair", pair)
    monkeypatch.setattr(transfers, "CHUNKS", 8)
    monkeypatch.setattr(pairwise, "rates", rates)
    says(tmp_path, "emp_garbling", answer("emp-tool", garble=("AND/s", 4.0), evaluate=("AND/s", 8.0)))
    says(
        tmp_path,
        "emp_sh2pc",
        answer("emp-sh2pc", total=("s", 1.0), online=("s", 0.1), sent=("B", 50.0), rate=("AND/s", 1e6)),
    )
    return tmp_path


def test_comparisons_stand_beside_the_peer_of_the_same_run(quick: Path) -> None:
    shown = pairwise.run_compare_bench(3, emp=str(quick)).to_json()
    figures = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    peer = figures["10000 comparisons"]["peer"]
    assert peer == {
        "name": "emp-sh2pc, semi-honest, channel not encrypted",
        "version": "1.0.0 0123abcd",
        "median": 1.0,
    }
    assert figures["10000 comparisons"]["ratio_to_peer"] == 2.0
    assert figures["a comparison after setup"]["peer"]["median"] == pytest.approx(1e-5)
    assert figures["a comparison after setup"]["ratio_to_peer"] == pytest.approx(0.4)
    assert figures["one comparison, sent"]["ratio_to_peer"] == 0.5
    base = figures["a comparison after the base transfers"]
    assert base["median"] > figures["a comparison after setup"]["median"]
    assert base["peer"] is None
    assert shown["versions"]["emp-sh2pc"] == "1.0.0 0123abcd"  # type: ignore[index]
    # After one that is thrown away, each round has both, and they change places.
    ours, theirs = "ours less_u16 {}", "emp_sh2pc less_u16 {}"
    rounds = [ours, ours, theirs, theirs, ours, ours, theirs]
    expected = [line.format(count) for count in (10_000, 1) for line in rounds]
    # The measure of the channel alone follows: one evaluation of the same two processes in each round.
    expected += ["ours add32 1"] * 3
    assert (quick / "log").read_text().splitlines() == expected


@pytest.mark.long
def test_garbling_stands_beside_a_peer_that_is_told_the_same_work(quick: Path) -> None:
    shown = pairwise.run_garbling_bench(1, emp=str(quick)).to_json()
    figures = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    assert figures["garble less_u64 x 65536, tile keys"]["ratio_to_peer"] == 65536 / 4
    assert figures["evaluate less_u64 x 65536, unique keys"]["ratio_to_peer"] == 65536 / 0.5 / 8
    assert figures["evaluate aes128 x 1, unique keys"]["met"] is False
    assert figures["end to end"]["ratio_to_peer"] == pytest.approx(8192 * 4033 / 0.5 / 1e6)
    assert figures["end to end, of the channel"]["peer"] is None
    log = (quick / "log").read_text().splitlines()
    assert [line for line in log if line.startswith("emp")] == [
        "emp_garbling less_u64 65536 default 1",
        "emp_garbling less_u64 65536 unique 1",
        "emp_garbling aes128 1 unique 21",
        "emp_sh2pc mul64 8192",
    ]
    assert [line for line in log if line.startswith("ours 1 ")] == ["ours 1 21"] * 2


@pytest.mark.long
def test_transfers_stand_beside_the_peer_of_the_same_run(quick: Path) -> None:
    figures = {"setup": ("s", 1.0), "random, memory": ("OT/s", 1e6), "random, loopback": ("OT/s", 2e6)}
    says(quick, "emp_ot", answer("emp-ot", **figures))
    shown = pairwise.run_ot_bench(2, emp=str(quick)).to_json()
    result = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    assert result["setup"]["peer"]["median"] == 1.0
    assert result["128 base transfers"]["peer"] is None
    for k, rate in ((2, 4e6), (4, 3e6)):
        assert result[f"correlated transfers in memory, k = {k}"]["peer"]["median"] == 1e6
        channel = result[f"correlated transfers over the channel, k = {k}"]
        assert channel["ratio_to_peer"] == rate / 2e6
        assert channel["peer"]["name"].startswith("emp-ot, malicious")
    theirs = [line for line in (quick / "log").read_text().splitlines() if line.startswith("emp")]
    assert sorted(theirs) == [f"emp_ot {k} {8 * transfers.CHUNK}" for k in (2, 2, 4, 4)]


@pytest.mark.long
def test_no_peer_is_null_and_meets_nothing(quick: Path) -> None:
    shown = pairwise.run_garbling_bench(1).to_json()
    for figure in shown["figures"]:  # type: ignore[attr-defined]
        assert figure["peer"] is None
        assert figure["ratio_to_peer"] is None
    aes = [figure for figure in shown["figures"] if "aes128" in figure["name"]]  # type: ignore[attr-defined]
    assert [figure["met"] for figure in aes] == [None, None]
    assert shown["versions"]["emp-tool"] is None  # type: ignore[index]
    assert "emp" not in (quick / "log").read_text()


def test_pairs_of_a_statistic_stand_beside_the_peer_that_evaluates_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("fresh", "first", "connect", "wall", "bytes", "rounds", "cached", "cached_bytes", "cached_rounds")
    log = tmp_path / "log"

    def session(instances: int, _copies: int = 0) -> dict[str, dict[str, float]]:
        with log.open("a") as lines:
            lines.write(f"ours {instances}\n")
        floors = {"garbler": 0.25, "evaluator": 0.125}
        return {
            name: dict.fromkeys(keys, float(instances)) | {"floor": floor} for name, floor in floors.items()
        }

    monkeypatch.setattr(statistic, "garbled_session", session)
    whole = {"pairs": 5, "wall": 1.0, "memory": 1.0}
    monkeypatch.setattr(statistic, "_ended", lambda calls: [whole] * len(calls))
    channel = [{"processor seconds a byte": 0.125}] * 2
    monkeypatch.setattr(statistic, "pair_of_processes", lambda *_: channel)
    monkeypatch.setattr(statistic, "_mpyc", lambda _: {"absent": "no module"})
    monkeypatch.setattr(statistic, "_covert_trials", lambda *_: {})
    monkeypatch.setattr(covert, "covert_figures", lambda *_: [])
    costs = {"garbler": ("s", 2.0), "evaluator": ("s", 4.0), "wall": ("s", 8.0), "sent": ("B", 50.0)}
    figures = {f"{when} {name}": cost for when in ("first", "last") for name, cost in costs.items()}
    figures["first garbler"] = ("s", 16.0)
    reported = json.dumps(answer("emp-sh2pc", **figures))
    save = f'cp "$1" {tmp_path}/given; echo "emp $2 $3" >> {log}'
    execute(tmp_path, "emp_circuit", f'{save}; cat <<"END"\n{reported}\nEND')
    shown = statistic.run_statistic_bench(2, parties=10, emp=str(tmp_path)).to_json()
    result = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    assert result["first pair of a process, garbler"]["ratio_to_peer"] == 16
    assert result["fresh pair, garbler"]["ratio_to_peer"] == 2
    assert result["fresh pair, evaluator"]["ratio_to_peer"] == 4
    assert result["fresh pair, wall"]["ratio_to_peer"] == 8
    # The floor of a side is what it counts, and both sides' bytes over the channel.
    assert result["fresh pair, garbler"]["ratio_to_limit"] == 0.25 + 2 * 0.125
    assert result["fresh pair, evaluator"]["ratio_to_limit"] == 0.125 + 2 * 0.125
    # Of the clock it is that of both, and in a batch that of the side that has more to do.
    assert result["fresh pair, wall"]["ratio_to_limit"] == 0.25 + 0.125 + 4 * 0.125
    assert result["a pair of 20000 between two hosts"]["ratio_to_limit"] == pytest.approx(
        0.25 / 20_000 + 0.25
    )
    assert result["fresh pair, sent"]["ratio_to_peer"] == 25
    assert result["pair with cached setup, sent"]["peer"] is None
    # Ours takes as many seconds as there are instances: one each.
    of_batch = "a pair of 20000 between two hosts"
    assert result[f"{of_batch}, evaluator"]["ratio_to_peer"] == pytest.approx(4 / 20_000)
    assert result[of_batch]["ratio_to_peer"] == pytest.approx(8 / 20_000)
    # mpyc is not there.
    assert result[f"{of_batch}, both sides"]["peer"] is None
    assert shown["versions"]["emp-sh2pc"] == "1.0.0 0123abcd"  # type: ignore[index]
    published = Path(__file__).parents[3] / "circuits" / "kendall_tau32_laplace.txt"
    assert (tmp_path / "given").read_bytes() == published.read_bytes()
    # The second round begins one further.
    rounds = ["ours 1", "emp 1 4", "ours 20000", "emp 20000 4", "emp 200 4"]
    assert log.read_text().splitlines() == [*rounds, *rounds[1:], rounds[0]]
    with pytest.raises(LocalError, match="no program 'emp_circuit'"):
        statistic.run_statistic_bench(1, emp=str(tmp_path / "nowhere"))


BUILD = Path(__file__).resolve().parents[3] / "benchmarks" / "emp" / "build.sh"


def checkout_of(folder: Path, package: str) -> str:
    """Make a checkout of a package that is another one; return its commit."""
    path = folder / package
    path.mkdir(parents=True)
    (path / "README.md").write_text(package)
    git = ["git", "-C", str(path), "-c", "user.name=n", "-c", "user.email=e@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["-c", "commit.gpgsign=false", "commit", "-qm", package]):
        subprocess.run([*git, *arguments], check=True)
    return subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


def build(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Build with a compiler and a CMake that fail."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    execute(tools, "cmake", f'echo "$*" >> {folder}/log; exit 1')
    return subprocess.run(
        [str(BUILD), str(folder), str(folder / "out"), *more],
        env={"PATH": f"{tools}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_build_of_emp_refuses_another_commit_unless_told(tmp_path: Path) -> None:
    missing = build(tmp_path)
    assert (missing.returncode, missing.stderr) == (1, f"build.sh: {tmp_path}/emp-tool is no git checkout\n")
    commit = checkout_of(tmp_path, "emp-tool")
    other = build(tmp_path)
    assert other.returncode == 1
    assert other.stderr == f"build.sh: emp-tool is {commit[:7]}, wanted is 2ea73a3; --other builds it\n"
    (tmp_path / "emp-tool" / "README.md").write_text("changed")
    assert f"emp-tool is {commit[:7]}+changes, wanted" in build(tmp_path).stderr
    assert not (tmp_path / "log").exists()
    for package in ("emp-ot", "emp-sh2pc", "emp-ag2pc"):
        checkout_of(tmp_path, package)
    # Two versions of a package are compared with a commit each.
    assert build(tmp_path, "--other").stderr == f"build.sh: {tmp_path}/0.3.0/emp-tool is no git checkout\n"
    for package in ("emp-tool", "emp-ot", "emp-ag2pc"):
        checkout_of(tmp_path, f"0.3.0/{package}")
    assert build(tmp_path, "--any").stderr == "build.sh: usage: build.sh SOURCES OUT [--other]\n"
    build(tmp_path, "--other")
    assert f"-S {tmp_path}/emp-tool" in (tmp_path / "log").read_text()
