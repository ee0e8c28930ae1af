"""What a party loads: little when it may connect, and its own protocol alone when it does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from smpc_dp.session.local import create_local_session

PARTIES = ("alice", "bob", "carol")
SUM: Mapping[str, object] = {"length": 2, "lower": 0.0, "upper": 1.0, "dropout": 0.0, "corrupt": 0.0}
# A party that has read its session file and its key, ready to call the others.
LOADED = (
    "import smpc_dp; smpc_dp.connect\n"
    "from smpc_dp.session import member, opening\n"
    "member.Membership.load({path!r}, 'alice').endpoint()"
)
# Aggregator and parties of a whole sum, in one process.
SUMMED = """
import asyncio, smpc_dp
async def party(name):
    async with smpc_dp.connect({path!r}, party=name) as session:
        return await session.sum([1.0, 2.0])
async def run():
    served = asyncio.create_task(smpc_dp.serve({path!r}, requests=1))
    results = await asyncio.gather(*map(party, {names!r}))
    await served
    assert all(result.value.tolist() == [3.0, 6.0] for result in results), results
asyncio.run(run())
"""
# What no import of a party needs.
HEAVY = (
    "capabilities.gopa",
    "capabilities.learn",
    "capabilities.pairs",
    "capabilities.reports",
    "capabilities.servers",
    "logs.audits",
    "logs.log",
    "logs.store",
    "session.memory",
    "simulate",
)
# Packages of HTTP: for an address wss://, and for logs.
WEB = ("prometheus_client", "starlette", "uvicorn", "websockets")
FOREIGN = ("dp_accounting", "mpyc", "networkx", "scipy", *WEB)


def test_what_is_heavy_exists() -> None:
    assert all(find_spec(f"smpc_dp.{name}") is not None for name in HEAVY)


def modules_after(code: str) -> set[str]:
    """Return the modules that a process has loaded after the code."""
    notify = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    reported = subprocess.run(
        [sys.executable, "-c", code + notify], capture_output=True, text=True, check=True, timeout=300
    )
    return {*json.loads(reported.stdout.splitlines()[-1])}


def heavy_of(modules: set[str]) -> set[str]:
    return modules & {*(f"smpc_dp.{name}" for name in HEAVY), *FOREIGN}


def test_importing_connect_loads_neither_learners_nor_numpy() -> None:
    loaded = modules_after("import smpc_dp; smpc_dp.connect")
    assert "smpc_dp.session" in loaded
    assert not heavy_of(loaded)
    assert not loaded & {"numpy", "cryptography"}


def test_members_are_started_without_the_distributions_of_scipy() -> None:
    """They take a second to load, in every process of a session."""
    members = (
        "import smpc_dp; smpc_dp.serve; import smpc_dp.cli.run\n"
        "import smpc_dp.capabilities.learn.requests.learning, smpc_dp.capabilities.learn.commands.learn"
    )
    loaded = modules_after(members)
    assert {"smpc_dp.session", "smpc_dp.cli"} <= loaded
    assert not loaded & {"scipy.stats", "scipy.optimize"}


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_a_party_of_a_secure_sum_loads_no_other_protocol(tmp_path: Path, epsilon: float | None) -> None:
    private = {} if epsilon is None else {"epsilon": epsilon, "delta": 1e-6}
    path = create_local_session(tmp_path, PARTIES, {**SUM, "precision": 1e-3, **private})
    vector = "\nfrom smpc_dp.values import vector_of; vector_of([0.5, 1.0], 'values')"
    loaded = modules_after(LOADED.format(path=str(path)) + vector)
    assert {"numpy", "smpc_dp.secagg"} <= loaded
    # Masked arrays are refused without their module; scipy, for private sums, loads it.
    assert private or "numpy.ma" not in loaded
    assert not heavy_of(loaded) - ({"scipy", "dp_accounting"} if private else set())


@pytest.mark.parametrize(
    ("protocol", "parameters", "needed"),
    [
        ("gopa", {"epsilon": 2.0, "delta": 1e-6}, {"capabilities.gopa", "logs.log"}),
        ("mpyc", {"precision": 1e-3}, {"capabilities.pairs", "capabilities.servers"}),
    ],
)
def test_a_party_of_another_protocol_loads_what_that_needs(
    tmp_path: Path, protocol: str, parameters: Mapping[str, object], needed: set[str]
) -> None:
    given = {**SUM, **parameters}
    if protocol == "mpyc":
        del given["corrupt"]
    path = create_local_session(tmp_path, PARTIES, given, protocol=protocol)
    loaded = heavy_of(modules_after(LOADED.format(path=str(path))))
    assert loaded - {"scipy"} <= {f"smpc_dp.{name}" for name in needed}


def test_a_whole_sum_loads_no_capability(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, {**SUM, "upper": 10.0, "precision": 1e-3})
    loaded = modules_after(SUMMED.format(path=str(path), names=PARTIES))
    assert {"smpc_dp.secagg.states", "smpc_dp.session.aggregator"} <= loaded
    assert not [name for name in loaded if name.startswith("smpc_dp.capabilities.")]
    # 9 MB of each process, and 3 MB of the aggregator's, which serves logs and audits none.
    assert not loaded & {"cryptography", "http.client", "urllib.request", "smpc_dp.logs.audits.audit"}
    assert not loaded & {*WEB}
    # Nor anything of simulations, such as seeds.
    assert not [name for name in loaded if "memory" in name and name.startswith("smpc_dp.")]
