"""A party of a checked sum that dies at any moment commits once in a run, and masks that vector."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from smpc_dp import database
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.phases import checked_total, keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.engine.saved import SavedRun
from smpc_dp.errors import LocalError
from smpc_dp.secagg import checkers
from smpc_dp.secagg.noisy import NoisySumParameters
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors import runs
from tests.faults.saved_scene import Crash, Faults, Media, Wire, begin, execute, restore, step
from tests.faults.saved_sums import PARTY, SumScene
from tests.faults.test_saved_aggregator import Hall

BOUNDS = {"length": 3, "lower": -2.0, "upper": 2.0, "precision": 0.01, "dropout": 0.25, "corrupt": 0.0}


def checked(**more: object) -> SumParameters:
    version = session_protocol("secagg").version
    parameters, issues = checker_of("secagg", version)(BOUNDS | {"total": "checked"} | more, 4)
    assert isinstance(parameters, SecAggParameters | NoisySumParameters), issues
    return parameters


EXACT, NOISY = checked(), checked(epsilon=1.0, delta=1e-6)
BY_SOME: SumParameters = msgspec.structs.replace(EXACT, most_shown=3)


class CheckedScenario(runs.Scenario):
    """Four parties whose total is checked."""

    @property
    def parameters(self) -> SumParameters:
        return {"checked": EXACT, "by some": BY_SOME, "noisy": NOISY}[self.name]

    @property
    def operation(self) -> str:
        return "sum"


def scenario(name: str, parameters: SumParameters) -> CheckedScenario:
    return CheckedScenario(name, "", parameters.encoding, parameters.plan, runs.ROWS[:4])


class CheckedScene(SumScene):
    """A checked sum without noise."""

    scenario: ClassVar[runs.Scenario] = scenario("checked", EXACT)
    # Of the writes at which `make test` crashes.
    stride: ClassVar[int] = 3

    def leaf(self, run_id: bytes, point: bytes) -> bytes:
        """Return the hash of a commitment of the party."""
        return keys.value_commitment(self._roles.context, run_id, PARTY, point)

    def check(self, run: SavedRun[Any]) -> None:
        super().check(run)
        assert run.result.evidence.checked is True


class NoisyScene(CheckedScene):
    """A checked sum with noise: the total is that of the commitments, as the party has checked."""

    scenario = scenario("noisy", NOISY)

    def check_total(self, total: list[int]) -> None:
        assert len(total) == NOISY.encoding.length


class CheckerScene(CheckedScene):
    """A checked sum in which the party is one that checks the total for all."""

    role = checkers.PARTY
    codec = Codec.of_party(checkers.PARTY)
    scenario = scenario("by some", BY_SOME)
    states = 11
    stride = 7


SCENES: dict[str, Callable[[], CheckedScene]] = {
    "exact": CheckedScene,
    "noisy": NoisyScene,
    "checker": CheckerScene,
}


@pytest.fixture(autouse=True)
def _all_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The aggregator may choose any survivors: where some check for all, the party is among them."""
    monkeypatch.setattr(checked_total, "checkers_of", lambda _parameters, _run_id, left: tuple(sorted(left)))


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest) -> CheckedScene:
    return SCENES[request.param]()


def assert_one_commitment_a_run(scene: CheckedScene, *wires: Wire) -> None:
    """In each run all processes have sent one hash, and one masked vector with one commitment that it binds.

    Two runs have other blindings: no commitment of one is that of another.
    """
    advertised: dict[bytes, set[bytes]] = {}
    masked: dict[bytes, set[tuple[bytes, bytes, bytes]]] = {}
    for envelope in (envelope for wire in wires for envelope in wire.sent):
        if envelope.step == m.ADVERTISE:
            leaf = decode(envelope.body, m.CheckedAdvertise, PARTY).value_commitment
            advertised.setdefault(envelope.run_id, set()).add(leaf)
        if envelope.step == m.MASKED:
            message = decode(envelope.body, m.CheckedMasked, PARTY)
            masked.setdefault(envelope.run_id, set()).add((message.point, message.vector, message.blinding))
    assert all(len(leaves) == 1 for leaves in advertised.values())
    assert all(len(messages) == 1 for messages in masked.values())
    for run_id, ((point, _, _),) in masked.items():
        [leaf] = advertised[run_id]
        assert scene.leaf(run_id, point) == leaf
    points = [point for ((point, _, _),) in masked.values()]
    assert len({*points}) == len(points)


@pytest.mark.parametrize("killed", range(11))
def test_a_restored_party_sends_the_same_commitment(scene: CheckedScene, tmp_path: Path, killed: int) -> None:
    """A process ends after so many steps; another goes on from its saved state, to a checked result."""
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    run = begin(scene, media, wire)
    for _ in range(killed):
        step(scene, run, wire)
    again = restore(scene, media, wire)
    execute(scene, again, wire)
    scene.check(again)
    wire.assert_one_for_each_step()
    assert_one_commitment_a_run(scene, wire)


@pytest.mark.thin(2)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_crash_at_any_write(scene: CheckedScene, tmp_path: Path, before: bool, stride: int) -> None:
    """Whatever was on the medium: the run goes on with its one commitment, or another begins with its own."""
    faults = Faults()
    execute(scene, begin(scene, Media(tmp_path / "dry", counted=True), dry := Wire(), faults), dry, faults)
    for at in range(0, len(faults.done), 1 if stride == 1 else scene.stride):
        crash_once(type(scene)(), Media(tmp_path / f"{at}", counted=True), Faults(at, before))


def crash_once(scene: CheckedScene, media: Media, faults: Faults) -> None:
    wire = Wire()
    with pytest.raises(Crash):
        execute(scene, begin(scene, media, wire, faults), wire, faults)
    try:
        run = restore(scene, media, wire)
    except LocalError as error:
        refused = str(error)
    else:
        refused = ""
    # Where nothing was saved nothing was sent.
    assert ("no saved run" in refused) == (not wire.sent) == bool(refused)
    if refused:
        return
    execute(scene, run, wire)
    wire.assert_one_for_each_step()
    assert_one_commitment_a_run(scene, wire)


def test_two_attempts_have_two_commitments(scene: CheckedScene, tmp_path: Path) -> None:
    """A request that begins anew draws noise and blinding anew: one blinding never serves two vectors."""
    wires: Sequence[Wire] = Wire(), Wire()
    for number, wire in enumerate(wires):
        execute(scene, begin(scene, Media(tmp_path / str(number), counted=True), wire), wire)
    assert_one_commitment_a_run(scene, *wires)
    assert len({e.run_id for wire in wires for e in wire.sent if e.step == m.MASKED}) == 2


def test_the_saved_vector_has_its_noise(tmp_path: Path) -> None:
    """From `advertise` on the state has the vector as it is committed to; before it is the input."""
    scene = NoisyScene()
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    run = begin(scene, media, wire)
    given = np.frombuffer(scene.input, np.uint64)
    assert run.state.vector.tobytes() == scene.input
    step(scene, run, wire)
    vector = run.state.vector.copy()
    assert (vector != given).any()
    for _ in range(3):
        again = restore(scene, media, wire)
        np.testing.assert_array_equal(again.state.vector, vector)
        step(scene, again, wire)


class CheckedHall(Hall):
    """The aggregator of a checked sum, whose states hold commitments, signatures and masked blindings."""

    scenario = CheckedScene.scenario


class CheckersHall(Hall):
    """The aggregator of a sum in which some check the total for all."""

    scenario = CheckerScene.scenario
    codec = Codec.of_collector(checkers.AGGREGATOR)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("kind", "lose"),
    [
        (CheckedHall, None),
        (CheckedHall, 9),
        (CheckedHall, 22),
        (CheckedHall, 26),
        (CheckersHall, None),
        (CheckersHall, 34),
    ],
)
def test_an_aggregator_is_restored_after_every_event(
    tmp_path: Path, kind: type[Hall], lose: int | None
) -> None:
    """The result is that of an aggregator that never ended, to the byte, and all parties take it."""
    media, hall = Media(tmp_path / "media", counted=True), kind(lose)
    hall.begin(media)
    while hall.step(hall.restore(media)):
        pass
    hall.check(hall.restore(media))
    assert m.RESULT in hall.steps
