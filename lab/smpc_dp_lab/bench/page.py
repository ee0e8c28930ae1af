"""Pages of stored benchmark results: one HTML file with plots, and docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smpc_dp.report.chart import Lines
from smpc_dp.report.document import Block, Facts, Report, Section, Text
from smpc_dp.report.table import Table
from smpc_dp_lab.bench.figures import shown
from smpc_dp_lab.bench.growth import KINDS, figure_name

Json = Mapping[str, Any]
RESULTS = "results-{}.json"
COLUMNS = ("figure", "ours", "peer", "times the peer", "limit", "part of the limit", "target")


def load_results(folder: Path) -> list[Json]:
    """Return the results that a folder has, by name."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob(RESULTS.format("*")))]


def rows(result: Json) -> Iterator[tuple[str, ...]]:
    """Return a row of COLUMNS for each figure."""
    for figure in result["figures"]:
        peer, limit, unit, target = figure["peer"], figure["limit"], figure["unit"], figure["target"]
        goal = "" if target is None else f"{target['of'].replace('_', ' ')} {target['at_least']:.3g}: "
        yield (
            figure["name"],
            shown(figure["median"], unit),
            "" if peer is None else shown(peer["median"], unit),
            _ratio(figure["ratio_to_peer"]),
            "" if limit is None else shown(limit["median"], unit),
            _ratio(figure["ratio_to_limit"]),
            goal + {True: "met", False: "missed", None: "not measured"}[figure["met"]] if goal else "",
        )


def markdown(results: Sequence[Json]) -> str:
    """Return docs/performance.md: a table of each benchmark, and the fits of growth."""
    parts = [
        "# Performance\n\n"
        "Medians, with peers and limits of the same run; each table is of a run of its own, on the machine\n"
        "that it names. `smpc-dp bench all --out benchmarks` measures them, "
        "`python -m smpc_dp_lab.reference`\nwrites this page. "
        "What a figure counts is in its `note` in [benchmarks/](../benchmarks/README.md)."
    ]
    for result in results:
        parts.append(f"## {result['bench']}\n\n{_machine(result)}")
        if "fits" in result["parameters"]:
            parts.append(_markdown(("figure", "grows with", "fit", "R²"), _fits(result)))
        else:
            parts.append(_markdown(COLUMNS, rows(result)))
    return "\n\n".join(parts) + "\n"


def page(results: Sequence[Json]) -> Report:
    """Return the HTML report of results."""
    figures = [figure for result in results for figure in result["figures"]]
    goals = [figure for figure in figures if figure["met"] is not None]
    met = sum(figure["met"] for figure in goals)
    # What differs between results stands with each.
    shared = {
        name: value
        for name, value in (results[0]["machine"] if results else {}).items()
        if value is not None and all(result["machine"].get(name) == value for result in results)
    }
    facts = Facts(tuple((name, str(value)) for name, value in shared.items()))
    return Report(
        "Benchmarks",
        f"{met} of {len(goals)} targets met",
        "good" if met == len(goals) else "bad",
        facts,
        tuple(Section(result["bench"], result["bench"], tuple(_blocks(result))) for result in results),
    )


def _blocks(result: Json) -> Iterator[Block]:
    yield Text(_machine(result))
    if "fits" in result["parameters"]:
        fits = tuple(_fits(result))
        yield Table("Fits", (("figure", ""), ("grows with", ""), ("fit", "number"), ("R²", "number")), fits)
        yield from _plots(result)
    headings = tuple((name, "number" if at in (1, 2, 3, 4, 5) else "") for at, name in enumerate(COLUMNS))
    yield Table("Figures", headings, tuple(rows(result)))


def _plots(result: Json) -> Iterator[Lines]:
    medians = {figure["name"]: figure["median"] for figure in result["figures"]}
    for of, values in result["parameters"]["sizes"].items():
        for unit in dict.fromkeys(KINDS.values()):
            series = tuple(
                (kind, tuple((float(x), medians[figure_name(kind, of, x)]) for x in values))
                for kind in KINDS
                if KINDS[kind] == unit
            )
            cells = tuple((name, f"{x:g}", shown(y, unit)) for name, points in series for x, y in points)
            table = Table("", (("figure", ""), (of, "number"), (unit, "number")), cells)
            yield Lines(f"Growth with {of}, {unit}", of, unit, series, table)


def _fits(result: Json) -> Iterator[tuple[str, ...]]:
    for one in result["parameters"]["fits"]:
        unit = KINDS[one["figure"]]
        a, b = one["a"], one["b"]
        text = f"{a:.3g} {unit} × {one['of']}^{b:.2f}"
        if one["form"] != "a x^b":
            text = f"{shown(a, unit)} + {shown(b, unit)} × {one['of']}"
        yield one["figure"], one["of"], text, f"{one['r_squared']:.3f}"


def _machine(result: Json) -> str:
    machine = result["machine"]
    kernels = f", kernels {machine['kernels']}" if machine.get("kernels") else ""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    runs = max(figure["runs"] for figure in result["figures"])
    measured = "1 measurement" if runs == 1 else f"up to {runs} measurements"
    return f"{machine['processor']}{kernels}, {machine['cores']} cores; {versions}; {measured} of a figure."


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _markdown(headings: Sequence[str], lines: Iterator[tuple[str, ...]]) -> str:
    """Return a table without the columns that are empty in all lines."""
    table = [headings, ["---"] * len(headings), *lines]
    filled = [at for at in range(len(headings)) if any(cells[at] for cells in table[2:])]
    return "\n".join(f"| {' | '.join(cells[at] for at in filled)} |" for cells in table)
