"""The core's keyed BLAKE3 against the twin, and both against the authors' test vectors."""

from __future__ import annotations

import secrets

import pytest

from smpc_dp.crypto.stream_hash import StreamHash
from tests.reference.blake3_twin import keyed_hash

KEY = b"whats the Elvish word for friend"
# github.com/BLAKE3-team/BLAKE3, test_vectors.json: `keyed_hash` of so many bytes 0, 1, ... 250, 0, 1, ...
AUTHORS = {0: "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26"}


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 2049, 3072, 5121, 31744])
def test_the_core_and_the_twin_agree(length: int) -> None:
    data = bytes(index % 251 for index in range(length))
    whole = StreamHash(KEY)
    whole.update(data)
    assert whole.digest() == keyed_hash(KEY, data)
    if length in AUTHORS:
        assert whole.digest().hex() == AUTHORS[length]


def test_where_a_stream_is_cut_does_not_matter_and_its_digest_does_not_end_it() -> None:
    data, key = secrets.token_bytes(300_000), secrets.token_bytes(32)
    whole, cut = StreamHash(key), StreamHash(key)
    whole.update(data)
    for start in range(0, len(data), 70_001):
        cut.update(memoryview(data)[start : start + 70_001])
        cut.digest()
    assert cut.digest() == whole.digest()
    other = StreamHash(bytes(32))
    other.update(data)
    assert other.digest() != whole.digest()


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="key: 31 bytes, not 32"):
        StreamHash(bytes(31))
