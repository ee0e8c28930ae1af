"""The folder of certificates: what cannot be read is refused by name, what convicts nobody is not used."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from smpc_dp.capabilities.pairs.requests.convictions import Convictions
from smpc_dp.errors import Check, LocalError, PeerFault, certificate_of
from smpc_dp.identity.roster import Roster
from smpc_dp.session.member import CERTIFICATES as FOLDER
from tests.faults.test_pairs_covert import IDENTITIES, certificate

ROSTER = Roster([IDENTITIES[name].entry("party") for name in ("alice", "bob")], requires_aggregator=False)


def convicted() -> PeerFault:
    return PeerFault("alice", "cheated", Check.CONVICTED, {"certificate": certificate()})


def test_a_folder_that_cannot_be_read_is_no_empty_folder(tmp_path: Path) -> None:
    Convictions(tmp_path / FOLDER, ROSTER).check("alice")
    (tmp_path / FOLDER).write_bytes(b"")
    with pytest.raises(LocalError, match="cannot read the certificates"):
        Convictions(tmp_path / FOLDER, ROSTER)


def test_a_certificate_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "one.certificate").mkdir()
    with pytest.raises(LocalError, match=r"one\.certificate"):
        Convictions(tmp_path, ROSTER)


def test_files_that_convict_nobody_are_logged_and_the_key_convicts_whatever_the_file_is_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bob-1.certificate").write_bytes(certificate())
    (tmp_path / "alice-1.certificate").write_bytes(b"alice")
    (tmp_path / "alice-2.certificate").write_bytes(certificate()[:-1] + b"\0")
    (tmp_path / ".alice.certificate.draft").write_bytes(certificate()[:100])
    with caplog.at_level(logging.WARNING, "smpc_dp"):
        convictions = Convictions(tmp_path, ROSTER)
    assert caplog.text.count("convicts nobody") == 2
    convictions.check("bob")
    with pytest.raises(PeerFault, match=r"bob-1\.certificate") as caught:
        convictions.check("alice")
    assert caught.value.check == Check.CONVICTED


def test_a_conviction_is_stored_as_a_whole(tmp_path: Path) -> None:
    convictions = Convictions(tmp_path / FOLDER, ROSTER)
    kept = convictions.keep(convicted())
    (file,) = (tmp_path / FOLDER).iterdir()
    assert file.read_bytes() == certificate()
    assert str(kept) == f"alice: cheated; its certificate is {file}"
    assert certificate_of(kept) == certificate()
    with pytest.raises(PeerFault, match="is refused"):
        Convictions(tmp_path / FOLDER, ROSTER).check("alice")


def test_a_conviction_holds_although_its_certificate_cannot_be_stored_and_a_later_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convictions = Convictions(tmp_path / FOLDER, ROSTER)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("smpc_dp.capabilities.pairs.requests.convictions.replace_file", full)
    kept = convictions.keep(convicted())
    assert certificate_of(kept) == certificate()
    assert str(kept).startswith("alice: cheated; its certificate is not stored: ")
    assert "cannot write the certificate (No space" in str(kept)
    with pytest.raises(PeerFault, match=r"is refused.*which could not be written"):
        convictions.check("alice")
    monkeypatch.undo()
    assert "its certificate is not stored" not in str(convictions.keep(convicted()))
    (file,) = (tmp_path / FOLDER).iterdir()
    assert file.read_bytes() == certificate()
    with pytest.raises(PeerFault, match=r"certificate$"):
        convictions.check("alice")


@pytest.mark.parametrize("check", [Check.CONVICTED, Check.BAD_OPENING])
def test_what_the_own_checks_do_not_show_convicts_nobody(tmp_path: Path, check: Check) -> None:
    """A fault with neither certificate nor check of its own is no conviction."""
    convictions = Convictions(tmp_path / FOLDER, ROSTER)
    evidence = {} if check == Check.CONVICTED else {"certificate": certificate()}
    fault = PeerFault("alice", "said so", check, evidence)
    assert convictions.keep(fault) is fault
    convictions.check("alice")
    assert not (tmp_path / FOLDER).exists()
