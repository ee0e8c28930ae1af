"""Audits of results: without a session or a run, of other kinds, and what they say."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases.certify import sample_certificate
from smpc_dp.engine.phases.last_results import SentResults
from smpc_dp.engine.phases.parameters import MAX_PARTIES
from smpc_dp.engine.registry import session_protocol
from smpc_dp.errors import Check, ConfigError, LocalError
from smpc_dp.results import stored as first_form
from smpc_dp.results.audit import ResultReport, audit_result, compare_results, is_result
from smpc_dp.results.signed_total import SignedTotal
from smpc_dp.session.session_file import load_session, roster_entry
from smpc_dp.wire.signing import Context
from smpc_dp_lab.vectors import signed_results
from smpc_dp_lab.vectors.runs import ROWS
from smpc_dp_lab.vectors.signed_results import CHECKED, KEEP, RECEIVER, SCENARIOS, SignedScenario, flip
from smpc_dp_verify import __main__ as second_command
from smpc_dp_verify import result as second
from smpc_dp_verify import stored as second_form
from smpc_dp_verify.sums import read_file, read_sums
from tests.command import smpc_dp

VECTORS = Path(__file__).parents[3] / "protocols" / "secagg" / "vectors"
RECORDS: dict[str, object] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "ask": ["count", "mean(age)"],
    "dropout": 0.25,
    "corrupt": 0.0,
    "records": {
        "unit": "record",
        "rows": "private",
        "max_rows": 5,
        "columns": {"age": {"lower": 0, "upper": 90}},
    },
}


class RecordScenario(SignedScenario):
    """Statistics of tables without rows."""

    def vector(self, index: int) -> Any:
        del index
        return np.zeros(self.session.checked_parameters.requests[0].encoding.length, np.int64)

    def result(self, **display: Any) -> dict[str, Any]:
        """Return the answers of the receiver, as JSON data."""
        [parameters] = self.session.checked_parameters.requests
        answers = parameters.result(self.outcomes[RECEIVER], self.context.names, **display)
        content: dict[str, Any] = json.loads(json.dumps(answers.to_json()))
        return content


def stored(folder: Path, scenario: SignedScenario, result: Any) -> tuple[Path, Path]:
    """Write a result and its session; return both files."""
    file, session = folder / "result.json", folder / "session.toml"
    file.write_text(json.dumps(result))
    session.write_text(scenario.text)
    return file, session


def both(file: Path, session: Path, run: str | None = None) -> ResultReport:
    """Return the report of the first auditor, which says what the second one finds."""
    first, other = audit_result(file, session=session, run=run), second.audit_result(file, session, run)
    assert (first.code, first.check, first.culprit, first.session, first.run_id) == (
        other.code,
        other.check,
        other.culprit,
        other.session,
        other.run_id,
    )
    return first


def test_a_result_without_a_run_is_of_some_run(tmp_path: Path) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    report = both(file, session)
    assert (report.code, report.ok, report.checked) == (4, False, True)
    assert "With more than c = 0 corrupt parties this proves nothing" in report.statement
    assert "checked against the commitments of the survivors" in report.conclusion


def test_a_result_of_another_run_is_refused(tmp_path: Path) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    assert both(file, session, "0" * 64).check == Check.OTHER_RUN
    for audit in (
        audit_result(file, session=session, request=2),
        second.audit_result(file, session, None, 2),
    ):
        assert (audit.code, audit.check) == (1, "other-request")


def test_without_a_session_file_nothing_is_checked(tmp_path: Path) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    for given in (None, CHECKED.session.digest.hex()):
        assert audit_result(file, session=given).code == second.audit_result(file, given).code == 3
        assert compare_results(file, file, session=given).code == 3
        assert second.compare_results(file, file, given).code == 3
    with pytest.raises(LocalError, match=r"none\.toml"):
        audit_result(file, session=tmp_path / "none.toml")
    with pytest.raises(OSError, match=r"none\.toml"):
        second.audit_result(file, tmp_path / "none.toml")
    with pytest.raises(LocalError):
        audit_result(tmp_path / "none.json", session=session)
    with pytest.raises(ConfigError):
        audit_result(file, session=session, run="0")
    with pytest.raises(ValueError, match="run"):
        second.audit_result(file, session, "0")


def test_the_word_of_the_aggregator_is_named_so(tmp_path: Path) -> None:
    result = KEEP.results[RECEIVER]
    file, session = stored(tmp_path, KEEP, result)
    assert both(file, session).checked is False
    report = both(file, session, result["evidence"]["run_id"])
    assert (report.ok, report.checked) == (True, False)
    assert report.conclusion.startswith("The signatures hold for the session and run that were given: ")
    assert report.conclusion.endswith("is relay's word and was not checked.")
    opinion = second.audit_result(file, session, result["evidence"]["run_id"])
    assert "The signatures hold.\n" in second_command.result_text(opinion)
    assert "the aggregator's word, which was not checked" in second_command.result_text(opinion)


def test_a_result_without_a_signed_total_says_what_audits_it(tmp_path: Path) -> None:
    result = CHECKED.results["relay"]
    assert result["evidence"]["signed_result"] is None
    report = both(*stored(tmp_path, CHECKED, result))
    assert report.code == 6
    assert "it is relay's own, or the signed total was taken out." in report.conclusion
    assert "Audit the result of a party" in report.conclusion
    result = CHECKED.results[RECEIVER]
    result["evidence"]["signed_result"] = None
    report = both(*stored(tmp_path, CHECKED, result))
    assert (report.code, "or the signed total was taken out" in report.conclusion) == (6, True)
    report = both(*stored(tmp_path, CHECKED, {"learner": "walk-sum"}))
    assert report.code == 6
    assert "no evidence" in report.conclusion
    result["evidence"]["log"] = {"head": "ab"}
    report = both(*stored(tmp_path, CHECKED, result))
    assert "smpc-dp audit LOG --session FILE --head ab" in report.conclusion
    assert both(*stored(tmp_path, CHECKED, {"evidence": {"a": 1}})).check == Check.MALFORMED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": -1e999}',
        '{"evidence": 1}',
        '{"evidence": {"session_digest": 1}}',
    ],
)
def test_what_is_no_result_is_malformed(text: str, tmp_path: Path) -> None:
    file, session = stored(tmp_path, CHECKED, None)
    file.write_text(text)
    assert both(file, session).check == Check.MALFORMED


@pytest.mark.parametrize("keys", [("weight",), ("survivors",), ("evidence", "signed_result", "operation")])
def test_half_a_character_is_malformed(keys: tuple[str, ...], tmp_path: Path) -> None:
    result = inner = CHECKED.results[RECEIVER]
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = "\ud800"
    assert both(*stored(tmp_path, CHECKED, result)).check == Check.MALFORMED


def test_the_error_of_a_noisy_result_is_that_of_the_session(tmp_path: Path) -> None:
    for name in ("standard_error", "curator_standard_error"):
        file, session = stored(tmp_path, KEEP, KEEP.results[RECEIVER] | {name: 0.1})
        report = audit_result(file, session=session)
        assert (report.code, report.check, report.culprit) == (1, Check.WRONG_RESULT, None)
        assert name in second.audit_result(file, session).unchecked
    result = KEEP.results[RECEIVER]
    result["privacy"]["epsilon"] = 0.1
    file, session = stored(tmp_path, KEEP, result)
    assert audit_result(file, session=session).check == Check.WRONG_RESULT


@pytest.mark.parametrize("protocol", ["secagg", "gopa"])
def test_answers_of_records_follow_from_the_signed_total(protocol: str, tmp_path: Path) -> None:
    scenario = RecordScenario("records", "", RECORDS, protocol=protocol, kind="statistics")
    for display in ({}, {"level": 0.9, "simultaneous": True, "hide": 0.0}):
        file, session = stored(tmp_path, scenario, scenario.result(**display))
        assert both(file, session).code == 4
        unchecked = second.audit_result(file, session).unchecked
        # of GOPA the second auditor plans no noise
        assert ("operation" in unchecked) == ("estimates" in unchecked) == (protocol == "gopa")
        assert ("note" in unchecked) == (protocol == "secagg")
    for name in ("value", "standard_error"):
        result = scenario.result()
        result["estimates"][0][name] = 7.0
        file, session = stored(tmp_path, scenario, result)
        assert audit_result(file, session=session).check == Check.WRONG_RESULT
        assert second.audit_result(file, session).code == (1 if protocol == "secagg" else 4)


COMPUTED: dict[str, dict[str, object]] = {
    "normal": {
        "ask": ["count", "ill", "mean(age)", "sum(age)", "variance(age)", "table1(ill) where age < 50"]
    },
    "laplace": {"ask": ["ill", "ill where age < 50", "count where age < 50", "count"]},
    "both": {"split": "balanced", "ask": ["count", "mean(age)", "variance(age)", "heterogeneity(age)"]},
    "pairs": {"ask": ["covariance(age, old)", "correlation(age, old)", "difference(age) by ill"]},
    "fits": {"ask": ["regression(age ~ old)", "quantile(age, 0.1, 0.5)"]},
    "groups": {"ask": ["missing(age) by ill", "risk(old) by ill where age < 50"], "split": "balanced"},
}


def answered(kind: str) -> RecordScenario:
    """Return a scenario whose answers the second auditor computes."""
    columns: dict[str, Any] = {
        "age": {"lower": 0, "upper": 90, "step": 1},
        "ill": {"values": ["n", "y"], "other": "n", "missing": False},
        "old": {"lower": 0, "upper": 1, "step": 1},
    }
    records = {"unit": "record", "rows": "private", "max_rows": 5, "rows_expected": 20, "columns": columns}
    return RecordScenario("records", "", RECORDS | COMPUTED[kind] | {"records": records}, kind="statistics")


@pytest.mark.parametrize("kind", COMPUTED)
def test_both_find_a_changed_number_or_word_of_an_estimate(kind: str, tmp_path: Path) -> None:
    scenario = answered(kind)
    result = scenario.result(hide=0.0)
    file, session = stored(tmp_path, scenario, result)
    assert both(file, session).code == 4
    unchecked = {*second.audit_result(file, session).unchecked}
    read = second_form.read_stored(second_form.read_object(file))
    assert read is not None
    known = read_file(scenario.text.encode())
    assert not isinstance(known, bytes)
    signed = second.SignedRun(read, read_sums(known))
    signed.check_run()
    words, laws, changed = {"name", "unit", "part_of", "noise"}, set(), 0
    for one in read.fields["estimates"]:
        if f"estimates of {one['statistic']}" in unchecked:
            continue
        laws.add(one["noise"])
        for name in {*one} - unchecked - {"statistic", "cell"}:
            right = one[name]
            more = 1e-4 + 1e-6 * (one["standard_error"] or 0.0)
            one[name] = "7" if name in words else 7.125 if right is None else right * (1 + 1e-6) + more
            with pytest.raises(second_form.Failed) as failed:
                signed.check_numbers()
            assert failed.value.check == "wrong-result"
            assert str(failed.value) == f"{name} in the estimates of {one['statistic']}"
            one[name] = right
            changed += 1
    expected = {"both": {"laplace", "normal"}, "pairs": {"normal"}, "fits": {"normal"}, "groups": {"laplace"}}
    assert "level" not in unchecked
    assert laws == expected.get(kind, {kind})
    assert changed >= 18
    signed.check_numbers()


def test_the_second_auditor_says_where_no_interval_depends_on_the_level(tmp_path: Path) -> None:
    asked = RECORDS | {"records": AGES, "ask": ["heterogeneity(age)"]}
    scenario = RecordScenario("records", "", asked, kind="statistics")
    unchecked = second.audit_result(*stored(tmp_path, scenario, scenario.result())).unchecked
    assert {"level", "note", "follow_up", "estimates of heterogeneity(age)"} <= {*unchecked}


@pytest.mark.parametrize("change", [{"level": 0.9}, {"simultaneous": True}], ids=str)
def test_both_find_intervals_of_another_level(change: dict[str, Any], tmp_path: Path) -> None:
    scenario = answered("laplace")
    changed = scenario.result() | change
    assert both(*stored(tmp_path, scenario, changed)).check == Check.WRONG_RESULT
    assert both(*stored(tmp_path, scenario, scenario.result(**change))).code == 4


class OtherPlan(RecordScenario):
    """A run whose members all have another plan than the session's: `changed` returns its text."""

    def changed(self, planned: str) -> str:
        raise NotImplementedError

    @functools.cached_property
    def context(self) -> Context:
        """The context of the changed question."""
        right, planned = super().context, self.request_parameters.planned()
        operation = right.operation.replace(planned, self.changed(planned))
        return dataclasses.replace(right, operation=operation)


class LessNoise(OtherPlan):
    """A thousandth less variance."""

    def changed(self, planned: str) -> str:
        variance, rest = planned.split("/", 1)
        return f"{int(variance, 16) * 999 // 1000:x}/{rest}"


class MoreNoise(OtherPlan):
    """A hundredth more variance."""

    def changed(self, planned: str) -> str:
        variance, rest = planned.split("/", 1)
        return f"{int(variance, 16) * 101 // 100:x}/{rest}"


class OtherScales(OtherPlan):
    """Another digest of the scales."""

    def changed(self, planned: str) -> str:
        return planned[:-1] + ("0" if planned[-1] != "0" else "1")


AGES: dict[str, Any] = {"unit": "record", "rows": "private", "max_rows": 5, "rows_expected": 20}
AGES["columns"] = {"age": {"lower": 0, "upper": 90}, "ill": {"lower": 0, "upper": 1, "step": 1}}
KINDS: dict[str, dict[str, object]] = {
    "one law": RECORDS,
    "both laws": RECORDS
    | {"records": AGES, "split": "balanced", "ask": ["count", "mean(age)", "variance(age)", "variance(ill)"]},
    "several requests": {key: value for key, value in RECORDS.items() if key != "ask"}
    | {"records": AGES, "ask": "logistic(ill ~ age)", "steps": 3},
    "one step": RECORDS | {"records": AGES, "ask": "logistic(ill ~ age)", "steps": 1},
}


@pytest.mark.parametrize("name", KINDS)
def test_both_take_results_with_each_kind_of_noise(name: str, tmp_path: Path) -> None:
    scenario = RecordScenario("records", "", KINDS[name], kind="statistics")
    file, session = stored(tmp_path, scenario, scenario.result())
    assert both(file, session).code == 4
    unchecked = second.audit_result(file, session).unchecked
    assert unchecked[0] == ("note" if "law" in name else "estimates")
    assert ("follow_up" in unchecked) == ("law" in name)
    assert {"privacy.claim", "privacy.assumptions", "privacy.not_protected"} <= {*unchecked}


def _exchanged(estimates: list[dict[str, Any]]) -> None:
    for one, other in ((estimates[0], estimates[1]),):
        one["cell"], other["cell"] = other["cell"], one["cell"]


@pytest.mark.parametrize(
    "change",
    [
        _exchanged,
        lambda estimates: estimates[2].update(cell={"sex": "f"}),
        lambda estimates: estimates.append(estimates[0] | {"statistic": "count by ward"}),
        lambda estimates: estimates.append(estimates[0] | {"statistic": 7}),
        lambda estimates: estimates.append(7),
        lambda estimates: estimates.insert(0, estimates.pop()),
    ],
)
def test_both_refuse_estimates_of_other_cells_and_questions(change: Any, tmp_path: Path) -> None:
    columns = {"age": {"lower": 0, "upper": 90, "bins": [30, 60]}, "sex": {"values": ["f", "m"]}}
    asked = RECORDS | {
        "ask": ["count by sex", "mean(age)", "age x sex"],
        "records": {"unit": "record", "rows": "private", "max_rows": 5, "columns": columns},
    }
    scenario = RecordScenario("records", "", asked, kind="statistics")
    result = scenario.result(hide=0.0)
    assert both(*stored(tmp_path, scenario, result)).code == 4
    change(result["estimates"])
    assert both(*stored(tmp_path, scenario, result)).check == Check.WRONG_RESULT


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", [LessNoise, MoreNoise, OtherScales])
def test_both_refuse_the_question_of_another_plan(kind: type[OtherPlan], name: str, tmp_path: Path) -> None:
    """Everything else holds: all members made up a run with other noise."""
    scenario = kind("records", "", KINDS[name], kind="statistics")
    assert both(*stored(tmp_path, scenario, scenario.result())).check == Check.WRONG_RESULT


class LaterStep(OtherPlan):
    """A run of the last of several requests, which begins elsewhere than the first."""

    begins = (5, -3)

    def changed(self, planned: str) -> str:
        del planned
        return str(self.request_parameters.beginning(self.begins).planned())

    def result(self, **display: Any) -> dict[str, Any]:
        """Return the answers of the receiver, as JSON data."""
        parameters = self.request_parameters.beginning(self.begins)
        answers = parameters.result(self.outcomes[RECEIVER], self.context.names, **display)
        content: dict[str, Any] = json.loads(json.dumps(answers.to_json()))
        return content


def test_both_take_the_last_of_several_requests(tmp_path: Path) -> None:
    scenario = LaterStep("records", "", KINDS["several requests"], kind="statistics")
    result = scenario.result()
    assert result["begins"] == [5, -3]
    assert both(*stored(tmp_path, scenario, result)).code == 4
    assert both(*stored(tmp_path, scenario, result | {"begins": [5, -2]})).check == Check.WRONG_RESULT
    assert both(*stored(tmp_path, scenario, result | {"begins": [5.5, 1]})).check == Check.MALFORMED


@pytest.mark.parametrize("begins", [None, [], [7, 0], [0, 0, 0]])
@pytest.mark.parametrize("name", ["several requests", "one step"])
def test_both_find_another_beginning_of_a_step(name: str, begins: list[int] | None, tmp_path: Path) -> None:
    scenario = RecordScenario("records", "", KINDS[name], kind="statistics")
    result = scenario.result()
    assert result["begins"] == [0, 0]
    assert both(*stored(tmp_path, scenario, result | {"begins": begins})).check == Check.WRONG_RESULT
    other = RecordScenario("records", "", KINDS["one law"], kind="statistics")
    changed = other.result() | {"begins": [0, 0]}
    assert both(*stored(tmp_path, other, changed)).check == Check.WRONG_RESULT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"), [("present", 3), ("counted", 4), ("rows", 12), ("privacy", {"epsilon": 0.5})]
)
def test_both_find_other_counts_of_shares_and_rows(name: str, value: Any, kind: str, tmp_path: Path) -> None:
    scenario = RecordScenario("records", "", KINDS[kind], kind="statistics")
    result = scenario.result()
    changed = result[name] | value if name == "privacy" else value
    assert result[name] != changed
    assert both(*stored(tmp_path, scenario, result | {name: changed})).check == Check.WRONG_RESULT


HUGE = 10**400


@pytest.mark.parametrize("change", [{"hide": HUGE}, {"level": HUGE}, {"privacy": {"epsilon": HUGE}}], ids=str)
def test_both_refuse_numbers_that_are_no_float64(change: dict[str, Any], tmp_path: Path) -> None:
    """Integers of 400 digits, of statistics of records and of a sum."""
    scenario = RecordScenario("records", "", RECORDS, kind="statistics")
    for each, result in ((scenario, scenario.result()), (KEEP, copy.deepcopy(KEEP.results[RECEIVER]))):
        changed = change
        if "privacy" in change:
            changed = {"privacy": result["privacy"] | change["privacy"]}
        elif each is KEEP:
            changed = {"step": HUGE}
        assert both(*stored(tmp_path, each, result | changed)).check == Check.MALFORMED


def test_both_refuse_other_types_than_integers(tmp_path: Path) -> None:
    scenario = RecordScenario("records", "", RECORDS, kind="statistics")
    changed = scenario.result() | {"present": 4.0}
    assert both(*stored(tmp_path, scenario, changed)).check == Check.WRONG_RESULT


@pytest.mark.parametrize("kind", KINDS)
def test_the_guarantee_is_that_of_the_session(kind: str, tmp_path: Path) -> None:
    scenario = RecordScenario("records", "", KINDS[kind], kind="statistics")
    result = scenario.result()
    right = result["privacy"]["guarantee"]
    changes = ({"epsilon": 0.1}, {"delta": 0.0}, {"relation": "substitution"}, {"protects": "person"})
    for guarantee in (7, *(right | change for change in changes)):
        result["privacy"]["guarantee"] = guarantee
        file, session = stored(tmp_path, scenario, result)
        assert second.audit_result(file, session).check == "wrong-result"
    result["privacy"]["guarantee"] = None
    assert both(*stored(tmp_path, scenario, result)).code == 4


@pytest.mark.parametrize("name", ["level", "hide", "privacy", "estimates", "simultaneous", "counted"])
def test_both_refuse_a_result_without_a_field(name: str, tmp_path: Path) -> None:
    scenario = RecordScenario("records", "", RECORDS, kind="statistics")
    result = scenario.result()
    del result[name]
    assert both(*stored(tmp_path, scenario, result)).check == Check.MALFORMED


def test_a_sampled_certificate_is_checked(tmp_path: Path) -> None:
    """A sample that every party of so small a run is in, in the place of a quorum's signatures."""
    result, context = CHECKED.results[RECEIVER], CHECKED.context
    evidence = result["evidence"]
    for kind, names in (("participants", evidence["participating"]), ("survivors", result["survivors"])):
        given = evidence[kind]
        signed = {name: bytes.fromhex(signature) for name, signature in given["signatures"].items()}
        assert {*signed} <= {*names}
        message = sample_certificate(
            context,
            bytes.fromhex(evidence["run_id"]),
            f"attest-{kind}",
            bytes.fromhex(given["set_digest"]),
            {context.number(name): signature for name, signature in signed.items()},
            3,
        )
        given["sample"] = {
            "signers": [*signed],
            "root": message.root.hex(),
            "proof": message.proof.hex(),
        }
    assert both(*stored(tmp_path, CHECKED, result)).code == 4
    for key, value in (("root", "00" * 32), ("proof", "00" * 32), ("signers", ["alice", "bob"])):
        changed = json.loads(json.dumps(result))
        changed["evidence"]["survivors"]["sample"][key] = value
        assert both(*stored(tmp_path, CHECKED, changed)).code == 1


def test_results_of_two_runs_or_one_party_are_not_compared(tmp_path: Path) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    other_run = dataclasses.replace(CHECKED, name="another run")
    other, learned = tmp_path / "other.json", tmp_path / "learned.json"
    other.write_text(json.dumps(other_run.results["bob"]))
    learned.write_text("{}")
    for path, reason in ((other, "two runs"), (file, "both are of alice"), (learned, "no signed result")):
        comparison, opinion = (
            compare_results(file, path, session=session),
            second.compare_results(file, path, session),
        )
        assert comparison.code == opinion.code == 6
        assert reason in comparison.conclusion


@pytest.mark.parametrize("key", ["body", "signature"])
def test_a_file_that_the_aggregator_did_not_sign_convicts_nobody(key: str, tmp_path: Path) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    other, result = tmp_path / "other.json", CHECKED.results["bob"]
    result["evidence"]["signed_result"][key] = flip(result["evidence"]["signed_result"][key])
    other.write_text(json.dumps(result))
    comparison = compare_results(file, other, session=session)
    opinion = second.compare_results(file, other, session)
    assert (comparison.code, comparison.check, comparison.culprit) == (1, "bad-signature", None)
    assert (opinion.code, opinion.check, opinion.culprit) == (1, "bad-signature", None)


def test_a_file_whose_numbers_are_not_signed_is_no_equal_total(tmp_path: Path) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    other = tmp_path / "other.json"
    other.write_text(json.dumps(CHECKED.results["bob"] | {"value": [1.0, 1.0]}))
    comparison = compare_results(file, other, session=session)
    opinion = second.compare_results(file, other, session)
    assert (comparison.code, comparison.check) == (opinion.code, opinion.check) == (1, "wrong-result")
    assert "other.json" in comparison.conclusion


def with_sets(
    scenario: SignedScenario, session: Path, *, participants: list[str], survivors: list[str]
) -> dict[str, Any]:
    """Return the receiver's result with other sets, and the digests that anybody can compute of them."""
    result: dict[str, Any] = copy.deepcopy(scenario.results[RECEIVER])
    evidence = result["evidence"]
    evidence["participating"], result["survivors"] = participants, survivors
    result["absent"] = [name for name in scenario.context.names if name not in survivors]
    read = first_form.decode_result(result)
    assert read.result is not None
    total = SignedTotal.of(read, read.result, load_session(session, audited=True))
    context, run_id = total.context, total.run_id
    own = keys.merkle_commitment_digest(context, run_id, total.roots.advertised.packed, *total.roots.roots)
    digest = keys.participants_digest(context, run_id, own, total.participants.packed)
    evidence["participants"]["set_digest"] = digest.hex()
    if evidence["survivors"] is not None:
        digest = keys.survivors_digest(context, run_id, digest, total.survivors.packed)
        evidence["survivors"]["set_digest"] = digest.hex()
    return result


@pytest.mark.parametrize(
    ("scenario", "participants", "survivors", "check"),
    [
        (KEEP, KEEP.results[RECEIVER]["survivors"], None, Check.WRONG_COUNT),
        (KEEP, [RECEIVER], None, Check.SET_GREW),
        (CHECKED, [RECEIVER], None, Check.SET_GREW),
        (CHECKED, None, [RECEIVER], Check.SET_TOO_SMALL),
    ],
)
def test_a_compared_file_with_other_sets_names_nobody(
    scenario: SignedScenario,
    participants: list[str] | None,
    survivors: list[str] | None,
    check: Check,
    tmp_path: Path,
) -> None:
    own = scenario.results[RECEIVER]
    other, session = stored(tmp_path, scenario, scenario.results["bob"])
    changed = tmp_path / "changed.json"
    changed.write_text(
        json.dumps(
            with_sets(
                scenario,
                session,
                participants=participants or own["evidence"]["participating"],
                survivors=survivors or own["survivors"],
            )
        )
    )
    comparison = compare_results(other, changed, session=session)
    opinion = second.compare_results(other, changed, session)
    assert (comparison.code, comparison.check, comparison.culprit) == (1, check, None)
    assert (opinion.code, opinion.check, opinion.culprit) == (1, check, None)
    assert "changed.json" in comparison.conclusion
    assert "relay" not in comparison.conclusion.replace(str(tmp_path), "")
    assert "relay" not in second_command.result_text(opinion).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("fault", "in_any_case"), [("short", True), ("trailing", True), ("not-canonical", True), ("total", False)]
)
def test_a_malformed_body_is_the_fault_of_the_aggregator_in_any_case(
    fault: str, in_any_case: bool, tmp_path: Path
) -> None:
    vector = json.loads((VECTORS / f"result-fault-{fault}.json").read_bytes())
    base = json.loads((VECTORS / vector["base"]).read_bytes())
    file, session = tmp_path / "result.json", tmp_path / "session.toml"
    file.write_text(json.dumps(vector["result"]))
    session.write_text(base["session"])
    report = both(file, session)
    assert report.culprit == "relay"
    assert ("at fault unless more than c = " in report.limits) is not in_any_case
    assert ("is at fault." in report.limits) is in_any_case
    shown = second_command.result_text(second.audit_result(file, session))
    assert ("corrupt parties this proves nothing" in shown) is not in_any_case


def test_many_values_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, session = stored(tmp_path, CHECKED, None)
    assert (first_form.MAX_VALUES, second_form.MOST_VALUES) == (1 << 23, 1 << 23)
    # Two numbers an element; each party in at most five lists: of sets, signatures and signers.
    assert first_form.MAX_ELEMENTS == second_form.MOST_ELEMENTS
    assert 2 * first_form.MAX_ELEMENTS + 5 * MAX_PARTIES <= first_form.MAX_VALUES
    monkeypatch.setattr(first_form, "MAX_VALUES", 100)
    monkeypatch.setattr(second_form, "MOST_VALUES", 100)
    file.write_text('{"evidence": null, "x": [[],[{}]' + ",1" * 90 + "]}")
    assert both(file, session).code == 6
    for inner in ("[]", "{}"):
        file.write_text('{"evidence": null, "x": [' + f"{inner}," * 60 + "1]}")
        _is_too_large(file, session)


def test_a_file_that_is_too_long_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    monkeypatch.setattr(first_form, "MAX_BYTES", file.stat().st_size)
    monkeypatch.setattr(second_form, "LONGEST", file.stat().st_size)
    assert both(file, session).code == 4
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(LocalError, match="longer than"):
        audit_result(file, session=session)
    with pytest.raises(OSError, match="too large to audit"):
        second.audit_result(file, session)


def _is_too_large(file: Path, session: Path) -> None:
    """Check that both auditors say of a file that it is too large, and give no verdict."""
    large = "too large to audit: at most 4,000,000 elements"
    with pytest.raises(LocalError, match=large):
        audit_result(file, session=session)
    with pytest.raises(LocalError, match=large):
        compare_results(file, file, session=session)
    with pytest.raises(OSError, match=large):
        second.audit_result(file, session)
    with pytest.raises(OSError, match=large):
        second.compare_results(file, file, session)


def test_a_session_without_an_aggregator_has_no_signed_total(tmp_path: Path) -> None:
    version = session_protocol("gopa").version
    lines = ['protocol = "gopa"', f"version = {version}", "[parameters]", 'topology = "direct"']
    lines += ["length = 2", "lower = -2.0", "upper = 2.0", "epsilon = 1.0", "delta = 1e-6"]
    for number, name in enumerate(CHECKED.context.names):
        member = CHECKED.identity(name).entry("party", f"192.0.2.7:{7100 + number}")
        lines += [roster_entry(member)]
    text = "\n".join(lines)
    file, session = tmp_path / "result.json", tmp_path / "session.toml"
    session.write_text(text)
    digest = load_session(session).digest.hex()
    file.write_text(json.dumps({"evidence": {"session_digest": digest, "signed_result": None}}))
    assert both(file, session).code == 6
    assert second.compare_results(file, file, session).code == 6
    file.write_text(json.dumps({"evidence": {"session_digest": "0" * 64, "signed_result": None}}))
    assert both(file, session).check == Check.OTHER_SESSION


def test_a_run_that_a_new_aggregator_repeats_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parties are corrupt: they repeat their nonces, and give other vectors."""
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    rows = [[value / 2 for value in row] for row in ROWS]
    monkeypatch.setattr(signed_results, "ROWS", rows)
    other = tmp_path / "other.json"
    # An aggregator with the older copy of its state: the same nonce.
    other.write_text(json.dumps(dataclasses.replace(CHECKED).results["bob"]))
    for comparison in (
        compare_results(file, other, session=session),
        second.compare_results(file, other, session),
    ):
        assert (comparison.code, comparison.culprit, comparison.operation) == (8, "relay", "sum week 7")
    monkeypatch.setattr(signed_results, "SentResults", lambda _: SentResults())
    other.write_text(json.dumps(dataclasses.replace(CHECKED).results["bob"]))
    assert compare_results(file, other, session=session).code == 6
    assert second.compare_results(file, other, session).code == 6


def test_the_norm_of_private_weights_is_exact(tmp_path: Path) -> None:
    [scenario] = [each for each in SCENARIOS if each.name == "checked-private-weights"]
    result = scenario.results[RECEIVER]
    assert both(*stored(tmp_path, scenario, result)).code == 4
    for steps in (4, -4):
        shifted = result | {"fixed_point": [value + steps for value in result["fixed_point"]]}
        assert both(*stored(tmp_path, scenario, shifted)).check == Check.WRONG_RESULT


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, session = stored(tmp_path, CHECKED, CHECKED.results[RECEIVER])
    run = CHECKED.results[RECEIVER]["evidence"]["run_id"]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(CHECKED.results["bob"]))
    audits = [[str(file), "--session", str(session), "--run", run]]
    audits.append([str(file), "--compare", str(other), "--session", str(session)])
    for arguments in audits:
        done = smpc_dp("audit", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "question: sum week 7\n" in done.stdout
        assert json.loads(smpc_dp("audit", *arguments, "--json").stdout)["code"] == 0
        assert second_command.main([*arguments, "--memory", "65536"]) == 0
        shown = capsys.readouterr().out
        assert "One total" in shown or arguments is audits[0]
        assert "question: sum week 7\n" in shown
    for options in (["--head", run], ["--second"]):
        refused = smpc_dp("audit", *audits[0], *options)
        assert refused.returncode == 1
        assert "audit: of a result only" in refused.stderr
    assert smpc_dp("audit", *audits[1], "--run", run).returncode == 1


def test_a_log_is_no_result(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    for text, name, expected in (
        ('{"format":"smpc-dp board"}', "log.json", False),
        ('{"kind": "sum"}', "log.json", True),
        ('{"kind": "sum"}', "log.jsonl", False),
        ("", "log.json", False),
    ):
        log = tmp_path / name
        log.write_text(text)
        assert is_result(log) is second_command.is_result(str(log)) is expected
    assert not is_result("-")
    assert not is_result("https://example.com/log.json")
