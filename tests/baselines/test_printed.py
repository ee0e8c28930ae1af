"""What commands print as JSON, and results as JSON, are the stored ones, and what their schemas say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.baselines import printed, schemas

STORED: dict[str, dict[str, Any]] = json.loads(printed.FILE.read_text("utf-8"))


# Parts of other results, and what no command prints.
WITHOUT_SCHEMA = frozenset(["evaluation", "local pairwise", "local AUC", "receipt of a ledger"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("printed")
    printed.write_files(result)
    return result


def test_each_case_is_stored() -> None:
    assert [*STORED["commands"]] == [*printed.COMMANDS]
    assert [*STORED["results"]] == [*printed.RESULTS]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name in printed.DEAR else name
        for name in printed.COMMANDS
    ],
)
def test_a_command_prints_the_stored_object(name: str, folder: Path) -> None:
    assert not [*printed.differences(STORED["commands"][name], printed.run(name, folder))]
    assert schemas.faults(json.loads(printed.ran(name, folder).stdout)) == []


@pytest.mark.parametrize("name", printed.RESULTS)
def test_a_result_has_the_stored_fields(name: str, folder: Path) -> None:
    assert not [*printed.differences(STORED["results"][name], printed.result(name, folder))]
    if name not in WITHOUT_SCHEMA:
        assert schemas.faults_of_result(printed.made(name, folder)) == []
