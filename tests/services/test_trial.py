"""What `deploy/compose.yaml` starts, as processes: its commands and its Caddyfile, in prepared folders."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.hosts import ROOT, Hosts, service
from tests.unit.test_deploy import compose_commands

PARTIES = ("alice", "bob", "carol")

pytestmark = pytest.mark.skipif("SMPC_DP_SERVICES" not in os.environ, reason="`make test-services` runs it")


async def test_three_parties_and_an_aggregator_behind_caddy(tmp_path: Path) -> None:
    deploy = tmp_path / "deploy"
    shutil.copytree(ROOT / "deploy", deploy, ignore=shutil.ignore_patterns("members"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    subprocess.run([deploy / "prepare.sh"], env=environment, check=True, capture_output=True)
    members = deploy / "members"
    caddy = (deploy / "Caddyfile").read_text("utf-8").replace("/etc/caddy/", f"{members}/caddy/")
    (deploy / "Caddyfile").write_text(caddy, "utf-8")
    aggregator, *parties = compose_commands((deploy / "compose.yaml").read_text("utf-8"))
    hosts = Hosts(tmp_path)
    try:
        hosts.add("cloud")
        addresses = {}
        for number, name in enumerate(PARTIES, 1):
            hosts.add(name)
            addresses[name], _ = hosts.join("cloud", name, f"10.79.{number}")
        program = (sys.executable, "-m", "smpc_dp")
        await hosts.start("cloud", *program, *aggregator, folder=members / "aggregator", log="aggregator")
        options = ("--config", str(deploy / "Caddyfile"), "--adapter", "caddyfile")
        await hosts.start(
            "cloud", service("caddy"), "run", *options, names="127.0.0.1 aggregator", log="caddy"
        )
        started = [
            await hosts.start(
                name, *program, *command, names=f"{addresses[name]} hub.example.org", folder=members / name
            )
            for name, command in zip(PARTIES, parties, strict=True)
        ]
        codes = await asyncio.wait_for(asyncio.gather(*(process.wait() for process in started)), 300.0)
    finally:
        await hosts.close()
    assert codes == [0, 0, 0], [(tmp_path / f"{name}.log").read_text() for name in PARTIES]
    for name in PARTIES:
        result = json.loads((members / name / "result.json").read_text())
        assert (result["value"], result["survivors"]) == ([2.0, 20.0], [*PARTIES])
