"""`smpc-dp plan personalized`, `boosting`, `local-global` and `diffusion`: how well learners do at least."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import typer

from smpc_dp.capabilities.learn.commands.plan_collaboration import numbers
from smpc_dp.console.output import print_plan
from smpc_dp.errors import ConfigError

Shape = Annotated[Literal["ring", "complete"], typer.Option(help="Who is a neighbour of whom.")]
Epsilon = Annotated[float, typer.Option(help="Budget for one record.")]
Delta = Annotated[float, typer.Option(help="Budget for one record.")]
Length = Annotated[int, typer.Option(help="Numbers of a model.")]
RecordBound = Annotated[float, typer.Option(help="L2 norm of a record's features, at most.")]
Sizes = Annotated[str, typer.Option(help="Records of each party, e.g. 1000,2000,500.")]
Coupling = Annotated[float, typer.Option(help="How much neighbours' models are pulled together.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def personalized(
    sizes: Sizes,
    length: Length,
    epsilon: Epsilon,
    delta: Delta,
    topology: Shape = "ring",
    updates: Annotated[int, typer.Option(help="Of each party, at most.")] = 32,
    coupling: Coupling = 1.0,
    ridge: Annotated[float, typer.Option(help="Over a party's records: of its penalty.")] = 1.0,
    record_bound: RecordBound = 1.0,
    as_json: Json = False,
) -> None:
    """Bound the excess of private coordinate descent by updates [Bellet and others 2018, Theorem 2].

    Logistic models from 0. More updates come nearer to the minimum, and each has more noise.
    """
    from smpc_dp.capabilities.learn.utility import personalized_utility

    plan = personalized_utility(
        [int(size) for size in numbers("sizes", sizes, int)],
        topology,
        length,
        epsilon,
        delta,
        most=updates,
        coupling=coupling,
        ridge=ridge,
        record_bound=record_bound,
    )
    rows = [
        (count, *(f"{value:.4g}" for value in (loss.start, loss.noise, loss.total)))
        for count, loss in zip(plan.updates, plan.losses, strict=True)
    ]
    print_plan(
        plan,
        as_json,
        "bound on the excess of the objective",
        rows,
        f"least after {plan.best} updates of each party; at the start at most {plan.gap:.4g}",
        f"C = 1 - {1 - plan.contraction:.3g} of a tick; a bound, not an expectation",
        columns=("updates", "from the start", "noise", "bound"),
    )


def boosting(
    sizes: Sizes,
    beta: Annotated[float, typer.Option(help="L1 norm of a model, at most.")],
    topology: Shape = "ring",
    coupling: Coupling = 1.0,
    loss: Annotated[
        Literal["adaboost", "logistic", "squared"],
        typer.Option(help='Of a margin. The learner "personalized-boosting" has adaboost.'),
    ] = "adaboost",
    as_json: Json = False,
) -> None:
    """Count the updates that suffice for boosting without noise [Bellet 2021, Prop. 2.2, Remark 2.4]."""
    from smpc_dp.capabilities.learn.utility import boosting_utility

    counts = [int(size) for size in numbers("sizes", sizes, int)]
    plan = boosting_utility(counts, topology, beta, coupling, loss)
    rows = [
        (f"{excess:.4g}", ticks, -(-ticks // len(counts)), printed)
        for excess, ticks, printed in zip(plan.excesses, plan.ticks, plan.printed_ticks, strict=True)
    ]
    print_plan(
        plan,
        as_json,
        "updates that suffice for an excess of the objective",
        rows,
        f"at the start at most {plan.gap:.4g}; C_M = {plan.curvature:.4g}; a bound, not an expectation",
        columns=("mean excess", "updates of all", "of a party", "of all, as printed"),
    )


def _vacuous(name: str, bound: float, start: float) -> list[str]:
    """Return a line that says that a bound is useless, if it is at least the start's value; else no line."""
    return [f"{name} says nothing: the start has {start:.2g} at most"] if bound >= start else []


def local_global(
    nodes: Annotated[int, typer.Option(help="Parties M.")],
    records: Annotated[int, typer.Option(help="Of all parties together, n.")],
    batch: Annotated[int, typer.Option(help="Records of a batch, b; each is used once.")],
    features: Annotated[int, typer.Option(help="Columns without the label.")],
    epsilon: Epsilon,
    delta: Delta,
    chance: Annotated[float, typer.Option(help="Of a global step.")] = 1.0,
    rate: Annotated[float, typer.Option(help="Step size, eta.")] = 0.1,
    ridge: Annotated[float, typer.Option(help="Of the penalty, gamma.")] = 0.0,
    radius: Annotated[float, typer.Option(help="Of the ball that models are projected to.")] = 10.0,
    record_bound: RecordBound = 1.0,
    as_json: Json = False,
) -> None:
    """Bound the error of SGD without replacement on a local and a global model [Jin, He, Dai, (9), (10)].

    With the noise of the learner "local-global", in one pass.
    """
    from smpc_dp.capabilities.learn.local_global import LocalGlobal
    from smpc_dp.capabilities.learn.registry import check_learn
    from smpc_dp.capabilities.learn.utility import local_global_utility
    from smpc_dp.engine.phases.parameters import MAX_PARTIES
    from smpc_dp.privacy.arguments import ArgumentChecks

    checks = ArgumentChecks()
    checks.require_integer("nodes", nodes, 2, MAX_PARTIES)
    checks.require_integer("batch", batch, 1, 10**12)
    checks.raise_issues()
    checks.require_integer("records", records, nodes * batch, 10**12, ": a batch of each node")
    checks.raise_issues()
    given: dict[str, object] = {
        "features": features,
        "batch": batch,
        "record_bound": record_bound,
        "rate": rate,
    }
    given |= {"ridge": ridge, "radius": radius, "chance": chance, "epsilon": epsilon, "delta": delta}
    given |= {"learner": LocalGlobal.kind, "rounds": records // (batch * nodes)}
    checked, issues = check_learn(given, nodes)
    if checked is None or not isinstance(checked.learner, LocalGlobal):
        raise ConfigError(issues)
    plan = local_global_utility(checked.learner, nodes, records)
    convex, strongly = plan.convex, plan.strongly_convex
    condition = "" if epsilon < 1 else ", where Theorem 1 has epsilon < 1"
    rows = [
        (
            "noise",
            f"{plan.deviation:.4g}",
            f"deviation of a global step; {plan.published_deviation:.4g} as published{condition}",
        ),
        (
            "(9)",
            f"{convex.total:.4g}",
            "mean excess of the loss at most, the sum of:",
        ),
        ("start", f"{convex.start:.4g}", "(M + 1) R^2 / (4 T eta)"),
        ("gradients", f"{convex.gradients:.4g}", "eta B^2"),
        (
            "noise in (9)",
            f"{convex.noise:.4g}",
            f"{convex.printed_noise:.4g} as printed, without the dimension",
        ),
        ("sampling", f"{convex.sampling:.4g}", "of batches without replacement, as printed"),
    ]
    if strongly is not None:
        rows.append(
            (
                "(10)",
                f"{strongly.total:.4g}",
                "squared distances of all models: an order; private for windows of one step alone",
            )
        )
        rows.append(
            ("steps of (10)", f"{plan.permitted_from}", f"first round that Lemma 4 permits, of {plan.rounds}")
        )
    lines = _vacuous("(9)", convex.total, math.log(2))
    print_plan(plan, as_json, f"{nodes} parties, {plan.rounds} batches each", rows, *lines)


def diffusion(
    parties: Annotated[int, typer.Option(help="Parties K.")],
    length: Length,
    steps: Annotated[int, typer.Option(help="Steps i.")],
    epsilon: Annotated[float, typer.Option(help="Budget for all data of one party, all messages together.")],
    step_size: Annotated[float, typer.Option(help="mu.")] = 0.1,
    clip: Annotated[float, typer.Option(help="G, of gradients in the l1 norm.")] = 1.0,
    topology: Shape = "ring",
    smoothness: Annotated[float, typer.Option(help="delta, of the losses.")] = 0.25,
    gap: Annotated[float, typer.Option(help="Loss at the start less the least one.")] = 0.7,
    as_json: Json = False,
) -> None:
    """Bound the error of diffusion with graph-homomorphic noise [Vlaski and Sayed 2020, (28), (31)]."""
    from smpc_dp.capabilities.learn.utility import diffusion_utility

    plan = diffusion_utility(
        parties, topology, length, steps, step_size, clip, epsilon, smoothness=smoothness, gap=gap
    )
    rows = [
        ("b_v", f"{plan.scale:.4g}", f"scale of the noise in a coordinate; epsilon = {plan.epsilon:.4g}"),
        ("1 - lambda_2", f"{plan.mixing_gap:.4g}", "of Metropolis weights"),
        ("(28)", f"{plan.disagreement:.4g}", "mean squared distance of models from their centroid, at most"),
        ("(31)", f"{plan.stationarity:.4g}", "mean of |grad J|^2 at the centroid, at most"),
        ("without noise", f"{plan.stationarity_exact:.4g}", "the same"),
    ]
    # A gradient's l2 norm is at most its l1 norm.
    lines = ["(31) holds where no gradient is clipped", *_vacuous("(31)", plan.stationarity, clip**2)]
    print_plan(plan, as_json, f"diffusion of {parties} parties, {steps} steps", rows, *lines)
