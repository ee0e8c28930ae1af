"""The plan of a study, for a person: a table of what is expected of each answer, and how to read it."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator

from smpc_dp.console.output import console
from smpc_dp.session.planned import MOST_REPEATED, Changed, Remaining, SessionPlan, StudiedAnswer, Study

_COLUMNS = ("noise", "sampling", "both", "test finds", "one more party", "twice epsilon")
_READING = (
    "noise, sampling, both: half the width of the 95 % interval: for the noise of the answer, for the rows "
    "as a sample of a population, and for both.",
    "test finds: the effect that a test of level .05, with the noise in it, finds with probability .8.",
    "one more party, twice epsilon: both, or the noise alone, and what the test finds. The party has as "
    "many rows as the others have on average.",
    "No party's rows were read, and no value is taken to be missing.",
)
_CONSERVATIVE = (
    "Where both is less than noise, the interval for the noise alone is wider than its level needs."
)
_BOUNDS = (
    "Take bounds from what is public: the unit, a published range, a rule of the instrument; never from a "
    "party's rows.",
    "A value beyond a bound counts as the bound. That moves the answer, and no interval includes it.",
)


def print_study(plan: SessionPlan) -> None:
    """Print a plan's forecast of a study, and what a budget leaves, each if there is one."""
    out = console()
    if plan.study is not None:
        _print_table(plan.study)
        for line in (*_READING, *_assumptions(plan.study), *_bounds(plan.study)):
            out.print(line)
    if plan.remaining is not None:
        for line in _left(plan.remaining):
            out.print(line)


def _print_table(study: Study) -> None:
    """Print the table of a study's predicted answers."""
    from rich.table import Table

    table = Table(title=f"expected with {study.rows} rows of all {study.parties} parties")
    table.add_column("answer", overflow="fold")
    for name in _COLUMNS:
        table.add_column(name)
    for text, numbers in itertools.groupby(study.answers, operator.attrgetter("text")):
        first, *others = numbers
        # the question says which number it is, or its test does
        named = bool(others) or not (first.name in text or first.effect)
        if named:
            table.add_row(text)
        for one in (first, *others):
            table.add_row(f"- {one.name}" if named else text, *_cells(one))
    console().print(table)


def _cells(one: StudiedAnswer) -> tuple[str, ...]:
    """Return a number's table cells: three half widths, detected effect, and two changes of the plan."""
    detected = "" if one.detected is None else f"{one.detected:.3g}"
    widths = map(_half_width, (one.noise, one.sampling, one.both))
    return *widths, detected, _change(one.one_more_party), _change(one.twice_epsilon)


def _half_width(number: float | None) -> str:
    """Return a half width as text with a sign ±; a dash for None."""
    return "-" if number is None else f"± {number:.3g}"


def _change(changed: Changed | None) -> str:
    """Return as text the half width under a changed plan and what its test finds; a dash for None."""
    if changed is None:
        return "-"
    width = changed.noise if changed.both is None else changed.both
    detected = [] if changed.detected is None else [f"finds {changed.detected:.3g}"]
    return "\n".join([*([] if detected and width is None else [_half_width(width)]), *detected])


def _assumptions(study: Study) -> Iterator[str]:
    """Yield lines on what a study's numbers assume, each with the answers that it concerns."""
    of_assumed: dict[str, dict[str, None]] = {}
    for one in study.answers:
        effect = f"test finds: {one.effect}" if one.effect else ""
        for part in filter(None, (*one.assumed.split("; "), effect)):
            of_assumed.setdefault(part, {})[one.text] = None
    for assumed, texts in of_assumed.items():
        yield f"{', '.join(texts)}: {assumed}"
    if any((one.noise or 0.0) > (one.both or math.inf) for one in study.answers):
        yield _CONSERVATIVE


def _bounds(study: Study) -> Iterator[str]:
    """Yield lines on how narrower and wider bounds change the noise of means; none without means."""
    means = [(one, one.at_bound) for one in study.answers if one.at_bound is not None]
    for one, noise in means:
        half, twice = _half_width(noise / 2), _half_width(2 * noise)
        yield (
            f"{one.text}: the noise of a mean at a bound is {_half_width(noise)}; with bounds half as far "
            f"apart {half}, twice as far {twice}"
        )
    if means:
        yield from _BOUNDS


def _left(left: Remaining) -> Iterator[str]:
    """Yield lines on the privacy budget that a request leaves for later questions."""
    yield (
        f"budget: epsilon = {left.epsilon:g} at delta = {left.delta:g}, by {left.composition} composition; "
        f"{left.spent:.4g} is spent, {left.after:.4g} after this request"
    )
    repeated = f"{left.repeated} or more" if left.repeated == MOST_REPEATED else f"{left.repeated}"
    one = f"one of Gaussian noise with epsilon = {left.later_epsilon:.3g}" if left.later_epsilon else "none"
    yield f"later questions: {repeated} more requests like this one fit; or, in their place, {one}"
