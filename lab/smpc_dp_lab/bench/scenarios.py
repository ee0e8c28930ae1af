"""`smpc-dp bench scenarios`: what users ask first, measured as they would run it.

Sessions are those of users: parties and aggregator over mutual TLS on loopback. The first party and the
aggregator are processes of their own, whose processor time and memory count; the others share processes. A
thousand parties are simulated in one process.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp_lab.bench.figures import Figure, Progress, Report, Steps, cost, versions
from smpc_dp_lab.bench.logs import log_figures
from smpc_dp_lab.bench.workers import together

WORKER_SECONDS = 1_800.0
EPSILON, DELTA, LENGTH = 1.0, 1e-6, 1_000
# The parties of a simulation that check everything themselves, and are measured.
SAMPLE = 5
WHOLE = "all in one process: peak memory"
# The figures of a session, with their units; a simulation has WHOLE in the place of the last two.
KINDS = {
    "wall time": "s",
    "party: processor time": "s",
    "aggregator: processor time": "s",
    "party: sent": "B",
    "party: received": "B",
    "party: peak memory": "B",
    "aggregator: peak memory": "B",
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Settings of a measured session: name, task, number of parties, and parties per process.

    Attributes:
        task: "sum", of LENGTH numbers with noise, or "pairwise", Kendall's tau with noise.
        dropout: fraction that the plan may lose; nobody is lost.
        shared: parties of a process, but for the first party, which has its own; 0 for a simulation.
    """

    name: str
    task: str
    parties: int
    dropout: float
    shared: int


@dataclass(frozen=True, slots=True)
class Scenarios:
    """The sessions, and the parties of the run whose log is audited."""

    sessions: tuple[Scenario, ...]
    audited: int


FULL = Scenarios(
    (
        Scenario("ten hospitals", "sum", 10, 0.0, 1),
        Scenario("a hundred phones", "sum", 100, 0.1, 33),
        Scenario("a thousand phones", "sum", 1_000, 0.1, 0),
        Scenario("Kendall's tau of 200 people", "pairwise", 200, 0.0, 67),
    ),
    1_000,
)
QUICK = Scenarios(
    (
        Scenario("a dozen phones", "sum", 12, 0.1, 0),
        Scenario("ten hospitals", "sum", 10, 0.0, 3),
        Scenario("Kendall's tau of six people", "pairwise", 6, 0.0, 5),
    ),
    10,
)


def figure_name(scenario: str, kind: str) -> str:
    """Return the name of a figure of this kind in a scenario."""
    return f"{scenario}: {kind}"


def run_scenarios_bench(progress: Progress | None = None, scenarios: Scenarios = FULL) -> Report:
    """Measure each session once, and the audit of a log; raise LocalError where a process fails."""
    step = Steps(progress, "scenarios", len(scenarios.sessions) + 1)
    figures: list[Figure] = []
    for scenario in scenarios.sessions:
        figures += _session_figures(scenario) if scenario.shared else _simulated_figures(scenario)
        step()
    figures += log_figures((scenarios.audited,), 1)
    step()
    parameters = {
        "length": LENGTH,
        "epsilon": EPSILON,
        "delta": DELTA,
        "sessions": [asdict(scenario) for scenario in scenarios.sessions],
        "audited": scenarios.audited,
    }
    return Report("scenarios", figures, versions("numpy"), parameters)


def _session_figures(scenario: Scenario) -> list[Figure]:
    first, *others, aggregator = _measured(scenario)
    parties = [first, *others]
    measured: Mapping[str, float] = {
        "wall time": max(one["ended"] for one in parties) - max(one["begun"] for one in parties),
        "party: processor time": first["cpu"],
        "aggregator: processor time": aggregator["cpu"],
        "party: sent": first["sent"],
        "party: received": first["received"],
        "party: peak memory": first["peak"],
        "aggregator: peak memory": aggregator["peak"],
    }
    processes = 2 + len(others)
    note = (
        f"{_asked(scenario)}; {scenario.parties} parties and the aggregator in {processes} processes of one "
        "host, mutual TLS on loopback"
    )
    notes = {
        "wall time": "by the clock, from when the last party asks until all have the result",
        "party: processor time": "of the first party, connecting included, the start of Python not",
        "aggregator: processor time": "all requests and connections, the start of Python not",
        "party: sent": "by the first party to the aggregator, without frames and TLS records",
        "party: received": "by the first party from the aggregator, without frames and TLS records",
        "party: peak memory": "resident, interpreter and modules included",
        "aggregator: peak memory": "resident, interpreter and modules included",
    }
    return [
        cost(figure_name(scenario.name, kind), unit, [measured[kind]], f"{note}; {notes[kind]}")
        for kind, unit in KINDS.items()
    ]


def _simulated_figures(scenario: Scenario) -> list[Figure]:
    (output,) = together(
        "scenario_worker", [["simulate", str(scenario.parties), str(scenario.dropout)]], scenario.name
    )
    measured: dict[str, float] = json.loads(output)
    note = f"{_asked(scenario)}; {scenario.parties} parties and the aggregator are simulated in one process"
    notes = {
        "wall time": "by the clock, of the whole simulation, in which the parties take turns",
        "party: processor time": f"median of {SAMPLE} parties that check everything, without connections",
        "aggregator: processor time": "without connections",
        "party: sent": f"median of {SAMPLE} parties, without frames and TLS records",
        "party: received": f"median of {SAMPLE} parties, without frames and TLS records",
        WHOLE: "resident, all parties and the aggregator, interpreter and modules included",
    }
    return [
        cost(
            figure_name(scenario.name, kind), KINDS.get(kind, "B"), [measured[kind]], f"{note}; {notes[kind]}"
        )
        for kind in notes
    ]


def noisy_sum(dropout: float) -> dict[str, object]:
    """Return the session parameters of a private sum, planned for this fraction of losses."""
    given = {"length": LENGTH, "lower": -1.0, "upper": 1.0, "precision": 1e-6, "dropout": dropout}
    return {**given, "epsilon": EPSILON, "delta": DELTA}


def _asked(scenario: Scenario) -> str:
    """Return words for what the parties of a scenario compute."""
    if scenario.task == "pairwise":
        return f"Kendall's tau of two 32-bit integers, epsilon {EPSILON:g}, one partner each, covert security"
    lost = (
        f"planned for {scenario.dropout:.0%} lost, nobody was" if scenario.dropout else "nobody may be lost"
    )
    return f"a sum of {LENGTH:,} numbers, epsilon {EPSILON:g}, delta {DELTA:g}, {lost}"


def _measured(scenario: Scenario) -> list[dict[str, Any]]:
    """Run a session in processes; return the measurements of first party, others, and aggregator."""
    names = [f"party{number}" for number in range(scenario.parties)]
    pairs = scenario.task == "pairwise"
    parameters = noisy_sum(scenario.dropout)
    if pairs:
        parameters = {key: parameters[key] for key in parameters.keys() - {"epsilon", "delta"}}
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        timeouts = Timeouts(connect=600.0, gather=600.0, step=600.0)
        path = create_local_session(Path(folder), names, parameters, addresses=pairs, timeouts=timeouts)
        for name in names:
            Ledger.create(
                path.parent / f"{name}.ledger",
                party=name,
                dataset="benchmark",
                relation="substitution",
                epsilon=2 * EPSILON,
                delta=2 * DELTA,
            )
        groups = [
            names[:1],
            *(names[start : start + scenario.shared] for start in range(1, len(names), scenario.shared)),
        ]
        # The aggregator's end is awaited last: a party that fails is seen at once.
        calls = [[str(path), scenario.task, *group] for group in (*groups, [])]
        printed = together("scenario_worker", calls, scenario.name, WORKER_SECONDS)
    return [json.loads(output) for output in printed]
