"""Whole exchanges as vectors. The variance is given, not planned: a run depends on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from msgspec.structs import replace

from smpc_dp.encoding import RingVector
from smpc_dp.session.exchange import states
from smpc_dp.session.exchange.params import Edges, ExchangeParameters, plan_exchange
from smpc_dp_lab.vectors.runs import (
    RecordedRun,
    Row,
    Scenario,
    inputs_json,
    make_run,
    messages_json,
    result_json,
)

VARIANCE = Fraction(1_000_003)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeScenario(Scenario):
    """Inputs of a recorded run in which parties exchange vectors; `given`: its parameters.

    Where vectors differ by receiver, party i has for party j the row i + j of `_ROWS`, counted around.
    """

    given: ExchangeParameters

    def encoded(self, index: int) -> RingVector:
        """Return what the party of this index gives: one vector, or one for each party."""
        if not self.given.apart:
            return Scenario.encoded(self, index)
        rows = self.rows(index)
        return np.stack([self.encoding.encode(row, party=self.names[index])[0] for row in rows])

    def rows(self, index: int) -> list[Row]:
        """Return the vectors that the party of this index has for each party."""
        return [_ROWS[(index + other) % len(_ROWS)] for other in range(len(self.vectors))]

    @property
    def parameters(self) -> ExchangeParameters:
        """The parameters of the exchange's roles, as given."""
        return self.given

    @property
    def operation(self) -> str:
        """The operation's text that parties ask for: an average, its variance and edges."""
        return f"average {self.given.planned()}"


_ROWS: tuple[Row, ...] = ((0.5, -0.25), (-0.75, 0.0078125), (0.1, -0.1), (0.0, 1.0))


def _scenario(
    name: str,
    about: str,
    parties: int,
    *,
    missing: int = 0,
    honest: int = 1,
    variance: Fraction = VARIANCE,
    edges: Edges | None = None,
    apart: bool = False,
    **kill: int,
) -> ExchangeScenario:
    planned = plan_exchange(
        parties, length=2, l2_bound=1.0, precision=2.0**-16, honest=honest, missing=missing
    )
    given = replace(planned, variance=variance, epsilon=1.0, delta=1e-6) if variance else planned
    given = given if edges is None else given.between(edges)
    given = given.to_each() if apart else given
    return ExchangeScenario(
        name=name,
        about=about,
        encoding=given.encoding,
        plan=given.plan,
        vectors=_ROWS[:parties],
        kill=kill,
        given=given,
    )


SCENARIOS = (
    _scenario(
        "average", "Four users, each with all of its noise; one may be missing, none is.", 4, missing=1
    ),
    _scenario("average-absent", "Dave never says hello: the average is of three.", 4, missing=1, dave=1),
    _scenario("average-lost", "Dave says hello and sends nothing.", 4, missing=1, dave=2),
    _scenario("pair", "Two users who bring half of the noise each.", 2, honest=2),
    _scenario(
        "edges",
        "Exact vectors along edges: alice to bob and carol, carol to alice.",
        3,
        variance=Fraction(0),
        edges=((2, 3), (), (1,)),
    ),
    _scenario(
        "apart",
        "Exact vectors, another one for each receiver.",
        3,
        variance=Fraction(0),
        apart=True,
    ),
)


def new_run(scenario: ExchangeScenario) -> RecordedRun:
    """Return fresh roles for a scenario, with the same randomness every time."""
    return make_run(scenario, scenario.given, states.party, states.aggregator)


def to_json(scenario: ExchangeScenario) -> dict[str, object]:
    """Run a scenario, and return its test vector."""
    run, given = new_run(scenario).execute(), scenario.given
    ended = {name: party for name, party in run.parties.items() if name not in scenario.kill}
    content = inputs_json(run)
    session = dict(content["session"])  # type: ignore[call-overload]
    session |= {"variance": [given.variance.numerator, given.variance.denominator], "edges": given.edges}
    if given.apart:
        session["apart"] = True
        for index, name in enumerate(scenario.names):
            content["inputs"][name]["vector"] = scenario.rows(index)  # type: ignore[index]
    return {
        **content,
        "session": session,
        "intermediate": {
            "run_id": run.parties[scenario.names[0]].run_id.hex(),
            "received": {
                name: {sender: ring_vector.tolist() for sender, ring_vector in party.state.received.items()}
                for name, party in ended.items()
            },
        },
        "messages": messages_json(run),
        "result": {name: result_json(party.result) for name, party in ended.items()},
    }
