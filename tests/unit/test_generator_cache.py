"""Files of generators: what is stored, what is made anew, and what happens without a folder."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from smpc_dp import _core, generator_cache
from smpc_dp.crypto.vector_commitments import BLOCK_BYTES, BLOCK_POINTS, MAX_LENGTH, Generators
from smpc_dp.generator_cache import GeneratorCache, default_folder

BLOCK = Generators().make_block()


@pytest.fixture(autouse=True)
def makes_a_block_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each block once in these tests; its bytes are always the same."""
    monkeypatch.setattr(_core, "make_generator_block", lambda number, _threads: block_of(number))


MAKE = _core.make_generator_block


@functools.cache
def block_of(number: int) -> bytes:
    """Return a block."""
    return MAKE(number, 1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that were made, by number."""
    numbers: list[int] = []
    make = _core.make_generator_block

    def count(number: int, threads: int) -> bytes:
        numbers.append(number)
        return make(number, threads)

    monkeypatch.setattr(_core, "make_generator_block", count)
    return numbers


def files(folder: Path) -> list[Path]:
    """All files of the cache."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_blocks_are_made_once_and_as_they_are_needed(tmp_path: Path, made: list[int]) -> None:
    cache = GeneratorCache(tmp_path / "new")
    generators = cache.load(1)
    assert files(tmp_path) == [tmp_path / "new" / "vector-generators-1" / "000"]
    assert files(tmp_path)[0].read_bytes() == BLOCK
    assert cache.load(BLOCK_POINTS) is generators
    assert (len(generators), made) == (BLOCK_POINTS, [0])
    assert cache.load(BLOCK_POINTS + 1, 2) is generators
    assert (len(generators), made) == (2 * BLOCK_POINTS, [0, 1])
    assert len(GeneratorCache(tmp_path / "new").load(2 * BLOCK_POINTS)) == 2 * BLOCK_POINTS
    assert made == [0, 1]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        BLOCK[:-1],
        BLOCK + b"\x00",
        BLOCK[:1000] + bytes([BLOCK[1000] ^ 1]) + BLOCK[1001:],
        b"\xff" * BLOCK_BYTES,
    ],
    ids=["empty", "cut", "longer", "altered", "of another version"],
)
def test_a_damaged_file_is_made_anew(tmp_path: Path, made: list[int], damaged: bytes) -> None:
    GeneratorCache(tmp_path).load(BLOCK_POINTS + 1)
    first, second = files(tmp_path)
    first.write_bytes(damaged)
    assert len(GeneratorCache(tmp_path).load(BLOCK_POINTS + 1)) == 2 * BLOCK_POINTS
    assert made == [0, 1, 0]
    assert first.read_bytes() == BLOCK
    second.write_bytes(BLOCK)
    GeneratorCache(tmp_path).load(BLOCK_POINTS + 1)
    assert made == [0, 1, 0, 1]
    assert files(tmp_path) == [first, second]


def test_an_unusable_folder_is_logged_once(
    tmp_path: Path, made: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = GeneratorCache(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        assert len(cache.load(2 * BLOCK_POINTS)) == 2 * BLOCK_POINTS
    assert made == [0, 1]
    [record] = caplog.records
    path = tmp_path / "file" / "vector-generators-1" / "000"
    assert record.getMessage() == (
        f"generators of commitments are not stored, and made in memory: {path}: Not a directory"
    )


def test_a_full_disk_leaves_stored_blocks_in_use(
    tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    GeneratorCache(tmp_path).load(2 * BLOCK_POINTS)
    files(tmp_path)[0].unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(generator_cache, "replace_file", full)
    with caplog.at_level(logging.WARNING):
        assert len(GeneratorCache(tmp_path).load(2 * BLOCK_POINTS)) == 2 * BLOCK_POINTS
    assert made == [0, 1, 0]
    assert "No space left on device" in caplog.text


def test_processes_and_threads_share_a_folder(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from smpc_dp.generator_cache import GeneratorCache;"
        "print(len(GeneratorCache(pathlib.Path(sys.argv[1])).load(8193)))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    cache = GeneratorCache(tmp_path)
    threads = [threading.Thread(target=cache.load, args=(3 * BLOCK_POINTS,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        output, _ = process.communicate()
        assert (process.returncode, int(output)) == (0, 3 * BLOCK_POINTS)
    assert len(cache.load(1)) == 3 * BLOCK_POINTS
    assert [path.name for path in files(tmp_path)] == ["000", "001", "002"]
    assert files(tmp_path)[0].read_bytes() == BLOCK


def test_lengths_out_of_range_are_refused(tmp_path: Path) -> None:
    for length in (0, MAX_LENGTH + 1):
        with pytest.raises(ValueError, match=f"length: {length}, not between 1 and 1048576"):
            GeneratorCache(tmp_path).load(length)
    assert files(tmp_path) == []


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for stated in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", stated)
        assert default_folder() == tmp_path / ".cache" / "smpc-dp"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/of-a-user")
    assert default_folder() == Path("/var/cache/of-a-user/smpc-dp")


def test_no_home_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, made: list[int]
) -> None:
    def unknown() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    with caplog.at_level(logging.WARNING):
        assert len(GeneratorCache().load(BLOCK_POINTS + 1)) == 2 * BLOCK_POINTS
    assert made == [0, 1]
    [record] = caplog.records
    assert "no home of the user is known" in record.getMessage()


def test_a_pipe_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "vector-generators-1"
    folder.mkdir()
    os.mkfifo(folder / "000")
    assert len(GeneratorCache(tmp_path).load(1)) == BLOCK_POINTS
    assert (folder / "000").read_bytes() == BLOCK


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "vector-generators-1"
    folder.mkdir()
    abandoned, recent, other = (folder / name for name in (".000.1", ".000.2", ".001.1"))
    for draft in (abandoned, recent, other):
        draft.write_bytes(b"half")
    for draft in (abandoned, other):
        os.utime(draft, (0, 0))
    GeneratorCache(tmp_path).load(1)
    assert {*folder.iterdir()} == {folder / "000", recent, other}
