"""docs/performance.md: what users ask, how costs grow, and what peers take, all from stored results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from smpc_dp.errors import LocalError
from smpc_dp_lab.bench import growth, many, scenarios
from smpc_dp_lab.bench.figures import shown
from smpc_dp_lab.bench.log_plot import LogPlot, Point
from smpc_dp_lab.bench.page import RESULTS, Json, markdown_table

FOLDER = "../benchmarks/"
# With more work of other programs, as a part of the cores, a time by the clock is marked.
QUIET = 0.05
LOADED = " †"
PAIR = "fresh covert pair, λ = 4, open channels"
PAIR_BYTES = "fresh covert pair, λ = 4, sent"


@dataclass(frozen=True, slots=True)
class Stored:
    """Stored benchmark results by name, with methods that look up a figure by its name."""

    results: Mapping[str, Json]

    def result(self, bench: str) -> Json:
        """Return the stored result of a benchmark; raise LocalError if there is none."""
        if bench not in self.results:
            raise LocalError(
                f"{RESULTS.format(bench)} is missing; smpc-dp bench all --only {bench} writes it"
            )
        return self.results[bench]

    def figure(self, bench: str, name: str) -> Json:
        """Return the JSON data of a figure; raise LocalError if it is not stored."""
        for figure in self.result(bench)["figures"]:
            if figure["name"] == name:
                return dict(figure)
        raise LocalError(f"{RESULTS.format(bench)} has no figure '{name}'")

    def text(self, bench: str, name: str) -> str:
        """Return a figure's median with its unit, as text."""
        figure = self.figure(bench, name)
        return shown(figure["median"], figure["unit"]).strip()

    def clock(self, bench: str, name: str) -> str:
        """Return the median of a time by the clock, marked where other programs disturbed it or may have."""
        others = self.result(bench)["others"]
        return self.text(bench, name) + ("" if others is not None and others <= QUIET else LOADED)

    def beside(self, bench: str, name: str, of: str) -> float:
        """Return the median of the peer or limit of a figure; raise LocalError if it was not measured."""
        figure = self.figure(bench, name)
        if figure[of] is None:
            raise LocalError(f"{RESULTS.format(bench)}: the {of} of '{name}' was not measured")
        return float(figure[of]["median"])


def stored(results: Sequence[Json]) -> Stored:
    """Return stored results by the names of their benchmarks."""
    return Stored({result["bench"]: result for result in results})


def performance(results: Sequence[Json]) -> str:
    """Return docs/performance.md; raise LocalError if a result or figure is missing."""
    known = stored(results)
    rows = _rows(known)
    table = [(name, *cells) for name, cells, _ in rows]
    explained = "\n".join(f"- **{name}**: {sentence}" for name, _, sentence in rows)
    plots = "\n\n".join(f"![{plot.title}]({file})" for file, plot in plots_of(known).items())
    return f"""# Performance

The table shows measured costs: *up* is from a party to the aggregator, *down* from the aggregator to a party.

{markdown_table(("asked", "by the clock", "processor time", "bytes", "memory"), iter(table))}

{explained}

{_clock_note()}

## How costs grow

{plots}

{_growth_note(known)}{_many(known)}

## What a peer takes

{_peers(known)}

[benchmarks/tables.md]({FOLDER}tables.md) has all figures, and the machine, commit and other programs of
each result. [benchmarks/README.md]({FOLDER}README.md) says how to measure the figures again.
"""


Row = tuple[str, tuple[str, str, str, str], str]


def _rows(known: Stored) -> list[Row]:
    """Return a table row for each scenario: name, cells, and explanation."""
    sessions = [_session_row(known, one) for one in scenarios.FULL.sessions]
    return [*sessions[:-1], _model_row(known), sessions[-1], _audit_row(known)]


def _members(party: str, other: str, who: str = "aggregator") -> str:
    return f"a party {party}, the {who} {other}"


def _session_row(known: Stored, scenario: scenarios.Scenario) -> Row:
    bench = "scenarios"

    def name(kind: str) -> str:
        return scenarios.figure_name(scenario.name, kind)

    def text(kind: str) -> str:
        return known.text(bench, name(kind))

    bytes_text = f"{text('party: sent')} up, {text('party: received')} down"
    note = known.figure(bench, name("wall time"))["note"].rpartition("; ")[0]
    sentence = f"{note} ({_file(bench)})."
    if scenario.task == "pairwise":
        bytes_text += f", and {known.text('pairwise', PAIR_BYTES)} of both sides of its pair"
    if scenario.shared:
        memory = _members(text("party: peak memory"), text("aggregator: peak memory"))
    else:
        memory = f"all in one process {text(scenarios.WHOLE)}"
    cells = (
        known.clock(bench, name("wall time")),
        _members(text("party: processor time"), text("aggregator: processor time")),
        bytes_text,
        memory,
    )
    return scenario.name, cells, sentence


def _model_row(known: Stored) -> Row:
    bench = "session"
    parameters = known.result(bench)["parameters"]

    def text(name: str) -> str:
        return known.text(bench, name)

    cells = (
        known.clock(bench, "average of a tree: wall time"),
        _members(text("party: processor time"), text("aggregator: processor time")),
        f"{text('party: sent')} up, {text('party: received')} down",
        _members(text("party: peak memory"), text("aggregator: peak memory")),
    )
    sentence = (
        f"{parameters['parties']} parties average a dict of float32 arrays by `session.average`, no noise, "
        f"precision {parameters['precision']:g}, each member a process of one host, mutual TLS on loopback "
        f"({_file(bench)})."
    )
    return f"a model of {parameters['length']:,} values", cells, sentence


def _audit_row(known: Stored) -> Row:
    bench = "scenarios"
    log = f"log of {known.result(bench)['parameters']['audited']} users"
    audit = f"{log}: audit"
    cells = (
        known.clock(bench, audit),
        f"the auditor {known.text(bench, f'{audit}, processor')}",
        f"a log of {known.text(bench, f'{log}: bytes')}",
        f"the auditor {known.text(bench, f'{audit}, memory')}",
    )
    note = known.figure(bench, f"{audit}, processor")["note"]
    sentence = f"all proofs and signatures of a verifiable average are checked; {note} ({_file(bench)})."
    return "an audit of 1,000 parties", cells, sentence


def _clock_note() -> str:
    return (
        f"{LOADED.strip()} Other programs used the same cores, or may have: on an idle machine the time by "
        "the clock is shorter."
    )


@dataclass(frozen=True, slots=True)
class _Growth:
    """Settings of a plot of growth: the axis, its title, and how values on it are written."""

    axis: str
    title: str
    text: Callable[[float], str] = lambda value: f"{value:,.0f}"


_PLOTS = {
    "length": _Growth("numbers of a vector", "Processor time of a secure sum of 30 parties, by length"),
    "parties": _Growth("parties", "Processor time of a secure sum of 1,000 numbers, by parties"),
    "degree": _Growth("neighbours of a party", "Processor time of a secure sum of 100 parties, by degree"),
}


def plots_of(known: Stored) -> dict[str, LogPlot]:
    """Return the plots of growth by the names of their files; raise LocalError if a point is missing."""
    sizes: Mapping[str, Sequence[int]] = known.result("growth")["parameters"]["sizes"]
    result = {}
    for of, shape in _PLOTS.items():
        if of not in sizes:
            raise LocalError(f"{RESULTS.format('growth')} has no sizes of {of}")
        lines = (
            ("a party", _points(known, growth.CLIENT, of, sizes[of])),
            ("the aggregator", _points(known, growth.AGGREGATOR, of, sizes[of])),
            ("peer: a party's masking in Flower", _points(known, growth.CLIENT, of, sizes[of], "peer")),
            ("limit: AES of a party's masks", _points(known, growth.CLIENT, of, sizes[of], "limit")),
        )
        axis = f"{shape.axis} (logarithmic)"
        result[f"performance-{of}.svg"] = LogPlot(
            shape.title, axis, "processor time (logarithmic)", lines, shape.text, _time_text
        )
    return result


def _time_text(seconds: float) -> str:
    return shown(seconds, "s")


def _points(
    known: Stored, kind: str, of: str, values: Sequence[int], beside: str | None = None
) -> list[Point]:
    def cost_of(value: int) -> float:
        name = growth.figure_name(kind, of, value)
        return (
            known.beside("growth", name, beside) if beside else float(known.figure("growth", name)["median"])
        )

    return [(float(value), cost_of(value)) for value in values]


def _growth_note(known: Stored) -> str:
    fits = {(one["figure"], one["of"]): one for one in known.result("growth")["parameters"]["fits"]}
    bytes_up = fits[growth.UP, "length"]
    return (
        "The plots are of an exact secure sum, in which a tenth of the parties drop out at the most "
        f"expensive point ({_file('growth')}). A party sends {shown(bytes_up['a'], 'B')}, and "
        f"{bytes_up['b']:.2g} B more for each number. The peer's time is that of masking alone, without "
        "signatures, encryption or checks. The limit is the time in which OpenSSL makes the bytes of a "
        "party's masks by AES-256-CTR." + _disturbed(known, "growth")
    )


def _many(known: Stored) -> str:
    """Return the sentences on clients over sockets; none where they were not measured."""
    if many.BENCH not in known.results:
        return ""
    parameters = known.result(many.BENCH)["parameters"]
    size, cut_off = max(parameters["sizes"]), parameters["killed"]
    grows = {one["figure"]: f"n^{one['b']:.2g}" for one in parameters["growth"]}
    kinds = ("aggregator CPU time, sum", "aggregator peak memory", "client receives")
    time, memory, received = (known.text(many.BENCH, many.figure_name(kind, *size)) for kind in kinds)
    growth_text = ", ".join(grows[kind] for kind in kinds)
    return (
        f"\n\nOf {size[0]:,} clients over mutual TLS on loopback, {cut_off:.0%} are cut off. The aggregator "
        f"needs {time} of processor time and {memory} for a sum of {size[1]:,} numbers. A client "
        f"receives {received}. With n clients these three costs grow as {growth_text} "
        f"([all figures]({FOLDER}tables.md#many))."
    )


def _disturbed(known: Stored, bench: str) -> str:
    """Return a sentence on the work of other programs, where there was much."""
    others = known.result(bench)["others"]
    if others is None or others <= QUIET:
        return ""
    return (
        f" Other programs used {others:.0%} of the cores meanwhile, which makes processor times longer too."
    )


def _peers(known: Stored) -> str:
    """Return the Markdown table of peers, each beside the figure of smpc-dp from the same run."""
    compared = (
        ("secagg", "client CPU time", "a client of a secure sum of 100,000 numbers, 100 parties"),
        ("compare", "10000 comparisons", "10,000 comparisons of two parties' 16-bit numbers, by the clock"),
        ("garbling", "end to end", "garbled gates between two processes"),
        ("ot", "correlated transfers over the channel, k = 4", "oblivious transfers between two processes"),
        (
            "pairwise",
            PAIR,
            "a pair of Kendall's tau with covert security, both sides; the peer is semi-honest",
        ),
        (
            "engines",
            "mpyc over our channels, 3 servers, all pairs of 30: wall",
            "three servers, by the clock",
        ),
        ("proofs", "64-bit range proof: prove", "a range proof of 64 bits, by the clock"),
        ("sampling", "discrete Gaussian, sigma 100", "one exact draw of noise"),
    )
    return (
        "The table compares smpc-dp with peers, other programs that were measured in the same run. A peer "
        f"often does less ([what differs]({FOLDER}README.md)): Flower signs and checks nothing, and emp's "
        "channels are not encrypted.\n\n"
        + markdown_table(
            ("what", "smpc-dp", "peer", "smpc-dp, times as fast"), (_peer(known, *one) for one in compared)
        )
    )


def _peer(known: Stored, bench: str, name: str, work: str) -> tuple[str, ...]:
    figure = known.figure(bench, name)
    median = known.beside(bench, name, "peer")
    peer = f"{shown(median, figure['unit']).strip()}, {figure['peer']['name'].partition(',')[0]}"
    return work, known.text(bench, name), peer, f"{figure['ratio_to_peer']:.3g}"


def _file(bench: str) -> str:
    name = RESULTS.format(bench)
    return f"[{name}]({FOLDER}{name})"
