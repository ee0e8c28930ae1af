"""`smpc-dp circuits run`: garble and evaluate a circuit between processes on this machine."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, check_value, pack, unpack
from smpc_dp.capabilities.pairs.garbled.evaluation import resolve
from smpc_dp.capabilities.pairs.garbled.params import Mode, Output, Security
from smpc_dp.capabilities.pairs.garbled.participant import Participant
from smpc_dp.capabilities.pairs.requests.pairwise import (
    AGGREGATOR,
    PairwiseMember,
    Report,
    create_pairwise_session,
    evaluate,
    run_role,
)
from smpc_dp.console.output import deliver, report_error
from smpc_dp.console.schemas import with_schema
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import Launcher, ProcessOutcome, member_command, print_event, run_child

GARBLER, EVALUATOR = "garbler", "evaluator"
_CIRCUIT = "circuit.txt"


def register(app: typer.Typer) -> None:
    """Add the commands that evaluate a circuit, `run` and the hidden `join`, to `app`."""
    app.command()(run)
    app.command(hidden=True)(join)


def run(
    file: Annotated[
        str, typer.Argument(help="A file in Bristol Fashion, or the name of a published circuit.")
    ],
    inputs: Annotated[str, typer.Option(help="HEX,HEX,...: one value for each input of the file's header.")],
    evaluator_inputs: Annotated[
        str | None, typer.Option(help="Places (from 0) of the evaluator's inputs; default all but the first.")
    ] = None,
    output: Annotated[Output, typer.Option(help="Who learns the output.")] = "both",
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="Garbling keys: shared by a tile of instances (default), or unique (always if malicious)."
        ),
    ] = None,
    security: Annotated[
        Security, typer.Option(help="Garbler that it is secure against; the evaluator may be malicious.")
    ] = "semi-honest",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Garble and evaluate a circuit between two local processes, and print each output in hex."""
    circuit = resolve(file)
    values = _values(circuit, inputs)
    theirs = _indices(circuit, evaluator_inputs)
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as scratch:
        folder = Path(scratch)
        _write(folder / _CIRCUIT, format_bristol(circuit))
        parameters: dict[str, object] = {
            "circuit": _CIRCUIT,
            "digest": circuit.digest.hex(),
            "evaluator_inputs": theirs,
            "output": output,
            "security": security,
        }
        if mode is not None:
            parameters["mode"] = mode
        session = create_pairwise_session(folder, parameters)
        given = {
            GARBLER: [value for index, value in enumerate(values) if index not in theirs],
            EVALUATOR: [values[index] for index in theirs],
        } | ({AGGREGATOR: []} if output == "aggregator" else {})
        commands = {}
        for name, own in given.items():
            _write(folder / f"{name}.json", json.dumps([f"{value:x}" for value in own]).encode())
            arguments = ["circuits", "join", str(session), "--as", name]
            arguments += ["--input", str(folder / f"{name}.json"), "--out", str(folder / f"{name}.out")]
            commands[name] = member_command(*arguments)
        outcomes = asyncio.run(Launcher().run(commands, aggregator=GARBLER))
        _raise_failure(outcomes)
        reports = {name: json.loads((folder / f"{name}.out").read_text("utf-8")) for name in given}
    learned = {name: report["outputs"] for name, report in reports.items() if report["outputs"] is not None}
    outputs = next(iter(learned.values()))
    if any(other != outputs for other in learned.values()):
        raise LocalError(f"{' and '.join(learned)} have learned different outputs")
    printed = {"outputs": outputs, "circuit": circuit.digest.hex(), "members": reports}
    if not deliver(with_schema("circuits-run", printed), None, lambda: "\n".join(outputs), as_json=as_json):
        raise typer.Exit(1)


def join(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    name: Annotated[str, typer.Option("--as", help="Which member of the roster this process is.")],
    input_: Annotated[Path, typer.Option("--input", help="JSON list of this member's values, in hex.")],
    out: Annotated[Path, typer.Option(help="Write the result there as JSON.")],
    events: Annotated[bool, typer.Option("--events", hidden=True)] = False,
) -> None:
    """Be one member of an evaluation of a single instance."""

    def on_step(step: str) -> None:
        if events:
            print_event(Event(name, "step", 1, step))

    def load() -> tuple[PairwiseMember, Participant]:
        member = PairwiseMember.load(session, name)
        values = [int(value, 16) for value in json.loads(input_.read_text("utf-8"))]
        widths = [member.plan.circuit.inputs[index] for index in member.input_values]
        rows = [pack([value], width) for value, width in zip(values, widths, strict=True)]
        return member, member.role(rows)

    async def act() -> int:
        try:
            member, role = await asyncio.to_thread(load)
            # The process ends when this is cancelled, and with it the role's waits.
            report = await run_role(role, lambda: evaluate(member, role, on_step), lambda: None)
            _write(out, json.dumps(_to_json(member, report)).encode())
        except SmpcError as error:
            if events:
                print_event(Event(name, "failed", detail=str(error)))
            report_error(error)
            return 1
        if events:
            print_event(Event(name, "done", 1, "done"))
        return 0

    raise typer.Exit(run_child(act, supervised=events))


def _to_json(member: PairwiseMember, report: Report) -> dict[str, object]:
    """Return one member's outputs and evidence of a two-party evaluation, as plain JSON data."""
    evaluated, widths = report.evaluated, member.plan.circuit.outputs
    rows = evaluated.outputs
    return {
        "outputs": None
        if rows is None
        else [_hex(unpack(row, 1)[0], width) for row, width in zip(rows, widths, strict=True)],
        "run_id": evaluated.run_id.hex(),
        "transcript": evaluated.transcript.hex(),
        "privacy": evaluated.privacy.to_json(),
        "seconds": dict(report.steps),
        "bytes_sent": report.bytes_sent,
        "bytes_received": report.bytes_received,
    }


def _values(circuit: Circuit, text: str) -> list[int]:
    """Parse comma-separated hex values of the inputs; raise ConfigError unless they fit the circuit."""
    words = text.split(",") if text else []
    if len(words) != len(circuit.inputs):
        reason = f"{len(words)} values, the circuit has {len(circuit.inputs)} inputs"
        raise ConfigError.at("--inputs", reason, ConfigCheck.SHAPE)
    values = []
    for index, (word, width) in enumerate(zip(words, circuit.inputs, strict=True)):
        digits = word.strip().lower().removeprefix("0x")
        if not digits or any(digit not in "0123456789abcdef" for digit in digits):
            raise ConfigError.at(f"--inputs[{index}]", "not a number in hex", ConfigCheck.FORMAT)
        values.append(int(digits, 16))
        check_value(values[-1], width, f"--inputs[{index}]")
    return values


def _indices(circuit: Circuit, text: str | None) -> list[int]:
    """Parse which inputs are the evaluator's, by default all but the first; raise ConfigError if invalid."""
    if text is None:
        return list(range(1, len(circuit.inputs)))
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isascii() and word.isdigit() and int(word) < len(circuit.inputs) for word in words):
        reason = f"{text!r} are not places of inputs, 0 to {len(circuit.inputs) - 1}"
        raise ConfigError.at("--evaluator-inputs", reason, ConfigCheck.RANGE)
    indices = sorted(map(int, words))
    if len(set(indices)) < len(indices):
        raise ConfigError.at("--evaluator-inputs", f"{text!r} names a place twice", ConfigCheck.DUPLICATE)
    return indices


def _hex(value: int, width: int) -> str:
    """Return an integer in hexadecimal digits, padded to its width in bits."""
    return f"{value:0{-(-width // 4)}x}"


def _write(path: Path, content: bytes) -> None:
    """Write bytes to a file, private to its owner if it is new; raise LocalError if that fails."""
    try:
        path.touch(mode=0o600)
        path.write_bytes(content)
    except OSError as error:
        raise LocalError(f"{path}: cannot write ({error.strerror})") from None


def _raise_failure(outcomes: dict[str, ProcessOutcome]) -> None:
    """Raise LocalError for a process that failed, rather one that no other stopped; else do nothing."""
    for outcome in _by_cause(list(outcomes.values())):
        last = outcome.last
        detail = last.detail if last is not None and last.kind == "failed" else outcome.errors.strip()
        reason = detail.splitlines()[-1] if detail else f"exit code {outcome.exit_code}"
        raise LocalError(f"{outcome.name}: {reason}")


def _by_cause(outcomes: Sequence[ProcessOutcome]) -> list[ProcessOutcome]:
    """Return the processes that failed, sorted so that those stopped by another's failure come last."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    return sorted(
        failed, key=lambda outcome: "stopped the run" in (outcome.last.detail if outcome.last else "")
    )
