"""Digests as words of a dictionary, which people compare by voice.

protocols/channel/README.md specifies the encoding, and what comparing shows.
"""

from __future__ import annotations

import functools
from importlib import resources

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import DIGEST_BYTES, digest
from smpc_dp.identity.roster import Member, digest_parts

# 132 bits of a digest, 11 for each word: two inputs with the same words take about 2^66 trials.
WORDS, WORD_BITS = 12, 11


def words_of(value: bytes) -> str:
    """Return the first 132 bits of a digest as 12 dictionary words, so that people can compare them."""
    number = int.from_bytes(value) >> (8 * DIGEST_BYTES - WORDS * WORD_BITS)
    shifts = range((WORDS - 1) * WORD_BITS, -1, -WORD_BITS)
    return " ".join(_list()[number >> shift & (1 << WORD_BITS) - 1] for shift in shifts)


def entry_words(member: Member) -> str:
    """Return dictionary words for a member's whole roster entry, which people compare by voice."""
    return words_of(digest(Label.ROSTER_ENTRY, *digest_parts(member)))


@functools.cache
def _list() -> tuple[str, ...]:
    """Return the 2,048 English words of BIP-39, by which digests are spelled out."""
    return tuple((resources.files("smpc_dp.identity") / "data" / "english.txt").read_text("ascii").split())
