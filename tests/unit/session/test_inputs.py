"""Input files: nothing is rounded in silence, and what is no vector is refused in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.session.inputs import read_vector, read_weights


@pytest.mark.parametrize("suffix", [".json", ".txt", ".npy"])
@pytest.mark.parametrize("value", [9007199254740993, (1 << 63) - 1, (1 << 63) + 1, (1 << 64) - 1])
def test_whole_numbers_stay_exact(tmp_path: Path, suffix: str, value: int) -> None:
    file = tmp_path / f"alice{suffix}"
    if suffix == ".npy":
        np.save(file, np.array([0, value], dtype=np.uint64))
    else:
        file.write_text(json.dumps([0, value]) if suffix == ".json" else f"0 {value}")
    assert [int(number) for number in read_vector(file)] == [0, value]


def test_beyond_int64_is_refused_and_not_wrapped_by_the_encoding(tmp_path: Path) -> None:
    file = tmp_path / "alice.json"
    file.write_text(f"[{(1 << 63) + 1}]")
    whole = Encoding.plan(length=1, lower=-5, upper=5, precision=None, parties=3)
    with pytest.raises(PrivacyError, match="outside"):
        whole.encode(read_vector(file), party="alice")
    real = Encoding.plan(length=1, lower=-5.0, upper=5.0, precision=1e-3, parties=3)
    with pytest.raises(ConfigError, match="would be rounded"):
        real.encode(read_vector(file), party="alice")


REFUSED = {
    "mixed.json": ("[0.5, 9007199254740993]", "would be rounded"),
    "mixed.csv": ("0.5, -9007199254740993", "would be rounded"),
    "wide.json": (f"[{1 << 64}]", "beyond 64 bits"),
    "both.json": (f"[-1, {1 << 63}]", "do not fit into 64 bits together"),
    "deep.json": ("[" * 100_000, "nested too deeply"),
    "long.json": ("[" + "9" * 5000 + "]", "more than 4000 digits"),
    "long.txt": ("9" * 5000, "a number of 5000 digits"),
    "object.json": ('{"a": 1}', "must be a list of numbers, is an object"),
    "scalar.json": ("31415926", "must be a list of numbers, is a number"),
    "slip.txt": ("1_0 2", "word 1 is not a number"),
    "truth.csv": ("1, true", "word 2 is not a number"),
    "wide.csv": ("\xff\xfe1\0", "begins with a byte order mark of UTF-16"),
    "garbage.npy": ("no such array", "not a .npy file"),
    "empty.npy": ("", "not a .npy file"),
    "cut.npy": ("\x93NUMPY", "not a"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_short_words(tmp_path: Path, name: str) -> None:
    content, words = REFUSED[name]
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError) as raised:
        read_vector(tmp_path / name)
    reported = str(raised.value).replace(str(tmp_path), "")
    assert words in reported
    assert not [number for number in re.findall(r"\d{5,}", content) if number in reported]
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("name", ["v.txt", "v.csv", "v.json"])
def test_a_byte_order_mark_is_no_part_of_the_input(tmp_path: Path, name: str) -> None:
    content = "[1.5, 2.5]" if name == "v.json" else "1.5,2.5"
    (tmp_path / name).write_text(content, "utf-8-sig")
    assert read_vector(tmp_path / name).tolist() == [1.5, 2.5]
    (tmp_path / "weights.json").write_text('{"alice": 3}', "utf-8-sig")
    assert read_weights(tmp_path / "weights.json", ["alice"]) == {"alice": 3}


WEIGHTS = {
    '{"alice": 1, "bob": 2, "alice": 3}': ["alice: is there twice"],
    '{"alice": 1, "mallory": 2}': ["mallory: no party", "bob: has no weight"],
    '{"alice": true, "bob": 1.5}': ["alice: the weight must be an integer", "bob: the weight must be"],
    "[1, 2]": ["must be an object"],
    "[" * 100_000: ["nested too deeply"],
    '{"alice": ' + "9" * 5000 + "}": ["digits"],
}


@pytest.mark.parametrize("content", WEIGHTS, ids=range(len(WEIGHTS)))
def test_refused_weights(tmp_path: Path, content: str) -> None:
    file = tmp_path / "weights.json"
    file.write_text(content)
    with pytest.raises(ConfigError) as raised:
        read_weights(file, ["alice", "bob"])
    for words in WEIGHTS[content]:
        assert words in str(raised.value)


def test_weights(tmp_path: Path) -> None:
    file = tmp_path / "weights.json"
    file.write_text('{"bob": 2, "alice": 0}')
    assert read_weights(file, ["alice", "bob"]) == {"alice": 0, "bob": 2}
