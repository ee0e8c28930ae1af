"""Members of a session with protocol "learn", for `smpc-dp party` and `smpc-dp run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from smpc_dp.cli.member import HostMember, exit_code
from smpc_dp.cli.output import UNCHARGED, deliver, report_line
from smpc_dp.errors import ConfigError, Issues, PrivacyError
from smpc_dp.learn.registry import LearnParameters
from smpc_dp.learn.requirements import Learned, privacy_text
from smpc_dp.net.charging import open_ledger
from smpc_dp.net.launcher import ProcessOutcome, run_child
from smpc_dp.net.learning import check_budget, learn, serve_learning

# Coordinates of a model that are printed.
SHOWN = 12
MODEL_FORMAT, MODEL_VERSION = "smpc-dp model", 1


def run_learning(
    host: HostMember,
    out: Path | None,
    learned: list[Learned],
    problems: list[str],
    *,
    serves: bool,
    as_json: bool,
    events: bool,
) -> int:
    """Run one member of a session that learns, print its result, and return the exit code.

    What a party has learned is added to `learned`, errors to `problems`.
    """
    failures: dict[int, str] = {}

    async def act() -> None:
        if serves:
            failures.update(
                await serve_learning(
                    host.session,
                    name=host.name,
                    key=host.key,
                    listen_on=host.listen,
                    on_event=host.watch,
                    board=host.board,
                )
            )
        else:
            learned.append(
                await learn(
                    host.session,
                    host.name,
                    host.input_file,
                    key=host.key,
                    ledger=host.ledger,
                    on_event=host.watch,
                )
            )

    code = unwritten = 0
    try:
        code = run_child(
            partial(exit_code, act, host.name, events=events, problems=problems), supervised=events
        )
    finally:
        # Also after Ctrl-C: a result may be there before the connection has ended.
        for request, reason in failures.items():
            report_line(f"request {request}: {reason}")
        for result in learned:
            printed = result.to_json()
            text = partial(_member_text, host, printed)
            secret = result.confidential
            unwritten += not deliver(printed, out, text, as_json=as_json, quiet=events, confidential=secret)
    return code or int(unwritten > 0)


def _member_text(host: HostMember, result: dict[str, Any]) -> str:
    """Format what one party has learned, and say if nothing was charged."""
    return "\n".join([learned_text({host.name: result}), *([UNCHARGED] if host.ledger is None else [])])


def check_data(checked: LearnParameters, files: Mapping[str, Path]) -> None:
    """Check the data of all parties before any process starts; raise ConfigError with every fault."""
    issues = Issues()
    for name, file in files.items():
        try:
            checked.read(file, name)
        except ConfigError as error:
            issues += error.issues
    issues.raise_issues()


def check_budgets(checked: LearnParameters, ledgers: Mapping[str, Path]) -> None:
    """Check that each party's ledger affords all steps; raise PrivacyError naming all that do not.

    Else those that do would be charged for a run that cannot end. `ledgers`: in the roster's order.
    """
    refused: list[str] = []
    for party, (name, file) in enumerate(ledgers.items()):
        try:
            check_budget(open_ledger(file, name), checked, party)
        except PrivacyError as error:
            refused.append(str(error))
    if refused:
        raise PrivacyError("; ".join(refused))


def report_learned(
    outcomes: Mapping[str, ProcessOutcome],
    aggregator: str | None,
    results: Mapping[str, dict[str, Any]],
    planned: Sequence[str],
    *,
    as_json: bool,
    out: Path | None = None,
) -> bool:
    """Print what each party has learned, and the parties that failed; write the model to `out`.

    `planned`: lines on the plan, above them.

    Returns False if the model could not be written. Exits with 1 if the aggregator failed, or all did, or
    nobody completed a step: then nothing was learned.
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

    return deliver(results, out, text, as_json=as_json, confidential=model["confidential"], stored=model)


def learned_text(results: Mapping[str, dict[str, Any]]) -> str:
    """Format the learned results of all parties as text."""
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
    lines.append(privacy_text(_weakest(results), some["claim"]))
    return "\n".join(lines)


def _weakest(results: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Return the guarantee that holds for every party: that of the largest epsilon, None if one has none."""
    given = [result["guarantee"] for result in results.values()]
    return None if None in given else max(given, key=lambda guarantee: float(guarantee["epsilon"]))


def model_file(results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what all parties have learned as one object, as in docs/reference/results.md."""
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
            name: {**{key: result[key][0] for key in of_party}, "failures": result["failures"]}
            for name, result in results.items()
        },
        "metrics": some["metrics"],
        "guarantee": _weakest(results),
        **{key: some[key] for key in ("claim", "confidential")},
    }
