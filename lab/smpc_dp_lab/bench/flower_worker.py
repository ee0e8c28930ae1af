"""The peer's side of the benchmark: Flower's SecAgg+ functions, called in turn by `smpc_dp_lab.bench.peer`.

Run as a script by whichever Python has `flwr`, so it must not import anything of ours. Reads one JSON object
a line, `{"task": ..., ...}`, and answers each with one: `{"seconds": CPU time}`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

# The defaults of Flower's `SecAggPlusWorkflow`.
CLIPPING_RANGE = 8.0
QUANTIZATION_RANGE = 1 << 22
MODULUS_RANGE = 1 << 32

SECRETS = 3  # differing secrets of each kind that are made; the cost does not depend on their content


def clock() -> float:
    """Return the processor time of this process, of all threads, in seconds."""
    return time.process_time()


def expand(f: Any, length: int, masks: int) -> dict[str, object]:
    """Time the expansion of `masks` random masks and their addition, as in Flower's client and server."""
    total = [f.np.zeros(length, dtype=f.np.int64)]
    seeds = [os.urandom(32) for _ in range(masks)]
    begun = clock()
    for seed in seeds:
        total = f.parameters_addition(total, f.pseudo_rand_gen(seed, MODULUS_RANGE, [(length,)]))
    f.parameters_mod(total, MODULUS_RANGE)
    return {"seconds": clock() - begun}


def client(f: Any, length: int, masks: int, holders: int, threshold: int) -> dict[str, object]:
    """Time one client's masking (quantise, share secrets, make and add masks); return "seconds"."""
    vector = f.np.random.default_rng().uniform(-1, 1, length)
    pairs = [f.generate_key_pairs() for _ in range(SECRETS)]
    private = f.private_key_to_bytes(pairs[0][0])
    publics = [f.public_key_to_bytes(public) for _, public in pairs]
    begun = clock()
    masked = f.quantize([vector], CLIPPING_RANGE, QUANTIZATION_RANGE)
    seed = os.urandom(32)
    f.create_shares(seed, threshold, holders)
    f.create_shares(private, threshold, holders)
    masked = f.parameters_addition(masked, f.pseudo_rand_gen(seed, MODULUS_RANGE, [(length,)]))
    for index in range(masks - 1):
        masked = f.parameters_subtraction(masked, _pair_mask(f, private, publics[index % SECRETS], length))
    f.parameters_mod(masked, MODULUS_RANGE)
    return {"seconds": clock() - begun}


def average(f: Any, length: int, parties: int) -> dict[str, object]:
    """Time the server's addition and dequantisation of the clients' vectors; return "seconds"."""
    total = [f.np.random.default_rng().integers(0, MODULUS_RANGE, length)]
    vector = [f.np.random.default_rng().integers(0, MODULUS_RANGE, length)]
    begun = clock()
    for _ in range(parties - 1):
        total = f.parameters_addition(total, vector)
    total = f.parameters_mod(total, MODULUS_RANGE)
    for values in f.dequantize(total, CLIPPING_RANGE, QUANTIZATION_RANGE):
        values += -(parties - 1) * CLIPPING_RANGE
        values *= 1 / parties
    return {"seconds": clock() - begun}


def recovery(
    f: Any, length: int, threshold: int, holders: int, seeds: int, keys: int, pairs: int, sample: bool
) -> dict[str, object]:
    """Time recovery of `seeds` seeds and `keys` keys and removal of all masks; return "seconds".

    With `sample` only SECRETS secrets of each kind are recovered, and that time is scaled to all of them.
    """
    seed_shares, key_shares, public = _shares(f, threshold, holders)
    total = [f.np.zeros(length, dtype=f.np.int64)]
    secrets: list[bytes] = []

    def combine(shares: list[list[bytes]], count: int) -> float:
        measured = min(count, SECRETS) if sample else count
        begun = clock()
        for index in range(measured):
            secrets.append(f.combine_shares(shares[index % SECRETS]))
        return (clock() - begun) * (count / measured) if measured else 0.0

    seconds = combine(seed_shares, seeds)
    seed = secrets[-1]
    seconds += combine(key_shares, keys)
    private = secrets[-1]
    begun = clock()
    for _ in range(seeds):
        total = f.parameters_subtraction(total, f.pseudo_rand_gen(seed, MODULUS_RANGE, [(length,)]))
    for _ in range(pairs):
        total = f.parameters_subtraction(total, _pair_mask(f, private, public, length))
    f.parameters_mod(total, MODULUS_RANGE)
    return {"seconds": seconds + clock() - begun}


def _pair_mask(f: Any, private: bytes, public: bytes, length: int) -> Any:
    key = f.generate_shared_key(f.bytes_to_private_key(private), f.bytes_to_public_key(public))
    return f.pseudo_rand_gen(key, MODULUS_RANGE, [(length,)])


@functools.cache
def _shares(f: Any, threshold: int, holders: int) -> tuple[list[list[bytes]], list[list[bytes]], bytes]:
    pairs = [f.generate_key_pairs() for _ in range(SECRETS)]

    def share(secret: bytes) -> list[bytes]:
        shares: list[bytes] = f.create_shares(secret, threshold, holders)
        return shares[:threshold]

    seeds = [share(os.urandom(32)) for _ in range(SECRETS)]
    keys = [share(f.private_key_to_bytes(private)) for private, _ in pairs]
    return seeds, keys, f.public_key_to_bytes(pairs[0][1])


class Functions:
    """The functions of Flower that its SecAgg+ client and server call."""

    def __init__(self) -> None:
        # By name: Flower is in another environment than the one that checks our types.
        folder = "flwr.common.secure_aggregation."
        shamir = importlib.import_module(folder + "crypto.shamir")
        encryption = importlib.import_module(folder + "crypto.symmetric_encryption")
        arithmetic = importlib.import_module(folder + "ndarrays_arithmetic")
        asymmetric = importlib.import_module("flwr.supercore.primitives.asymmetric")
        self.np = importlib.import_module("numpy")
        self.create_shares = shamir.create_shares
        self.combine_shares = shamir.combine_shares
        self.generate_shared_key = encryption.generate_shared_key
        self.parameters_addition = arithmetic.parameters_addition
        self.parameters_subtraction = arithmetic.parameters_subtraction
        self.parameters_mod = arithmetic.parameters_mod
        quantization = importlib.import_module(folder + "quantization")
        self.quantize, self.dequantize = quantization.quantize, quantization.dequantize
        self.pseudo_rand_gen = importlib.import_module(folder + "secaggplus_utils").pseudo_rand_gen
        self.generate_key_pairs = asymmetric.generate_key_pairs
        self.private_key_to_bytes = asymmetric.private_key_to_bytes
        self.public_key_to_bytes = asymmetric.public_key_to_bytes
        self.bytes_to_private_key = asymmetric.bytes_to_private_key
        self.bytes_to_public_key = asymmetric.bytes_to_public_key


TASKS: dict[str, Callable[..., dict[str, object]]] = {
    "expand": expand,
    "client": client,
    "average": average,
    "recovery": recovery,
}


def main() -> None:
    """Print whether Flower is installed, then do the task on each input line and print its result."""
    try:
        functions = Functions()
    except ImportError as error:
        print(json.dumps({"absent": str(error)}), flush=True)
        return
    print(json.dumps({"version": importlib.metadata.version("flwr")}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(TASKS[request.pop("task")](functions, **request)), flush=True)


if __name__ == "__main__":
    main()
