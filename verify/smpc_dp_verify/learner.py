"""The parameters of a learner whose averages have logs [docs/reference/session-file.md]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smpc_dp_verify.errors import required
from smpc_dp_verify.session import VERIFIABLE, Session

# Whole numbers and others, each with its least and greatest value and its default; None: it has none.
WHOLE: dict[str, tuple[int, int, int | None]] = {
    "features": (1, 1_000_000, None),
    "length": (1, 1 << 26, None),
    "steps": (1, 1_000_000, None),
    "classes": (2, 10_000, 2),
    "seed": (0, 1 << 62, 0),
    "max_points": (0, 1_000_000_000, 0),
    "metric_every": (0, 0, 0),
}
ABOVE_0, BELOW_1 = math.nextafter(0.0, 1.0), math.nextafter(1.0, 0.0)
# Averages of models have steps of a 2^40th of the radius, of which none is below 2^-1000.
LEAST_RADIUS = 2.0**-960
NUMBERS: dict[str, tuple[float, float, float | None]] = {
    "epsilon": (ABOVE_0, math.nextafter(1000.0, 0.0), None),
    "delta": (ABOVE_0, BELOW_1, None),
    "rate": (ABOVE_0, 1e9, 0.5),
    "decay": (0.0, 1e9, 0.0),
    "clip": (ABOVE_0, 1e9, 1.0),
    "ridge": (0.0, 1e6, 0.0),
    "radius": (LEAST_RADIUS, 1e9, 1000.0),
    "metric_share": (ABOVE_0, BELOW_1, 0.1),
    "metric_lower": (-1e9, 1e9, 0.0),
    "metric_upper": (-1e9, 1e9, 1.0),
}
# Of the learners whose steps have a round of groups.
MODELS = ("logistic", "linear", "softmax")
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "dual-averaging-groups": (
        {},
        {
            "rate": (ABOVE_0, 1e6, 1.0),
            "clip": (ABOVE_0, 1e6, 1.0),
            "radius": (ABOVE_0, 1e6, 10.0),
            "weight": (ABOVE_0, 1e6, 0.01),
        },
        {"regulariser": ("ball", "l1", "l2", "none")},
    ),
    "diffusion": (
        {"batches": (1, 1, 1)},
        {
            "epsilon": (ABOVE_0, 1e6, None),
            "rate": (ABOVE_0, 1e6, 0.1),
            "clip": (ABOVE_0, 1e6, None),
            "ridge": (0.0, 1e6, 0.0),
            "radius": (LEAST_RADIUS, 1e6, 1000.0),
        },
        # Of messages to neighbours, which there are none: only what stands for nothing.
        {"topology": ("ring",), "weights": ("metropolis",)}
        | {"sizes": ([],), "noise": (None,), "publish": (None,)},
    ),
}
CHOICES = {"model": ("logistic", "linear", "softmax", "own"), "weights": ("equal", "points")}
MOST_MEMBERS, LEAST_DELTA = 65_535, 1e-11
AVERAGER = {"method", "colluders", "missing", "verifiable", "on_dropout", "mechanism"}


@dataclass(frozen=True)
class Learner:
    """Parameters from which a learner's averages are planned: vector length, norm bound `clip`, budget."""

    length: int
    clip: float
    epsilon: float
    delta: float
    colluders: int
    missing: int


def read_learner(session: Session) -> Learner:
    """Return the planning parameters of a session with a learner; raise Refused if some are invalid."""
    given = session.parameters
    kind, parties = given.get("learner"), len(session.names)
    if session.version in VERIFIABLE and kind in SETTINGS:
        return _read_rounds(session, *SETTINGS[kind])
    required(
        session.version in VERIFIABLE and kind in ("sgd", "block-gossip"),
        "a session without verifiable averages",
    )
    whole = {**WHOLE, **({"group": (2, MOST_MEMBERS, None)} if kind == "block-gossip" else {})}
    known = {"learner", "averager", "columns", *whole, *NUMBERS, *CHOICES}
    required({*given} <= known, "a parameter that is unknown")
    values: dict[str, Any] = {name: _whole(given, name, *whole[name]) for name in whole}
    values |= {name: _number(given, name, *NUMBERS[name]) for name in NUMBERS}
    values |= {name: _one_of(given, name) for name in CHOICES}
    size = values["group"] if kind == "block-gossip" else parties
    needed = ("steps", "epsilon", "delta", "length" if values["model"] == "own" else "features")
    required(None not in (size, *(values[name] for name in needed)), "a parameter that is missing")
    is_own, is_weighted = values["model"] == "own", values["weights"] == "points"
    required(values["features" if is_own else "length"] is None, "the model")
    required(values["rate"] * values["ridge"] < 2, "the parameter rate")
    required(is_weighted == (values["max_points"] > 0), "the parameter max_points")
    required(values["metric_lower"] < values["metric_upper"], "the parameter metric_upper")
    required(size <= parties, "the parameter group")
    required(values["delta"] >= LEAST_DELTA, "epsilon and delta")
    _check_columns(given.get("columns"), values["features"])
    colluders, missing = _averager(given.get("averager"), size)
    labels = values["classes"] if values["model"] == "softmax" else 1
    length = values["length"] if is_own else (values["features"] + 1) * labels
    budget = values["epsilon"], values["delta"]
    return Learner(length + is_weighted, values["clip"], *budget, colluders, missing)


def _read_rounds(
    session: Session, more_whole: dict[str, Any], more_numbers: dict[str, Any], more_choices: dict[str, Any]
) -> Learner:
    """Return the planning parameters of a learner that averages in rounds of groups, or raise Refused."""
    given, parties = session.parameters, len(session.names)
    whole = {"features": WHOLE["features"], "classes": WHOLE["classes"], "steps": (1, 100_000, None)}
    whole |= {"group": (2, MOST_MEMBERS, None), "seed": (0, 2**63 - 1, 0)} | more_whole
    numbers = {name: NUMBERS[name] for name in ("epsilon", "delta")} | more_numbers
    choices = {"model": MODELS} | more_choices
    known = {"learner", "averager", "columns", *whole, *numbers, *choices}
    required({*given} <= known, "a parameter that is unknown")
    values: dict[str, Any] = {name: _whole(given, name, *whole[name]) for name in whole}
    values |= {name: _number(given, name, *numbers[name]) for name in numbers}
    for name, allowed in choices.items():
        values[name] = given.get(name, allowed[0])
        required(values[name] in allowed, f"the parameter {name}")
    needed = ("features", "steps", "group", "epsilon", "delta")
    required(None not in (values[name] for name in needed), "a parameter that is missing")
    required(values["rate"] * values.get("ridge", 0.0) <= 1, "the parameter rate")
    required(values["group"] <= parties, "the parameter group")
    required(values["delta"] >= LEAST_DELTA, "epsilon and delta")
    _check_columns(given.get("columns"), values["features"])
    colluders, missing = _averager(given.get("averager"), values["group"])
    length = (values["features"] + 1) * (values["classes"] if values["model"] == "softmax" else 1)
    clip = 1.0 if values["clip"] is None else values["clip"]
    return Learner(length, clip, values["epsilon"], values["delta"], colluders, missing)


def _averager(given: Any, size: int) -> tuple[int, int]:
    """Return how many of a group may collude, and how many may be missing; raise Refused if invalid."""
    required(isinstance(given, dict) and {*given} <= AVERAGER, "a parameter that is unknown")
    kind = (given.get("method"), given.get("verifiable"), given.get("on_dropout", "keep"))
    required(kind in (("gopa", True, "keep"), ("gopa", True, None)), "a session without verifiable averages")
    required(given["verifiable"] is True, "a session without verifiable averages")
    required(given.get("mechanism") is None, "a session without verifiable averages")
    colluders = _whole(given, "colluders", 0, MOST_MEMBERS, 1) or 0
    missing = _whole(given, "missing", 0, MOST_MEMBERS, 0) or 0
    required(size >= 3 and size - colluders - missing >= 2, "corrupt parties and losses")
    return colluders, missing


def _whole(given: dict[str, Any], name: str, low: int, high: int, default: int | None) -> int | None:
    value = given.get(name, default)
    fits = value is default or (type(value) is int and low <= value <= high)
    required(fits, f"the parameter {name}")
    return value


def _number(given: dict[str, Any], name: str, low: float, high: float, default: float | None) -> float | None:
    value: Any = given.get(name, default)
    fits = value is default or (type(value) in (int, float) and low <= value <= high)
    required(fits, f"the parameter {name}")
    return None if value is None else float(value)


def _one_of(given: dict[str, Any], name: str) -> str:
    value = given.get(name, CHOICES[name][0])
    required(value in CHOICES[name], f"the parameter {name}")
    return str(value)


def _check_columns(names: Any, features: int | None) -> None:
    if names is None:
        return
    fits = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    required(fits and names and len({*names}) == len(names), "the parameter columns")
    required(features in (None, len(names) - 1), "the parameter columns")
