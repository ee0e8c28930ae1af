"""Stored results in both auditors, which must find the same: as files, and with bodies that are signed."""

from __future__ import annotations

import copy
import functools
import json

from smpc_dp.errors import Check
from smpc_dp.results.audit import audit_result
from smpc_dp_lab.vectors.signed_results import CHECKED, KEEP, RECEIVER, SignedScenario, sign_body
from smpc_dp_verify import result as second
from tests.fuzz.audits import COST
from tests.fuzz.files import file_of
from tests.fuzz.target import Target


def _judge(scenario: SignedScenario, content: bytes) -> None:
    """Compare what both auditors find in a file."""
    session = file_of(f"{scenario.name}.toml", scenario.text.encode())
    file = file_of("result.json", content)
    first, other = audit_result(file, session=session), second.audit_result(file, session)
    if scenario is KEEP and first.check == Check.OUT_OF_BOUNDS:
        # The second auditor plans no noise, and so no range; it finds that the numbers differ.
        assert other.code == first.code
        return
    ours, theirs = ((each.code, each.check, each.culprit) for each in (first, other))
    assert ours == theirs, f"{first} and {other}"
    assert first.culprit is None or first.check is not None


def _signed(scenario: SignedScenario, body: bytes) -> None:
    """Compare what both auditors find in a result whose body the aggregator has signed."""
    result = copy.deepcopy(scenario.results[RECEIVER])
    sign_body(scenario, result, body)
    _judge(scenario, json.dumps(result).encode())


def _files() -> tuple[bytes, ...]:
    return (json.dumps(CHECKED.results[RECEIVER]).encode(),)


def _body(scenario: SignedScenario) -> tuple[bytes, ...]:
    return (bytes.fromhex(scenario.results[RECEIVER]["evidence"]["signed_result"]["body"]),)


def targets() -> list[Target]:
    """Return the targets of this file, none of which has played a run yet."""
    bodies = [
        Target(
            f"results.{scenario.name}",
            functools.partial(_signed, scenario),
            functools.partial(_body, scenario),
            "msgpack",
            COST,
        )
        for scenario in (CHECKED, KEEP)
    ]
    return [Target("results.file", functools.partial(_judge, CHECKED), _files, "text", COST), *bodies]
