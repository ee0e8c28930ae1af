"""Whole runs of GOPA as vectors. The variances are given, not planned: a run depends on nothing else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from smpc_dp.box import Bound
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.params import GopaParameters, OnDropout
from smpc_dp.capabilities.gopa.plan import Neighbourhood, SessionNoise
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.parameters import Total
from smpc_dp.privacy.secagg_plan import check_plan, plan_secagg
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.runs import (
    AGGREGATOR,
    ROWS,
    RecordedRun,
    Row,
    Scenario,
    inputs_json,
    messages_json,
    new_run,
    result_json,
    session_json,
)

OWN_VARIANCE, PAIR_VARIANCE = 1_000_003, 5_000_000_029


@dataclass(frozen=True, slots=True, kw_only=True)
class GopaScenario(Scenario):
    """Inputs of one recorded run of GOPA: vectors, graph, noise, and who dies at which message."""

    on_dropout: OnDropout
    neighbourhood: Neighbourhood
    total: Total = "unchecked"

    @property
    def parameters(self) -> GopaParameters:
        """The parameters of the roles; claims do not enter a run, and are left out."""
        session = SessionNoise(
            epsilon=1.0,
            delta=1e-6,
            mu=0.0,
            closeness=0.0,
            slack=0.0,
            own_variance=OWN_VARIANCE,
            pair_variance=PAIR_VARIANCE,
            honest=2,
            curator_deviation=0.0,
            neighbourhood=self.neighbourhood,
            assumption="given, not planned",
        )
        return GopaParameters(
            encoding=self.encoding,
            plan=self.plan,
            session=session,
            on_dropout=self.on_dropout,
            total=self.total,
        )

    @property
    def stated(self) -> dict[str, object]:
        """Further fields of the session in the test vector: that the total is checked, if it is."""
        return {"total": self.total} if self.total == "checked" else {}

    @property
    def operation(self) -> str:
        """The operation's text that parties ask for: an average, with the noise variances."""
        return f"average {self.parameters.planned()}"


def _encoding(
    parties: int, *, lower: Bound | None = None, upper: Bound | None = None, l2_bound: float | None = None
) -> Encoding:
    planned = Encoding.plan(
        length=3, lower=lower, upper=upper, l2_bound=l2_bound, precision=2.0**-16, parties=parties
    )
    return replace(planned, element_bytes=8)


def _complete(
    name: str,
    about: str,
    on_dropout: OnDropout,
    encoding: Encoding | None = None,
    rows: tuple[Row, ...] = ROWS[:4],
    total: Total = "unchecked",
    **kill: int,
) -> GopaScenario:
    return GopaScenario(
        name=name,
        about=about,
        encoding=encoding or _encoding(4, lower=-2.0, upper=2.0),
        plan=plan_secagg(4, dropout=0.25, corrupt=0.0),
        vectors=rows,
        kill=kill,
        on_dropout=on_dropout,
        neighbourhood=Neighbourhood(least_own=2, most_drawn_by=3),
        total=total,
    )


def _sparse(name: str, about: str, on_dropout: OnDropout, **kill: int) -> GopaScenario:
    return GopaScenario(
        name=name,
        about=about,
        encoding=_encoding(6, lower=-2.0, upper=2.0),
        plan=check_plan(6, 3, 2, dropout=0.34, corrupt=0.0),
        vectors=ROWS,
        kill=kill,
        on_dropout=on_dropout,
        neighbourhood=Neighbourhood(least_own=2, most_drawn_by=5),
    )


_KEEP = _complete("keep", "Four users, the complete graph, nobody is lost.", "keep")
SCENARIOS: tuple[GopaScenario, ...] = (
    _KEEP,
    dataclasses.replace(
        _KEEP,
        name="keep-second",
        about="The session's second run, after that of run-keep.json: start names its average.",
        follows=_KEEP,
    ),
    _complete(
        "keep-lost-before-the-certificate",
        "Dave dies before he reveals his draw: nobody puts in noise that is shared with him.",
        "keep",
        dave=3,
    ),
    _complete(
        "keep-lost-after-the-certificate",
        "Dave attests who takes part and never publishes: three pairs leave their noise in the total.",
        "keep",
        dave=5,
    ),
    _complete(
        "keep-ball",
        "Vectors of norm at most 3; alice's, rounded to nearest, would leave the ball.",
        "keep",
        _encoding(4, l2_bound=3.0),
        ((1.7320508, -1.7320508, 1.7320508), *ROWS[1:4]),
    ),
    _complete(
        "keep-box",
        "Each coordinate has bounds of its own.",
        "keep",
        _encoding(4, lower=[-2.0, -1.5, -2.0], upper=[2.0, 1.0, 2.0]),
    ),
    _sparse(
        "keep-sparse",
        "Six users that draw three neighbours each, too few for any plan; bob attests and never publishes.",
        "keep",
        bob=5,
    ),
    _complete("roll-back", "The complete graph, nobody is lost.", "roll-back"),
    _complete(
        "roll-back-lost-before-masked",
        "Dave dies before he sends his vector: his masking key is opened, his pairwise noise taken out.",
        "roll-back",
        dave=6,
    ),
    _complete(
        "roll-back-lost-after-masked",
        "Dave dies after he sent his vector: it counts, and his self-mask is opened.",
        "roll-back",
        dave=7,
    ),
    _sparse(
        "roll-back-sparse",
        "Six users that draw three neighbours each, too few for any plan; bob is lost before he sends.",
        "roll-back",
        bob=6,
    ),
    _complete(
        "roll-back-checked",
        "Each receiver checks the total of vectors with own noise; dave dies before he sends his.",
        "roll-back",
        total="checked",
        dave=6,
    ),
)


def to_json(scenario: GopaScenario) -> dict[str, object]:
    """Run a scenario, and return its test vector."""
    run = new_run(scenario).execute()
    outcome, by_step = run.aggregator.result, run.by_step
    evidence, keep = outcome.evidence, scenario.on_dropout == "keep"
    step = g.PUBLISH if keep else m.MASKED
    sent = {name: by_step[step, name] for name in scenario.names if (step, name) in by_step}
    total = (
        decode(by_step[g.AVERAGE, AGGREGATOR], g.Average, AGGREGATOR).total
        if keep
        else decode(by_step[m.RESULT, AGGREGATOR], run.kinds.result, AGGREGATOR).total
    )
    return {
        **inputs_json(run),
        "session": gopa_session_json(run, scenario),
        "intermediate": {
            "run_id": evidence.run_id.hex(),
            "participants_digest": evidence.participants.set_digest.hex(),
            "survivors_digest": None if evidence.survivors is None else evidence.survivors.set_digest.hex(),
            "x_hat": {
                name: (
                    decode(body, g.Published, name).x_hat
                    if keep
                    else decode(body, run.kinds.masked, name).vector
                ).hex()
                for name, body in sent.items()
            },
        },
        "messages": messages_json(run),
        "result": result_json(outcome)
        | {
            "residual_pairs": 0 if outcome.noise is None else outcome.noise.residual_pairs,
            "total": total.hex(),
        },
    }


def gopa_session_json(run: RecordedRun, scenario: GopaScenario) -> dict[str, object]:
    """Return, as JSON data, all public data that are known before a run of GOPA."""
    return session_json(run) | {
        "on_dropout": scenario.on_dropout,
        "own_variance": OWN_VARIANCE,
        "pair_variance": PAIR_VARIANCE,
        "place": msgspec.to_builtins(scenario.neighbourhood),
    }
