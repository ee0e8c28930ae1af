"""Learners on the command line: how what parties have learned is printed, and the file of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from smpc_dp.capabilities.learn.requirements import checked_lines, privacy_text
from smpc_dp.console.output import deliver, report_line
from smpc_dp.console.schemas import with_schema
from smpc_dp.session.launcher import ProcessOutcome

# Coordinates of a model that are printed.
SHOWN = 12
MODEL_FORMAT, MODEL_VERSION = "smpc-dp model", 1


def report_learned(
    outcomes: Mapping[str, ProcessOutcome],
    aggregator: str | None,
    results: Mapping[str, dict[str, Any]],
    planned: Sequence[str],
    *,
    as_json: bool,
    out: Path | None = None,
) -> bool:
    """Print the plan, what parties have learned, who failed; False if `out` fails; exit 1 if none learned.

    `planned`: lines on the plan, above them.

    Exits with 1 if the aggregator failed, or all did, or nobody completed a step: then nothing was learned.
    """
    for name, outcome in outcomes.items():
        if not outcome.ok:
            report_line(f"{name}: {outcome.reason}")
    if not results or (aggregator is not None and not outcomes[aggregator].ok):
        raise typer.Exit(1)
    if not any(result["done"][0] or not result["steps"][0] for result in results.values()):
        for name, result in results.items():
            report_line(f"{name}: all {result['steps'][0]} steps failed: {'; '.join(result['failures'][:3])}")
        raise typer.Exit(1)
    model = model_file(results)

    def text() -> str:
        return "\n".join([*planned, learned_text(results)])

    printed = with_schema("learned-by-party", {"parties": results})
    return deliver(printed, out, text, as_json=as_json, confidential=model["confidential"], stored=model)


def learned_text(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the learned results of all parties as text."""
    values = np.array([result["values"][0] for result in results.values()])
    some = next(iter(results.values()))
    lines = [f"{some['learner']}: {len(results)} parties"]
    mean, spread = values.mean(axis=0), values.std(axis=0)
    for index, coordinate in enumerate(some["names"][:SHOWN]):
        lines.append(f"  {coordinate:>12} {mean[index]: .6f}  (between parties {spread[index]:.6f})")
    if len(some["names"]) > SHOWN:
        lines.append(f"  and {len(some['names']) - SHOWN} more, with --json")
    for name, result in results.items():
        done, steps = result["done"][0], result["steps"][0]
        if done < steps:
            lines.append(f"{name}: {steps - done} of {steps} steps missed")
    if some["confidential"]:
        lines.append("confidential: what each party has learned is its own; the guarantee does not cover it")
    for measured in some["metrics"][-1:]:
        lines.append(f"metric after step {measured['step']}: {measured['value']:.6g}")
    lines += checked_lines(result["evidence"] for result in results.values())
    lines.append(privacy_text(_weakest(results), some["claim"]))
    return "\n".join(lines)


def _weakest(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the guarantee with the largest epsilon of all parties; None if any party has no guarantee."""
    given = [result["guarantee"] for result in results.values()]
    return None if None in given else max(given, key=lambda guarantee: float(guarantee["epsilon"]))


def model_file(results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a model file (JSON): the mean model and what each party has learned."""
    values = np.array([result["values"][0] for result in results.values()])
    some = next(iter(results.values()))
    of_party = ("values", "steps", "done")
    return {
        "format": MODEL_FORMAT,
        "version": MODEL_VERSION,
        "learner": some["learner"],
        "names": some["names"],
        "values": values.mean(axis=0).tolist(),
        "spread": values.std(axis=0).tolist(),
        "parties": {
            name: {key: result[key][0] for key in of_party}
            | {key: result[key] for key in ("failures", "evidence")}
            for name, result in results.items()
        },
        "metrics": some["metrics"],
        "guarantee": _weakest(results),
        **{key: some[key] for key in ("claim", "confidential")},
    }
