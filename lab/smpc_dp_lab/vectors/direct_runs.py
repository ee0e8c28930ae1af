"""Whole runs of GOPA without an aggregator as vectors; their variances too are given, not planned."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from smpc_dp.capabilities.gopa import direct_states
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.direct_params import DirectParameters, without_relay
from smpc_dp.capabilities.gopa.plan import Neighbourhood
from smpc_dp.encoding import Encoding
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.gopa_runs import GopaScenario, gopa_session_json
from smpc_dp_lab.vectors.runs import RecordedRun, Row, inputs_json, make_run, messages_json, result_json

# Of the first request.
COORDINATOR = "alice"

_ROWS: tuple[Row, ...] = ((0.5, -1.25), (-2.0, 0.0078125), (0.1, -0.1), (1.999, 1.0), (0.0, 0.25))


def direct_parameters(scenario: GopaScenario) -> DirectParameters:
    """Return the parameters of a scenario's roles, for a run without an aggregator."""
    return without_relay(scenario.parameters)


def _scenario(name: str, about: str, **kill: int) -> GopaScenario:
    """Return the inputs of a recorded run without an aggregator; `kill` says who dies when."""
    parties = len(_ROWS)
    plan = plan_secagg(parties, dropout=0.2, corrupt=0.0)
    neighbourhood = Neighbourhood(least_own=parties - 2, most_drawn_by=parties - 1)
    encoding = Encoding.plan(length=2, lower=-2.0, upper=2.0, precision=2.0**-16, parties=parties)
    scenario = GopaScenario(
        name=name,
        about=about,
        encoding=msgspec.structs.replace(encoding, element_bytes=8),
        plan=plan,
        vectors=_ROWS,
        kill=kill,
        on_dropout="keep",
        neighbourhood=neighbourhood,
    )
    return replace(scenario, plan=direct_parameters(scenario).plan)


# What is for everybody is one message to each of the four others.
SCENARIOS: tuple[GopaScenario, ...] = (
    _scenario("all", "Five users, the complete graph, nobody is lost; alice coordinates."),
    _scenario(
        "lost-before-the-certificate",
        "Dave dies before he reveals his draw: nobody puts in noise that is shared with him.",
        dave=9,
    ),
    _scenario(
        "lost-after-the-certificate",
        "Dave attests who takes part and never publishes: four pairs leave their noise in the total.",
        dave=17,
    ),
    _scenario(
        "forward",
        "Dave dies after his value reached alice and bob: alice forwards it to carol and erin.",
        dave=19,
    ),
)


def new_run(scenario: GopaScenario) -> RecordedRun:
    """Return fresh roles for a scenario, with the same randomness every time."""
    return make_run(scenario, direct_parameters(scenario), direct_states.party)


def to_json(scenario: GopaScenario) -> dict[str, object]:
    """Run a scenario, and return its test vector."""
    run = new_run(scenario).execute()
    outcome, by_step = run.parties[COORDINATOR].result, run.by_step
    evidence = outcome.evidence
    return {
        **inputs_json(run, "direct-run"),
        "session": gopa_session_json(run, scenario) | {"topology": "direct", "coordinator": COORDINATOR},
        "intermediate": {
            "run_id": evidence.run_id.hex(),
            "participants_digest": evidence.participants.set_digest.hex(),
            "total_digest": None if evidence.survivors is None else evidence.survivors.set_digest.hex(),
            "x_hat": {
                name: decode(by_step[g.PUBLISH, name], g.Published, name).x_hat.hex()
                for name in scenario.names
                if (g.PUBLISH, name) in by_step
            },
        },
        "messages": messages_json(run),
        "result": result_json(outcome)
        | {
            "residual_pairs": 0 if outcome.noise is None else outcome.noise.residual_pairs,
            "faults": {
                name: list(party.result.faults)
                for name, party in run.parties.items()
                if party.name not in scenario.kill
            },
        },
    }
