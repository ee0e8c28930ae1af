"""What the commands print: screens that say what the JSON says, and one line for what is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.report.texts import result_text
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import ProcessOutcome
from tests.command import smpc_dp
from tests.signals import DEFAULT_SIGNALS


def test_the_plan_on_the_screen_is_that_of_the_json() -> None:
    reported = json.loads(smpc_dp("plan", "secagg", "--parties", "100", "--json").stdout)
    shown = smpc_dp("plan", "secagg", "--parties", "100").stdout
    for direction, word in (("up", "sent"), ("down", "received")):
        parts = reported["communication"][direction]
        assert parts["total"] == sum(parts.values()) - parts["total"]
        (line,) = [line for line in shown.splitlines() if f"{word} a party" in line]
        assert f" {parts['total'] / 1000:,.1f} kB " in line


def test_plans_of_integers_and_weights() -> None:
    reported = smpc_dp(
        *("plan", "secagg", "--parties", "10", "--kind", "integer", "--upper", "255", "--lower", "0"),
        *("--max-weight", "1000", "--json"),
    )
    assert json.loads(reported.stdout)["modulus_bits"] == 24


USAGE = {
    "no such command": ["sing"],
    "no such option": ["plan", "secagg", "--people", "3"],
    "no number": ["plan", "secagg", "--parties", "x"],
    "missing": ["run"],
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_one_line(case: str) -> None:
    done = smpc_dp(*USAGE[case])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("smpc-dp: ")
    assert done.stderr.count("\n") == 1


def test_no_command_shows_the_commands_in_full() -> None:
    done = smpc_dp()
    assert done.returncode == 2
    assert re.search("keygen +Make a new identity", done.stderr)
    assert "..." not in done.stderr.replace("[ARGS]...", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "smpc_dp", "plan", "secagg", "--parties", "10", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "smpc-dp: cannot write the output (No space left on device)\n"


def test_a_reader_that_has_left_is_one_line() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "smpc_dp", "plan", "secagg", "--parties", "10"]
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (1, "smpc-dp: cannot write the output (Broken pipe)\n")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--threads", "0"], "threads"),
        (["--threads", "1000000"], "threads"),
        (["--seed-for-simulation", "-1"], "seed_for_simulation"),
        (["--length", "100000000000"], "length"),
        (["--parties", "-1"], "parties"),
        (["--parties", "60000", "--length", "60000000"], "length"),
        (["--dropout", "nan"], r"dropout: must be in \[0, 1\)"),
    ],
)
def test_a_simulation_that_cannot_be_is_refused_without_a_bar(options: list[str], where: str) -> None:
    done = smpc_dp("simulate", "average", *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(f"smpc-dp: {where}", done.stderr)
    assert done.stderr.count("\n") == 1


def test_keygen_checks_before_it_writes_and_shows_again(tmp_path: Path) -> None:
    for options in (["--role", "aggregator"], ["--address", "here"], ["--address", "host:70000"]):
        done = smpc_dp("keygen", "hub", *options, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("smpc-dp: --address: ")
        assert list(tmp_path.iterdir()) == []
    options = ["keygen", "hub", "--role", "aggregator", "--address", "hub.example:7100"]
    made = smpc_dp(*options, cwd=tmp_path)
    shown = smpc_dp(*options, "--show", cwd=tmp_path)
    assert made.stdout == shown.stdout
    assert 'address = "hub.example:7100"' in shown.stdout
    assert shown.stderr == made.stderr.partition("\n")[2]
    assert shown.stderr.startswith("words of the entry: ")
    assert smpc_dp("keygen", "bob", "--show", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (
            ["--help"],
            [
                "smpc_dp_lab.bench",
                "smpc_dp_lab.vectors",
                "numpy",
                "cryptography",
                "smpc_dp.engine",
            ],
        ),
        (["ledger", "show", "a.ledger"], ["dp_accounting"]),
    ],
)
def test_a_command_loads_no_more_than_it_needs(
    arguments: list[str], without: list[str], tmp_path: Path
) -> None:
    made = smpc_dp("ledger", "create", "a.ledger", "--party", "ann", "--dataset", "d", cwd=tmp_path)
    assert made.returncode == 0
    script = (
        "import sys\n"
        "from smpc_dp import cli\n"
        "code = cli.main()\n"
        f"print(*sorted(sys.modules.keys() & {without!r}), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "\n")


def test_ctrl_c_while_modules_are_loaded_is_quiet() -> None:
    script = (
        "import signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'smpc_dp.cli.demo':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv[1:] = ['demo']\n"
        "from smpc_dp.__main__ import main\n"
        "assert 'numpy' not in sys.modules\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", DEFAULT_SIGNALS + script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def catches_hangup(pid: int) -> bool:
    """Tell whether a process has got so far that it handles SIGHUP."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text("ascii"), re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGHUP - 1) & 1)


def test_a_hung_up_command_ends_with_129() -> None:
    command = ["simulate", "average", "--parties", "300", "--length", "100"]
    script = DEFAULT_SIGNALS + "from smpc_dp.__main__ import main\nmain()\n"
    with subprocess.Popen([sys.executable, "-c", script, *command], stderr=subprocess.PIPE) as process:
        while not catches_hangup(process.pid):
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=90)
    assert process.returncode == 129
    assert b"Traceback" not in errors


def result(**changes: Any) -> dict[str, Any]:
    privacy = {"claim": "a claim", "not_protected": ["a gap"]}
    whole = {"kind": "sum", "value": [1], "step": 1.0, "weight": 3, "survivors": ["a", "b", "c"]}
    return {**whole, "absent": [], "faults": [], "privacy": privacy, **changes}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"value": [12345678901234567, -3]}, "[12345678901234567, -3]"),
        ({"value": [123456.7890625], "step": 2.0**-7}, "[123456.7890625]"),
        ({"value": [1 / 3], "step": 2.0**-30, "kind": "average"}, "[0.3333333333]"),
        ({"value": [2.5], "kind": "average"}, "[2.5]"),
    ],
)
def test_results_are_shown_to_the_digits_that_they_have(changes: dict[str, Any], shown: str) -> None:
    assert shown in result_text(result(**changes)).splitlines()[0]


def test_how_a_process_ended() -> None:
    assert ProcessOutcome("a", exit_code=-signal.SIGKILL).reason == "killed (SIGKILL)"
    assert ProcessOutcome("a", exit_code=3).reason == "exit code 3"
    assert ProcessOutcome("a", exit_code=1, errors="smpc-dp: no key\n").reason == "no key"
    parties = ", ".join(f"party-{index}" for index in range(99))
    last = Event("a", "failed", detail=f"missing in step 'pair': {parties}")
    reason = ProcessOutcome("a", exit_code=1, last=last).reason
    assert reason.startswith("missing in step 'pair': party-0, ")
    assert len(reason) <= 500
