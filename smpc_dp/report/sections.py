"""Sections of a report, made of results as the JSON data that `--json` prints, and of the trace of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from smpc_dp.report.chart import Intervals, Lines
from smpc_dp.report.document import Block, Section, Sentences, Text, section
from smpc_dp.report.roles import KINDS, NETWORK, VIEWS
from smpc_dp.report.table import Table
from smpc_dp.report.trace import Trace
from smpc_dp.summary import PAIRS_COVERED, rounded

Json = Mapping[str, Any]
# Of a column of a table.
TEXT, LONG, NUMBER, CODE = "", "long", "number", "code"
NOISE_ALONE = "The intervals are about the noise alone, not about how the data were sampled."


def number(value: float | int | None, digits: int = 6) -> str:
    """Return a number as text, "-" without one."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def amount(size: int) -> str:
    """Return a number of bytes with its unit."""
    return (
        f"{size:,} bytes"
        if size < 10_000
        else f"{size / 1e3:,.0f} kB"
        if size < 1e7
        else f"{size / 1e6:,.1f} MB"
    )


def written(value: object, *, inner: bool = False) -> str:
    """Return a parameter as text; what is `inner` to another has brackets."""
    if isinstance(value, Mapping):
        text = "; ".join(f"{key} = {written(one, inner=True)}" for key, one in value.items())
        return f"{{{text}}}" if inner else text
    if isinstance(value, list | tuple):
        text = ", ".join(written(one, inner=True) for one in value)
        return f"[{text}]" if inner else text
    return str(value).lower() if isinstance(value, bool) else str(value)


# Results


def vector_section(result: Json, interval: tuple[float, float] | None) -> list[Section]:
    """Return the section of a sum or an average.

    `interval`: how far the noise reaches at a level, (reach, level); None where that is not known.
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
        for reach in (-interval[0], interval[0]):
            ends = rounded([value + reach for value in values], kind, error, resolution)
            cells.append([str(end) for end in ends])
    note = _noise_note(result, interval)
    caption = f"The {kind} over {len(result['survivors'])} parties"
    table = Table(caption, tuple(columns), tuple(zip(*cells, strict=True)), note)
    if not error or interval is None:
        return section("result", "Result", [table])
    reach, level = interval
    drawn = tuple(
        (label, value - reach, float(value), value + reach)
        for label, value in zip(labels, values, strict=True)
    )
    picture = Intervals(f"Each coordinate with its {100 * level:g}% interval", kind, drawn, table)
    return section("result", "Result", [picture])


def _noise_note(result: Json, interval: tuple[float, float] | None) -> str:
    """Return what the numbers of a sum or an average leave open."""
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


def statistics_section(result: Json, *, exact: bool, note: str = "") -> list[Section]:
    """Return the section of statistics of records: a table of all, and a picture for each statistic.

    `exact`: whether there is no noise, and so no interval. `note`: another sentence about all of them.
    """
    estimates = result["estimates"]
    which = "all intervals together" if result["simultaneous"] else "each interval"
    noise = () if exact else ("standard_error", "low", "high")
    sampled = any(one["sampling_error"] is not None for one in estimates)
    numbers = ("value", *noise, *(("sampling_error",) if sampled else ()))
    headings = {"standard_error": "standard error of the noise", "sampling_error": "sampling error"}
    columns = (
        ("statistic", TEXT),
        *((headings.get(key, key), NUMBER) for key in numbers),
        ("unit", TEXT),
        ("note", TEXT),
    )
    asked: dict[tuple[str, str], list[Json]] = {}
    for one in estimates:
        asked.setdefault((one["statistic"], one["unit"]), []).append(one)
    about = f"Level of {which}: {result['level']:g}. {NOISE_ALONE}"
    blocks: list[Block] = [Text("Exact counts: no differential privacy." if exact else about)]
    blocks += [Text(note)] if note else []
    for (statistic, unit), group in asked.items():
        rows = tuple(
            (
                _estimate_name(one),
                *(number(one[key]) for key in numbers),
                one["unit"],
                one["note"],
            )
            for one in group
        )
        table = Table(statistic, columns, rows).filled()
        drawn = tuple(
            (_estimate_name(one), float(one["low"]), float(one["value"]), float(one["high"]))
            for one in group
            if all(one[key] is not None and math.isfinite(one[key]) for key in ("low", "value", "high"))
        )
        blocks.append(Intervals(statistic, unit, drawn, table) if len(drawn) > 1 and not exact else table)
    return section("result", "Result", blocks)


def _estimate_name(one: Json) -> str:
    cell = ", ".join(f"{column} = {value}" for column, value in one["cell"].items())
    return f"{one['name']} [{cell}]" if cell else str(one["name"])


def pairs_section(result: Json) -> list[Section]:
    """Return the section of a U-statistic."""
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
    return section("result", "Result", [table])


def learned_section(results: Mapping[str, Json]) -> list[Section]:
    """Return the section of a learner, of all parties' results."""
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
    """Return how many totals of averages the parties have checked; nothing where they checked none."""
    given = [one for one in evidence if one is not None]
    averages, checked = (sum(one[key] for one in given) for key in ("averages", "checked"))
    text = f"Averages whose totals the parties checked, all parties together: {checked} of {averages}."
    return [Text(text)] if checked else []


def _metrics(results: Mapping[str, Json]) -> Block:
    """Return the picture of the metric over steps, where the session measures one."""
    # Parties of different groups have points of different steps.
    points = {one["step"]: one["value"] for result in results.values() for one in result["metrics"]}
    caption = "The average metric of the group after each measured step"
    picture = curve(caption, "metric", [("metric", sorted(points.items()))])
    return picture or Text("No learning curve: the session measures no metric (metric_every).", "note")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _spread(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values]))


# Privacy


def privacy_section(privacy: Json, receipts: Mapping[str, Json | None]) -> list[Section]:
    """Return the section of a result's privacy: what was spent, and what is left; `receipts` by party."""
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


def guarantee_table(guarantee: Json) -> Table:
    """Return the table of all that epsilon and delta depend on."""
    moved = ", ".join(f"{norm} {number(value)}" for norm, value in guarantee["sensitivity"].items())
    rows = (
        ("epsilon", number(guarantee["epsilon"])),
        ("delta", number(guarantee["delta"])),
        ("unit of privacy", guarantee["protects"]),
        ("neighbouring inputs", guarantee["relation"]),
        ("sensitivity", f"{moved} ({guarantee['unit']})"),
        ("mechanism", guarantee["mechanism"]),
        ("assumption", guarantee["assumption"]),
        ("proof", guarantee["proof"]),
        *(("warning", text) for text in guarantee["warnings"]),
    )
    return Table("What the guarantee depends on", (("property", TEXT), ("value", LONG)), rows)


def _charges(receipts: Mapping[str, Json], unread: Sequence[str] = ()) -> list[Block]:
    if not receipts and not unread:
        return [Text("No ledger was given: nothing was charged.", "note")]
    table: list[Block] = [_receipts_table(receipts)] if receipts else []
    return table + [Text(f"A ledger that cannot be read is not in this section: {one}") for one in unread]


def _budget_table(budget: Json) -> Table:
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
    """Return the sections of a learner's privacy, all steps together, and of what it does not protect.

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
    """Return the section of what is not protected, each text once."""
    retained = tuple(dict.fromkeys(texts))
    return section(
        "limits", "What this does not protect", [Sentences(retained, "limits")] if retained else []
    )


def roles_section(
    keys: Sequence[str], notes: Sequence[str] = (), *, failed: bool = False, network: bool = True
) -> list[Section]:
    """Return the section of what each role saw, for the kinds of computation with these keys of `VIEWS`.

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
    """Return the section of what ledgers have spent after a run without a result; as `learned_privacy`."""
    charged = Text("What a ledger was charged before the run failed stays charged.")
    blocks = [charged, *_charges(ledgers, unread)] if ledgers or unread else []
    return section("privacy", "Privacy spent and left", blocks)


# The run


def losses_section(
    absent: Sequence[str] | None, faults: Sequence[str], trace: Trace, notes: Sequence[str] = ()
) -> list[Section]:
    """Return the section of who was lost, and when; `absent` is None without a result."""
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
    """Return the section of the time of each step: a row for each member, and a table for each role."""
    if not trace.steps:
        return []
    unit = f"{trace.unit[0].upper()}{trace.unit[1:]}."
    return section("times", "Time", [Text(unit), *(_times_table(group) for group in _roles(trace.ordered()))])


def _roles(steps: Mapping[str, Mapping[str, float]]) -> list[dict[str, Mapping[str, float]]]:
    """Return members with their steps, in groups of those that have steps in common."""
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
    """Return the section of the bytes between members; `more`: what is not counted."""
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
    """Return the section of what binds a result to its run."""
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
    """Return what evidence shows of the numbers of a result, and to whom."""
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
    """Return a picture of lines over steps, with its table; None without a finite point."""
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
