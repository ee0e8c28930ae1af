"""Users who sign something false are excluded beyond those who may be lost, if everybody sees that it is."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.crypto import proofs
from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.relay import VerifiableRelayMachine
from smpc_dp.protocols.gopa.verifiable.statements import BOUNDS, FALSE, MALFORMED
from smpc_dp.runtime.audit import audit_stream
from smpc_dp.simulate.vectors.verifiable_runs import (
    INPUTS,
    PARAMETERS,
    RELAY,
    USERS,
    Cheater,
    Played,
    Setting,
    play,
)
from smpc_dp.simulate.vectors.verifiable_users import (
    CHEAT,
    OTHER,
    at,
    cut_proof,
    off_by_one,
    opening_too_far_out,
    out_of_range,
    too_far_out,
)

# Nobody may be lost.
ALL = Setting(INPUTS, PARAMETERS | {"dropout": 0})
TOO_FAR = out_of_range((5, 0))
REST = tuple(name for name in USERS if name != CHEAT)


def audited(played: Played) -> Any:
    return audit_stream(io.BytesIO(b"".join(line + b"\n" for line in played.lines)), threads=1)


@pytest.mark.parametrize("cheat", [TOO_FAR, off_by_one])
def test_one_cheat_does_not_end_a_run_in_which_nobody_may_be_lost(cheat: Any) -> None:
    played = play({CHEAT: cheat}, setting=ALL)
    noise = np.sum([played.users[name].secret.given for name in REST], axis=0)
    values = np.sum([INPUTS[name] for name in REST], axis=0)
    assert set(played.errors) == {CHEAT}
    for machine in (played.relay, *(played.users[name] for name in REST)):
        np.testing.assert_array_equal(machine.result.total, values + noise)
        assert machine.result.survivors == REST
        assert machine.result.privacy.guarantee is not None
        assert machine.result.privacy.guarantee.epsilon == PARAMETERS["epsilon"]
    report = audited(played)
    assert report.ok
    assert [item.party for item in report.excluded] == [CHEAT]


def raw(body: bytes) -> Any:
    """Sign these bytes."""
    return lambda *_: msgspec.Raw(body)


@pytest.mark.parametrize(
    ("cheat", "reason"),
    [
        (too_far_out, BOUNDS),
        (at(v.PUBLISH, cut_proof), MALFORMED),
        (at(v.PUBLISH, raw(b"")), MALFORMED),
        (at(v.PUBLISH, raw(b"\x94\xc4\x00\xc4")), MALFORMED),
        (at(v.PUBLISH, lambda _user, message: replace(message, x_hat=b"")), MALFORMED),
        (at(v.PUBLISH, lambda _user, message: replace(message, blinding=b"\xff" * 32)), MALFORMED),
    ],
)
def test_a_signed_publication_that_is_no_right_one_excludes_its_author(cheat: Any, reason: str) -> None:
    played = play({CHEAT: cheat}, setting=ALL)
    noise = np.sum([played.users[name].secret.given for name in REST], axis=0)
    total = np.sum([INPUTS[name] for name in REST], axis=0) + noise
    assert set(played.errors) == {CHEAT}
    for machine in (played.relay, *(played.users[name] for name in REST)):
        np.testing.assert_array_equal(machine.result.total, total)
        assert machine.result.survivors == REST
    assert played.relay.result.faults == (f"{CHEAT}: {FALSE[reason]}",)
    report = audited(played)
    assert report.ok
    assert [(item.party, item.reason) for item in report.excluded] == [(CHEAT, FALSE[reason])]


def test_the_same_without_its_authors_signature_excludes_nobody() -> None:
    played = play({CHEAT: too_far_out}, setting=ALL)
    entries = [
        played.sign(entry, signer=OTHER) if (entry.party, entry.kind) == (CHEAT, v.PUBLISH) else entry
        for entry in played.entries
    ]
    lines = played.log(entries)
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in lines)), threads=1)
    assert not report.ok
    assert not report.excluded
    assert "was not signed by it" in report.conclusion


def test_a_publication_without_end_is_not_logged() -> None:
    played = play({CHEAT: at(v.PUBLISH, raw(bytes(1 << 16)))})
    assert (CHEAT, v.PUBLISH) not in {(entry.party, entry.kind) for entry in played.entries}
    assert "65536 bytes" in str(played.errors[CHEAT])


@pytest.mark.parametrize("opening", [opening_too_far_out, raw(b"\x93")])
def test_a_false_opening_is_logged_and_its_author_named(opening: Any) -> None:
    played = play({CHEAT: off_by_one, OTHER: at(v.OPEN, opening)})
    assert (OTHER, v.OPEN) in {(entry.party, entry.kind) for entry in played.entries}
    noise = played.relay.result.noise
    assert noise is not None
    assert noise.residual_pairs == 1
    report = audited(played)
    assert not report.ok
    assert report.faults[0].startswith(f"{OTHER}: ")
    assert f"no opening of {OTHER}" in report.faults[1]
    assert [item.party for item in report.excluded] == [CHEAT]


class OpensNonsense(Cheater):
    """Answers with what is no opening."""

    def _emit(self, step: str, message: msgspec.Struct) -> Any:
        nonsense: Any = msgspec.Raw(b"\x93")
        return super()._emit(step, nonsense if (self.name, step) == (OTHER, v.OPEN) else message)


def test_a_malformed_opening_of_nothing_does_not_spoil_a_run() -> None:
    played = play(user=OpensNonsense)
    assert set(played.errors) == {OTHER}
    assert not any(entry.kind == v.OPEN for entry in played.entries)
    assert audited(played).ok


def test_more_cheats_than_the_plan_counts_on_end_it() -> None:
    played = play({CHEAT: TOO_FAR, REST[0]: TOO_FAR}, setting=ALL)
    error = played.errors[RELAY]
    assert isinstance(error, TimeoutFault)
    assert {CHEAT, REST[0]} <= set(error.missing)
    assert v.COIN not in {entry.kind for entry in played.entries}


class Excluding(VerifiableRelayMachine):
    """Leaves out a user that has committed to nothing false, and says that it has, if `says_so`."""

    says_so = True

    def _exclude_false(self, batch: proofs.Batch) -> list[int]:
        if self.step != v.COMMIT:
            return super()._exclude_false(batch)
        party = USERS.index(CHEAT) + 1
        self._drop(party, PeerFault(CHEAT, "is left out"))
        self._shown_false += 1
        return [party] if self.says_so else []


class Silent(Excluding):
    """Says nothing of it."""

    says_so = False


@pytest.mark.parametrize(
    ("relay", "what"), [(Excluding, "committed to something false: it did not"), (Silent, "has 4 parties")]
)
def test_nobody_goes_on_without_a_user_that_said_nothing_false(relay: Any, what: str) -> None:
    played = play(relay=relay, setting=ALL)
    for name in REST:
        error = played.errors[name]
        assert isinstance(error, PeerFault)
        assert error.culprit == RELAY
        assert what in error.reason
    assert v.COIN not in {entry.kind for entry in played.entries}
