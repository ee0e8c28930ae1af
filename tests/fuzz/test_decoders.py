"""Every decoder of foreign bytes, on some hundred changed inputs; `make fuzz` runs as many as one likes.

Both auditors are such decoders: they must find the same.
"""

from __future__ import annotations

import pytest

from tests.fuzz.audits import COST, MADE, Judged
from tests.fuzz.targets import TARGETS

# Of a target whose inputs cost as little as a message's.
INPUTS = 400
NAMES = [
    pytest.param(name, marks=pytest.mark.long if target.cost > COST else ())
    for name, target in TARGETS.items()
]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_bytes_are_refused_or_read_back(name: str) -> None:
    cost = TARGETS[name].cost
    least = 50 if cost < COST else 25 if cost <= 3 * COST else 5
    TARGETS[name].run(0, max(least, INPUTS // cost))


@pytest.mark.parametrize(
    "name", [pytest.param(*name.values, marks=name.marks) for name in NAMES if "audits" in str(name.values)]
)
def test_both_auditors_take_what_is_changed_then(name: str) -> None:
    decoder, seeds = MADE[name.removeprefix("audits.")]()
    if isinstance(decoder, Judged):
        assert [decoder.judge(seed) for seed in seeds] == [0] * len(seeds)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_seed_is_accepted_and_found_bugs_stay_mended(name: str) -> None:
    target = TARGETS[name]
    if name != "hello.difference":  # it has errors alone
        target.decoder(target.all_seeds()[0])
    for content in target.result():
        target.check(content)
