"""The files in `deploy/`, given to the programs that read them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.outer_certificates import Authority
from tests.services.hosts import ROOT, service

DEPLOY = ROOT / "deploy"
# A part of the Compose specification: what a service and the file may have, as far as the file here has it.
TOP = {"name", "services", "networks"}
SERVICE = {
    *("build", "command", "depends_on", "healthcheck", "image", "init", "networks", "restart", "volumes"),
}

pytestmark = pytest.mark.skipif("SMPC_DP_SERVICES" not in os.environ, reason="`make test-services` runs it")


def read(*command: str) -> str:
    """Return what a program prints; fail with that if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def replaced(name: str, folder: Path, changes: dict[str, str]) -> str:
    text = (DEPLOY / name).read_text("utf-8")
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / name).write_text(text, "utf-8")
    return str(folder / name)


def test_caddy_takes_its_file(tmp_path: Path) -> None:
    chain, key = map(str, Authority(tmp_path).sign("hub.example.org"))
    file = replaced("Caddyfile", tmp_path, {"/etc/caddy/hub.pem": chain, "/etc/caddy/hub.key": key})
    assert "Valid configuration" in read(
        service("caddy"), "validate", "--config", file, "--adapter", "caddyfile"
    )
    # It is in the form that `caddy fmt` gives it.
    assert read(service("caddy"), "fmt", str(DEPLOY / "Caddyfile")) == (DEPLOY / "Caddyfile").read_text(
        "utf-8"
    )


def test_nginx_takes_its_file(tmp_path: Path) -> None:
    chain, key = map(str, Authority(tmp_path).sign("hub.example.org"))
    replaced("nginx.conf", tmp_path, {"/etc/nginx/hub.pem": chain, "/etc/nginx/hub.key": key})
    whole = tmp_path / "whole.conf"
    whole.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{ include {tmp_path}/nginx.conf; }}\n")
    assert "test is successful" in read(service("nginx"), "-t", "-c", str(whole))


def test_the_compose_file_is_one() -> None:
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"
    python = Path(os.environ["SMPC_DP_SERVICES"], "python")
    compose = json.loads(read(str(python), "-c", program, str(DEPLOY / "compose.yaml")))
    assert set(compose) == TOP
    assert set(compose["services"]) == {"aggregator", "caddy", "alice", "bob", "carol"}
    for service_ in compose["services"].values():
        assert set(service_) <= SERVICE
        assert set(service_["networks"]) <= set(compose["networks"])
        assert set(service_.get("depends_on", ())) <= set(compose["services"])
    # Parties reach Caddy alone, and the aggregator nobody: its network leads nowhere.
    assert compose["networks"]["inside"]["internal"]
    assert compose["services"]["aggregator"]["networks"] == ["inside"]
    for name in ("alice", "bob", "carol"):
        assert compose["services"][name]["networks"] == ["outside"]
        assert compose["services"][name]["volumes"] == [f"./members/{name}:/data"]
