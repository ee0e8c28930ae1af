"""Shamir's sharing over a prime field, by mpyc's own functions; shares of server i are at x = i."""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from smpc_dp.errors import Check, PeerFault, SmpcError

_IMPORTING = threading.Lock()


@contextmanager
def mpyc_arguments(*arguments: str) -> Iterator[None]:
    """Context manager to import mpyc with its options in `sys.argv`; restores that and the logging after.

    With `--mix32-64bit` field elements are encoded as integers of fixed width; without it, as pickles.
    """
    with _IMPORTING:
        root = logging.getLogger()
        retained, level, handlers = sys.argv, root.level, list(root.handlers)
        sys.argv = ["mpyc", "--no-log", "--mix32-64bit", *arguments]
        try:
            yield
        finally:
            sys.argv = retained
            root.setLevel(level)
            for handler in set(root.handlers) - set(handlers):
                root.removeHandler(handler)


class PickleRefusedError(SmpcError):
    """Error of an attempt to unpickle data in a process that reads other servers' messages."""


class _RefusedUnpickler:
    """Replacement of `pickle.Unpickler` whose use raises PickleRefusedError."""

    def __init__(self, *_: object, **__: object) -> None:
        raise PickleRefusedError("this process unpickles nothing")


def _refused_load(*_: object, **__: object) -> None:
    """Replacement of `pickle.load`: raise PickleRefusedError whatever is passed."""
    raise PickleRefusedError("this process unpickles nothing")


def refuse_pickle() -> None:
    """Disable unpickling in this process for good, since a pickle can run code of its sender.

    mpyc with the options of `mpyc_arguments` unpickles none of the programs' messages; this holds whatever
    mpyc or another library does.
    """
    refused = {"load": _refused_load, "loads": _refused_load, "Unpickler": _RefusedUnpickler}
    for name, instead in refused.items():
        # The last one is the fallback of `pickle` without its accelerator.
        for module, known in (
            (pickle, name),
            (importlib.import_module("_pickle"), name),
            (pickle, f"_{name}"),
        ):
            setattr(module, known, instead)


def field_bytes(prime: int) -> int:
    """Return how many bytes an element of the field modulo `prime` takes."""
    return (prime.bit_length() + 7) // 8


def split(values: Sequence[int], prime: int, threshold: int, servers: int) -> list[bytes]:
    """Split integers into Shamir shares; return each server's shares, encoded.

    Polynomials have degree `threshold` and come from the operating system's randomness: any `threshold`
    servers together learn nothing.
    """
    thresha, finfields = _module("thresha"), _module("finfields")
    rows = thresha.random_split(finfields.GF(prime), [value % prime for value in values], threshold, servers)
    width = field_bytes(prime)
    return [b"".join(int(share).to_bytes(width, "big") for share in row) for row in rows]


def unpack(packed: bytes, length: int, prime: int, sender: str) -> list[int]:
    """Decode the shares that `sender` sent as bytes; raise PeerFault unless all are field elements."""
    width = field_bytes(prime)
    if len(packed) != width * length:
        raise PeerFault(
            sender,
            f"sent shares of {len(packed)} bytes, {length} of {width} bytes are due",
            Check.WRONG_LENGTH,
        )
    shares = [int.from_bytes(packed[index : index + width], "big") for index in range(0, len(packed), width)]
    if max(shares) >= prime:
        raise PeerFault(
            sender,
            f"sent a share that is no element of the field of {prime.bit_length()} bits",
            Check.OUT_OF_RANGE,
        )
    return shares


def _module(name: str) -> ModuleType:
    """Import a module of mpyc as a library, with the options of `mpyc_arguments`, and return it."""
    with mpyc_arguments():
        return importlib.import_module(f"mpyc.{name}")
