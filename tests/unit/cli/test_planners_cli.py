"""The commands of the planners: tables for people, one JSON object, one line for each fault."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.errors import ConfigError, LocalError

OF_MODELS = ["--length", "2", "--epsilon", "1", "--delta", "1e-5"]
LOCAL_GLOBAL = ["plan", "local-global", "--nodes", "4", "--records", "100", "--features", "2", *OF_MODELS[2:]]
NETWORK = ["plan", "network", "--parties", "100", "--epsilon", "1", "--delta", "1e-4"]


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["plan", "pairwise", "--parties", "100", "--epsilon", "1", "--categories", "4"], "partners P"),
        (NETWORK, "sigma"),
        ([*NETWORK, "--task", "histogram"], "beta"),
        ([*NETWORK, "--topology", "complete", "--steps", "300", "--delta", "0.02"], "warning: delta"),
        (["plan", "sgd", "--parties", "30", "--steps", "60"], "published script, local"),
        (["plan", "verifiable", "--parties", "90", "--epsilon", "1", "--delta", "1e-5"], "secret bits"),
        (["plan", "collaboration", "--sizes", "10,20", "--epsilons", "1"], "together"),
    ],
)
def test_plans_are_shown_with_what_they_assume(arguments: list[str], shown: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert shown in result.stdout
    assert "neighbours: substitution of" in result.stdout
    reported = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert reported["relation"].startswith("substitution of")


@pytest.mark.parametrize(("parties", "shown"), [("20000", True), ("20", False)])
def test_a_plan_whose_totals_some_check_for_all_has_their_number_and_traffic(
    parties: str, shown: bool
) -> None:
    given = ["plan", "secagg", "--parties", parties, "--length", "2", "--total", "checked"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    for row in ("checkers ", "received a checker "):
        assert (row in result.stdout) is shown, result.stdout


def test_a_delta_that_is_shown_is_enough_for_what_it_is_of() -> None:
    """11 pairs need a little more than 1e-11."""
    arguments = ["plan", "pairwise", "--parties", "100", "--epsilon", "1", "--partners", "11"]
    needed = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["malicious_delta"]
    assert needed == 11 * 2.0**-40 > 1e-11
    shown = re.search(r"malicious: delta *\S *([0-9.e-]+)", CliRunner().invoke(app, arguments).stdout)
    assert shown is not None
    assert needed <= float(shown[1]) < 1.01 * needed


def test_a_model_gives_zetas_and_exact_rival(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text('{"kernel": [[0, 1], [1, 0]], "distribution": [0.3, 0.7]}', "utf-8")
    arguments = ["plan", "pairwise", "--parties", "100", "--epsilon", "1", "--model", str(file), "--json"]
    reported = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert reported["zeta_2"] == pytest.approx(0.42 * 0.58)
    assert reported["zeta_1"] == pytest.approx(0.21 * 0.16)
    assert reported["rivals"][0]["exact"] < reported["rivals"][0]["bound"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["plan", "pairwise", "--parties", "9", "--epsilon", "1"], "even"),
        (["plan", "pairwise", "--parties", "10", "--epsilon", "1", "--positives", "3"], "together"),
        (["plan", "pairwise", "--parties", "10", "--epsilon", "1", "--model", "none.json"], "none.json"),
        ([*NETWORK, "--task", "sgd"], "complete graph"),
        (
            ["plan", "pairwise", "--parties", "4", "--epsilon", "1", "--model", "no"],
            "no: cannot read the model",
        ),
        ([*NETWORK, "--topology", "complete"], "--steps"),
        (
            [*NETWORK, "--topology", "complete", "--steps", "9", "--task", "histogram", "--edge-cap", "1"],
            "edge_cap",
        ),
        (
            [*NETWORK, "--topology", "complete", "--steps", "9", "--task", "histogram", "--paths", "known"],
            "paths",
        ),
        ([*NETWORK, "--task", "histogram", "--colluding", "2"], "colluding"),
        ([*NETWORK, "--method", "clones"], "method"),
        ([*NETWORK, "--rounds", "0"], "rounds"),
        ([*NETWORK, "--task", "histogram", "--method", "theorem"], "more than 1000 parties"),
        (
            ["plan", "verifiable", "--parties", "9", "--epsilon", "1", "--delta", "1e-5", "--bits", "3"],
            "bits",
        ),
        (["plan", "collaboration", "--sizes", "1,x", "--epsilons", "1"], "separated by commas"),
        (["plan", "personalized", "--sizes", "9,x", *OF_MODELS], "separated by commas"),
        (["plan", "personalized", "--sizes", "9,9", *OF_MODELS], "parties"),
        (["plan", "personalized", "--sizes", "9,9,9", *OF_MODELS, "--coupling", "-1"], "coupling"),
        (["plan", "boosting", "--sizes", "9,9,9", "--beta", "0"], "beta"),
        (["plan", "boosting", "--sizes", "9,9,9", "--beta", "1", "--coupling", "-1"], "coupling"),
        (["plan", "personalized", "--sizes", "9,9,9", *OF_MODELS, "--record-bound=-3"], "record_bound"),
        (["plan", "personalized", "--sizes", "9,9,9", *OF_MODELS, "--ridge", "nan"], "ridge: nan"),
        ([*LOCAL_GLOBAL, "--batch", "50"], "records: 100 is not an integer in 200"),
        ([*LOCAL_GLOBAL, "--batch", "5", "--nodes", "0"], "nodes: 0"),
        ([*LOCAL_GLOBAL, "--batch", "5", "--ridge", "0.01", "--chance", "1e-12"], "chance: 1e-12"),
        ([*LOCAL_GLOBAL, "--batch", "5", "--rate", "9"], "rate"),
        (
            ["plan", "diffusion", "--parties", "5", "--length", "2", "--steps", "9", "--epsilon", "0"],
            "epsilon",
        ),
        (["plan", "collaboration", "--sizes", "1,2", "--epsilons", "1,1,1"], "as many"),
    ],
)
def test_faults_name_the_argument_and_its_bound(arguments: list[str], named: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, ConfigError | LocalError)
    assert named in str(result.exception)


def test_a_scale_of_a_wrong_step_is_no_second_fault() -> None:
    arguments = ["plan", "diffusion", "--parties", "5", "--length", "2", "--steps", "9", "--epsilon", "1"]
    assert "(31) holds where no gradient is clipped" in CliRunner().invoke(app, arguments).stdout
    result = CliRunner().invoke(app, [*arguments, "--step-size", "-1"])
    assert str(result.exception) == "step_size: -1.0 is not a number above 0 and at most 1e+09"


def test_a_bound_above_the_loss_at_the_start_says_nothing() -> None:
    many = ["--records", "10000000", "--batch", "1000", "--rate", "0.01", "--radius", "0.1"]
    vacuous = CliRunner().invoke(app, [*LOCAL_GLOBAL, "--batch", "5"])
    assert "(9) says nothing: the start has 0.69 at most" in vacuous.stdout
    assert "says nothing" not in CliRunner().invoke(app, [*LOCAL_GLOBAL, *many, "--epsilon", "90"]).stdout


def test_what_depends_on_a_faulty_number_is_no_second_fault() -> None:
    result = CliRunner().invoke(app, ["plan", "gopa", "--parties", "-1", "--epsilon", "1"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "parties: must be an integer from 3 to 200000, is -1"


def test_a_budget_of_too_many_requests_is_refused() -> None:
    """Each would have less epsilon than its delta stands for alone."""
    many = ["plan", "budget", "--rounds", "1000000", "--epsilon", "0.001"]
    ended = CliRunner().invoke(app, many)
    assert isinstance(ended.exception, ConfigError)
    assert str(ended.exception) == "budget.requests: 1000000 requests leave each too little of it"
