"""`SecureAveraged` between parties over real sockets, on the data set of breast cancers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import smpc_dp
from smpc_dp.integrations.sklearn import SecureAveraged
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.snippets import block
from tests.threads import in_thread

PARTIES = ("alice", "bob", "carol", "dave")
PARAMETERS: dict[str, object] = {
    "length": 31,
    "lower": -16.0,
    "upper": 16.0,
    "precision": 1e-6,
    "max_weight": 10_000,
    "dropout": 0.25,
    "corrupt": 0.0,
}
FAST = Timeouts(connect=8.0, step=20.0)


def rows_of(index: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a party's own rows, a tenth to four tenths of all, scaled by public constants."""
    x, y = load_breast_cancer(return_X_y=True)
    x = x / np.array([15, 20, 100, 700, 0.1, 0.1, 0.1, 0.05, 0.2, 0.06] * 3)
    own = slice(len(y) * index * (index + 1) // 20, len(y) * (index + 1) * (index + 2) // 20)
    return x[own], y[own]


def test_the_program_of_the_guide_gives_all_parties_the_weighted_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    program = block("docs/guides/integrations.md", "python no-run", "SecureAveraged")

    def party(index: int) -> dict[str, Any]:
        variables: dict[str, Any] = dict(zip("xy", rows_of(index), strict=True))
        exec(program.replace("alice", PARTIES[index]), variables)  # noqa: S102 - the guide's own program
        return variables

    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    ended = [each.result() for each in [in_thread(party, index) for index in range(4)]]
    assert len(serving.result()) == 1
    own = [LogisticRegression().fit(*rows_of(index)) for index in range(4)]
    weights = [len(rows_of(index)[1]) for index in range(4)]
    step = ended[0]["model"].result_.step
    _, y = load_breast_cancer(return_X_y=True)
    for name in ("coef_", "intercept_"):
        plain = np.average([getattr(each, name) for each in own], axis=0, weights=weights)
        for variables in ended:
            assert np.max(np.abs(getattr(variables["model"].estimator_, name) - plain)) <= step / 2
    first = ended[0]["model"]
    assert first.result_.weight == len(y) == sum(weights)
    assert first.score(*rows_of(3)) > 0.9
    assert ended[0]["accuracy"] == first.score(*rows_of(0))


def test_a_party_that_lacks_a_class_is_not_added_up(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)

    def party(index: int) -> Any:
        x, y = rows_of(index)
        with smpc_dp.sync.connect(path, PARTIES[index]) as session:
            # bob's labels are others.
            return SecureAveraged(LogisticRegression(), session).fit(x, y + (index == 1)).result_

    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    alice, bob, carol, dave = [in_thread(party, index) for index in range(4)]
    for each in (alice, carol, dave):
        assert each.result().absent == ("bob",)
    with pytest.raises(smpc_dp.PeerFault, match=r"bob: fits another model .* class labels 1, 2; names"):
        bob.result()
    serving.result()


@pytest.mark.long
def test_labels_that_are_the_same_by_value_are_one(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)

    def party(index: int) -> Any:
        x, y = rows_of(index)
        with smpc_dp.sync.connect(path, PARTIES[index]) as session:
            labels = y.astype((int, float, bool, str)[index])
            return SecureAveraged(LogisticRegression(), session).fit(x, labels).result_

    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    for ended in [in_thread(party, index) for index in range(4)]:
        assert ended.result().absent == ()
    serving.result()


def test_a_weight_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    serving = in_thread(lambda: asyncio.run(smpc_dp.serve(path)))
    with (
        smpc_dp.sync.connect(path, "alice") as session,
        pytest.raises(smpc_dp.ConfigError, match="weight: alice: must be an integer"),
    ):
        SecureAveraged(LogisticRegression(), session).fit(*rows_of(3), sample_weight=np.full(228, 0.3))
    serving.result()
