"""Sessions of real processes over real sockets: exact results, crashes, Ctrl-C, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session import launcher as launcher_module
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import Launcher, member_command
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.signals import DEFAULT_SIGNALS

PARTIES = tuple(f"party{number}" for number in range(1, 7))
PARAMETERS: dict[str, object] = {
    "length": 3,
    "lower": -100.0,
    "upper": 100.0,
    "precision": 1e-3,
    "dropout": 0.34,
    "corrupt": 0.0,
}
TIMEOUTS = Timeouts(connect=20.0, step=20.0)


def vector(name: str) -> list[float]:
    number = PARTIES.index(name) + 1
    return [float(number), -2.5 * number, 1.0 / number]


def fixed_point(names: list[str]) -> list[int]:
    """The exact sum on the grid of 2^-10 that a precision of 1e-3 gives."""
    rows = np.rint(np.array([vector(name) for name in names]) * 1024).astype(np.int64)
    return [int(total) for total in rows.sum(axis=0)]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)
    (tmp_path / "inputs").mkdir()
    for name in PARTIES:
        (tmp_path / "inputs" / f"{name}.json").write_text(json.dumps(vector(name)))
    return path


def smpc_dp(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "smpc_dp", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


def descendants(of: Path) -> list[int]:
    """Processes whose command line names the session file."""
    result = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(of).encode() in command:
                result.append(int(entry.name))
    return result


def member_process(of: Path, name: str) -> int:
    """The process of a member of the session."""
    [found] = [
        number
        for number in descendants(of)
        if b"--as\0%s\0" % name.encode() in Path(f"/proc/{number}/cmdline").read_bytes()
    ]
    return found


def wait_until(condition: Any, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.long
def test_run_gives_the_exact_average(session: Path) -> None:
    done = smpc_dp("run", str(session), "--operation", "average", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["survivors"] == list(PARTIES)
    assert result["fixed_point"] == fixed_point(list(PARTIES))
    assert result["value"] == [total / 1024 / len(PARTIES) for total in result["fixed_point"]]
    assert result["privacy"]["epsilon"] is None
    assert descendants(session) == []


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_result_that_cannot_be_written_is_printed(session: Path) -> None:
    command = [sys.executable, "-m", "smpc_dp", "party", str(session), "--as"]
    members = [
        subprocess.Popen([*command, name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in ("aggregator", *PARTIES[1:])
    ]
    report = session.parent / "report.html"
    done = smpc_dp("party", str(session), "--as", PARTIES[0], "--out", "/dev/full", "--report", str(report))
    assert [member.wait(90) for member in members] == [0] * len(members)
    assert done.returncode == 1
    assert json.loads(done.stdout)["fixed_point"] == fixed_point(list(PARTIES))
    assert done.stderr.endswith("/dev/full: cannot write the result (No space left on device)\n")
    assert "The run ended with a result." in report.read_text("utf-8")


@pytest.mark.long
@pytest.mark.parametrize("step", ["start", "deliver", "participants", "survivors", "survivors-certificate"])
def test_a_party_killed_while_it_waits_is_survived(session: Path, step: str) -> None:
    """SIGKILL between two messages: before its vector is sent it is out, afterwards it is in."""
    victim = PARTIES[2]
    launcher = Launcher(lambda event: watch(event))

    def watch(event: Event) -> None:
        if event.party == victim and event.kind == "step" and event.step == step:
            launcher.kill(victim)

    outputs = {name: session.parent / f"{name}.out" for name in PARTIES}
    commands = {"aggregator": member_command("party", str(session), "--as", "aggregator")}
    for name in PARTIES:
        options = ["--operation", "sum", "--out", str(outputs[name])]
        commands[name] = member_command("party", str(session), "--as", name, *options)
    outcomes = asyncio.run(launcher.run(commands, "aggregator"))
    assert outcomes["aggregator"].ok, outcomes["aggregator"].errors
    # The kill may land when the victim has its own result already: then it was there for the whole run.
    assert outcomes[victim].exit_code == -signal.SIGKILL or outputs[victim].exists()
    results = [json.loads(path.read_text()) for name, path in outputs.items() if name != victim]
    for result in results:
        survivors = result["survivors"]
        # The kill may land after the answer to this step was sent; only then the victim is a survivor.
        assert set(PARTIES) - {victim} <= set(survivors)
        if step in ("survivors", "survivors-certificate"):
            assert victim in survivors
        assert result["fixed_point"] == fixed_point(survivors)
    assert descendants(session) == []


@pytest.mark.long
def test_too_many_missing_parties_stop_the_run_by_name(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a party needs longer to say what it was told than a run that has failed waits.
    monkeypatch.setattr(launcher_module, "FAILED_SECONDS", 60.0)
    launcher = Launcher(lambda event: watch(event))
    victims, connected = PARTIES[:3], set[str]()

    def watch(event: Event) -> None:
        if event.kind != "step" or event.step != "start" or event.party in connected:
            return
        connected.add(event.party)
        # The run waits for a victim that is stopped, so that nobody connects when it is over already.
        if event.party in victims:
            os.kill(member_process(session, event.party), signal.SIGSTOP)
        if connected.issuperset(PARTIES):
            for victim in victims:
                launcher.kill(victim)

    commands = {
        name: member_command("party", str(session), "--as", name) for name in ("aggregator", *PARTIES)
    }
    outcomes = asyncio.run(launcher.run(commands, "aggregator"))
    assert {
        name: outcome.exit_code for name, outcome in outcomes.items() if name not in victims
    } == dict.fromkeys(("aggregator", *PARTIES[3:]), 1)
    for name in ("aggregator", *PARTIES[3:]):
        assert outcomes[name].errors.count("\n") == 1, outcomes[name].errors
        assert all(victim in outcomes[name].errors for victim in victims), outcomes[name].errors
        assert "Traceback" not in outcomes[name].errors


def start_run_that_waits(session: Path) -> subprocess.Popen[bytes]:
    """Start a launcher whose run waits for a party that never comes: its input is missing."""
    os.remove(session.parent / "inputs" / f"{PARTIES[5]}.json")
    commands = {
        name: member_command("party", str(session), "--as", name) for name in ("aggregator", *PARTIES)
    }
    script = (
        "import asyncio, json, sys\n"
        "from smpc_dp.session.launcher import Launcher\n"
        "commands = json.loads(sys.argv[1])\n"
        "try:\n"
        "    asyncio.run(Launcher().run(commands, 'aggregator'))\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    return subprocess.Popen([sys.executable, "-c", DEFAULT_SIGNALS + script, json.dumps(commands)])


@pytest.mark.long
def test_a_failed_aggregator_is_one_line_and_no_long_wait(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    address = next(line for line in session.read_text().splitlines() if line.startswith("address"))
    port = int(address.rpartition(":")[2].strip('"'))
    with socket.create_server(("127.0.0.1", port)):
        done = smpc_dp("run", str(session), "--json")
        # The parties that cannot connect have FAILED_SECONDS left, not GRACE_SECONDS, which never end here.
        monkeypatch.setattr(launcher_module, "GRACE_SECONDS", 1e6)
        members = ("aggregator", *PARTIES[:2])
        commands = {name: member_command("party", str(session), "--as", name) for name in members}
        outcomes = asyncio.run(Launcher().run(commands, "aggregator"))
    assert {name for name, outcome in outcomes.items() if outcome.first} == {"aggregator"}
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"smpc-dp: aggregator: cannot listen on 127.0.0.1:{port}: the port is in use\n"


def test_a_process_that_dies_before_it_says_hello_is_told_at_once(session: Path) -> None:
    events: list[Event] = []
    launcher = Launcher(events.append)
    commands = {
        name: member_command("party", str(session), "--as", name) for name in ("aggregator", *PARTIES)
    }
    commands[PARTIES[0]] = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    commands[PARTIES[1]] = [sys.executable, "-c", "raise SystemExit('no module')"]
    outcomes = asyncio.run(launcher.run(commands, "aggregator"))
    reported = {event.party: event.detail for event in events if event.kind == "ended"}
    assert reported == {PARTIES[0]: "killed (SIGKILL)", PARTIES[1]: "no module"}
    kinds = [(event.party, event.kind) for event in events]
    assert kinds.index((PARTIES[0], "ended")) < kinds.index(("aggregator", "done"))
    assert outcomes["aggregator"].ok, outcomes["aggregator"].errors


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_stopped_run_leaves_nothing_behind(session: Path, number: int, code: int) -> None:
    scratch = session.parent / "tmp"
    scratch.mkdir()
    script = (
        DEFAULT_SIGNALS + "import sys\nsys.argv[0] = 'smpc-dp'\nfrom smpc_dp.__main__ import main\nmain()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, "run", str(session), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as run:
        assert wait_until(lambda: len(descendants(session)) >= 4), descendants(session)
        run.send_signal(number)
        output, errors = run.communicate(timeout=300)
    assert (run.returncode, output, errors) == (code, b"", b"")
    assert wait_until(lambda: descendants(session) == []), descendants(session)
    assert list(scratch.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_ctrl_c_and_a_killed_launcher_leave_no_process_behind(session: Path, number: int, code: int) -> None:
    launcher = start_run_that_waits(session)
    try:
        assert wait_until(lambda: len(descendants(session)) >= len(PARTIES) + 2), descendants(session)
        time.sleep(1.5)
        launcher.send_signal(number)
        assert launcher.wait(60) == code
        assert wait_until(lambda: descendants(session) == []), descendants(session)
    finally:
        launcher.kill()


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("upper = 100.0", "upper = 90.0", "parameters.upper: 90.0 here, 100.0 there"),
        # With other defaults, and the same parameters as written.
        ("version = 3", "version = 2", "version: 2 here, 3 there"),
    ],
    ids=["parameter", "version"],
)
def test_a_session_file_changed_on_one_side_is_refused_and_said(
    session: Path, before: str, after: str, said: str
) -> None:
    other = session.parent / "changed.toml"
    assert before in session.read_text()
    other.write_text(session.read_text().replace(before, after))
    launcher = Launcher()
    commands = {"aggregator": member_command("party", str(session), "--as", "aggregator")}
    for name in PARTIES:
        file = other if name == PARTIES[0] else session
        commands[name] = member_command("party", str(file), "--as", name)
    outcomes = asyncio.run(launcher.run(commands, "aggregator"))
    assert outcomes[PARTIES[0]].exit_code == 1
    assert said in outcomes[PARTIES[0]].errors
    # The others need not fail: one missing party is within the plan.
    assert outcomes["aggregator"].ok, outcomes["aggregator"].errors


@pytest.mark.thin(2)
@pytest.mark.parametrize("command", [("run",), ("party", "--as", "aggregator")], ids=["run", "party"])
def test_a_port_in_use_is_one_line(session: Path, command: tuple[str, ...]) -> None:
    """An aggregator of the session may have it: `smpc-dp run` starts nobody who would call that one."""
    import socket

    address = next(line for line in session.read_text().splitlines() if line.startswith("address"))
    port = int(address.rpartition(":")[2].strip('"'))
    with socket.create_server(("127.0.0.1", port)):
        done = smpc_dp(command[0], str(session), *command[1:])
    assert (done.returncode, done.stdout) == (1, "")
    who = "aggregator: " if command == ("run",) else ""
    assert done.stderr == f"smpc-dp: {who}cannot listen on 127.0.0.1:{port}: the port is in use\n"


@pytest.mark.long
def test_a_run_without_a_ledger_says_that_nothing_was_charged(session: Path) -> None:
    done = smpc_dp("run", str(session), "--operation", "average")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("no ledger was given: nothing was charged") == 1
    ledgers = session.parent / "ledgers"
    ledgers.mkdir()
    for name in PARTIES:
        Ledger.create(
            ledgers / f"{name}.ledger",
            party=name,
            dataset="d",
            relation="substitution",
            epsilon=1.0,
            delta=0.0,
            exact="outside",
        )
    done = smpc_dp("run", str(session), "--operation", "average", "--ledgers", str(ledgers))
    assert done.returncode == 0, done.stderr
    assert "nothing was charged" not in done.stdout
