"""`smpc-dp bench scenarios` with few parties."""

from __future__ import annotations

import pytest

from smpc_dp_lab.bench import scenarios


@pytest.mark.long
def test_it_measures_every_session_and_the_audit() -> None:
    report = scenarios.run_scenarios_bench(scenarios=scenarios.QUICK)
    figures = {figure.name: figure.median for figure in report.figures}
    memory = {"party: peak memory", "aggregator: peak memory"}
    for session in scenarios.QUICK.sessions:
        kinds = (
            scenarios.KINDS.keys() if session.shared else scenarios.KINDS.keys() - memory | {scenarios.WHOLE}
        )
        for kind in kinds:
            assert figures[scenarios.figure_name(session.name, kind)] > 0
    # A noisy element takes 4 bytes or more each way.
    for name in ("ten hospitals", "a dozen phones"):
        for way in ("sent", "received"):
            assert figures[f"{name}: party: {way}"] > 4 * scenarios.LENGTH
    assert figures["log of 10 users: audit"] > 0
    assert report.parameters["audited"] == 10


def test_the_sessions_are_those_that_users_ask_for() -> None:
    sizes = {one.name: one.parties for one in scenarios.FULL.sessions}
    assert list(sizes.values()) == [10, 100, 1_000, 200]
    assert scenarios.FULL.audited == 1_000
    assert all(one.shared < one.parties for one in scenarios.FULL.sessions)
