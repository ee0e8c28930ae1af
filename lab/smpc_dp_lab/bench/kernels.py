"""Measure two kernels on their own: the raw keystream, and the recovery of dropouts at the aggregator."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from smpc_dp.crypto import agree, shamir
from smpc_dp.crypto.prg import add_masks
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.draws import draw_neighbours
from smpc_dp.engine.phases.key_graph import Edges
from smpc_dp.engine.phases.recovery import Recovery
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.session.memory.simulated_run import SimulatedRun, simulated_run
from smpc_dp.wire.sets import pack_list

_BLOCKS = (16 << 10, 64 << 10, 256 << 10, 1 << 20)
_BYTES_A_BLOCK_SIZE = 32 << 20


def keystream_rate() -> float:
    """Return OpenSSL's AES-256-CTR rate in bytes per CPU second: the best of four block sizes.

    Zeros are encrypted into a buffer that is there already: nothing but the keystream is paid for.
    """
    best = 0.0
    for size in _BLOCKS:
        encryptor = Cipher(AES256(bytes(32)), CTR(bytes(16))).encryptor()
        zeros, output = bytes(size), bytearray(size + 16)
        encryptor.update_into(zeros, output)
        begun = time.process_time()
        for _ in range(_BYTES_A_BLOCK_SIZE // size):
            encryptor.update_into(zeros, output)
        best = max(best, _BYTES_A_BLOCK_SIZE / (time.process_time() - begun))
    return best


def mask_rate(length: int, dtype: type[np.uint32] | type[np.uint64], masks: int) -> float:
    """Return the bytes per CPU second at which one thread adds `masks` expanded masks to a vector."""
    total: RingVector = np.zeros(length, dtype=dtype)
    seeds = [number.to_bytes(32, "little") for number in range(masks)]
    signs = [1 if index % 2 else -1 for index in range(masks)]
    begun = time.process_time()
    add_masks(total, seeds, signs)
    return masks * total.nbytes / (time.process_time() - begun)


@dataclass(frozen=True, slots=True)
class Wreck:
    """The aggregator's state when all masked vectors have arrived and some parties have dropped out.

    The dropouts are the parties with the lowest numbers. They dealt their shares and never sent a vector,
    which is the dearest case: every mask that they share with a survivor has to come out of the sum.
    """

    simulated: SimulatedRun
    plan: SecAggPlan
    run_id: bytes
    survivors: tuple[int, ...]
    mask_keys: dict[int, bytes]
    self_commitments: dict[int, bytes]
    drawn: dict[int, tuple[int, ...]]
    neighbours: dict[int, tuple[int, ...]]
    unmasks: dict[int, m.Unmask]
    total: RingVector

    @property
    def pair_masks(self) -> int:
        """The number of pairwise masks that recovery must remove from the sum."""
        inside = frozenset(self.survivors)
        dropped = [party for party in self.drawn if party not in inside]
        return sum(peer in inside for party in dropped for peer in self.neighbours[party])

    def recover(self) -> float:
        """Return the CPU seconds of one recovery, from the revealed shares to the sum, one thread."""
        recovery = Recovery(
            self.simulated.context,
            self.plan,
            self.run_id,
            participants=tuple(self.drawn),
            survivors=self.survivors,
            edges=Edges(self.mask_keys, self.drawn, self.neighbours, b""),
            self_commitments=self.self_commitments,
        )
        total = self.total.copy()
        begun = time.process_time()
        for holder, unmask in self.unmasks.items():
            recovery.add(holder, unmask, ())
        add_masks(total, *zip(*recovery.masks().signed, strict=True))
        seconds = time.process_time() - begun
        if total.any():
            raise ArithmeticError("recovery left masks in the sum")
        return seconds


def wreck(
    plan: SecAggPlan, length: int, dtype: type[np.uint32] | type[np.uint64], dropouts: int, seed: int
) -> Wreck:
    """Return the aggregator's state for zero vectors when the first `dropouts` parties have dropped out."""
    simulated = simulated_run(plan.parties, seed_for_simulation=seed)
    names, sources = simulated.context.names, simulated.sources
    run_id = bytes(32)
    everyone = range(1, plan.parties + 1)
    secrets = {party: sources[names[party - 1]].bytes(32) for party in everyone}
    self_seeds = {party: sources[names[party - 1]].bytes(32) for party in everyone}
    drawn = {
        party: draw_neighbours(party, plan.parties, plan.degree, sources[names[party - 1]])
        for party in everyone
    }
    joined: dict[int, set[int]] = {party: set(drawn[party]) for party in everyone}
    for party in everyone:
        for other in drawn[party]:
            joined[other].add(party)
    survivors = tuple(everyone)[dropouts:]
    built = Wreck(
        simulated=simulated,
        plan=plan,
        run_id=run_id,
        survivors=survivors,
        mask_keys={party: agree.public_key(secrets[party]) for party in everyone},
        self_commitments={
            party: keys.self_commitment(simulated.context, run_id, names[party - 1], self_seeds[party])
            for party in everyone
        },
        drawn=drawn,
        neighbours={party: tuple(sorted(joined[party])) for party in everyone},
        unmasks=_unmasks(plan, simulated, drawn, survivors, secrets, self_seeds),
        total=np.zeros(length, dtype=dtype),
    )
    _mask(built, secrets, self_seeds)
    return built


def _unmasks(
    plan: SecAggPlan,
    simulated: SimulatedRun,
    drawn: dict[int, tuple[int, ...]],
    survivors: tuple[int, ...],
    secrets: dict[int, bytes],
    self_seeds: dict[int, bytes],
) -> dict[int, m.Unmask]:
    """Return, by holder, the messages with the shares that recovery needs, dealt from all secrets.

    Digests and signatures are only read for bad shares.
    """
    inside = frozenset(survivors)
    held: dict[int, dict[int, bytes]] = {holder: {} for holder in survivors}
    for dealer, holders in drawn.items():
        secret = self_seeds[dealer] if dealer in inside else secrets[dealer]
        source = simulated.sources[simulated.context.names[dealer - 1]]
        for holder, share in zip(holders, shamir.split(secret, plan.threshold, holders, source), strict=True):
            if holder in inside:
                held[holder][dealer] = share
    return {
        holder: m.Unmask(
            pack_list(shares),
            b"".join(shares.values()),
            bytes(m.SHARE_BYTES * len(shares)),
            bytes(m.SIGNATURE_BYTES * len(shares)),
        )
        for holder, shares in held.items()
    }


def _mask(built: Wreck, secrets: dict[int, bytes], self_seeds: dict[int, bytes]) -> None:
    """Add to the total, in place, all masks that recovery will remove from it."""
    context, names, inside = (
        built.simulated.context,
        built.simulated.context.names,
        frozenset(built.survivors),
    )
    seeds: list[bytes] = []
    signs: list[int] = []
    for party in built.survivors:
        name = names[party - 1]
        seeds.append(keys.self_mask_seed(context, built.run_id, name, self_seeds[party]))
        signs.append(1)
        for peer in built.neighbours[party]:
            if peer not in inside:
                mask_key = built.mask_keys[peer]
                seeds.append(
                    keys.pair_mask_seed(
                        context, built.run_id, secrets[party], name, names[peer - 1], mask_key
                    )
                )
                signs.append(1 if party < peer else -1)
    add_masks(built.total, seeds, signs)
