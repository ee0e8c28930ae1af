"""Authenticated garbling from its specification alone: both sides in one process, slow and plain.

`protocols/active/README.md` is the specification, with the names used here. Labels and MACs are integers,
little-endian in bytes. `Evaluation.tamper` replaces what a side sends, so an attack is one function.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf, lgamma, log
from operator import xor
from random import Random
from typing import Any, NamedTuple, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from smpc_dp_verify.encodings import tuple_hash, uint
from tests.reference import ot_twin
from tests.reference.blake3_twin import keyed_hash
from tests.reference.garble_twin import AND, EQ, INV, XOR, Circuit, aes, hash_label

G, E = 0, 1
SIDES = (G, E)
NAMES = (b"garbler", b"evaluator")
GROUP = 1 << 16
FEWEST = 31
GATE_PLACES = 1 << 63
MASK_BITS = 64
LABEL = (1 << 128) - 1

Tamper = Callable[[str, int, Any], Any]


class Stopped(Exception):
    """An honest side stopped: `side` is the one whose check failed, `check` the check."""

    def __init__(self, side: int, check: str) -> None:
        who = (*NAMES, b"aggregator")[side].decode()
        super().__init__(f"{who} stops: {check}")
        self.side = side
        self.check = check


class Shared(NamedTuple):
    """A shared bit: by side its share, its MAC on that share, and its key of the other side's share."""

    share: tuple[int, int]
    mac: tuple[int, int]
    key: tuple[int, int]

    def __add__(self, other: Shared) -> Shared:  # type: ignore[override]
        return Shared(*(tuple(map(xor, a, b)) for a, b in zip(self, other, strict=True)))

    def times(self, bit: int) -> Shared:
        """The bit itself, or zero."""
        return self if bit else ZERO

    def alone(self, u: int) -> Shared:
        """The bit of side u, without that of the other."""
        if u == G:
            return Shared((self.share[G], 0), (self.mac[G], 0), (0, self.key[E]))
        return Shared((0, self.share[E]), (0, self.mac[E]), (self.key[G], 0))

    def opened(self) -> int:
        return self.share[G] ^ self.share[E]


ZERO = Shared((0, 0), (0, 0), (0, 0))


class Source(Protocol):
    """Gives authenticated bits: the setup of each direction and its transfers, or an ideal dealer."""

    deltas: tuple[int, int]

    def bits(self, choices: tuple[Sequence[int], Sequence[int]]) -> list[Shared]: ...


def combine(
    choices: tuple[Sequence[int], Sequence[int]], keys: Sequence[Sequence[int]], deltas: tuple[int, int]
) -> list[Shared]:
    """Shared bits of both sides' choices, `keys[u]` being u's keys of the other side's."""
    shared = []
    for r, s, key_g, key_e in zip(*choices, *keys, strict=True):
        macs = (key_e ^ r * deltas[E], key_g ^ s * deltas[G])
        shared.append(Shared((r, s), macs, (key_g, key_e)))
    return shared


@dataclass
class Dealer:
    """A trusted party in place of the transfers."""

    random: Random
    deltas: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.deltas == (0, 0):
            self.deltas = (self.random.getrandbits(128) | 1, self.random.getrandbits(127) << 1)

    def bits(self, choices: tuple[Sequence[int], Sequence[int]]) -> list[Shared]:
        keys = [[self.random.getrandbits(128) for _ in choices[G]] for _ in SIDES]
        return combine(choices, keys, self.deltas)


class Setup(ot_twin.Extension):
    """The setup of one side, whose Delta has that side's bit 0."""

    bit = 0

    def correlation(self) -> bytes:
        delta = ot_twin.tuple_hash("active-delta", 16, self.context, self.sender_seed)
        return bytes([delta[0] & 254 | self.bit]) + delta[1:]


class SetupOfGarbler(Setup):
    bit = 1


@dataclass
class Transfers:
    """Both setups of a pair; the seeds are by the setup's side, sender first."""

    bound: Sequence[bytes]
    seeds: tuple[tuple[bytes, bytes], tuple[bytes, bytes]]
    k: int = 4
    setups: tuple[Setup, Setup] = field(init=False)
    deltas: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        made = []
        for u in SIDES:
            kind = (SetupOfGarbler, Setup)[u]
            names = (NAMES[u], NAMES[1 - u], bytes([1 - u]))
            made.append(kind(tuple_hash("active-transfer", *self.bound, *names), self.k, *self.seeds[u]))
        self.setups = (made[G], made[E])
        self.deltas = (word(made[G].delta), word(made[E].delta))

    def bits(self, choices: tuple[Sequence[int], Sequence[int]]) -> list[Shared]:
        chunks = [self.setups[u].run(list(choices[1 - u])) for u in SIDES]
        shared = combine(choices, [[word(row) for row in chunk.q] for chunk in chunks], self.deltas)
        for one, row_g, row_e in zip(shared, chunks[E].t, chunks[G].t, strict=True):
            assert one.mac == (word(row_g), word(row_e))
        return shared

    @property
    def start(self) -> int:
        return word(tuple_hash("active-keys", *(setup.context for setup in self.setups))[:16])


def word(data: bytes) -> int:
    return int.from_bytes(data, "little")


def octets(value: int) -> bytes:
    return value.to_bytes(16, "little")


def log2_of_bad_bucket(triples: int, size: int) -> float:
    """log2 of max over m of 2^-m l C(m, B) / C(l B, B)."""

    def log2_choose(n: int) -> float:
        return (lgamma(n + 1) - lgamma(size + 1) - lgamma(n - size + 1)) / log(2)

    best, total = -inf, triples * size
    for m in range(size, min(total, 64 * size) + 1):
        best = max(best, log(triples, 2) + log2_choose(m) - log2_choose(total) - m)
    return best


def bucket_size(triples: int, groups: int = 1) -> int:
    """The least B from 2 on whose chance of a bucket that leaks is at most 2^-41 over all groups."""
    size = 2
    while log2_of_bad_bucket(triples, size) + log(groups, 2) > -41:
        size += 1
    return size


def stream(key: bytes) -> Iterator[bytes]:
    """8-byte words of the AES-256-CTR stream under `key`."""
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    while True:
        yield encryptor.update(bytes(8))


def shuffled(count: int, key: bytes) -> list[int]:
    order, words = list(range(count)), stream(key)
    for i in range(count - 1, 0, -1):
        largest = (1 << 64) // (i + 1) * (i + 1)
        drawn = next(n for n in map(word, words) if n < largest)
        j = drawn % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


@dataclass
class Evaluation:
    """One evaluation of `circuit` for `instances`, of one block.

    `tamper` gives what arrives of a message of the side `corrupt`; checks in `omitted` are not made.
    `inputs[u]` are bits by wire and instance, `coins` wires without an input; `first_triple` and `first_gate`
    are the numbers that earlier evaluations left. `bucket` and `fewest` are for tests of the formula alone:
    the specification computes B and pads to 31.
    """

    circuit: Circuit
    inputs: tuple[dict[int, list[int]], dict[int, list[int]]]
    coins: Sequence[int]
    source: Source
    random: Random
    bound: Sequence[bytes] = (b"pairwise-active", uint(1))
    start: int = 0
    first_triple: int = 0
    first_gate: int = 0
    hiding_bits: int = MASK_BITS
    instances: int = 1
    bucket: int | None = None
    fewest: int = FEWEST
    tamper: Tamper = lambda _step, _side, value: value
    corrupt: int | None = None
    omitted: frozenset[str] = frozenset()
    sent: dict[tuple[str, int], Any] = field(default_factory=dict)

    # What the sides say, and whether they believe it.

    def send(self, step: str, side: int, value: Any) -> Any:
        """What arrives of `value`, sent by `side`."""
        self.sent[step, side] = self.tamper(step, side, value) if side == self.corrupt else value
        return self.sent[step, side]

    def check(self, side: int, name: str, holds: bool) -> None:
        """Stop if `side` is honest and its check fails; a corrupt side goes on."""
        if side != self.corrupt and not holds and name not in self.omitted:
            raise Stopped(side, name)

    def digest(self, label: str, parts: Sequence[bytes], values: Sequence[int]) -> bytes:
        return keyed_hash(tuple_hash(label, *self.bound, *parts), b"".join(map(octets, values)))

    # The phases.

    def run(self) -> None:
        """Everything up to the last check."""
        self.gates = [gate for gate in self.circuit.gates if gate.op == AND]
        self.prepare()
        self.open_products()
        self.mask_inputs()
        self.garble()
        self.evaluate()
        self.check_masked()

    def key(self, place: int) -> int:
        return self.start ^ place

    def prepare(self) -> None:
        """Transfers, leaky triples, equality and buckets."""
        count = len(self.gates) * self.instances
        self.l = max(self.fewest, count) if count else 0
        self.B = self.bucket or (bucket_size(self.l) if self.l else 0)
        total = self.l * self.B
        own = [len(self.inputs[u]) * self.instances for u in SIDES]
        common = (len(self.coins) + len(self.gates)) * self.instances + self.hiding_bits
        bits = self.authenticated([own[u] + common + 3 * total for u in SIDES])
        thirds = [bits[part * total : (part + 1) * total] for part in range(3)]
        self.masks: dict[tuple[int, int], Shared] = {}
        for u in SIDES:
            mine = iter(bits[3 * total :])
            for wire in self.inputs[u]:
                for n in range(self.instances):
                    self.masks[wire, n] = next(mine).alone(u)
        take = (
            of_g.alone(G) + of_e.alone(E)
            for of_g, of_e in zip(*(bits[3 * total + own[u] :] for u in SIDES), strict=False)
        )
        for wire in [*self.coins, *(gate.out for gate in self.gates)]:
            for n in range(self.instances):
                self.masks[wire, n] = next(take)
        self.hiding = [next(take) for _ in range(self.hiding_bits)]
        triples = list(zip(*thirds, strict=True))
        self.leaky(triples)

    def authenticated(self, counts: Sequence[int]) -> list[Shared]:
        """So many random bits of each side, in step: what fills up the shorter one is of no use."""
        choices = [[self.random.getrandbits(1) for _ in range(count)] for count in counts]
        filled = [part + [0] * (max(counts) - len(part)) for part in choices]
        return self.source.bits((filled[G], filled[E]))

    def drawn(self, _side: int) -> bytes:
        """32 random bytes of a side."""
        return self.random.randbytes(32)

    def triple_keys(self, i: int) -> tuple[int, int]:
        """The keys of the places of the i-th leaky triple of this evaluation."""
        place = 2 * (self.first_triple + i)
        return self.key(place), self.key(place + 1)

    def leaky(self, triples: Sequence[tuple[Shared, Shared, Shared]]) -> None:
        delta = self.source.deltas
        self.leaked = [x for x, _, _ in triples]
        c, u_sent, s_values, made = [], [], [], []
        for i, (x, y, _) in enumerate(triples):
            keys = self.triple_keys(i)
            c.append([y.share[u] * delta[u] ^ y.key[u] ^ y.mac[u] for u in SIDES])
            u_sent.append(
                [
                    hash_label(x.key[u], keys[u]) ^ hash_label(x.key[u] ^ delta[u], keys[u]) ^ c[i][u]
                    for u in SIDES
                ]
            )
        arrived = [self.send("U", u, [row[u] for row in u_sent]) for u in SIDES]
        for i, (x, _, _) in enumerate(triples):
            keys = self.triple_keys(i)
            s_values.append(
                [
                    hash_label(x.key[u], keys[u])
                    ^ hash_label(x.mac[u], keys[1 - u])
                    ^ x.share[u] * (arrived[1 - u][i] ^ c[i][u])
                    for u in SIDES
                ]
            )
        d = [
            self.send("d", u, [(s[u] & 1) ^ t[2].share[u] for s, t in zip(s_values, triples, strict=True)])
            for u in SIDES
        ]
        ls: list[list[int]] = [[], []]
        for i, (x, y, rho) in enumerate(triples):
            z = rho + self.public(d[G][i] ^ d[E][i])
            made.append((x, y, z))
            for u in SIDES:
                ls[u].append(s_values[i][u] ^ z.share[u] * delta[u] ^ z.key[u] ^ z.mac[u])
        self.sums = ls
        self.triples = self.bucketed(made, self.agreed_coin(ls)) if made else []

    def public(self, c: int) -> Shared:
        """A shared bit of public value."""
        return Shared((0, c), (0, 0), (c * self.source.deltas[G], 0))

    def agreed_coin(self, ls: Sequence[Sequence[int]]) -> bytes:
        """Compare all L, both committed before either opens; then open the seeds of the shuffle."""
        values = [self.digest("active-equality", [uint(0)], ls[u]) for u in SIDES]
        openings = [self.drawn(u) for u in SIDES]
        seeds = [self.drawn(u) for u in SIDES]

        def commitment(u: int, *content: bytes) -> bytes:
            return tuple_hash("active-commit", *self.bound, uint(0), NAMES[u], NAMES[1 - u], *content)

        committed = [
            self.send(
                "commit",
                u,
                (commitment(u, b"equality", values[u], openings[u]), commitment(u, b"coin", seeds[u])),
            )
            for u in SIDES
        ]
        equal = [self.send("equal", u, (values[u], openings[u])) for u in SIDES]
        for u in SIDES:
            met = committed[u][0] == commitment(u, b"equality", *equal[u])
            self.check(1 - u, "equality", met and hmac.compare_digest(equal[u][0], values[1 - u]))
        opened = [self.send("coin", u, seeds[u]) for u in SIDES]
        for u in SIDES:
            self.check(1 - u, "coin", committed[u][1] == commitment(u, b"coin", opened[u]))
        self.shuffle = tuple_hash("active-buckets", *self.bound, uint(0), *opened)
        return self.shuffle

    def bucketed(
        self, triples: Sequence[tuple[Shared, Shared, Shared]], key: bytes
    ) -> list[tuple[Shared, Shared, Shared]]:
        """One triple of each bucket."""
        self.order = shuffled(len(triples), key)
        buckets = [[triples[i] for i in self.order[t * self.B : (t + 1) * self.B]] for t in range(self.l)]
        differences = [bucket[0][1] + triple[1] for bucket in buckets for triple in bucket[1:]]
        d = iter(self.open("differences", [uint(0)], differences))
        made = []
        for (x, y, z), *rest in buckets:
            for other in rest:
                x, z = x + other[0], z + other[2] + other[0].times(next(d))
            made.append((x, y, z))
        return made

    def places(self) -> Iterator[tuple[int, int]]:
        """(gate, instance), gate by gate in the order of the file."""
        return ((j, n) for j in range(len(self.gates)) for n in range(self.instances))

    def open_products(self) -> None:
        """The masks of all wires, and the shared product of the masks of each AND gate's inputs."""
        masks = self.masks
        for gate in self.circuit.gates:
            for n in range(self.instances):
                if gate.op == XOR:
                    masks[gate.out, n] = masks[gate.a, n] + masks[gate.b, n]
                elif gate.op == EQ:
                    masks[gate.out, n] = self.public(gate.a)
                elif gate.op == INV:
                    masks[gate.out, n] = masks[gate.a, n] + self.public(1)
                elif gate.op != AND:
                    masks[gate.out, n] = masks[gate.a, n]
        opened: list[Shared] = []
        for (j, n), (x, y, _) in zip(self.places(), self.triples, strict=False):
            gate = self.gates[j]
            opened += [masks[gate.a, n] + x, masks[gate.b, n] + y]
        values = self.open("openings", [uint(0)], opened)
        self.products = {}
        for index, (place, (x, y, z)) in enumerate(zip(self.places(), self.triples, strict=False)):
            f, g = values[2 * index : 2 * index + 2]
            self.products[place] = z + y.times(f) + x.times(g) + self.public(f & g)

    def open(
        self, step: str, parts: Sequence[bytes], shared: Sequence[Shared], receivers: Sequence[int] = SIDES
    ) -> list[int]:
        """Open bits to both sides, or to one; each verifies the other's MACs."""
        values = [one.share for one in shared]
        told: list[list[int]] = [[], []]
        for u in SIDES:
            if 1 - u not in receivers:
                continue
            names = [NAMES[u], NAMES[1 - u]]
            own = [one[u] for one in values]
            digest = self.digest(f"active-{step}", [*parts, *names], [one.mac[u] for one in shared])
            told[u], arrived = self.send(step, u, (own, digest))
            delta = self.source.deltas[1 - u]
            expected = [one.key[1 - u] ^ bit * delta for one, bit in zip(shared, told[u], strict=True)]
            self.check(
                1 - u,
                step,
                hmac.compare_digest(arrived, self.digest(f"active-{step}", [*parts, *names], expected)),
            )
        if len(receivers) == 1:
            (v,) = receivers
            return [bit ^ one[v] for bit, one in zip(told[1 - v], values, strict=True)]
        # What both computed of: the public value as sent.
        return [a ^ b for a, b in zip(told[G], told[E], strict=True)]

    def mask_inputs(self) -> None:
        self.masked: dict[tuple[int, int], int] = {}
        for u in SIDES:
            places = [(wire, n) for wire in self.inputs[u] for n in range(self.instances)]
            own = [self.inputs[u][wire][n] ^ self.masks[wire, n].share[u] for wire, n in places]
            self.masked |= dict(zip(places, self.send("inputs", u, own), strict=True))
        self.masked |= {(wire, n): 0 for wire in self.coins for n in range(self.instances)}
        open_seed = word(tuple_hash("active-open", *self.bound, uint(0))[:16])
        self.public_labels = {
            (wire, n): aes(open_seed, n << 64 | wire) & ~1 & LABEL | value
            for (wire, n), value in self.masked.items()
        }

    def garble(self) -> None:
        delta = self.source.deltas[G]
        zeros = {place: label ^ self.masked[place] * delta for place, label in self.public_labels.items()}
        tables = {}
        for n in range(self.instances):
            j = 0
            for gate in self.circuit.gates:
                if gate.op == XOR:
                    zeros[gate.out, n] = zeros[gate.a, n] ^ zeros[gate.b, n]
                elif gate.op == EQ:
                    zeros[gate.out, n] = 0
                elif gate.op != AND:
                    zeros[gate.out, n] = zeros[gate.a, n]
                else:
                    a, b = zeros[gate.a, n], zeros[gate.b, n]
                    keys = self.gate_keys(j, n)
                    mask_a, mask_b = self.masks[gate.a, n], self.masks[gate.b, n]
                    t = hash_label(a, keys[0]) ^ hash_label(a ^ delta, keys[0]) ^ self.half(mask_b)
                    v = hash_label(b, keys[1]) ^ hash_label(b ^ delta, keys[1]) ^ self.half(mask_a) ^ a
                    w = hash_label(a, keys[0]) ^ hash_label(b, keys[1])
                    w ^= self.half(self.masks[gate.out, n]) ^ self.half(self.products[j, n])
                    tables[j, n] = (t, v, w & 1)
                    zeros[gate.out, n] = w & ~1
                    j += 1
        self.zeros = zeros
        self.tables = self.send("tables", G, tables)

    def half(self, one: Shared) -> int:
        """K[s] xor r Delta_G."""
        return one.key[G] ^ one.share[G] * self.source.deltas[G]

    def gate_keys(self, j: int, n: int) -> tuple[int, int]:
        place = GATE_PLACES + 2 * (self.first_gate + j * self.instances + n)
        return self.key(place), self.key(place + 1)

    def evaluate(self) -> None:
        active = dict(self.public_labels)
        for n in range(self.instances):
            j = 0
            for gate in self.circuit.gates:
                if gate.op == XOR:
                    active[gate.out, n] = active[gate.a, n] ^ active[gate.b, n]
                elif gate.op == EQ:
                    active[gate.out, n] = 0
                elif gate.op != AND:
                    active[gate.out, n] = active[gate.a, n]
                else:
                    a, b = active[gate.a, n], active[gate.b, n]
                    keys = self.gate_keys(j, n)
                    t, v, bit = self.tables[j, n]
                    w = hash_label(a, keys[0]) ^ hash_label(b, keys[1])
                    w ^= self.masks[gate.out, n].mac[E] ^ self.products[j, n].mac[E]
                    w ^= (a & 1) * (t ^ self.masks[gate.b, n].mac[E])
                    w ^= (b & 1) * (v ^ self.masks[gate.a, n].mac[E] ^ a)
                    active[gate.out, n] = w ^ bit
                    j += 1
        self.active = active

    def check_masked(self) -> None:
        """E shows what it evaluated; G answers with its MACs on the check of each gate."""
        places = list(self.places())
        outs = [(self.gates[j].out, n) for j, n in places]
        labels = [self.active[out] for out in outs]
        values = [label & 1 for label in labels]
        said, digest = self.send("masked", E, (values, self.digest("active-labels", [uint(0)], labels)))
        expected = [
            self.zeros[out] ^ bit * self.source.deltas[G] for out, bit in zip(outs, said, strict=True)
        ]
        self.check(
            G, "masked", hmac.compare_digest(digest, self.digest("active-labels", [uint(0)], expected))
        )
        theirs = self.check_bits(dict(zip(outs, said, strict=True)))
        answer = self.send(
            "macs", G, self.digest("active-macs", [uint(0)], [one.mac[G] for one, _ in theirs])
        )
        mine = self.check_bits(dict(zip(outs, values, strict=True)))
        macs = [one.key[E] ^ (one.share[E] ^ right) * self.source.deltas[E] for one, right in mine]
        self.check(E, "macs", hmac.compare_digest(answer, self.digest("active-macs", [uint(0)], macs)))
        self.values = self.masked_values(dict(zip(outs, values, strict=True)))

    def masked_values(self, of_gates: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
        """Lambda of every wire, of those of the AND gates."""
        values = self.masked | of_gates
        for n in range(self.instances):
            for gate in self.circuit.gates:
                if gate.op == XOR:
                    values[gate.out, n] = values[gate.a, n] ^ values[gate.b, n]
                elif gate.op == EQ:
                    values[gate.out, n] = 0
                elif gate.op != AND:
                    values[gate.out, n] = values[gate.a, n]
        return values

    def check_bits(self, of_gates: dict[tuple[int, int], int]) -> list[tuple[Shared, int]]:
        """For each gate the shared r' and s', and their sum as it must be."""
        values = self.masked_values(of_gates)
        result = []
        for j, n in self.places():
            gate = self.gates[j]
            a, b, c = ((wire, n) for wire in (gate.a, gate.b, gate.out))
            one = self.masks[b].times(values[a]) + self.masks[a].times(values[b])
            one += self.masks[c] + self.products[j, n]
            result.append((one, values[a] & values[b] ^ values[c]))
        return result

    # Outputs.

    def outputs(self) -> list[tuple[int, int]]:
        return [(wire, n) for wire in self.circuit.outputs for n in range(self.instances)]

    def output_to(self, side: int) -> list[int]:
        """The output wires' bits, wire by wire, each of all instances."""
        places = self.outputs()
        opened = self.open("output", [uint(0)], [self.masks[place] for place in places], [side])
        return [bit ^ self.values[place] for bit, place in zip(opened, places, strict=True)]

    def output_to_aggregator(self, chi: bytes) -> list[int]:
        """What A takes; raises Stopped of the side that saw a wrong MAC, or ValueError if A takes nothing."""
        places = self.outputs()
        shares = []
        for u in SIDES:
            own = [self.masks[place].share[u] ^ (u == E) * self.values[place] for place in places]
            shares.append(self.send("shares", u, (own, [one.share[u] for one in self.hiding])))
        coefficients = [word(drawn) for drawn, _ in zip(stream(chi), places, strict=False)]

        def opening(bits: Sequence[int], hiding: Sequence[int]) -> int:
            masked = sum(bit << t for t, bit in enumerate(hiding))
            return reduce(xor, (c for c, bit in zip(coefficients, bits, strict=True) if bit), masked)

        def macs(values: Callable[[Shared], int]) -> list[int]:
            return [
                reduce(
                    xor,
                    (values(self.masks[p]) for p, c in zip(places, coefficients, strict=True) if c >> t & 1),
                    values(one),
                )
                for t, one in enumerate(self.hiding)
            ]

        for u in SIDES:
            own = [self.masks[place].share[u] ^ (u == E) * self.values[place] for place in places]
            parts = [NAMES[u], NAMES[1 - u], chi]
            honest = opening(own, [one.share[u] for one in self.hiding])
            digest = self.digest("active-chi", parts, macs(lambda one, u=u: one.mac[u]))  # type: ignore[misc]
            value, arrived = self.send("opening", u, (honest, digest))
            lambdas = opening([(u == E) * self.values[place] for place in places], [0] * MASK_BITS)
            bits = [(value ^ lambdas) >> t & 1 for t in range(MASK_BITS)]
            keys = macs(lambda one, u=u: one.key[1 - u])  # type: ignore[misc]
            expected = [key ^ bit * self.source.deltas[1 - u] for key, bit in zip(keys, bits, strict=True)]
            self.check(1 - u, "chi", hmac.compare_digest(arrived, self.digest("active-chi", parts, expected)))
            if self.send("opened", 1 - u, value) != opening(*shares[u]):
                raise ValueError(f"A: the shares of {NAMES[u].decode()} are not those that it opened")
        return [r ^ s for r, s in zip(shares[G][0], shares[E][0], strict=True)]


def seeded(label: str) -> Random:
    return Random(hashlib.sha256(label.encode()).digest())
