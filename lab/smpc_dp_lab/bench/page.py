"""All figures of stored benchmark results: one HTML file with plots, and benchmarks/tables.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from smpc_dp.errors import LocalError
from smpc_dp.files import replace_file
from smpc_dp.report.chart import Lines
from smpc_dp.report.document import Block, Facts, Report, Section, Text
from smpc_dp.report.table import Table
from smpc_dp_lab.bench.figures import Report as FigureReport
from smpc_dp_lab.bench.figures import shown
from smpc_dp_lab.bench.growth import KINDS, figure_name

Json = Mapping[str, Any]
RESULTS = "results-{}.json"
# Digits of a commit.
HASH = 8
_MET = {True: "met", False: "missed", None: "not measured"}
_SIGNS = {True: "✓", False: "✗", None: ""}
COLUMNS = ("figure", "ours", "peer", "times the peer", "limit", "part of the limit", "target")


def load_results(folder: Path) -> list[Json]:
    """Return the stored benchmark results in a folder, as JSON data, sorted by file name."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob(RESULTS.format("*")))]


def store_result(folder: Path, report: FigureReport) -> None:
    """Store a result in a folder, which is made if it is missing; an earlier result stays if that fails.

    Raises LocalError if the folder or the file cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(report.to_json()), indent=2)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / RESULTS.format(report.bench), lambda file: file.write(text + b"\n"))
    except OSError as error:
        raise LocalError(f"{folder}: {error.strerror}") from None


def rows(result: Json) -> Iterator[tuple[str, ...]]:
    """Yield a table row for each figure of a result: median, peer, limit, ratios and target."""
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
            goal + _MET[figure["met"]] if goal else "",
        )


def all_figures(results: Sequence[Json]) -> str:
    """Return the text of benchmarks/tables.md: a table for each benchmark, and fits of growth."""
    shared = _shared(results)
    parts = [
        "# All figures\n\n"
        "Medians; in brackets × how many times as good as the peer, and the part of the machine's limit\n"
        "that is reached, of the same run; ✓ where a target is met, ✗ where it is missed.\n"
        "The [README](README.md) has the peers and the limits, the stored results a note on each figure.\n"
        "[Performance](../docs/performance.md) has what users ask.\n"
        f"`python -m smpc_dp_lab.reference` writes this page.\n\n{', '.join(shared)}."
    ]
    for result in results:
        parts.append(f"## {result['bench']}\n\n{_machine(result, shared)}")
        if "fits" in result["parameters"]:
            parts.append(markdown_table(("figure", "grows with", "fit", "R²"), _fits(result)))
        else:
            parts += _tables(result)
    sources = ((result["bench"], _commit(result), _others(result)) for result in results)
    parts.append(
        "## Commits\n\n"
        'Commits were not recorded at first; with "+changes" the code differed from the commit.\n\n'
        + markdown_table(("result", "commit", "other programs"), sources)
    )
    return "\n\n".join(parts) + "\n"


def _commit(result: Json) -> str:
    """Return the abbreviated commit of a result, with a mark for changed files."""
    if result["commit"] is None:
        return "not recorded"
    commit, plus, changes = result["commit"].partition("+")
    return f"{commit[:HASH]}{plus}{changes}"


def _others(result: Json) -> str:
    return "not recorded" if result["others"] is None else f"{result['others']:.0%} of the cores"


def _tables(result: Json) -> Iterator[str]:
    """Yield tables with a row for each case and a column for each quantity, and a list of all other figures.

    The name of a figure is "case: quantity" or "case, quantity", or has no case that several figures share.
    """
    named: dict[str, dict[str, str]] = {}
    listed: dict[str, dict[str, str]] = {}
    for figure in result["figures"]:
        name, cell = figure["name"], _cell(figure)
        table, separator = (named, ": ") if ": " in name else (listed, ", ")
        case, _, quantity = name.rpartition(separator)
        table.setdefault(case, {})[quantity] = cell
    single = {case: cells for case, cells in listed.items() if len(cells) == 1 or not case}
    for cases in (named, *_alike({case: cells for case, cells in listed.items() if case not in single})):
        quantities = list(dict.fromkeys(name for cells in cases.values() for name in cells))
        lines = ((case, *(cells.get(name, "") for name in quantities)) for case, cells in cases.items())
        if cases:
            yield markdown_table(("case", *quantities), lines)
    rest = [
        f"- {case}, {name}: {cell}" if case else f"- {name}: {cell}"
        for case, cells in single.items()
        for name, cell in cells.items()
    ]
    if rest:
        yield "\n".join(rest)


def _alike(cases: Mapping[str, dict[str, str]]) -> list[dict[str, dict[str, str]]]:
    """Return the cases in groups, such that a case shares a quantity with another of its group."""
    groups: list[dict[str, dict[str, str]]] = []
    for case, cells in cases.items():
        group = next((one for one in groups if any(cells.keys() & other for other in one.values())), None)
        if group is None:
            groups.append(group := {})
        group[case] = cells
    return groups


def _cell(figure: Json) -> str:
    """Return the median of a figure and its ratios, marked where a target is met or missed."""
    shapes = {"ratio_to_peer": "×{:.3g}", "ratio_to_limit": "{:.3g}·limit"}
    sign, target = _SIGNS[figure["met"]], figure["target"]
    ratios = [
        shape.format(figure[of]) + (sign if target is not None and target["of"] == of else "")
        for of, shape in shapes.items()
        if figure[of] is not None
    ]
    text = shown(figure["median"], figure["unit"]).strip()
    if target is not None and target["of"] not in shapes:
        ratios.append(f"target {shown(target['at_least'], figure['unit']).strip()}{sign}")
    return f"{text} ({', '.join(ratios)})" if ratios else text


def page(results: Sequence[Json]) -> Report:
    """Return the HTML report of all benchmark results."""
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


def _environment(result: Json) -> list[str]:
    """Return texts on a result's machine: processor, cores, and versions of installed software."""
    machine = result["machine"]
    kernels = f", kernels {machine['kernels']}" if machine.get("kernels") else ""
    versions = [f"{name} {version}" for name, version in result["versions"].items() if version]
    return [f"{machine['processor']}{kernels}", f"{machine['cores']} cores", *versions]


def _shared(results: Sequence[Json]) -> list[str]:
    """Return the texts on machine and versions that all results share, to print them once."""
    environments = [_environment(result) for result in results]
    counts = Counter(part for environment in environments for part in environment)
    versions = {f"{name} {version}" for result in results for name, version in result["versions"].items()}
    names = Counter(part.partition(" ")[0] for part in versions)
    return [
        part
        for part, count in counts.items()
        if count == len(results) or (part in versions and count > 1 and names[part.partition(" ")[0]] == 1)
    ]


def _machine(result: Json, known: Collection[str] = ()) -> str:
    """Return a sentence on a result's machine, without the `known` texts, and on its number of runs."""
    runs = max(figure["runs"] for figure in result["figures"])
    measured = "1 measurement" if runs == 1 else f"up to {runs} measurements"
    parts = [part for part in _environment(result) if part not in known]
    return f"{', '.join((*parts, measured))} of a figure."


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def markdown_table(headings: Sequence[str], lines: Iterator[tuple[str, ...]]) -> str:
    """Return a table without the columns that are empty in all lines."""
    table = [headings, ["---"] * len(headings), *lines]
    filled = [at for at in range(len(headings)) if any(cells[at] for cells in table[2:])]
    return "\n".join(f"| {' | '.join(cells[at] for at in filled)} |" for cells in table)
