"""Report of the demonstration, for people and as JSON."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from smpc_dp.demo.lenders import COLUMNS, DATA_SOURCE, FEATURES, LENDERS, LENGTH, TARGET, WIDTH, Column
from smpc_dp.demo.regression import INTERCEPT, Score
from smpc_dp.demo.run import KILL_STEP, VICTIM, Demonstration

PAGE = 100
# Below it tables leave out what can be spared; they fit into 80 columns.
FULL_TABLES = 98
# The indexes of a vector that are shown: the number of loans and the sum of the target.
COUNT, SUM = 0, WIDTH - 1
# A column that is zero for most loans, and the index of its sum.
_RARE = "acc_now_delinq"
_RARE_SUM = 1 + [column.name for column in COLUMNS].index(_RARE)


def page() -> Console:
    """Return a console of PAGE columns, or of a narrower terminal's."""
    console = Console(highlight=False, soft_wrap=True)
    console.width = min(PAGE, console.width) if console.is_terminal else PAGE
    return console


def announce(console: Console, kill: bool) -> None:
    """Print what the demonstration is going to do."""
    _prose(
        console,
        f"{len(LENDERS)} lenders and 1 aggregator, {len(LENDERS) + 1} processes on this machine",
        style="bold",
    )
    _prose(
        console,
        f"Each lender holds the loans of its region ({DATA_SOURCE}). In one request they compute the means "
        f"and variances of all columns and a linear regression of {TARGET.name}, from one secure sum of "
        f"{LENGTH} whole numbers over mutual TLS 1.3."
        + (f" Half-way, {VICTIM} is killed before it sends its masked vector." if kill else ""),
    )
    console.print()


def report(console: Console, demonstration: Demonstration) -> None:
    """Print the result of a demonstration."""
    _seen(console, demonstration)
    _comparison(console, demonstration)
    _fit(console, demonstration)
    _scores(console, demonstration)
    _heading(console, "What was protected")
    for line in protected(demonstration):
        _prose(console, line, "  + ")
    _heading(console, "What was not")
    for line in not_protected(demonstration):
        _prose(console, line, "  - ")
    console.print()
    verdict = "exact" if demonstration.exact else "NOT EXACT"
    console.print(f"Result {verdict}, in {demonstration.seconds:.1f} s.", style=_style(demonstration))


def _style(demonstration: Demonstration) -> str:
    """Return the style that marks success or failure."""
    return "bold green" if demonstration.exact else "bold red"


def _prose(console: Console, text: str, prefix: str = "", style: str = "") -> None:
    """Print a paragraph, or with a mark an item of a list, no wider than the page."""
    for index, line in enumerate(Text(text).wrap(console, max(console.width - len(prefix), 20))):
        start = prefix if index == 0 else " " * len(prefix)
        console.print(start + line.plain.rstrip(), markup=False, style=style)


def _heading(console: Console, text: str) -> None:
    """Print a heading."""
    console.print()
    _prose(console, text, style="bold")


def _table(*headings: str, left: int = 1) -> Table:
    """Return an empty table with these headings."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index < left else "right", no_wrap=True)
    return table


def _seen(console: Console, demonstration: Demonstration) -> None:
    """Print what the aggregator saw."""
    _heading(console, f"What the aggregator received, beside what was in it (2 of {LENGTH} numbers)")
    wide = console.width >= FULL_TABLES
    total = f"sum of {TARGET.name}" if wide else f"sum of\n{TARGET.name}"
    table = _table(
        "",
        "received\nloans",
        f"received\n{total}",
        f"{'  ' if wide else ''}lender's own\nloans",
        f"lender's own\n{total}",
    )
    for name, vector in demonstration.true_vectors.items():
        masked = demonstration.received.get(name)
        seen = (
            ["-", "-"] if masked is None else [_hex(demonstration, masked[index]) for index in (COUNT, SUM)]
        )
        own = [f"{vector[COUNT]:,}", rate_sum(vector[SUM])]
        killed = name == demonstration.killed
        table.add_row(f"{name} (killed)" if killed else name, *seen, *own, style="yellow" if killed else "")
    sums = demonstration.result["fixed_point"]
    table.add_row("result, unmasked", "", "", f"{sums[COUNT]:,}", rate_sum(sums[SUM]), style="bold green")
    console.print(table)


def _hex(demonstration: Demonstration, value: int) -> str:
    """Format a masked value in hex, padded to the modulus."""
    return f"{value:0{demonstration.modulus_bits // 4}x}"


def rate_sum(value: int) -> str:
    """Format a sum of rates in percent."""
    return f"{value / 10**TARGET.decimals:,.{TARGET.decimals}f}"


def _comparison(console: Console, demonstration: Demonstration) -> None:
    """Print the comparison of secure and pooled sums."""
    survivors, absent = demonstration.result["survivors"], demonstration.result["absent"]
    _heading(console, "Compared with the same loans pooled in one place")
    without = f" without {', '.join(absent)}" if absent else ""
    _prose(
        console,
        f"{demonstration.equal} of {LENGTH} sums are equal to the last digit, over "
        f"{demonstration.fitted.loans:,} loans of {len(survivors)} lenders{without}.",
        style=_style(demonstration),
    )


def _fit(console: Console, demonstration: Demonstration) -> None:
    """Print the coefficients, means and variances."""
    fitted = demonstration.fitted
    _heading(console, f"Means, variances and the regression of {TARGET.name}, from the secure sums alone")
    wide = console.width >= FULL_TABLES
    unit = ("unit",) if wide else ()
    effects = "per std. dev." if wide else "per s.d."
    table = _table("column", *unit, "mean", "variance", "coefficient", effects, left=1 + len(unit))

    def add(column: Column | None, *cells: str, style: str = "") -> None:
        name = [INTERCEPT, ""] if column is None else [column.name, column.unit]
        table.add_row(*name[: 1 + len(unit)], *cells, style=style)

    for column in (TARGET, *FEATURES):
        variance = fitted.variances[column.name]
        moments = (f"{fitted.means[column.name]:,.4f}", f"{variance:,.4f}" if wide else f"{variance:.4g}")
        if column is TARGET:
            add(column, *moments, "", "", style="bold")
            add(None, "", "", _coefficient(fitted.coefficients[INTERCEPT]), "")
            continue
        value = fitted.coefficients[column.name]
        effect = f"{value * math.sqrt(variance):+.4f}"
        add(column, *moments, _coefficient(value), effect)
    console.print(table)
    rounded = ", ".join(f"{column.name} to whole {column.unit}" for column in COLUMNS if column.rounds)
    _prose(console, f"All columns in full precision but {rounded}; an unknown emp_length counts as 0.")


def _coefficient(value: float) -> str:
    """Format a coefficient."""
    return f"{value:+.3e}" if abs(value) < 1e-3 else f"{value:+.6f}"


def _scores(console: Console, demonstration: Demonstration) -> None:
    """Print the quality of the fits."""
    scores = demonstration.scores
    _heading(console, "Score of the regression")
    wide = console.width >= FULL_TABLES
    table = _table("fit", "on", "R²", "RMSE", left=2) if wide else _table("fit", "R²", "RMSE")
    survivors = f"the {demonstration.fitted.loans:,} loans"

    def add(text: str, loans: str, value: Score, style: str = "") -> None:
        cells = [text, loans] if wide else [text]
        table.add_row(*cells, f"{value.r2:.6f}", f"{value.rmse:.6f}", style=style)

    add("from the secure sums", survivors, scores.secure, "bold green")
    add("pooled least squares (numpy)", survivors, scores.pooled)
    ranked = sorted(scores.alone.items(), key=lambda item: item[1].r2)
    for word, (name, value) in (("best", ranked[-1]), ("worst", ranked[0])):
        add(f"{word} lender alone: {name}", survivors, value)
    if scores.unseen is not None:
        absent = demonstration.result["absent"]
        count = sum(demonstration.loans[name] for name in absent)
        unseen = f"{count:,} loans of {', '.join(absent)}"
        label = "from the secure sums" if wide else f"on {unseen}, not in it"
        add(label, f"{unseen}, not in it", scores.unseen)
    console.print(table)
    _prose(
        console,
        "Coefficients differ from those of pooled least squares in float64 by at most "
        f"{demonstration.largest_gap:.0e} of their size.",
    )


def _sentence(text: str) -> str:
    """Return the text as a sentence, with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def protected(demonstration: Demonstration) -> list[str]:
    """Return what the run kept secret, a sentence or two each."""
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
    """Return what the run did not keep secret or could not guarantee, a sentence or two each."""
    rare = demonstration.result["fixed_point"][_RARE_SUM]
    return [
        *(_sentence(line) for line in demonstration.result["privacy"]["not_protected"]),
        "Every lender is told the pooled sums and can take its own away: the sum of the others is left.",
        f"Sums over a rare trait are sums over few loans ({_RARE}: {rare:,} in all): they come near "
        "to single people.",
        "Here one user on one machine runs all processes and could read them all. Between real hosts each "
        "lender runs its own: smpc-dp party.",
    ]


def as_data(demonstration: Demonstration) -> dict[str, object]:
    """Return the object that `smpc-dp demo --json` prints.

    Keys:
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
    result, fitted, scores = demonstration.result, demonstration.fitted, demonstration.scores

    def pair(value: Score) -> dict[str, float]:
        return {"r2": value.r2, "rmse": value.rmse}

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
        "pooled": pair(scores.pooled),
        "alone": {name: pair(value) for name, value in scores.alone.items()},
        "unseen": None if scores.unseen is None else pair(scores.unseen),
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
