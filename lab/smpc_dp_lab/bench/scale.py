"""docs/scale.md: time, bytes and money on many machines, from the stored results of benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smpc_dp.capabilities.gopa.verifiable.audit import BATCH
from smpc_dp.capabilities.gopa.verifiable.params import MAX_PARTIES as MAX_VERIFIABLE
from smpc_dp.engine.phases.parameters import MAX_PARTIES
from smpc_dp.simulate.statistic import CHUNK

Json = Mapping[str, Any]

# Prices: of an hour of a processor's core, and of a gigabyte that leaves a machine.
CORE_HOUR, GIGABYTE = 0.04, 0.09
COUNTS, MACHINES = (100_000, 1_000_000), (1, 10, 100)
# Parties of a simulated session.
SESSION = 1_000
_LIMITS = (
    f"A verifiable average has at most {MAX_VERIFIABLE:,} parties, any other sum at most {MAX_PARTIES:,}.",
    "With many parties the bytes to all parties, which grow as n², cost more than all computation. The",
    "aggregator's process needs an open file for each party: `ulimit -n` is often 1,024.",
    "",
    "So divide 10⁵ parties into sessions of a thousand parties. Each session's average has noise of its own.",
)


@dataclass(frozen=True)
class Work:
    """Work that is divided into shards: processor seconds and bytes for one element, shard size.

    Attributes:
        name: of one element. seconds, sent: of processor time and of bytes to the workers, of one.
        shard: elements of a shard.
    """

    name: str
    seconds: float
    sent: float
    shard: int

    def hours_of_cores(self, count: int) -> float:
        """Return the processor time of `count` elements, in hours."""
        return count * self.seconds / 3600

    def clock(self, count: int, cores: int) -> float:
        """Return the seconds that `count` elements take on `cores` cores, one shard a core at a time."""
        shards = -(-count // self.shard)
        return -(-shards // cores) * min(count, self.shard) * self.seconds


@dataclass(frozen=True)
class Units:
    """Costs of one element of each kind of work, as the benchmarks measured them.

    Attributes:
        works: what is divided into shards.
        of_aggregator: a and b of an aggregator's processor time a n^b, for n parties.
        down: bytes to a party: at `parties`, and more for each further one.
        cores: of the machine that measured.
    """

    works: tuple[Work, ...]
    of_aggregator: tuple[float, float]
    down: tuple[float, float]
    parties: int
    cores: int

    @classmethod
    def of(cls, results: Sequence[Json]) -> Units:
        """Return the units of stored results; KeyError where one is missing."""
        benches = {result["bench"]: result for result in results}
        medians = {
            (name, figure["name"]): float(figure["median"])
            for name, result in benches.items()
            for figure in result["figures"]
        }
        sums = {
            parties: f"secure sum, sparse graph, {parties} users, 10 may be lost: " for parties in (100, 1000)
        }
        few, many = (medians["gopa", name + "bytes down of a user"] for name in sums.values())
        alone = "123000 pairs in one process"
        proof = "user of length 1: "
        fit = next(
            one
            for one in benches["growth"]["parameters"]["fits"]
            if (one["figure"], one["of"]) == ("aggregator CPU time", "parties")
        )
        simulated = 1 / medians["gopa", sums[1000] + "users per second in simulation"]
        return cls(
            works=(
                Work("simulated party of a sum", simulated, 0.0, SESSION),
                # Evaluations that nobody checks. Two records of two fields, 8 bytes each.
                Work("simulated pair, `covert=0`", medians["pairwise", alone] / 123_000, 32.0, CHUNK),
                Work(
                    "user's proofs in an audit",
                    medians["proofs", proof + "verify in a batch of 1000, each"],
                    medians["proofs", proof + "bytes"],
                    BATCH // 2,
                ),
            ),
            of_aggregator=(fit["a"], fit["b"]),
            down=(many, (many - few) / 900),
            parties=1000,
            cores=benches["growth"]["machine"]["cores"],
        )

    def aggregator_seconds(self, parties: int) -> float:
        """Return the aggregator's processor seconds for so many parties, by a fitted power."""
        a, b = self.of_aggregator
        return a * math.pow(parties, b)

    def party_bytes(self, parties: int) -> float:
        """Return the bytes that the aggregator sends to one of so many parties."""
        at, more = self.down
        return at + more * (parties - self.parties)


def markdown(results: Sequence[Json]) -> str:
    """Return the text of docs/scale.md, computed from stored results."""
    units = Units.of(results)
    a, b = units.of_aggregator
    machines = " | ".join(f"on {count}" for count in MACHINES)
    more = f"{units.down[1]:.3g} B more for each further party"
    lines = [
        "# Costs on many machines",
        "",
        "All costs on this page are calculated from [benchmarks](performance.md) of one machine.",
        f"A machine has {units.cores} cores. An hour of a core costs {CORE_HOUR:g}, and a gigabyte that",
        f"leaves a machine costs {GIGABYTE:g}. See [how to use several machines](guides/machines.md).",
        "",
        "## What is divided",
        "",
        "N elements of u seconds of processor time are N / s shards. On c cores they take",
        "⌈⌈N / s⌉ / c⌉ · s · u by the clock. The start of the cluster, and the work of a single process,",
        "as reading a log, are left out. With more machines than *at most* some machines have no shard.",
        "",
        f"| element | u | s | N | {machines} | at most | sent | money |",
        "|---|---|---|---|" + "---|" * (len(MACHINES) + 3),
        *_rows(units),
        "",
        "## What is not divided",
        "",
        "A session has one aggregator, a process on one machine. For n parties the aggregator needs",
        f"{a:.3g} n^{b:.3g} s of processor time, fitted at 30 to 240 parties. The aggregator sends",
        f"{units.down[0]:,.0f} B to each of {units.parties:,} parties, and {more},",
        "measured at 100 and 1,000 parties.",
        "",
        "| parties | aggregator, processor | bytes to a party | bytes to all | money |",
        "|---|---|---|---|---|",
        *_session_rows(units),
        "",
        *_LIMITS,
        "",
    ]
    return "\n".join(lines)


def _rows(units: Units) -> Iterator[str]:
    for work in units.works:
        for count in COUNTS:
            money = work.hours_of_cores(count) * CORE_HOUR + count * work.sent / 1e9 * GIGABYTE
            clocks = (_seconds(work.clock(count, machines * units.cores)) for machines in MACHINES)
            # With so many machines each core has one shard.
            busy = math.ceil(-(-count // work.shard) / units.cores)
            yield (
                f"| {work.name} | {_seconds(work.seconds)} | {work.shard:,} | {count:,} | "
                f"{' | '.join(clocks)} | {busy:,} | {_bytes(count * work.sent)} | {money:.2g} |"
            )


def _session_rows(units: Units) -> Iterator[str]:
    for parties in (1_000, 10_000, MAX_PARTIES):
        sent = parties * units.party_bytes(parties)
        money = units.aggregator_seconds(parties) / 3600 * CORE_HOUR + sent / 1e9 * GIGABYTE
        yield (
            f"| {parties:,} | {_seconds(units.aggregator_seconds(parties))} | "
            f"{_bytes(units.party_bytes(parties))} | {_bytes(sent)} | {money:,.2f} |"
        )


def _seconds(value: float) -> str:
    """Return a time as text, with a fitting unit and two digits."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if value >= 2 * size or unit == "ms":
            break
    return f"{value / size:.2g} {unit}" if value < 100 * size else f"{value / size:,.0f} {unit}"


def _bytes(value: float) -> str:
    """Return a number of bytes as text, with a fitting unit and two digits."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)):
        if value >= size:
            return f"{value / size:.2g} {unit}" if value < 100 * size else f"{value / size:,.0f} {unit}"
    return "none"
