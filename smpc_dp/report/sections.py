"""Sections of a report, made of results as the JSON data that `--json` prints, and of the trace of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from smpc_dp.report.chart import Intervals, Lines
from smpc_dp.report.document import Block, Section, Sentences, Text, section
from smpc_dp.report.roles import KINDS, NETWORK, VIEWS
from smpc_dp.report.table import Table
from smpc_dp.report.table1 import printed
from smpc_dp.report.texts import AT_MOST, LEAST_P_VALUE, follow_up_lines, without_numbers
from smpc_dp.report.trace import Trace
from smpc_dp.summary import PAIRS_COVERED, rounded

Json = Mapping[str, Any]
# Of a column of a table.
TEXT, LONG, NUMBER, CODE = "", "long", "number", "code"
# How counts and the ends of their intervals become whole numbers: an interval never shrinks.
WHOLE: Mapping[str, Callable[[float], int]] = {"value": round, "low": math.floor, "high": math.ceil}
# A greater one is written as a power of e.
MOST_EPSILON = 20.0
# Unit of estimates that are counts.
ROWS = "rows"
ABOUT_INTERVALS = (
    "Low and high are about the noise alone, not about how the data were sampled; those of the population "
    "are about both, for rows that are independent draws from it."
)
# What an estimate says about the noise, and about a population, with the headings of its columns.
OF_NOISE = {"standard_error": "standard error of the noise", "low": "low", "high": "high"}
OF_POPULATION = {
    "sampling_error": "sampling error",
    "population_low": "population, low",
    "population_high": "population, high",
    "p_value": "p-value",
}


def number(value: float | int | None, digits: int = 6) -> str:
    """Format a float with this many significant digits, an integer with all of them; "-" for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def number_of(one: Json, key: str) -> str:
    """Format a number of an estimate; a p-value that is not above the least one as at most that."""
    value = one[key]
    return AT_MOST if key == "p_value" and value is not None and value <= LEAST_P_VALUE else number(value)


def amount(size: int) -> str:
    """Format a number of bytes with a unit, such as kB."""
    return (
        f"{size:,} bytes"
        if size < 10_000
        else f"{size / 1e3:,.0f} kB"
        if size < 1e7
        else f"{size / 1e6:,.1f} MB"
    )


def written(value: object, *, inner: bool = False) -> str:
    """Format a session's parameter as text; nested lists (`inner`) are put in brackets."""
    if isinstance(value, Mapping):
        text = "; ".join(f"{key} = {written(one, inner=True)}" for key, one in value.items())
        return f"{{{text}}}" if inner else text
    if isinstance(value, list | tuple):
        text = ", ".join(written(one, inner=True) for one in value)
        return f"[{text}]" if inner else text
    return str(value).lower() if isinstance(value, bool) else str(value)


# Results


def vector_section(
    result: Json, interval: tuple[float, float] | None, bounds: tuple[Any, Any] | None = None
) -> list[Section]:
    """Return a report's section on a sum or average: table, chart, and the noise's interval.

    `interval`: how far the noise reaches at a level, (reach, level); None where that is not known.
    `bounds`: least and greatest value of each coordinate, or of all, where intervals end.
    """
    values, error, kind = result["value"], result["standard_error"], result["kind"]
    resolution = result["step"] / (result["weight"] or 1)
    labels = [str(index + 1) for index in range(len(values))]
    columns: list[tuple[str, str]] = [("coordinate", TEXT), (kind, NUMBER)]
    cells: list[Sequence[str]] = [labels, [str(value) for value in rounded(values, kind, error, resolution)]]
    if error:
        columns.append(("standard error", NUMBER))
        cells.append([f"{error:.2g}"] * len(values))
    if error and interval is not None:
        columns += [("low", NUMBER), ("high", NUMBER)]
        lows, highs = _ends(values, interval[0], bounds)
        for ends in (lows, highs):
            cells.append([str(end) for end in rounded(ends, kind, error, resolution)])
    note = _noise_note(result, interval)
    caption = f"The {kind} over {len(result['survivors'])} parties"
    table = Table(caption, tuple(columns), tuple(zip(*cells, strict=True)), note)
    if not error or interval is None:
        return section("result", "Result", [table])
    drawn = tuple(zip(labels, lows, map(float, values), highs, strict=True))
    picture = Intervals(f"Each coordinate with its {100 * interval[1]:g}% interval", kind, drawn, table)
    return section("result", "Result", [picture])


def _ends(
    values: Sequence[float], reach: float, bounds: tuple[Any, Any] | None
) -> tuple[list[float], list[float]]:
    """Return the lower and upper ends of the values' intervals, cut off at the bounds."""
    lower, upper = (
        [(-math.inf, math.inf)[side]] * len(values)
        if bounds is None
        else list(bounds[side])
        if isinstance(bounds[side], list | tuple)
        else [bounds[side]] * len(values)
        for side in (0, 1)
    )
    lows = [min(max(value - reach, low), high) for value, low, high in zip(values, lower, upper, strict=True)]
    highs = [
        min(max(value + reach, low), high) for value, low, high in zip(values, lower, upper, strict=True)
    ]
    return lows, highs


def _noise_note(result: Json, interval: tuple[float, float] | None) -> str:
    """Return a sentence on how far noise moves a sum or an average, for a report."""
    if not result["standard_error"]:
        return "Exact: there is no noise in it."
    if interval is None:
        return "No interval: the weight has noise too, and the distribution of the quotient is not known."
    note = (
        f"Low and high are an interval of level {interval[1]:g} for each coordinate by itself, over the "
        "noise, if every survivor drew its noise as the protocol says; not what a corrupt party adds, nor "
        "how far the survivors stand for others."
    )
    if result["residual_pairs"]:
        note += f" Noise of {result['residual_pairs']} pairs is left in it."
    if result["bias"] is not None:
        note += (
            f" Cheats who see their noise first can move each coordinate by {result['bias']:.2g} at most, in "
            "expectation."
        )
    return note


def number_headings(estimates: Sequence[Json], *, exact: bool) -> dict[str, str]:
    """Return the keys of the numbers that a table of these estimates shows, with their columns' headings.

    `exact`: whether there is no noise. What is about a population is shown where one of them has a number.
    """
    known = [key for key in OF_POPULATION if any(one[key] is not None for one in estimates)]
    return {"value": "value", **({} if exact else OF_NOISE), **{key: OF_POPULATION[key] for key in known}}


def statistics_section(result: Json, *, exact: bool, note: str = "") -> list[Section]:
    """Return a report's section on statistics of records: a table of each, with a chart of its intervals.

    `exact`: whether there is no noise, and so no interval. `note`: another sentence about all of them.
    """
    estimates = result["estimates"]
    which = "all intervals together" if result["simultaneous"] else "each interval"
    numbers = number_headings(estimates, exact=exact)
    distributions = {one["noise"] for one in estimates}
    columns = (
        ("statistic", TEXT),
        *((heading, NUMBER) for heading in numbers.values()),
        ("unit", TEXT),
        *([("noise", TEXT)] if "laplace" in distributions else []),
        ("note", TEXT),
    )
    asked: dict[tuple[str, str], list[Json]] = {}
    for one in estimates:
        key = (one["part_of"], "") if one.get("part_of") else (one["statistic"], one["unit"])
        asked.setdefault(key, []).append(one)
    about = f"Level of {which}: {result['level']:g}. {ABOUT_INTERVALS}"
    blocks: list[Block] = [Text("Exact counts: no differential privacy." if exact else about)]
    blocks += [Text(note)] if note else []
    titles = without_numbers(estimates)
    for (statistic, unit), group in asked.items():
        if group[0].get("part_of"):
            blocks.append(_table1(statistic, group))
            continue
        rows = tuple(
            (
                _estimate_name(one),
                *(_estimated(one, key) for key in numbers),
                one["unit"],
                *([one["noise"]] if "laplace" in distributions else []),
                one["note"],
            )
            for one in group
        )
        table = Table(titles[statistic], columns, rows).filled()
        drawn = tuple(
            (_estimate_name(one), _end(one, "low"), float(one["value"]), _end(one, "high"))
            for one in group
            if all(one[key] is not None and math.isfinite(one[key]) for key in ("low", "value", "high"))
        )
        is_chart = len(drawn) > 1 and not exact
        blocks.append(Intervals(titles[statistic], unit, drawn, table) if is_chart else table)
    blocks += map(Text, follow_up_lines(estimates))
    return section("result", "Result", blocks)


def _table1(text: str, parts: Sequence[Json]) -> Table:
    """Return the report's table of a study's groups (a "Table 1"), titled `text`, from its estimates."""
    made = printed(parts)
    columns = tuple((heading, NUMBER if index else TEXT) for index, heading in enumerate(made.headings))
    return Table(text, columns, made.rows, " ".join(made.notes))


def _end(one: Json, key: str) -> float:
    """Return an end of an estimate's interval; never below 0 for counts."""
    return max(0.0, float(one[key])) if one["unit"] == ROWS else float(one[key])


def _estimated(one: Json, key: str) -> str:
    """Format a number of an estimate; counts are rounded to integers."""
    value = one[key]
    if value is None or one["unit"] != ROWS or key not in WHOLE or not math.isfinite(value):
        return number_of(one, key)
    return number(max(0, WHOLE[key](value)))


def _estimate_name(one: Json) -> str:
    """Return the name of a statistic's estimate, with its cell if it has one."""
    cell = ", ".join(f"{column} = {value}" for column, value in one["cell"].items())
    return f"{one['name']} [{cell}]" if cell else str(one["name"])


def pairs_section(result: Json) -> list[Section]:
    """Return a report's section on a statistic of pairs of parties."""
    low, high = result["interval"] or (None, None)
    rows = [
        ("estimate", number(result["value"])),
        ("standard error", number(result["standard_error"])),
        (f"interval of level {result['level']:g}, low", number(low)),
        (f"interval of level {result['level']:g}, high", number(high)),
        ("standard error of the noise alone", number(result["noise_error"])),
        ("pairs in the estimate", number(result["pairs"])),
        ("pairs that failed", number(result["failed"])),
        ("pairs of each party, at most", number(result["partners"])),
    ]
    rows += [(key, number(result[key])) for key in ("positives", "auc") if result[key] is not None]
    note = "" if result["interval"] is None else f"The interval is {PAIRS_COVERED}."
    table = Table(result["kernel"], (("property", TEXT), ("value", NUMBER)), tuple(rows), note)
    if result["interval"] is None:
        return section("result", "Result", [table])
    caption = f"The estimate with its {100 * result['level']:g}% interval"
    drawn = (
        (
            str(result["kernel"]),
            float(result["interval"][0]),
            float(result["value"]),
            float(result["interval"][1]),
        ),
    )
    return section("result", "Result", [Intervals(caption, result["kernel"], drawn, table)])


def learned_section(results: Mapping[str, Json]) -> list[Section]:
    """Return a report's section on the models that parties have learned."""
    some = next(iter(results.values()))
    values = [result["values"][0] for result in results.values()]
    columns = list(zip(*values, strict=True))
    rows = tuple(
        (name, number(_mean(column)), number(_spread(column)), number(min(column)), number(max(column)))
        for name, column in zip(some["names"], columns, strict=True)
    )
    heads = (
        ("coordinate", TEXT),
        ("mean", NUMBER),
        ("between parties", NUMBER),
        ("least", NUMBER),
        ("greatest", NUMBER),
    )
    secret = (
        "The values are each party's own: the guarantee does not cover them. " if some["confidential"] else ""
    )
    note = f"{secret}Between parties: the standard deviation of the parties' values."
    done = tuple(
        (name, number(result["done"][0]), number(result["steps"][0])) for name, result in results.items()
    )
    blocks: list[Block] = [
        Table(f"What {len(results)} parties learned, by {some['learner']}", heads, rows, note),
        Table("Steps of each party", (("party", TEXT), ("done", NUMBER), ("planned", NUMBER)), done),
    ]
    blocks.insert(1, _metrics(results))
    blocks += _totals_checked([result["evidence"] for result in results.values()])
    failures = tuple(dict.fromkeys(text for result in results.values() for text in result["failures"]))
    if failures:
        blocks += [Text("Steps failed, each reason once:"), Sentences(failures)]
    return section("result", "Result", blocks)


def _totals_checked(evidence: Sequence[Json | None]) -> list[Block]:
    """Return a sentence on how many averages had totals checked, summed over parties; [] if no total was."""
    given = [one for one in evidence if one is not None]
    averages, checked = (sum(one[key] for one in given) for key in ("averages", "checked"))
    text = f"Averages whose totals the parties checked, all parties together: {checked} of {averages}."
    return [Text(text)] if checked else []


def _metrics(results: Mapping[str, Json]) -> Block:
    """Return a chart of the learners' metric over steps, or a note if there is none."""
    # Parties of different groups have points of different steps.
    points = {one["step"]: one["value"] for result in results.values() for one in result["metrics"]}
    caption = "The average metric of the group after each measured step"
    picture = curve(caption, "metric", [("metric", sorted(points.items()))])
    return picture or Text("No learning curve: the session measures no metric (metric_every).", "note")


def _mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of the values, for a report."""
    return math.fsum(values) / len(values)


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation of the values, dividing by their number, for a report."""
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values]))


# Privacy


def privacy_section(privacy: Json, receipts: Mapping[str, Json | None]) -> list[Section]:
    """Return a report's section on the privacy of a result: its cost, and what budget is left."""
    blocks: list[Block] = []
    if privacy["unit"] is None:
        blocks.append(Text("No differential privacy: the release is exact."))
    blocks += [Text(f"The claim: {privacy['claim']}.")]
    if privacy["assumptions"]:
        blocks += [Text("It rests on:"), Sentences(tuple(privacy["assumptions"]))]
    guarantee = privacy["guarantee"]
    if guarantee is not None:
        blocks.append(guarantee_table(guarantee))
    budget = privacy.get("budget")
    if budget is not None:
        blocks.append(_budget_table(budget))
    charged = {name: receipt for name, receipt in receipts.items() if receipt is not None}
    blocks += _charges(charged)
    return section("privacy", "Privacy spent and left", blocks)


def epsilon_meaning(privacy: Json) -> str:
    """Return a sentence on what a result's epsilon and delta mean, or that it is exact."""
    if privacy["epsilon"] is None:
        return "The result is exact: nothing limits what it tells, with other knowledge, about one party."
    epsilon = privacy["epsilon"]
    factor = number(math.exp(epsilon), 3) if epsilon <= MOST_EPSILON else f"e^{number(epsilon)}"
    return (
        f"Epsilon {number(epsilon)} means: where the claim holds, other data of one {privacy['unit']} change "
        f"the probability of any outcome at most by a factor of {factor}, and by {number(privacy['delta'])} "
        "(delta) besides."
    )


def guarantee_table(guarantee: Json) -> Table:
    """Return a table of all that a privacy guarantee depends on: relation, unit, assumption, proof."""
    rows = (
        ("epsilon", number(guarantee["epsilon"])),
        ("delta", number(guarantee["delta"])),
        ("unit of privacy", guarantee["protects"]),
        ("neighbouring inputs", guarantee["relation"]),
        ("mechanism", guarantee["mechanism"]),
        ("assumption", guarantee["assumption"]),
        ("proof", guarantee["proof"]),
        *(("warning", text) for text in guarantee["warnings"]),
    )
    return Table("What the guarantee depends on", (("property", TEXT), ("value", LONG)), rows)


def _charges(receipts: Mapping[str, Json], unread: Sequence[str] = ()) -> list[Block]:
    """Return blocks on what was charged to the parties' ledgers, or a note that nothing was."""
    if not receipts and not unread:
        return [Text("No ledger was given: nothing was charged.", "note")]
    table: list[Block] = [_receipts_table(receipts)] if receipts else []
    return table + [Text(f"A ledger that cannot be read is not in this section: {one}") for one in unread]


def _budget_table(budget: Json) -> Table:
    """Return a table of a session's privacy budget: spent, whole, and requests left."""
    spent = "more than any" if budget["spent"] is None else number(budget["spent"])
    rows = (
        ("this request, epsilon", number(budget["epsilon"])),
        (f"all {budget['requests']} requests so far, epsilon", spent),
        ("budget, epsilon", number(budget["budget"])),
        ("delta", number(budget["delta"])),
        ("requests left", number(budget["left"])),
    )
    return Table("Budget of the session", (("property", TEXT), ("value", NUMBER)), rows)


def _receipts_table(receipts: Mapping[str, Json]) -> Table:
    """Return a table of ledger charges, one row for each party."""
    columns = (
        ("party", TEXT),
        ("data set", TEXT),
        ("unit", TEXT),
        ("spent, epsilon", NUMBER),
        ("budget, epsilon", NUMBER),
        ("left, epsilon", NUMBER),
        ("at delta", NUMBER),
        ("exact releases", NUMBER),
    )
    rows = []
    for name, receipt in receipts.items():
        spent, budget = receipt["spent"]["epsilon"], receipt["budget_epsilon"]
        left = None if spent is None or budget is None else max(0.0, budget - spent)
        rows.append(
            (
                name,
                receipt["dataset"],
                receipt["unit"],
                "no bound" if spent is None else number(spent),
                "no limit" if budget is None else number(budget),
                "no limit" if budget is None else number(left),
                number(receipt["budget_delta"]),
                number(receipt["spent"]["exact_releases"]),
            )
        )
    return Table("Ledger of each party after this run", columns, tuple(rows))


def learned_privacy(
    results: Mapping[str, Json], ledgers: Mapping[str, Json], unread: Sequence[str] = ()
) -> list[Section]:
    """Return a report's sections on the privacy of all learning steps, and on what is not protected.

    `ledgers`: what each party's has spent; `unread`: why others could not be read.
    """
    some = next(iter(results.values()))
    guarantee, claim = some["guarantee"], some["claim"]
    limits = [
        "the model's truth: a party can lie within its bounds",
        "who takes part, in which step, and when: the schedule is public",
    ]
    blocks: list[Block] = [Text(f"The claim of one step alone: {claim}.")] if claim else []
    if guarantee is None:
        blocks.insert(0, Text("No guarantee covers all steps together."))
        limits = ["the parties' data by differential privacy: the run has no guarantee", *limits]
    else:
        blocks.append(guarantee_table(guarantee))
        colluding = "against more parties that collude than the guarantee's assumption names"
        limits = [*guarantee["warnings"], *limits, colluding]
    if some["confidential"]:
        limits.insert(0, "what each party has learned: it is its own, and the guarantee does not cover it")
    blocks += _charges(ledgers, unread)
    return [
        *section("privacy", "Privacy spent and left", blocks),
        *limits_section(limits),
    ]


def limits_section(texts: Iterable[str]) -> list[Section]:
    """Return a report's section on what is not protected, without repeated sentences; [] without any."""
    retained = tuple(dict.fromkeys(texts))
    return section(
        "limits", "What this does not protect", [Sentences(retained, "limits")] if retained else []
    )


def roles_section(
    keys: Sequence[str], notes: Sequence[str] = (), *, failed: bool = False, network: bool = True
) -> list[Section]:
    """Return a report's section on what each role saw, for these kinds of computation.

    `failed`: the run has no result, and its roles saw a part at most; `network`: messages went over one.
    """
    rows = [
        (f"{view.role}, {KINDS[key]}" if len(keys) > 1 and view != NETWORK else view.role, *view[1:])
        for key in keys
        for view in VIEWS[key]
        if network or view != NETWORK
    ]
    columns = (("role", TEXT), ("saw", LONG), ("did not see", LONG))
    note = (
        "Of a run that followed the protocol. Against whom that holds, also if they deviate, is in the claim "
        "of a party's result."
    )
    if failed:
        notes = ["This run failed: each role saw at most the part of this that was sent before.", *notes]
    caption = "Each role, and the network" if network else "Each role"
    blocks: list[Block] = [Table(caption, columns, tuple(dict.fromkeys(rows)), note)]
    heading = "What each role sees in a run that ends" if failed else "What each role saw"
    return section("roles", heading, [*blocks, *(Text(text, "note") for text in notes)])


def charged_section(ledgers: Mapping[str, Json], unread: Sequence[str] = ()) -> list[Section]:
    """Return a report's section on what a run without a result charged to ledgers; [] without ledgers."""
    charged = Text("What a ledger was charged before the run failed stays charged.")
    blocks = [charged, *_charges(ledgers, unread)] if ledgers or unread else []
    return section("privacy", "Privacy spent and left", blocks)


# The run


def losses_section(
    absent: Sequence[str] | None, faults: Sequence[str], trace: Trace, notes: Sequence[str] = ()
) -> list[Section]:
    """Return a report's section on which members were lost in a run, when and why."""
    named = f"Not in the result: {', '.join(absent)}." if absent else "Nobody is missing in the result."
    blocks: list[Block] = [] if absent is None else [Text(named)]
    blocks += [Text(text, "note") for text in notes]
    if trace.losses:
        columns = (("after", NUMBER), ("step", TEXT), ("what happened", LONG), ("reported by", TEXT))
        rows = tuple(
            (f"{loss.seconds:.2f} s", loss.step or "-", loss.text, loss.reporter) for loss in trace.losses
        )
        blocks.append(Table("Losses in the order of time", columns, rows))
    if faults:
        blocks += [Text("What went wrong without spoiling the result:"), Sentences(tuple(faults))]
    return section("losses", "Who was lost, and when", blocks)


def times_section(trace: Trace) -> list[Section]:
    """Return a report's section on how long each step took, by member; [] without steps."""
    if not trace.steps:
        return []
    unit = f"{trace.unit[0].upper()}{trace.unit[1:]}."
    return section("times", "Time", [Text(unit), *(_times_table(group) for group in _roles(trace.ordered()))])


def _roles(steps: Mapping[str, Mapping[str, float]]) -> list[dict[str, Mapping[str, float]]]:
    """Return groups of members that share steps, each group a mapping from member to seconds of each step."""
    groups: list[dict[str, Mapping[str, float]]] = []
    names: list[set[str]] = []
    for member, own in steps.items():
        index = next((index for index, known in enumerate(names) if known & own.keys()), len(groups))
        if index == len(groups):
            groups.append({})
            names.append(set())
        groups[index][member] = own
        names[index] |= own.keys()
    return groups


def _times_table(group: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table of seconds by member and step."""
    steps = list(dict.fromkeys(step for own in group.values() for step in own))
    columns = (("member", TEXT), *((step, NUMBER) for step in steps), ("all", NUMBER))
    rows = tuple(
        (member, *(f"{own[step]:.3f}" if step in own else "-" for step in steps), f"{sum(own.values()):.3f}")
        for member, own in group.items()
    )
    totals = [sum(own.values()) for own in group.values()]
    caption = f"Seconds of {next(iter(group)) if len(group) == 1 else f'{len(group):,} members'}, by step"
    note = "" if len(group) == 1 else f"Median of all: {median(totals):.3f}; most: {max(totals):.3f}."
    return Table(caption, columns, rows, note)


def traffic_section(trace: Trace, more: str = "") -> list[Section]:
    """Return a report's section on bytes between members, [] without any; `more`: what is not counted."""
    between = list(trace.connections())
    if not between:
        return []
    rows = tuple((one, other, number(to), number(back)) for one, other, to, back in between)
    total = sum(to + back for *_, to, back in between)
    note = f"In all {amount(total)}: the content of messages, without frames and TLS. {more}".strip()
    columns = (("from", TEXT), ("to", TEXT), ("bytes there", NUMBER), ("bytes back", NUMBER))
    return section(
        "traffic", "Bytes between members", [Table("Bytes of each connection", columns, rows, note)]
    )


def evidence_section(evidence: Json | None) -> list[Section]:
    """Return a section on what identifies a result's run and its evidence shows; [] for None or a learner."""
    if evidence is None or "averages" in evidence:
        # That of a learner counts averages, which are in the section of its steps.
        return []
    rows = [
        (key.replace("_", " "), str(evidence[key]))
        for key in ("protocol", "version", "session_digest", "run_id", "beacon")
        if key in evidence
    ]
    if evidence.get("log"):
        rows += [
            ("head of the log", evidence["log"]["head"]),
            ("run in the session log", str(evidence["log"]["number"])),
        ]
    table = Table("What identifies the run", (("property", TEXT), ("value", CODE)), tuple(rows))
    note = f"The evidence shows who was certified to be in the result. {_shown_of_total(evidence)}"
    return section("evidence", "Evidence", [table, Text(note, "note")])


def _shown_of_total(evidence: Json) -> str:
    """Return a sentence on what the evidence shows of a total, and to whom."""
    is_signed = evidence.get("signed_result") is not None
    if evidence.get("checked") and not evidence.get("log"):
        checked = (
            "This member (of more than 10,000 parties it, or one whose signature it has) has checked the "
            "total against the commitments of the survivors; "
        )
        if is_signed:
            return f"{checked}its file shows that to others: smpc-dp audit RESULT --session FILE."
        return f"{checked}the file of a party shows that to others, this one does not."
    if is_signed:
        return (
            "It does not show that the numbers are that result, but that the aggregator has signed them: "
            "smpc-dp audit RESULT --session FILE."
        )
    return "It does not show that the numbers are that result."


def curve(caption: str, y: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Lines | None:
    """Return a line chart over steps with its table; None if no point is finite."""
    retained = tuple(
        (name, points)
        for name, given in series
        if (points := tuple((x, value) for x, value in given if math.isfinite(value)))
    )
    if not retained:
        return None
    steps = sorted({x for _, points in retained for x, _ in points})
    by_name = [dict(points) for _, points in retained]
    rows = tuple((number(step), *(number(values.get(step)) for values in by_name)) for step in steps)
    columns = (("step", TEXT), *((name, NUMBER) for name, _ in retained))
    return Lines(caption, "step", y, retained, Table(caption, columns, rows))
