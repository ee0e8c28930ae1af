"""One party's comparisons with all others, by evaluations of one circuit with noise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.capabilities.pairs.garbled.params import MAX_COPIES, MIN_COPIES
from smpc_dp.capabilities.pairs.kernels.cosine import unit_codes
from smpc_dp.capabilities.pairs.statistics.similarity import Similarities, plan_similarities
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import (
    ConfigCheck,
    ConfigError,
    PeerFault,
    SmpcError,
    TimeoutFault,
    VerificationError,
    certificate_of,
)
from smpc_dp.privacy.arguments import ArgumentChecks

if TYPE_CHECKING:
    from smpc_dp.capabilities.pairs.garbled.evaluation import Evaluation
    from smpc_dp.privacy.accountant.ledger import Ledger


async def compare(
    own: str,
    names: Sequence[str],
    evaluate: Callable[..., Awaitable[Evaluation]],
    check_peer: Callable[[str], None],
    ledger: Ledger | None,
    vector: ArrayLike,
    epsilon: float,
    levels: int,
    *,
    covert: int,
    malicious: bool = False,
) -> Similarities:
    """Charge the ledger, compare a party's vector with all others' by `evaluate`; return noisy cosines."""
    row = _checked(vector, covert)
    codes = [int(code) for code in unit_codes(row[None], levels)[0]]
    plan = await asyncio.to_thread(
        partial(plan_similarities, malicious=malicious), len(row), len(names), epsilon, levels
    )
    circuit, index, randomness = plan.circuit, names.index(own), SystemRandomness()
    for name in names:
        if name != own:
            check_peer(name)
    if ledger is not None:
        # At once, before anything that depends on the vector: which comparisons fail may depend on others.
        label = f"similarities with {len(names) - 1} parties"
        await asyncio.to_thread(ledger.charge, randomness.bytes(32), plan.event(), label)
    scores: dict[str, float] = {}
    faults: dict[str, SmpcError] = {}

    async def with_peer(number: int, peer: str) -> None:
        bits = int.from_bytes(randomness.bytes((plan.noise.joint_bits + 7) // 8), "big")
        try:
            evaluated = await evaluate(
                circuit,
                [*codes, bits % (1 << plan.noise.joint_bits)],
                peer=peer,
                role="garbler" if index < number else "evaluator",
                evaluator_inputs=range(len(row) + 1, 2 * len(row) + 2),
                covert=covert,
                security="malicious" if malicious else None,
                label="similarity",
            )
        except (ConfigError, PeerFault, TimeoutFault, VerificationError) as error:
            # One party that cheats, or asks for something else, must not cost the scores of all others.
            faults[peer] = error
        else:
            if evaluated.value is not None:
                scores[peer] = float(plan.scores(np.array([evaluated.value[0]], dtype=np.uint64))[0])

    # All at once: a party that waits for one that is absent would keep those that wait for it.
    others = [(number, peer) for number, peer in enumerate(names) if peer != own]
    tasks = [asyncio.create_task(with_peer(number, peer)) for number, peer in others]
    try:
        await asyncio.gather(*tasks)
    except BaseException as error:
        await _cancel(tasks)
        if (convicted := _conviction(faults)) is not None:
            raise convicted from error
        raise
    differs = next((error for error in faults.values() if isinstance(error, ConfigError)), None)
    if differs is not None and not scores and _conviction(faults) is None:
        raise differs
    failed = {peer: str(error) for peer, error in faults.items()}
    return Similarities(scores, failed, plan.guarantee, plan.deviation)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks of comparisons, and wait until all have ended, even if cancelled meanwhile."""
    while not all(task.done() for task in tasks):
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(tasks)


def _conviction(faults: Mapping[str, SmpcError]) -> SmpcError | None:
    """Return the first of the peers' errors that carries a cheating certificate, or None."""
    return next((error for error in faults.values() if certificate_of(error) is not None), None)


def _checked(vector: ArrayLike, covert: int) -> NDArray[np.float64]:
    """Return the vector as an array of floats; raise ConfigError for a bad vector or number of copies."""
    row = np.asarray(vector, dtype=np.float64)
    if row.ndim != 1 or not len(row):
        raise ConfigError.at("vector", f"must be numbers in a row, shape is {row.shape}", ConfigCheck.SHAPE)
    checks = ArgumentChecks()
    if covert:
        checks.require_integer("covert", covert, MIN_COPIES, MAX_COPIES)
    checks.raise_issues()
    return row
