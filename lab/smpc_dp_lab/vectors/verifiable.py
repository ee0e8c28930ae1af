"""Vectors of verifiable GOPA: honest runs, runs with false openings, and every cheat with its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from smpc_dp.capabilities.gopa.verifiable.statements import OPENING, OPENING_BOUNDS, SUM
from smpc_dp_lab.vectors import (
    verifiable_aggregator,
    verifiable_boxes,
    verifiable_host,
    verifiable_norms,
    verifiable_openings,
    verifiable_parties,
)
from smpc_dp_lab.vectors.runs import header
from smpc_dp_lab.vectors.verifiable_cheat import (
    BALL_BASE,
    BASE,
    BOX_BASE,
    EDGE_LEFT_OUT,
    ROUNDS_BASE,
    VERSION_2_BASE,
    VERSION_3_BASE,
    VERSION_4_BASE,
    VERSION_5_BASE,
    Cheat,
)
from smpc_dp_lab.vectors.verifiable_runs import (
    BOX,
    OF_VERSION_2,
    OF_VERSION_3,
    OF_VERSION_4,
    OF_VERSION_5,
    RecordedRun,
    honest,
)


def all_cheats() -> Iterator[Cheat]:
    """Yield all test vectors of cheats in verifiable GOPA: changed logs, and what an audit finds."""
    yield from verifiable_parties.all_cheats()
    yield from verifiable_norms.all_cheats()
    yield from verifiable_boxes.all_cheats()
    yield from verifiable_host.all_cheats()
    yield from verifiable_aggregator.all_cheats()
    yield from verifiable_openings.all_cheats()


def generate() -> dict[str, dict[str, object]]:
    """Return the content of every file by its name; the same on every host."""
    bases = {
        BASE: honest(),
        BALL_BASE: honest(ball=True),
        BOX_BASE: honest(setting=BOX),
        VERSION_2_BASE: honest(setting=OF_VERSION_2),
        VERSION_3_BASE: honest(setting=OF_VERSION_3),
        VERSION_4_BASE: honest(setting=OF_VERSION_4),
        VERSION_5_BASE: honest(setting=OF_VERSION_5),
        ROUNDS_BASE: verifiable_openings.in_one_round(),
    }
    bounds = {
        BASE: "values from 0 to 4",
        BALL_BASE: "norms of at most 5",
        BOX_BASE: "values from 1 to 4 in the first and from -1 to 3 in the second",
        VERSION_2_BASE: "values from 0 to 4, version 2",
        VERSION_3_BASE: "values from 0 to 4, version 3",
        VERSION_4_BASE: "values from 0 to 4, version 4 without `dropout` and `corrupt`",
        VERSION_5_BASE: "values from 0 to 4, version 5 without `dropout` and `corrupt`",
    }
    files = {
        name: _run(name, bases[name], f"Five users, two coordinates, {bound}; nobody deviates.")
        for name, bound in bounds.items()
    }
    about = "Ann and dan leave out the edge between them, as one whose term is too large; nobody deviates."
    files[EDGE_LEFT_OUT] = _run(EDGE_LEFT_OUT, verifiable_parties.without_an_edge(), about)
    false = {"dan": SUM, "ben": OPENING}
    about = "Nine users, values from 0 to 2: dan publishes a wrong sum, ben opens its edge to dan wrongly."
    files[ROUNDS_BASE] = _run(ROUNDS_BASE, bases[ROUNDS_BASE], about, false)
    twice, ran = f"{ROUNDS_BASE}-in-two-rounds", verifiable_openings.in_two_rounds()
    about = f"{about[:-1]}; in the next round eve opens its edge to ben wrongly."
    files[twice] = _run(twice, ran, about, false | {"eve": OPENING_BOUNDS})
    for cheat in all_cheats():
        files[f"verifiable-negative-{cheat.name}"] = cheat.to_json(bases[cheat.base].lines)
    return files


def _run(
    name: str,
    ran: RecordedRun,
    about: str,
    false: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return a run as a vector; `false` has the reason of each exclusion, by party."""
    outcome = ran.relay.result
    shown: dict[str, object] = {} if false is None else {"excluded": dict(sorted(false.items()))}
    return {
        **header("verifiable-run", name.removeprefix("verifiable-run-"), about),
        "session": ran.context.session_digest.hex(),
        "total": outcome.total.tolist(),
        **shown,
        "log": [line.decode("ascii") for line in ran.lines],
    }
