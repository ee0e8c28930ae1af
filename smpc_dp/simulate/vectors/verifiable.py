"""The vectors of verifiable GOPA: honest runs, and every cheat as the log that it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator

from smpc_dp.roster import Roster
from smpc_dp.simulate.vectors import (
    verifiable_boxes,
    verifiable_host,
    verifiable_norms,
    verifiable_relay,
    verifiable_users,
)
from smpc_dp.simulate.vectors.runs import SCHEMA
from smpc_dp.simulate.vectors.verifiable_cheat import BALL_BASE, BASE, BOX_BASE, Cheat
from smpc_dp.simulate.vectors.verifiable_runs import BOX, Played, honest, members


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat."""
    yield from verifiable_users.all_cheats()
    yield from verifiable_norms.all_cheats()
    yield from verifiable_boxes.all_cheats()
    yield from verifiable_host.all_cheats()
    yield from verifiable_relay.all_cheats()


def roster_digest() -> str:
    """Return the digest of the true roster, in hex."""
    return Roster(members()).digest.hex()


def generate() -> dict[str, bytes]:
    """Return the content of every file by its name; the same bytes on every machine."""
    bases = {BASE: honest(), BALL_BASE: honest(ball=True), BOX_BASE: honest(setting=BOX)}
    bounds = {
        BASE: "values from 0 to 4",
        BALL_BASE: "norms of at most 5",
        BOX_BASE: "values from 1 to 4 in the first and from -1 to 3 in the second",
    }
    files = {name: _run(name, played, bounds[name]) for name, played in bases.items()}
    for cheat in all_cheats():
        files[f"verifiable-negative-{cheat.name}"] = cheat.to_json(bases[cheat.base].lines)
    return {
        f"{name}.json": (json.dumps(content, indent=1, ensure_ascii=True) + "\n").encode()
        for name, content in files.items()
    }


def _run(name: str, played: Played, bounds: str) -> dict[str, object]:
    outcome = played.relay.result
    return {
        "schema": SCHEMA,
        "kind": "verifiable-run",
        "name": name.removeprefix("verifiable-run-"),
        "about": f"Five users, two coordinates, {bounds}; nobody deviates.",
        "roster": roster_digest(),
        "total": outcome.total.tolist(),
        "log": [line.decode("ascii") for line in played.lines],
    }
