"""Secure aggregation from its specification alone: slow, plain integers, nothing of the library.

Hashes and ciphers are pycryptodome's and pyca/cryptography's. `execute` computes every message and the sum of
a published run from its inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from Crypto.Cipher import AES, ChaCha20_Poly1305
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from smpc_dp_verify.encodings import party_list, party_set, tuple_hash, uint
from tests.reference import shamir
from tests.reference.merkle_twin import Tree, floyd

Fields = Sequence["bytes | int | str | Fields"]
Message = tuple[str, str, str]


def pack(value: bytes | int | str | Fields) -> bytes:
    """MessagePack in as few bytes as possible, of the kinds of values that occur here."""
    if isinstance(value, bytes):
        for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
            if len(value) < 1 << 8 * width:
                return bytes([code]) + len(value).to_bytes(width, "big") + value
    if isinstance(value, int):
        if -32 <= value < 128:
            return value.to_bytes(1, "big", signed=value < 0)
        for code, width in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
            if value < 1 << 8 * width:
                return bytes([code]) + value.to_bytes(width, "big")
    if isinstance(value, str):
        text = value.encode()
        assert len(text) < 256
        return bytes([0xA0 + len(text)] if len(text) < 32 else [0xD9, len(text)]) + text
    assert isinstance(value, (list, tuple))
    header = bytes([0x90 + len(value)]) if len(value) < 16 else b"\xdc" + len(value).to_bytes(2, "big")
    return header + b"".join(pack(item) for item in value)


def draw(index: int, parties: int, degree: int, words: list[bytes]) -> list[int]:
    """Floyd's sampling of `degree` of the others; takes what it needs from the front of `words`."""
    others = [party for party in range(1, parties + 1) if party != index]
    if degree >= len(others):
        return others
    return sorted(others[position] for position in floyd(len(others), degree, words))


def public_key(secret: bytes) -> bytes:
    """X25519 of the base point."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, peer: bytes, run_id: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 of the X25519 agreement, salted with the run id."""
    shared = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(peer))
    return HKDF(algorithm=SHA256(), length=32, salt=run_id, info=info).derive(shared)


def seal(key: bytes, nonce: bytes, message: bytes, associated: bytes) -> bytes:
    """XChaCha20-Poly1305, nonce first, tag last."""
    cipher = ChaCha20_Poly1305.new(key=key, nonce=nonce)
    cipher.update(associated)
    ciphertext, tag = cipher.encrypt_and_digest(message)
    return nonce + ciphertext + tag


def unseal(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """The inverse of `seal`. Raises ValueError for what was not sealed so."""
    cipher = ChaCha20_Poly1305.new(key=key, nonce=sealed[:24])
    cipher.update(associated)
    return cipher.decrypt_and_verify(sealed[24:-16], sealed[-16:])


def sign(seed: bytes, statement: bytes) -> bytes:
    """Ed25519."""
    return Ed25519PrivateKey.from_private_bytes(seed).sign(statement)


def mask(seed: bytes, count: int, width: int) -> list[int]:
    """The first `count` ring elements of `width` bytes of AES-256-CTR from an all-zero 128-bit counter."""
    stream = AES.new(seed, AES.MODE_CTR, nonce=b"", initial_value=bytes(16)).encrypt(bytes(count * width))
    return [int.from_bytes(stream[i * width : (i + 1) * width], "little") for i in range(count)]


def round_half_even(x: Fraction) -> int:
    """The nearest integer; of two equally near the even one."""
    low = x.numerator // x.denominator
    twice = 2 * (x - low)
    return low + (1 if twice > 1 or (twice == 1 and low % 2) else 0)


class Bound:
    """The derivations of one run: every digest starts with protocol, version and run id."""

    def __init__(self, protocol: str, version: int, run_id: bytes) -> None:
        self.run_id = run_id
        self._head = (protocol.encode(), uint(version), run_id)

    def digest(self, label: str, *parts: bytes | str) -> bytes:
        """A digest bound to the run."""
        return tuple_hash(label, *self._head, *(p.encode() if isinstance(p, str) else p for p in parts))

    def seal_key(self, secret: bytes, peer_key: bytes, sender: str, receiver: str) -> bytes:
        """What seals shares from sender to receiver."""
        return agree(secret, peer_key, self.run_id, self.digest("seal-key", sender, receiver))

    def pair_seed(self, secret: bytes, peer_key: bytes, one: str, other: str) -> bytes:
        """The seed of the mask of a pair; names in code point order."""
        first, second = sorted((one, other))
        return agree(secret, peer_key, self.run_id, self.digest("mask-seed", first, second))

    def envelope(self, seed: bytes, step: str, sender: str, receiver: str, body: bytes) -> bytes:
        """The signature of one message."""
        body_hash = hashlib.sha256(body).digest()
        return sign(seed, self.digest("envelope", step, sender, receiver, body_hash))


class Party:
    """One party's secrets, read off its random bytes in the order in which they are drawn."""

    def __init__(
        self, number: int, name: str, draws: list[bytes], ring_vector: list[int], seed: bytes
    ) -> None:
        self.number, self.name, self.ring_vector, self.seed = number, name, ring_vector, seed
        self._draws = list(draws)
        self.nonce = self.take()
        self.advertise = self.reveal = self.self_seed = b""
        self.drew_me: list[Party] = []
        self.holders: list[Party] = []
        self.neighbours: list[Party] = []
        self.dealers: list[Party] = []
        self.shares: dict[str, dict[Party, bytes]] = {"masking-key": {}, "self-mask": {}}
        self.share_digests: dict[Party, dict[str, bytes]] = {}
        self.share_signatures: dict[Party, bytes] = {}

    def take(self) -> bytes:
        """The next draw."""
        return self._draws.pop(0)

    def choose(self, parties: int, degree: int) -> None:
        """Draw neighbours, blinder and both X25519 secrets."""
        self.drawn = draw(self.number, parties, degree, self._draws)
        self.blinder, self.seal_secret, self.mask_secret = self.take(), self.take(), self.take()


def execute(vector: dict[str, Any]) -> tuple[dict[Message, tuple[str, str]], dict[str, Any]]:
    """Return (body digest, signature) by (step, sender, receiver) of all messages but aborts, and the end."""
    return Session(vector).execute()


class Session:
    """A whole run of honest parties, some of which fall silent."""

    def __init__(self, vector: dict[str, Any]) -> None:
        self.session, self.kill = vector["session"], vector["kill"]
        self.plan, self.encoding = self.session["plan"], self.session["encoding"]
        self.names: list[str] = self.session["names"]
        self.aggregator: str = self.session["aggregator"]
        self.digest = bytes.fromhex(self.session["session_digest"])
        self.seeds = {
            name: bytes.fromhex(identity["signing_seed"]) for name, identity in vector["identities"].items()
        }
        self.parties = [
            Party(
                number,
                name,
                [bytes.fromhex(word) for word in vector["randomness"][name]],
                vector["inputs"][name]["lanes"],
                self.seeds[name],
            )
            for number, name in enumerate(self.names, 1)
        ]
        self.messages: dict[Message, tuple[str, str]] = {}
        self.signatures: dict[Message, bytes] = {}

    def bound(self, run_id: bytes) -> Bound:
        """The derivations under a run id (the session's digest before there is one)."""
        return Bound(self.session["protocol"], self.session["version"], run_id)

    def send(self, bound: Bound, step: str, sender: str, receiver: str, fields: Fields) -> bytes:
        """Note one message."""
        body = pack(fields)
        signature = bound.envelope(self.seeds[sender], step, sender, receiver, body)
        key = (step, sender, receiver)
        self.messages[key] = (hashlib.sha256(body).hexdigest(), signature.hex())
        self.signatures[key] = signature
        return body

    def speakers(self, message: int, among: Sequence[Party]) -> list[Party]:
        """Who of `among` is still there to send its message number `message`."""
        return [party for party in among if message < self.kill.get(party.name, 99)]

    def execute(self) -> tuple[dict[Message, tuple[str, str]], dict[str, Any]]:
        """Go through the eight rounds."""
        n, plan = len(self.names), self.plan
        early = self.bound(self.digest)
        present = self.speakers(1, self.parties)
        for p in present:
            numbers = (plan["degree"], plan["threshold"], plan["quorum"])
            hello = (self.digest, self.session["request"], p.nonce, *numbers, self.session["question"])
            self.send(early, "hello", p.name, self.aggregator, hello)
        packed = party_set([p.number for p in present], n)
        nonces = Tree("nonces", [(p.name.encode(), p.nonce) for p in present])
        head = (self.session["protocol"].encode(), uint(self.session["version"]), self.digest)
        requested = (uint(self.session["request"]), self.session["question"].encode())
        following = [bytes.fromhex(self.session.get(name, "")) for name in ("nonce", "last_results")]
        bound = (*head, *requested, packed, nonces.root, *following)
        self.run = self.bound(tuple_hash("following-run-id", *bound))
        for index, p in enumerate(present):
            start = (packed, nonces.root, nonces.prove([index]), *following)
            self.send(self.run, "start", self.aggregator, p.name, start)
        advertised = self._advertise(self.speakers(2, present))
        revealed = self._reveal(self.speakers(3, advertised))
        return self._go_on(revealed)

    def _go_on(self, revealed: list[Party]) -> tuple[dict[Message, tuple[str, str]], dict[str, Any]]:
        participants = self.speakers(4, revealed)
        self._deal(participants)
        return self._sum(participants)

    def _advertise(self, advertised: list[Party]) -> list[Party]:
        for p in advertised:
            self.prepare(p)
            p.choose(len(self.names), self.plan["degree"])
            draw_commitment = self.run.digest("neighbour-commitment", p.name, party_list(p.drawn), p.blinder)
            key_commitment = self.run.digest("key-commitment", p.name, public_key(p.mask_secret))
            fields = (public_key(p.seal_secret), draw_commitment, key_commitment, *self.of_advertise(p))
            p.advertise = self.send(self.run, "advertise", p.name, self.aggregator, fields)
        members = party_set([p.number for p in advertised], len(self.names))
        leaves = [(p.name.encode(), hashlib.sha256(p.advertise).digest()) for p in advertised]
        self.merkle_commitment = Tree("advertisements", leaves)
        self.advertised = advertised
        trees = [self.merkle_commitment, *self.trees()]
        self.merkle_commitment_digest = self.run.digest("roll", members, *(tree.root for tree in trees))
        for index, p in enumerate(advertised):
            shown = [part for tree in trees for part in (tree.root, tree.prove([index]))]
            self.send(self.run, "roll", self.aggregator, p.name, (members, *shown))
        return advertised

    def _reveal(self, revealed: list[Party]) -> list[Party]:
        for p in revealed:
            opening = (party_list(p.drawn), p.blinder, public_key(p.mask_secret))
            p.reveal = self.send(self.run, "reveal", p.name, self.aggregator, opening)
        members = party_set([p.number for p in revealed], len(self.names))
        for p in revealed:
            p.drew_me = [q for q in revealed if p.number in q.drawn]
            p.holders = [q for q in revealed if q.number in p.drawn]
            p.neighbours = [q for q in revealed if q in p.drew_me or q in p.holders]
            advertisements, openings = (
                [
                    (q.number, getattr(q, step), self.signatures[step, q.name, self.aggregator])
                    for q in (p.neighbours if step == "advertise" else p.drew_me)
                ]
                for step in ("advertise", "reveal")
            )
            mask_keys = b"".join(public_key(q.mask_secret) for q in p.neighbours)
            proof = self.merkle_commitment.prove([self.advertised.index(q) for q in p.neighbours])
            shown = (members, advertisements, mask_keys, openings, proof)
            self.send(self.run, "neighbours", self.aggregator, p.name, shown)
        return revealed

    def _deal(self, participants: list[Party]) -> None:
        threshold = self.plan["threshold"]
        sealed: dict[tuple[Party, Party], bytes] = {}
        for p in participants:
            p.self_seed = p.take()
            xs = [q.number for q in p.holders]
            for kind, secret in (("masking-key", p.mask_secret), ("self-mask", p.self_seed)):
                for q, share in zip(p.holders, shamir.split(secret, threshold, xs, p.take()), strict=True):
                    p.shares[kind][q] = share
            for q in p.holders:
                digests = {
                    kind: self.run.digest("share-digest", p.name, q.name, kind, p.shares[kind][q])
                    for kind in ("masking-key", "self-mask")
                }
                statement = self.run.digest("share", p.name, q.name, *digests.values())
                p.share_digests[q], p.share_signatures[q] = digests, sign(p.seed, statement)
                key = self.run.seal_key(p.seal_secret, public_key(q.seal_secret), p.name, q.name)
                associated = self.run.digest("seal-aad", p.name, q.name, "deal", uint(0))
                share = pack((p.shares["masking-key"][q], p.shares["self-mask"][q], p.share_signatures[q]))
                sealed[p, q] = seal(key, p.take(), share, associated)
            commitment = self.run.digest("self-commitment", p.name, p.self_seed)
            fields = (commitment, [sealed[p, q] for q in p.holders])
            self.send(self.run, "deal", p.name, self.aggregator, fields)
        self.members = party_set([p.number for p in participants], len(self.names))
        for p in participants:
            p.dealers = [q for q in p.drew_me if q in participants]
            boxes = [sealed[q, p] for q in p.dealers]
            delivered = (self.members, party_list([q.number for q in p.dealers]), boxes)
            self.send(self.run, "deliver", self.aggregator, p.name, delivered)

    def _certify(self, step: str, answer: str, digest: bytes, signers: list[Party], to: int) -> list[Party]:
        for p in signers:
            self.send(self.run, step, p.name, self.aggregator, (digest,))
        quorum = signers[: self.plan["quorum"]]
        signatures = b"".join(self.signatures[step, p.name, self.aggregator] for p in quorum)
        packed = party_set([p.number for p in quorum], len(self.names))
        for p in signers:
            # So few that no sample has fewer bytes.
            self.send(self.run, answer, self.aggregator, p.name, (packed, signatures, b"", b""))
        return self.speakers(to, signers)

    def self_mask(self, p: Party, seed: bytes) -> list[int]:
        """What hides a party's vector besides what it shares with others."""
        width = 4 if self.encoding["element_bytes"] <= 4 else 8
        return mask(self.run.digest("self-mask", p.name, seed), len(p.ring_vector), width)

    def pair_terms(self, p: Party, secret: bytes, q: Party) -> list[int]:
        """What p, whose secret this is, puts in with q: plus at the smaller number."""
        width = 4 if self.encoding["element_bytes"] <= 4 else 8
        seed = self.run.pair_seed(secret, public_key(q.mask_secret), p.name, q.name)
        return [(1 if p.number < q.number else -1) * word for word in mask(seed, len(p.ring_vector), width)]

    def masked(self, p: Party, participants: list[Party]) -> list[int]:
        """A party's vector with its self-mask and every mask that it shares with a participant."""
        shared = [self.pair_terms(p, p.mask_secret, q) for q in p.neighbours if q in participants]
        return self.reduced(p.ring_vector, self.self_mask(p, p.self_seed), *shared)

    def reduced(self, *vectors: Sequence[int]) -> list[int]:
        """The sum of vectors, modulo that of the encoding."""
        return [sum(column) % 256 ** self.encoding["element_bytes"] for column in zip(*vectors, strict=True)]

    def unmasked(
        self, participants: list[Party], survivors: list[Party], revealing: list[Party]
    ) -> list[int]:
        """The sum of the masked vectors without the masks, whose secrets come from shares alone."""
        total = self.reduced(*(self.masked(p, participants) for p in survivors))
        for p in participants:
            kind = "self-mask" if p in survivors else "masking-key"
            shares = {q.number: p.shares[kind][q] for q in p.holders if q in revealing}
            secret = shamir.combine(dict(list(shares.items())[: self.plan["threshold"]]))
            if p in survivors:
                total = self.reduced(total, [-word for word in self.self_mask(p, secret)])
                continue
            # What a lost party would have put in is what cancels its neighbours' terms.
            lost = [self.pair_terms(p, secret, q) for q in p.neighbours if q in survivors]
            total = self.reduced(total, *lost)
        return total

    def prepare(self, p: Party) -> None:
        """What a party does before it draws."""

    def of_advertise(self, p: Party) -> Sequence[bytes]:  # noqa: ARG002
        """What its advertisement has besides."""
        return ()

    def trees(self) -> Sequence[Tree]:
        """The trees of the roll besides that of the advertisements."""
        return ()

    def opening(self, p: Party, participants: list[Party], digest: bytes) -> Sequence[bytes]:  # noqa: ARG002
        """What its masked vector has besides; `digest` is that of the participants."""
        return ()

    def of_result(self, survivors: list[Party]) -> Sequence[bytes]:  # noqa: ARG002
        """What the result has besides."""
        return ()

    def announce(self, total: bytes, survivors: list[Party], left: list[Party], digest: bytes) -> None:  # noqa: ARG002
        """Send the total to those that are left; `digest` is that of the survivors."""
        beside = self.of_result(survivors)
        for p in left:
            self.send(self.run, "result", self.aggregator, p.name, (total, *beside))

    def offset(self, element: int) -> int:
        """A lane of the total as a distance from the lower bounds."""
        return element

    def packed(self, ring_vector: Sequence[int]) -> bytes:
        """The ring elements as they travel."""
        return b"".join(element.to_bytes(self.encoding["element_bytes"], "little") for element in ring_vector)

    def _sum(self, participants: list[Party]) -> tuple[dict[Message, tuple[str, str]], dict[str, Any]]:
        digest = self.run.digest("participants", self.merkle_commitment_digest, self.members)
        attesting = self.speakers(5, participants)
        survivors = self._certify("attest-participants", "participants", digest, attesting, 6)
        vectors = {p.name: self.packed(self.masked(p, participants)) for p in survivors}
        for p in survivors:
            opening = self.opening(p, participants, digest)
            self.send(self.run, "masked", p.name, self.aggregator, (vectors[p.name], b"", *opening))
        packed = party_set([p.number for p in survivors], len(self.names))
        for p in survivors:
            self.send(self.run, "survivors", self.aggregator, p.name, (packed,))
        last = self.run.digest("survivors", digest, packed)
        attesting = self.speakers(7, survivors)
        revealing = self._certify("attest-survivors", "survivors-certificate", last, attesting, 8)
        for p in revealing:
            kinds = {q: ("self-mask", "masking-key") for q in p.dealers}
            kinds |= {q: ("masking-key", "self-mask") for q in p.dealers if q not in survivors}
            shown = b"".join(q.shares[kinds[q][0]][p] for q in p.dealers)
            others = b"".join(q.share_digests[p][kinds[q][1]] for q in p.dealers)
            signatures = b"".join(q.share_signatures[p] for q in p.dealers)
            dealers = party_list([q.number for q in p.dealers])
            self.send(self.run, "unmask", p.name, self.aggregator, (dealers, shown, others, signatures))
        ring_vector = self.unmasked(participants, survivors, revealing)
        self.announce(self.packed(ring_vector), survivors, revealing, last)
        weighted = self.encoding["max_weight"] > 0
        weight = ring_vector[-1] if weighted else len(survivors)
        values = ring_vector[:-1] if weighted else ring_vector
        return self.messages, {
            "intermediate": {
                "run_id": self.run.run_id.hex(),
                "participants_digest": digest.hex(),
                "survivors_digest": last.hex(),
                "masked": {name: vector.hex() for name, vector in vectors.items()},
            },
            "result": {
                "survivors": [p.name for p in survivors],
                "absent": [p.name for p in self.parties if p not in survivors],
                "weight": weight,
                "fixed_point": [self.offset(value) + weight * self.encoding["lowest"] for value in values],
                "total": self.packed(ring_vector).hex(),
            },
        }
