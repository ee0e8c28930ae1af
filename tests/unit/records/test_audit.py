"""The audit of a session's release: a right one passes, and each planted fault is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.records import GopaRecordParameters
from smpc_dp.capabilities.gopa.verifiable.records import VerifiableRecordParameters
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.record_audit import RecordAudit, audit_records
from smpc_dp.records.schema import Number
from smpc_dp.secagg.records import RecordSumParameters, SteppedSumParameters
from smpc_dp.session.local import create_local_session
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests import command
from tests.unit.records.test_record_parameters import GIVEN, given

Audited = RecordSumParameters | SteppedSumParameters | GopaRecordParameters | VerifiableRecordParameters
PERSON = {"unit": "person", "id": "patient", "rows_per_person": 3, "parties_per_person": 2}
# Few releases: fixed seeds, and faults that are many deviations away.
SAMPLES = 20_000
# the rows of the audit have the greatest influence here
SANDWICH = "sandwich(age ~ sex, [-1, 0], [0.5, 0.5], [0.05, -0.045, 0.05], 3, 3707576043)"


def planned(parameters: dict[str, Any], parties: int, protocol: str = "secagg") -> Audited:
    checked, issues = checker_of(protocol, session_protocol(protocol).version)(parameters, parties)
    assert isinstance(checked, Audited), issues
    return checked


def audited(parameters: Audited, samples: int = SAMPLES) -> RecordAudit:
    return audit_records(parameters, samples, SeededRandomnessForSimulation(1, "audit"))


@pytest.mark.thin(5)
@pytest.mark.parametrize(
    ("parameters", "parties", "protocol"),
    [
        (GIVEN, 10, "secagg"),
        (GIVEN, 10, "gopa"),
        (given(topology="direct"), 10, "gopa"),
        (given(verifiable=True), 10, "gopa"),
        (given(PERSON), 5, "secagg"),
        (given({"rows": "public"}, public_rows=[30, 1, 2, 5, 4], ask=["mean(age)", "sex"]), 5, "secagg"),
        (given(ask=["variance(age)", "mean(age) by sex", "quantile(age, 0.5)"]), 5, "secagg"),
        (given(ask=[SANDWICH]), 5, "secagg"),
        (given({"rows": "public"}, public_rows=[30, 1, 2, 5, 4], ask=[SANDWICH, "mean(age)"]), 5, "secagg"),
    ],
)
def test_a_right_release_passes_at_exactly_the_counted_shares(
    parameters: dict[str, Any], parties: int, protocol: str
) -> None:
    """The seed is fixed; another one would fail once in 500."""
    result = audited(planned(parameters, parties, protocol))
    assert not result.violations
    assert 0.97 < result.variance < 1.03
    # The neighbours are nearly as far apart as any: otherwise the audit would look at too little.
    assert 0.6 < result.moved <= 1 + 1e-9
    # Two pairs of inputs, both orders, eight points of the profile.
    assert len(result.findings) == 2 * 2 * 8
    json.dumps(result.to_json())


def test_clipping_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(self: Number, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.floor((values - self.lower) / self.width * self.steps + 0.5).astype(np.int64)

    parameters = planned(GIVEN, 10)
    monkeypatch.setattr(Number, "points", points)
    result = audited(parameters)
    # As a black box, and by the exact vectors.
    assert result.findings[0].refuted
    assert result.findings[0].lower > 2
    assert result.moved > 10
    assert len(result.violations) == 2


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("parties", "protocol"), [(10, "secagg"), (5, "secagg"), (10, "gopa"), (10, "verifiable")]
)
def test_one_share_of_noise_that_is_left_out_is_found(
    parties: int, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form: dict[str, Any] = {"verifiable": True} if protocol == "verifiable" else {}
    parameters = planned(given(**form), parties, "gopa" if form else protocol)
    counted, calls = parameters.request.mechanism.honest, iter(range(1 << 30))
    add = type(parameters).own_noise

    def left_out(self: Audited, source: NoiseSource, count: int) -> np.ndarray[Any, Any]:
        noise = add(self, source, count)  # type: ignore[arg-type]
        return noise if next(calls) % counted else np.zeros_like(noise)

    monkeypatch.setattr(type(parameters), "own_noise", left_out)
    result = audited(parameters)
    assert result.variance == pytest.approx(1 - 1 / counted, rel=0.02)
    assert result.variance < result.least
    [violation] = [line for line in result.violations if "variance" in line]
    assert "of the variance that is claimed" in violation


@pytest.mark.long
def test_by_default_there_are_enough_releases_to_see_one_share_of_many() -> None:
    parameters = planned(given(ask=["mean(age)"]), 60)
    counted = parameters.request.mechanism.honest
    less = replace(parameters, variance=parameters.request.variance * (counted - 1) / counted)
    source = SeededRandomnessForSimulation(2, "audit")
    assert counted == 48
    assert not audit_records(parameters, randomness=source).violations
    assert "of the variance that is claimed" in audit_records(less, randomness=source).violations[0]


def test_noise_that_is_planned_too_small_is_found_over_the_profile() -> None:
    parameters = planned(GIVEN, 5)
    result = audited(replace(parameters, variance=parameters.request.variance / 16))
    assert result.findings[0].refuted
    assert result.variance == pytest.approx(1 / 16, rel=0.02)


def test_other_sessions_are_refused() -> None:
    sums, _ = checker_of("secagg", 2)({"length": 1, "lower": 0, "upper": 1, "kind": "integer"}, 5)
    with pytest.raises(ConfigError, match="asks no statistics of records"):
        audit_records(sums)


def test_the_command_audits_a_session_file(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, ("alice", "bob", "carol", "dave", "erin"), GIVEN)
    done = command.smpc_dp("plan", "check", "--session", str(path), "--samples", "20000", "--json")
    printed = json.loads(done.stdout)
    assert printed["counted"] == 3
    # One run in 500 may find what is not there.
    assert done.returncode == int(printed["violation"])
    assert {"variance", "least_variance", "moved", "strongest"} <= printed.keys()
    # Another claim than the session's is tested by itself, and refuted; of a weak one nothing is found.
    false = command.smpc_dp(
        *("plan", "check", "--session", str(path), "--samples", "20000", "--epsilon", "0.01"), "--json"
    )
    assert false.returncode == 1
    assert [json.loads(false.stdout)[key] for key in ("epsilon", "delta", "tested")] == [0.01, 1e-6, 4]
    weak = command.smpc_dp(
        *("plan", "check", "--session", str(path), "--samples", "20000", "--delta", "0.999")
    )
    # By its variance right noise is refuted once in 1000 runs, whatever the claim.
    assert weak.returncode == int("of the variance that is claimed" in weak.stdout)
    assert "nothing found: the lower bound is 0" in weak.stdout
    assert ">= -" not in weak.stdout
    refused = command.smpc_dp("plan", "check")
    assert "either a mechanism is needed, or --session" in refused.stdout + refused.stderr
