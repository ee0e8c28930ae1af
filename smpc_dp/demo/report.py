"""Report of the demonstration, for people and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from textwrap import fill
from typing import TypedDict

from rich import table as printed
from rich.console import Console
from rich.text import Text

from smpc_dp.demo.lenders import COLUMNS, DATA_SOURCE, FEATURES, LENDERS, LENGTH, ROUNDED, TARGET, WIDTH
from smpc_dp.demo.regression import INTERCEPT
from smpc_dp.demo.run import KILL_STEP, VICTIM, Demonstration
from smpc_dp.report.sections import CODE, NUMBER, TEXT, number
from smpc_dp.report.table import Table
from smpc_dp.results.printed import PrintedEvidence

PAGE = 100
# The indexes of a vector that are shown: the number of loans and the sum of the target.
COUNT, SUM = 0, WIDTH - 1
# A column that is zero for most loans, and the index of its sum.
_RARE = "acc_now_delinq"
_RARE_SUM = 1 + [column.name for column in COLUMNS].index(_RARE)
RECEIVED = "What the aggregator received, beside what was in it"


def page() -> Console:
    """Return a terminal console of PAGE columns, or narrower if the terminal is."""
    console = Console(highlight=False, soft_wrap=True)
    console.width = min(PAGE, console.width) if console.is_terminal else PAGE
    return console


def announce(console: Console, kill: bool) -> None:
    """Print which steps the demonstration will make, and whether it kills a lender's process."""
    print_prose(
        console,
        f"{len(LENDERS)} lenders and 1 aggregator, {len(LENDERS) + 1} processes on this machine",
        style="bold",
    )
    print_prose(
        console,
        f"Each lender holds the loans of its region ({DATA_SOURCE}). In one request they compute the means "
        f"and variances of all columns and a linear regression of {TARGET.name}, from one secure sum of "
        f"{LENGTH} whole numbers over mutual TLS 1.3."
        + (f" Half-way, {VICTIM} is killed before it sends its masked vector." if kill else ""),
    )
    console.print()


def report(console: Console, demonstration: Demonstration) -> None:
    """Print the result of the demonstration: sums, regression, and what was protected."""
    style = "bold green" if demonstration.exact else "bold red"
    received = received_table(demonstration)
    print_table(console, replace(received, caption=f"{RECEIVED} ({received.caption})"))
    print_heading(console, "Compared with the same loans pooled in one place")
    survivors, absent = demonstration.result["survivors"], demonstration.result["absent"]
    without = f" without {', '.join(absent)}" if absent else ""
    print_prose(
        console,
        f"{demonstration.equal} of {LENGTH} sums are equal to the last digit, over "
        f"{demonstration.fitted.loans:,} loans of {len(survivors)} lenders{without}.",
        style=style,
    )
    print_table(console, fit_table(demonstration))
    print_table(console, score_table(demonstration))
    print_heading(console, "What was protected")
    for line in protected(demonstration):
        print_prose(console, line, "  + ")
    print_heading(console, "What was not")
    for line in not_protected(demonstration):
        print_prose(console, line, "  - ")
    console.print()
    verdict = "exact" if demonstration.exact else "NOT EXACT"
    console.print(f"Result {verdict}, in {demonstration.seconds:.1f} s.", style=style)


def print_prose(console: Console, text: str, prefix: str = "", style: str = "") -> None:
    """Print a wrapped paragraph, as an item of a list if `prefix` is a mark."""
    for index, line in enumerate(Text(text).wrap(console, max(console.width - len(prefix), 20))):
        start = prefix if index == 0 else " " * len(prefix)
        console.print(start + line.plain.rstrip(), markup=False, style=style)


def print_heading(console: Console, text: str) -> None:
    """Print the heading of a part of the demonstration."""
    console.print()
    print_prose(console, text, style="bold")


def print_table(console: Console, table: Table) -> None:
    """Print a table of the report with columns as wide as their values need."""
    print_heading(console, table.caption)
    shown = printed.Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, (name, kind) in enumerate(table.columns):
        width = max(len(word) for word in (*name.split(), *(row[index] for row in table.rows)))
        shown.add_column(fill(name, width), justify="right" if kind else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    if table.note:
        print_prose(console, table.note)


def received_table(demonstration: Demonstration) -> Table:
    """Return the table of the masked numbers that the aggregator received, beside the true ones."""
    rows = []
    for name, vector in demonstration.true_vectors.items():
        masked = demonstration.received.get(name)
        seen = (
            ["-", "-"] if masked is None else [_hex(demonstration, masked[index]) for index in (COUNT, SUM)]
        )
        killed = " (killed)" if name == demonstration.killed else ""
        rows.append((f"{name}{killed}", *seen, f"{vector[COUNT]:,}", _rates(vector[SUM])))
    sums = demonstration.result["fixed_point"]
    rows.append(("result, unmasked", "-", "-", f"{sums[COUNT]:,}", _rates(sums[SUM])))
    columns = (
        ("lender", TEXT),
        ("received for its loans", CODE),
        (f"received for its sum of {TARGET.name}", CODE),
        ("lender's own loans", NUMBER),
        (f"lender's own sum of {TARGET.name}", NUMBER),
    )
    return Table(f"2 of {LENGTH} numbers", columns, tuple(rows))


def _hex(demonstration: Demonstration, value: int) -> str:
    """Return a masked value in hexadecimal digits, padded to the width of the modulus."""
    return f"{value:0{demonstration.modulus_bits // 4}x}"


def _rates(value: int) -> str:
    """Return an integer sum of interest rates as text in percent."""
    return f"{value / 10**TARGET.decimals:,.{TARGET.decimals}f}"


def fit_table(demonstration: Demonstration) -> Table:
    """Return the table of means, variances and coefficients of the demonstration's regression."""
    fitted, rows = demonstration.fitted, []
    for column in (TARGET, *FEATURES):
        variance, slope = fitted.variances[column.name], fitted.coefficients.get(column.name)
        name = f"{column.name} ({column.unit})" if column.unit else column.name
        effect = "-" if slope is None else f"{slope * math.sqrt(variance):+.4f}"
        rows.append((name, f"{fitted.means[column.name]:,.4f}", number(variance), _signed(slope), effect))
    rows.insert(1, (INTERCEPT, "-", "-", _signed(fitted.coefficients[INTERCEPT]), "-"))
    columns = (
        ("column", TEXT),
        ("mean", NUMBER),
        ("variance", NUMBER),
        ("coefficient", NUMBER),
        ("per standard deviation", NUMBER),
    )
    [unit] = [column.unit for column in COLUMNS if column.name == ROUNDED]
    note = f"All columns in full precision but {ROUNDED} to whole {unit}; an unknown emp_length counts as 0."
    caption = f"Means, variances and the regression of {TARGET.name}, from the secure sums alone"
    return Table(caption, columns, tuple(rows), note)


def _signed(value: float | None) -> str:
    """Return a number with its sign, or "-" where there is none."""
    return "-" if value is None else f"{value:+.5g}"


def score_table(demonstration: Demonstration) -> Table:
    """Return the table that compares the quality of the fitted models."""
    scores, absent = demonstration.scores, demonstration.result["absent"]
    fits = [("from the secure sums", scores.secure), ("pooled least squares (numpy)", scores.pooled)]
    fits += [(f"{name} alone", value) for name, value in scores.alone.items()]
    if scores.unseen is not None:
        count = sum(demonstration.loans[name] for name in absent)
        fits.append((f"from the secure sums, on {count:,} loans of {', '.join(absent)}", scores.unseen))
    rows = tuple((name, f"{value.r2:.6f}", f"{value.rmse:.6f}") for name, value in fits)
    note = (
        f"On the {demonstration.fitted.loans:,} loans in the result, where no others are named. Coefficients "
        "differ from those of pooled least squares in float64 by at most "
        f"{demonstration.largest_gap:.0e} of their size."
    )
    columns = (("fit", TEXT), ("R²", NUMBER), ("RMSE", NUMBER))
    return Table("Score of the regression", columns, rows, note)


def _sentence(text: str) -> str:
    """Return the text as a sentence, with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def protected(demonstration: Demonstration) -> list[str]:
    """Return sentences on what the run kept secret."""
    lines = [
        "Loans and sums of a lender stayed in its process. Of its vector the aggregator received the masked "
        "form only, which without the masks cannot be told from random numbers.",
        f"The claim: {demonstration.result['privacy']['claim']}.",
    ]
    if demonstration.killed is not None:
        lines.append(
            f"Nothing of {demonstration.killed}'s loans: it was killed in step '{KILL_STEP}', before it "
            "sent its masked vector. The others gave shares of its masking key, which takes its masks out "
            "of their sum and opens nothing else."
        )
    return lines


def not_protected(demonstration: Demonstration) -> list[str]:
    """Return sentences on what the run did not keep secret or could not guarantee."""
    rare = demonstration.result["fixed_point"][_RARE_SUM]
    return [
        *(_sentence(line) for line in demonstration.result["privacy"]["not_protected"]),
        "Every lender is told the pooled sums and can take its own away: the sum of the others is left.",
        f"Sums over a rare trait are sums over few loans ({_RARE}: {rare:,} in all): they come near "
        "to single people.",
        "Here one user on one machine runs all processes and could read them all. Between real hosts each "
        "lender runs its own: smpc-dp party.",
    ]


class PrintedScore(TypedDict):
    """Part of the demonstration's JSON output: R² and RMSE of one model on some loans."""

    r2: float
    rmse: float


class PrintedDemonstration(TypedDict):
    """JSON output of `smpc-dp demo --json`: sums, fitted models, and what was protected.

    Attributes:
        exact: whether all sums equal those of the pooled loans, as integers. equal: how many; length: of all.
        columns: what is in a row; the sums are the upper triangle of its cross products, row by row.
        survivors, absent: names. killed: the lender whose process was killed, or null.
        loans: how many are in the result. means, variances: by column.
        coefficients: by feature, and "intercept". r2, rmse: of this fit on the survivors' loans.
        pooled: r2 and rmse of pooled least squares on the same loans; alone: by lender, of its own fit.
        unseen: r2 and rmse of the secure fit on the loans of the absent, or null.
        aggregator_saw: by lender, the masked vector that came from it, in hex. fixed_point: the integer sums.
        protected, not_protected: sentences. evidence: run id, session digest and certificates.
        seconds: from the start of the first process to the end of the last.
    """

    exact: bool
    equal: int
    length: int
    columns: list[str]
    survivors: list[str]
    absent: list[str]
    killed: str | None
    loans: int
    means: dict[str, float]
    variances: dict[str, float]
    coefficients: dict[str, float]
    r2: float
    rmse: float
    pooled: PrintedScore
    alone: dict[str, PrintedScore]
    unseen: PrintedScore | None
    aggregator_saw: dict[str, list[str]]
    fixed_point: list[int]
    protected: list[str]
    not_protected: list[str]
    evidence: PrintedEvidence
    seconds: float


def as_data(demonstration: Demonstration) -> dict[str, object]:
    """Return the demonstration's results as the plain JSON data that `smpc-dp demo --json` prints."""
    result, fitted, scores = demonstration.result, demonstration.fitted, demonstration.scores
    return {
        "exact": demonstration.exact,
        "equal": demonstration.equal,
        "length": LENGTH,
        "columns": ["one", *(column.name for column in COLUMNS)],
        "survivors": result["survivors"],
        "absent": result["absent"],
        "killed": demonstration.killed,
        "loans": fitted.loans,
        "means": dict(fitted.means),
        "variances": dict(fitted.variances),
        "coefficients": dict(fitted.coefficients),
        "r2": scores.secure.r2,
        "rmse": scores.secure.rmse,
        "pooled": asdict(scores.pooled),
        "alone": {name: asdict(value) for name, value in scores.alone.items()},
        "unseen": None if scores.unseen is None else asdict(scores.unseen),
        "aggregator_saw": {
            name: [_hex(demonstration, value) for value in vector]
            for name, vector in demonstration.received.items()
        },
        "fixed_point": result["fixed_point"],
        "protected": protected(demonstration),
        "not_protected": not_protected(demonstration),
        "evidence": result["evidence"],
        "seconds": demonstration.seconds,
    }
