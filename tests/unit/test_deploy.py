"""The files in `deploy/`: their commands parse, and systemd takes the units where it is installed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smpc_dp.web_settings import DEFAULT
from tests.unit.test_docs import ROOT, UsageError, parse

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/smpc-dp/bin/smpc-dp"
# What the units take from their instance and from the files of their environment.
VARIABLES = {
    "%i": "7",
    "${MEMBER}": "alice",
    "${LISTEN}": "127.0.0.1:8001",
    "$CONNECTION": "--ca ca.pem",
    "$OPTIONS": "--behind 127.0.0.1",
}
OF_PARTY = VARIABLES | {"$OPTIONS": "--clip"}


def unit_commands(unit: str, text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `smpc-dp` of a unit."""
    for line in re.findall(r"^Exec(?!Reload)\w+=-?(.*)$", text, re.MULTILINE):
        for name, value in (OF_PARTY if "party" in unit else VARIABLES).items():
            line = line.replace(name, value)
        program, *arguments = shlex.split(line)
        assert program == PROGRAM
        assert not re.search(r"[$%]", " ".join(arguments)), arguments
        yield arguments


def compose_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each service with the image of smpc-dp."""
    for service in re.split(r"^  (?=\w+:$)", text, flags=re.MULTILINE)[1:]:
        if "image: smpc-dp\n" in service:
            [command] = re.findall(r"^    command: (\[.*\])$", service, re.MULTILINE)
            yield json.loads(command)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_commands_of_units_parse(unit: Path) -> None:
    commands = [*unit_commands(unit.name, unit.read_text("utf-8"))]
    expected = ["serve"] if unit.stem == "smpc-dp-serve" else ["check", "party"]
    assert [arguments[0] for arguments in commands] == expected
    for arguments in commands:
        parse(arguments)


def test_the_folder_of_sessions_is_read_again_by_the_signal_of_the_command() -> None:
    reloads = {
        unit.stem: re.findall(r"^ExecReload=(.*)$", unit.read_text("utf-8"), re.MULTILINE) for unit in UNITS
    }
    # Of the other units SIGHUP ends the process.
    assert {stem for stem, commands in reloads.items() if commands} == {"smpc-dp-serve"}
    assert reloads["smpc-dp-serve"] == ["/bin/kill -HUP $MAINPID"]
    assert "systemctl reload smpc-dp-serve" in (ROOT / "docs" / "guides" / "deployment.md").read_text("utf-8")


def test_commands_of_services_parse() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    commands = [*compose_commands(text)]
    assert [arguments[3] for arguments in commands] == ["aggregator", "alice", "bob", "carol"]
    for arguments in commands:
        parse(arguments)


def test_an_option_that_is_not_there_is_refused() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8").replace('"--out"', '"--output"')
    _, alice, *_ = compose_commands(text)
    [unit] = unit_commands("a", f"ExecStart={PROGRAM} party session.toml --member ${{MEMBER}}\n")
    for arguments in (alice, unit):
        with pytest.raises(UsageError):
            parse(arguments)


def test_the_port_that_each_file_names_is_one() -> None:
    """That of the aggregator behind a balancer, and the path of the address."""
    texts = {name: (DEPLOY / name).read_text("utf-8") for name in ("Caddyfile", "nginx.conf", "compose.yaml")}
    guide = (ROOT / "docs" / "guides" / "deployment.md").read_text("utf-8")
    assert "reverse_proxy aggregator:8000 {" in texts["Caddyfile"]
    assert "proxy_pass http://127.0.0.1:8000;" in texts["nginx.conf"]
    assert '"--listen", "0.0.0.0:8000"' in texts["compose.yaml"]
    assert "handle /smpc {" in texts["Caddyfile"]
    assert "location = /smpc {" in texts["nginx.conf"]
    assert "wss://hub.example.org/smpc" in guide
    # The balancer's address in the network of the aggregator is the one whose header is believed.
    assert '"--behind", "172.30.7.2"' in texts["compose.yaml"]
    assert "ipv4_address: 172.30.7.2" in texts["compose.yaml"]


def test_a_web_server_waits_for_pings_and_names_the_caller_itself() -> None:
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    seconds = [*map(int, re.findall(r"proxy_(?:read|send)_timeout (\d+)s;", text))]
    assert len(seconds) == 2
    assert min(seconds) > 2 * DEFAULT.ping
    # Callers may send the header too: the last entry must be the web server's.
    assert re.findall(r"X-Forwarded-For (.*);", text) == ["$remote_addr"]
    assert "trusted_proxies" not in (DEPLOY / "Caddyfile").read_text("utf-8")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_run_as_the_user_of_the_guide(unit: Path) -> None:
    text = unit.read_text("utf-8")
    [user] = re.findall(r"^User=(.+)$", text, re.MULTILINE)
    guide = (ROOT / "docs" / "guides" / "deployment.md").read_text("utf-8")
    assert f" /usr/sbin/nologin {user}\n" in guide
    for file in ("session.toml", "aggregator.key"):
        assert f"install -o {user} -m 600 {file} " in guide
    assert "UMask=0077" in text


def test_the_image_has_the_wheel_that_is_built() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    assert "COPY dist/smpc_dp-*.whl /tmp/" in text
    assert 'ENTRYPOINT ["smpc-dp"]' in text
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
    ignored = (ROOT / ".gitignore").read_text("utf-8")
    # Keys of a trial must not be committed.
    assert "deploy/members/" in ignored


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    def verify(text: str) -> str:
        (tmp_path / unit.name).write_text(text.replace(PROGRAM, sys.executable), "utf-8")
        command = ["systemd-analyze", "verify", "--recursive-errors=no", str(tmp_path / unit.name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr + (f"exit code {done.returncode}" if done.returncode else "")

    text = unit.read_text("utf-8")
    assert verify(text) == ""
    assert "NoNewPrivilege" in verify(text.replace("NoNewPrivileges=", "NoNewPrivilege="))
