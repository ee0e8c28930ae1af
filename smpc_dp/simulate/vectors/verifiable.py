"""The vectors of verifiable GOPA: one honest run, and every cheat as the log that it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator

from smpc_dp.roster import Roster
from smpc_dp.simulate.vectors import verifiable_host, verifiable_relay, verifiable_users
from smpc_dp.simulate.vectors.runs import SCHEMA
from smpc_dp.simulate.vectors.verifiable_cheat import BASE, Cheat
from smpc_dp.simulate.vectors.verifiable_runs import Played, honest, members


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat."""
    yield from verifiable_users.all_cheats()
    yield from verifiable_host.all_cheats()
    yield from verifiable_relay.all_cheats()


def roster_digest() -> str:
    """Return the digest of the true roster, in hex."""
    return Roster(members()).digest.hex()


def generate() -> dict[str, bytes]:
    """Return the content of every file by its name; the same bytes on every machine."""
    base = honest()
    files = {BASE: _run(base)}
    for cheat in all_cheats():
        files[f"verifiable-negative-{cheat.name}"] = cheat.to_json(base.lines)
    return {
        f"{name}.json": (json.dumps(content, indent=1, ensure_ascii=True) + "\n").encode()
        for name, content in files.items()
    }


def _run(played: Played) -> dict[str, object]:
    outcome = played.relay.result
    return {
        "schema": SCHEMA,
        "kind": "verifiable-run",
        "name": "honest",
        "about": "Five users, two coordinates, nobody deviates.",
        "roster": roster_digest(),
        "total": outcome.total.tolist(),
        "log": [line.decode("ascii") for line in played.lines],
    }
