"""The least processor time of an average of a model: the parts that a member must do, each measured alone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from smpc_dp.crypto.prg import SEED_BYTES, add_masks
from smpc_dp.encoding import RingVector
from smpc_dp.secagg.params import SecAggParameters

# Of TLS: bytes of a record, and of the tag that each ends with.
RECORD, TAG = 16 << 10, 16
NONCE = bytes(12)
# Bytes that a kernel is measured on: beyond every cache, and more takes as long a byte.
SAMPLE = 32 << 20
# Names of the parts.
CHANNEL = "AES-256-GCM of the bytes out and in, in records of 16 KiB"
HASH = "SHA-256 of the bodies"
COPY = "one copy of the model"
MASKS = "masks, made and added"
ADD = "additions"


@dataclass(frozen=True, slots=True)
class Work:
    """Unavoidable work of one member, in models: sent, received, hashed, copied, masked, added.

    Attributes:
        sent, received: models that pass its channels, packed.
        hashed: packed models that a digest is made of.
        copied: models as float32.
        masks, added: masks, and vectors that are added to another one.
    """

    sent: int
    received: int
    hashed: int
    copied: int
    masks: int
    added: int

    @property
    def described(self) -> str:
        """The counts as text, for the note of a figure."""
        counts = ", ".join(f"{name} {count}" for name, count in asdict(self).items())
        return f"processor time, alone, one thread; a part beyond 32 MiB is scaled; models: {counts}"


def party_work(parameters: SecAggParameters) -> Work:
    """Return the work of a party: it adds its model to its masks, sends it, and receives the sum."""
    seeds = round(parameters.plan.mask_degree) + 1
    return Work(sent=1, received=1, hashed=2, copied=1, masks=seeds, added=1)


def aggregator_work(parameters: SecAggParameters) -> Work:
    """Return the aggregator's work where nobody is lost: of the masks the self-masks remain."""
    parties = parameters.plan.parties
    return Work(sent=parties, received=parties, hashed=parties + 1, copied=0, masks=parties, added=parties)


def limit_parts(parameters: SecAggParameters, work: Work) -> dict[str, float]:
    """Return the processor time of each part in seconds, one thread, measured now; their sum is the limit.

    A part that is longer than SAMPLE bytes is measured on so many, and scaled.
    """
    encoding = parameters.encoding
    packed = encoding.ring_length * encoding.element_bytes
    words = encoding.ring_length * np.dtype(encoding.dtype).itemsize
    times = _seconds_a_byte(encoding.dtype, {"packed": packed, "words": words})
    parts = {
        CHANNEL: packed * (work.sent * times["seal"] + work.received * times["open"]),
        HASH: packed * work.hashed * times["hash"],
        COPY: 4 * encoding.ring_length * work.copied * times["copy"],
        MASKS: words * work.masks * times["mask"],
        ADD: words * work.added * times["add"],
    }
    return {name: seconds for name, seconds in parts.items() if seconds}


def _seconds_a_byte(dtype: type[np.uint32] | type[np.uint64], sizes: Mapping[str, int]) -> dict[str, float]:
    """Return the seconds of processor time of each kernel for a byte, into memory that is there already."""
    packed, words = (min(sizes[name], SAMPLE) for name in ("packed", "words"))
    plain = np.random.default_rng(1).bytes(packed)
    cipher, views = AESGCM(bytes(32)), _records(memoryview(plain))
    sealed = [bytearray(len(view) + TAG) for view in views]
    opened = bytearray(RECORD)
    vector: RingVector = np.ones(max(1, words // np.dtype(dtype).itemsize), dtype)
    total: RingVector = vector.copy()

    def seal() -> None:
        for view, record in zip(views, sealed, strict=True):
            cipher.encrypt_into(NONCE, view, None, record)

    def unseal() -> None:
        for record in sealed:
            cipher.decrypt_into(NONCE, record, None, memoryview(opened)[: len(record) - TAG])

    kernels: dict[str, tuple[Callable[[], object], int]] = {
        "seal": (seal, packed),
        "open": (unseal, packed),
        "hash": (lambda: hashlib.sha256(plain).digest(), packed),
        "copy": (lambda: np.copyto(total, vector), vector.nbytes),
        "mask": (lambda: add_masks(total, [bytes(SEED_BYTES)], [1]), vector.nbytes),
        "add": (lambda: np.add(total, vector, out=total), vector.nbytes),
    }
    return {name: _seconds(kernel) / size for name, (kernel, size) in kernels.items()}


def _seconds(kernel: Callable[[], object]) -> float:
    """Return the processor time of a call: the median of three after one that is not counted."""
    taken = []
    for _ in range(4):
        begun = time.process_time()
        kernel()
        taken.append(time.process_time() - begun)
    return median(taken[1:])


def _records(content: memoryview) -> list[memoryview]:
    return [content[start : start + RECORD] for start in range(0, len(content), RECORD)]
