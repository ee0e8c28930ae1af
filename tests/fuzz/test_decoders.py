"""Every decoder of foreign bytes, on some hundred changed inputs; `make fuzz` runs as many as one likes."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import TARGETS

# Of a target whose inputs cost as little as a message's.
INPUTS = 1500


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_bytes_are_refused_or_read_back(name: str) -> None:
    TARGETS[name].run(0, max(50, INPUTS // TARGETS[name].cost))


@pytest.mark.parametrize("name", TARGETS)
def test_the_first_seed_is_accepted_and_found_bugs_stay_mended(name: str) -> None:
    target = TARGETS[name]
    if name != "hello.difference":  # it has errors alone
        target.decoder(target.all_seeds()[0])
    for content in target.result():
        target.check(content)
