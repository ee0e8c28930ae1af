"""Words of digests: the pinned list, the encoding by hand, and what of an entry its words cover."""

from __future__ import annotations

import hashlib
from importlib import resources

import pytest
from msgspec.structs import replace

from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member
from smpc_dp.identity.words import entry_words, words_of

ENTRY = Identity.from_seed("hub", bytes(32)).entry("aggregator", "192.0.2.7:7100")
OTHER = Identity.from_seed("hub", bytes([1]) * 32).entry("aggregator", "192.0.2.7:7100")


def test_the_list_is_that_of_bip_39() -> None:
    text = (resources.files("smpc_dp.identity") / "data" / "english.txt").read_bytes()
    assert hashlib.sha256(text).hexdigest() == (
        "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda"
    )
    words = text.decode().split()
    assert len({word[:4] for word in words}) == len(words) == 2048


def test_the_first_132_bits_of_a_digest_are_eleven_a_word() -> None:
    listed = (resources.files("smpc_dp.identity") / "data" / "english.txt").read_text().split()
    value = hashlib.sha256(b"a digest").digest()
    bits = "".join(f"{byte:08b}" for byte in value)
    assert words_of(value).split() == [listed[int(bits[at : at + 11], 2)] for at in range(0, 132, 11)]
    assert words_of(bytes(32)) == " ".join(["abandon"] * 12)
    assert words_of(bytes([255]) * 32) == " ".join(["zoo"] * 12)


def test_the_132nd_bit_of_a_digest_changes_the_last_word_alone() -> None:
    changed = (1 << 256 - 132).to_bytes(32)
    assert words_of(changed).split() == ["abandon"] * 11 + ["ability"]


@pytest.mark.parametrize(
    "changed",
    [
        replace(ENTRY, name="hut"),
        replace(ENTRY, role="server"),
        replace(ENTRY, address="192.0.2.7:7101"),
        replace(ENTRY, address=None),
        replace(ENTRY, public_key=OTHER.public_key),
        replace(ENTRY, certificate=OTHER.certificate),
        replace(ENTRY, checkpoint_key=bytes(32)),
    ],
)
def test_everything_in_an_entry_changes_its_words(changed: Member) -> None:
    assert entry_words(changed) != entry_words(ENTRY)
