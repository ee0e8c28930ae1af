"""Why the hash has an orthomorphism: without it, the evaluator computes the offset from one gate's table.

Take H(x, k) = E_k(L x) ^ L x with L linear: L = sigma is ours, L = identity is the plain Matyas-Meyer-Oseas
hash. Keys are public, and every half-gate of every instance has its own: re-keying does not help. For an AND
gate whose active labels are A and B, the first row is

    T_G = H(A) ^ H(A ^ delta) ^ p delta = E(L A) ^ E(L A ^ L delta) ^ L delta ^ p delta,

p being the colour of B's zero label. What the evaluator does not know of it is

    T_G ^ E(L A) = E(L (A ^ delta)) ^ (L ^ p) delta.

With L = identity and p = 1 the last term vanishes; it decrypts, gets A ^ delta, and has delta: one AES call,
with probability 1/2 a gate. The second row gives in the same way

    T_E ^ A ^ E(L B) = E(L (B ^ delta)) ^ (L ^ v) delta,

where v is the bit that the gate's first wire carries: so it even reads v. Candidates of different gates
agree when they are right, so that the evaluator knows that it has succeeded. With an orthomorphism
neither L delta nor L delta ^ delta is ever zero, and what is decrypted is unrelated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests.reference import garble_twin as twin

Linear = Callable[[int], int]

# Eight AND gates on the inputs, then some on their sums.
GATES = [twin.Gate(twin.AND, i, i + 8, 16 + i) for i in range(8)]
GATES += [twin.Gate(twin.XOR, 16 + i, i, 24 + i) for i in range(8)]
GATES += [twin.Gate(twin.AND, 24 + i, 24 + (i + 1) % 8, 32 + i) for i in range(8)]
CIRCUIT = twin.Circuit(40, 16, GATES, range(32, 40))


def identity(label: int) -> int:
    return label


def inverse_of_sigma(label: int) -> int:
    total, left = divmod(label, twin.HALF)
    return left * twin.HALF + (total ^ left)


def hash_with(linear: Linear) -> twin.Hash:
    return lambda label, key: twin.aes(key, linear(label)) ^ linear(label)


def candidates(
    keys: Callable[[int], int],
    rows: Sequence[tuple[int, int]],
    active: dict[int, int],
    linear: Linear,
    inverse: Linear,
) -> list[tuple[int, int]]:
    """By AND gate, what the two rows give for the offset: all that this takes, the evaluator has."""
    result = []
    for number, gate in enumerate(CIRCUIT.and_gates()):
        t_g, t_e = rows[number]
        a, b = active[gate.a], active[gate.b]
        pair = []
        for key, known, rest in ((keys(2 * number), a, t_g), (keys(2 * number + 1), b, t_e ^ a)):
            decrypted = twin.aes(key, rest ^ twin.aes(key, linear(known)), decrypt=True)
            pair.append(inverse(decrypted) ^ known)
        result.append((pair[0], pair[1]))
    return result


def attacked(seed: int, linear: Linear, inverse: Linear) -> tuple[int, int | None, list[int], list[int]]:
    """The offset, the attacker's answer, and the bits of the first wires as they are and as it reads them."""
    generator = random.Random(seed)
    delta = generator.getrandbits(128) | 1
    zeros = [generator.getrandbits(128) for _ in range(CIRCUIT.n_inputs)]
    bits = [generator.getrandbits(1) for _ in zeros]
    setting = twin.Setting(generator.randbytes(16), "unique", 1, 1)
    keys, h = twin.keys_of(setting, 0), hash_with(linear)
    garbled = twin.garble_one(CIRCUIT, keys, delta, zeros, h)
    labels = [zero ^ bit * delta for zero, bit in zip(zeros, bits, strict=True)]
    active = twin.evaluate_one(CIRCUIT, keys, garbled.rows, labels, h)
    result = candidates(keys, garbled.rows, active, linear, inverse)
    [(answer, votes)] = Counter(candidate for pair in result for candidate in pair).most_common(1)
    true_bits = [int(active[gate.a] != garbled.zeros[gate.a]) for gate in CIRCUIT.and_gates()]
    read_bits = [int(pair[1] == answer) for pair in result]
    return delta, answer if votes > 1 else None, true_bits, read_bits


@pytest.mark.parametrize("seed", range(8))
def test_without_sigma_the_evaluator_learns_everything(seed: int) -> None:
    delta, answer, true_bits, read_bits = attacked(seed, identity, identity)
    assert answer == delta
    assert read_bits == true_bits


@pytest.mark.parametrize("seed", range(8))
def test_with_sigma_the_same_attack_finds_nothing(seed: int) -> None:
    assert inverse_of_sigma(twin.sigma(seed << 70 | 77)) == seed << 70 | 77
    delta, answer, _, _ = attacked(seed, twin.sigma, inverse_of_sigma)
    assert answer is None
    assert delta & 1


def test_the_attacked_circuit_is_garbled_rightly() -> None:
    for linear in (identity, twin.sigma):
        for seed in range(4):
            generator = random.Random(seed)
            delta = generator.getrandbits(128) | 1
            zeros = [generator.getrandbits(128) for _ in range(16)]
            bits = [generator.getrandbits(1) for _ in zeros]
            garbled = twin.garble_one(CIRCUIT, lambda half: half, delta, zeros, hash_with(linear))
            labels = [zero ^ bit * delta for zero, bit in zip(zeros, bits, strict=True)]
            active = twin.evaluate_one(CIRCUIT, lambda half: half, garbled.rows, labels, hash_with(linear))
            expected = [
                garbled.zeros[wire] ^ bit * delta
                for wire, bit in zip(CIRCUIT.outputs, CIRCUIT.plain(bits), strict=True)
            ]
            assert [active[wire] for wire in CIRCUIT.outputs] == expected
