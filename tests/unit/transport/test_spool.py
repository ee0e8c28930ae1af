"""Large messages in files without a name: what is left of them, and what a full disk says."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from smpc_dp.errors import LocalError, PeerFault
from smpc_dp.transport.spool import FileSpool, MemorySpool, Spool, SpoolFolder

PIECES = [bytes([index]) * 1000 for index in range(7)]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=["memory", "folder"])
def spool(request: pytest.FixtureRequest, tmp_path: Path) -> Spool:
    return MemorySpool() if request.param == "memory" else SpoolFolder(str(tmp_path)).spool(7000)


def test_the_content_is_what_was_written_and_does_not_change(spool: Spool) -> None:
    for piece in PIECES:
        spool.write(piece)
    content = spool.content()
    spool.close()
    assert content == b"".join(PIECES)
    assert memoryview(content).readonly
    assert hash(content) == hash(b"".join(PIECES))


def test_a_file_has_no_name_and_goes_with_its_content(tmp_path: Path) -> None:
    before = open_files()
    spool = SpoolFolder(str(tmp_path)).spool(7000)
    for piece in PIECES:
        spool.write(piece)
        assert not list(tmp_path.iterdir())
    content = spool.content()
    spool.close()
    assert not list(tmp_path.iterdir())
    assert open_files() > before
    del content
    assert open_files() == before


def test_a_file_that_is_not_used_is_closed(tmp_path: Path) -> None:
    before = open_files()
    spool = SpoolFolder(str(tmp_path)).spool(7000)
    spool.write(PIECES[0])
    spool.close()
    assert open_files() == before


def test_a_write_may_take_less_than_all(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), 7000)
    file = spool._file
    assert file is not None
    write = file.write

    class Slow:
        """File whose writes take 300 bytes at most."""

        def write(self, piece: memoryview) -> int:
            return write(piece[:300])

    spool._file = Slow()  # type: ignore[assignment]
    for piece in PIECES:
        spool.write(piece)
    spool._file = file
    assert spool.content() == b"".join(PIECES)


class Full:
    """File on a full disk."""

    def write(self, _piece: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None: ...


def test_a_full_disk_is_an_error_of_this_machine(tmp_path: Path) -> None:
    before = open_files()
    spool = FileSpool(str(tmp_path), 7000)
    spool.write(PIECES[0])
    spool.close()
    spool._file = Full()  # type: ignore[assignment]
    for piece in PIECES[1:]:
        spool.write(piece)
    # What was written of the message is given back at once.
    assert open_files() == before
    with pytest.raises(LocalError, match=r"a message of 7000 bytes .*No space left on device") as caught:
        spool.content()
    assert str(tmp_path) in str(caught.value)
    assert not isinstance(caught.value, PeerFault)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    folder = SpoolFolder(str(tmp_path / "none"))
    spool = folder.spool(5)
    spool.write(b"12345")
    with pytest.raises(LocalError, match="none: cannot store a message of 5 bytes"):
        spool.content()
    with pytest.raises(LocalError, match="none: cannot store large messages"):
        folder.check_room(5)


def test_room_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1000))
    folder = SpoolFolder(str(tmp_path))
    folder.check_room(1000)
    with pytest.raises(
        LocalError, match="need 1001 bytes of disk while they arrive, 1000 are free"
    ) as caught:
        folder.check_room(1001)
    assert str(tmp_path) in str(caught.value)


def test_the_folder_of_the_system_is_the_one_that_tmpdir_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert SpoolFolder.of_system() == SpoolFolder(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", "here")
    assert SpoolFolder.of_system() == SpoolFolder(str(tmp_path / "here"))
    monkeypatch.delenv("TMPDIR")
    assert SpoolFolder.of_system() == SpoolFolder(tempfile.gettempdir())


def test_no_other_folder_stands_in_for_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(LocalError, match="none: cannot store large messages: No such file or directory"):
        SpoolFolder.of_system().check_room(1)
    (tmp_path / "none").write_bytes(b"")
    with pytest.raises(LocalError, match="none: cannot store large messages: Not a directory"):
        SpoolFolder.of_system().check_room(1)


def test_a_folder_in_which_no_file_can_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_given: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(LocalError, match="cannot store large messages: Read-only file system"):
        SpoolFolder(str(tmp_path)).check_room(1)
