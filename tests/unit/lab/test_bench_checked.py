"""The benchmark of checked totals: its report, on sizes that take no time."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.crypto.vector_commitments import Generators, PeerMultiples, count_additions
from smpc_dp.errors import ConfigError, VerificationError
from smpc_dp_lab.bench import checked
from smpc_dp_lab.bench.checked import DALEK, DALEK_VERSION, NEAR_LIMIT, run_checked_bench
from smpc_dp_lab.bench.committed import Vector

KINDS = ("commit", "commit by the clock", "check", "check by the clock", "peak memory")
OF_SUMS = ("party", "aggregator", "bytes up", "bytes down")


@pytest.fixture
def _known_additions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an addition of one kind take 7 s, and one of the other 8 s; all else is measured."""
    made: list[float] = []
    spent = checked._spent

    def known(call: Callable[[], object], *clock: Callable[[], float]) -> float:
        made.clear()
        seconds = spent(call, *clock)
        return made[0] if made else seconds

    monkeypatch.setattr(checked, "_spent", known)
    monkeypatch.setattr(
        checked, "make_additions", lambda seven, eight: made.append(7.0 * seven + 8.0 * eight)
    )


@pytest.mark.usefixtures("_known_additions")
def test_figures_stand_beside_limits_and_unchecked_sums() -> None:
    rounds: list[tuple[str, int, int]] = []
    report = run_checked_bench(2, lambda *step: rounds.append(step), lengths=(100,), widths=(16,))
    assert rounds == [("100 of 16 bits", 1, 2), ("100 of 16 bits", 2, 2)]
    shown = json.loads(json.dumps(report.to_json(), allow_nan=False))
    figures = {figure["name"]: figure for figure in shown["figures"]}
    assert figures.keys() == {
        *(f"100 of 16 bits: {kind}" for kind in KINDS),
        *(f"sum of 100 of 16 bits, {kind}" for kind in OF_SUMS),
        *(f"generators of 100, {kind}" for kind in ("make", "read")),
    }
    for kind, (seven, eight) in zip(("commit", "check"), count_additions(100, 2), strict=True):
        figure = figures[f"100 of 16 bits: {kind}"]
        assert figure["runs"] == 2
        assert figure["peer"]["version"] == DALEK_VERSION
        assert figure["target"] == {"of": "ratio_to_limit", "at_least": NEAR_LIMIT.at_least}
        assert figure["median"] > 0
        assert seven != eight or kind == "check"
        assert figure["limit"]["median"] == 7.0 * seven + 8.0 * eight
    # V_u, the commitment, its masked blinding and its signature; back come those of four.
    up, down = (figures[f"sum of 100 of 16 bits, bytes {way}"] for way in ("up", "down"))
    assert 160 <= up["median"] - up["peer"]["median"] < 180
    assert 4 * 96 + 64 <= down["median"] - down["peer"]["median"] < 700
    assert shown["versions"][DALEK] == DALEK_VERSION


def test_additions_are_counted() -> None:
    # Two tables of four elements, 16 windows and the sum of all points; six windows of 3 bits.
    assert count_additions(8, 2) == ((24, 34), (48, 48))
    with pytest.raises(ValueError, match="width: 9 bytes"):
        count_additions(8, 9)


@pytest.mark.parametrize("bits", [8, 64])
def test_a_vector_is_checked_against_its_own_commitment(bits: int) -> None:
    vector = Vector(Generators().extended(5), 5, bits)
    commitment = vector.commit()
    vector.check(commitment)
    vector.words[4] ^= np.uint64(1)
    with pytest.raises(VerificationError):
        vector.check(commitment)


def test_the_version_of_the_peer_is_the_locked_one() -> None:
    lock = tomllib.loads((Path(__file__).parents[3] / "Cargo.lock").read_text("utf-8"))
    assert [package["version"] for package in lock["package"] if package["name"] == DALEK] == [DALEK_VERSION]
    peer = PeerMultiples(np.arange(3, dtype=np.uint64))
    for constant_time in (False, True):
        peer.add(constant_time=constant_time)


@pytest.mark.parametrize(("changed", "field"), [({"lengths": (0,)}, "length"), ({"widths": (12,)}, "width")])
def test_bad_numbers_are_refused(changed: dict[str, tuple[int, ...]], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_checked_bench(1, **changed)  # type: ignore[arg-type]
    assert [fault.where for fault in caught.value.issues] == [field]
