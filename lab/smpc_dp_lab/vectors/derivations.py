"""Single derivations, masks, draws and encodings as vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from nacl.signing import SigningKey

from smpc_dp.crypto import agree, shamir
from smpc_dp.crypto.prg import expand
from smpc_dp.crypto.seal import seal
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.draws import draw_neighbours
from smpc_dp.engine.phases.last_results import Held
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.wire.sets import pack_list, pack_set
from smpc_dp.wire.signing import Context, encode
from smpc_dp_lab.vectors.runs import Recording, header

JsonObject = dict[str, object]


def all_to_json() -> dict[str, JsonObject]:
    """Return the test vectors of derivations, masks, shares, drawn graphs and encodings, by name."""
    return {
        "derivations": _derivations(),
        "masks": _masks(),
        "shamir": _shamir(),
        "graph-draws": _draws(),
        "encoding": _encodings(),
    }


def _derivations() -> JsonObject:
    """Return the test vector of key derivations: keys, digests and signatures for given inputs."""
    source = SeededRandomnessForSimulation(1, "secagg vectors derivations")
    names = ("alice", "bob", "carol")
    signing = {name: SigningKey(source.bytes(32)) for name in (*names, "relay")}
    alice = Signer("alice", signing["alice"])
    context = Context(
        protocol="secagg",
        version=2,
        session_digest=source.bytes(32),
        request=7,
        names=names,
        aggregator="relay",
        keys={name: bytes(key.verify_key) for name, key in signing.items()},
        operation="average round 7",
    )
    present, nonces_root = pack_set((1, 3), 3), source.bytes(32)
    nonce_of_relay, named, result_hash = source.bytes(32), source.bytes(64), source.bytes(32)
    following = (nonce_of_relay, named)
    run_id = keys.run_identifier(context, context.operation, present, nonces_root, following)
    result_key, result_digest = Held(*context.bound, run_id, m.RESULT, result_hash, b"").entry
    neighbours, blinder, self_seed = pack_list((2, 3)), source.bytes(32), source.bytes(32)
    alice_secret, bob_secret = source.bytes(32), source.bytes(32)
    alice_key, bob_key = agree.public_key(alice_secret), agree.public_key(bob_secret)
    merkle_commitment_root, participants, survivors = (
        source.bytes(32),
        pack_set((1, 2, 3), 3),
        pack_set((1, 2), 3),
    )
    merkle_commitment_digest = keys.merkle_commitment_digest(context, run_id, present, merkle_commitment_root)
    participants_digest = keys.participants_digest(context, run_id, merkle_commitment_digest, participants)
    mask_share, self_share = source.bytes(32), source.bytes(32)
    mask_digest = keys.share_digest(context, run_id, "alice", "bob", keys.MASKING_KEY, mask_share)
    self_digest = keys.share_digest(context, run_id, "alice", "bob", keys.SELF_MASK, self_share)
    signature = keys.sign_share(context, run_id, alice, "bob", mask_digest, self_digest)
    seal_key = keys.seal_key(context, run_id, alice_secret, "bob", bob_key, "alice", "bob")
    associated = keys.seal_context(context, run_id, "alice", "bob")
    nonce = Recording(source)
    share = encode(m.Share(mask_share, self_share, signature))
    sealed = seal(seal_key, share, associated, nonce)
    [envelope] = context.write(alice, run_id, m.DEAL, ("relay",), m.Attestation(participants_digest))
    inputs: dict[str, bytes] = {
        "session_digest": context.session_digest,
        "present": present,
        "nonces_root": nonces_root,
        "nonce": nonce_of_relay,
        "last_results": named,
        "result_sha256": result_hash,
        "neighbours": neighbours,
        "blinder": blinder,
        "self_seed": self_seed,
        "alice_secret": alice_secret,
        "bob_secret": bob_secret,
        "roll_root": merkle_commitment_root,
        "participants": participants,
        "survivors": survivors,
        "mask_share": mask_share,
        "self_share": self_share,
        "seal_nonce": nonce.draws[0],
        "alice_signing_seed": bytes(signing["alice"]),
        "body": envelope.body,
    }
    outputs: dict[str, bytes] = {
        "run_id": run_id,
        "result_key": result_key,
        "result_digest": result_digest,
        "neighbour_commitment": keys.neighbour_commitment(context, run_id, "alice", neighbours, blinder),
        "key_commitment": keys.key_commitment(context, run_id, "alice", alice_key),
        "self_commitment": keys.self_commitment(context, run_id, "alice", self_seed),
        "roll_digest": merkle_commitment_digest,
        "participants_digest": participants_digest,
        "survivors_digest": keys.survivors_digest(context, run_id, participants_digest, survivors),
        "alice_public_key": alice_key,
        "bob_public_key": bob_key,
        "self_mask_seed": keys.self_mask_seed(context, run_id, "alice", self_seed),
        "pair_mask_seed": keys.pair_mask_seed(context, run_id, bob_secret, "bob", "alice", alice_key),
        "mask_share_digest": mask_digest,
        "self_share_digest": self_digest,
        "share_signature": signature,
        "seal_key": seal_key,
        "seal_associated_data": associated,
        "sealed_share": sealed,
        "envelope_signature": envelope.signature,
    }
    return {
        **header(
            "derivations",
            "derivations",
            "Every derivation, from alice (dealer) to bob (holder), relay aggregating.",
        ),
        "protocol": "secagg",
        "version": context.version,
        "request": 7,
        "question": context.operation,
        "step": m.DEAL,
        "inputs": {name: value.hex() for name, value in inputs.items()},
        "outputs": {name: value.hex() for name, value in outputs.items()},
    }


def _masks() -> JsonObject:
    """Return the test vector of masks that are expanded from seeds."""
    source = SeededRandomnessForSimulation(1, "secagg vectors masks")
    cases = []
    for seed in (bytes(32), bytes(range(32)), source.bytes(32)):
        cases.append(
            {
                "seed": seed.hex(),
                "uint32": expand(seed, 9, np.uint32).tolist(),
                "uint64": expand(seed, 5, np.uint64).tolist(),
            }
        )
    return {**header("masks", "masks", "The first lanes of the expansion of a seed."), "cases": cases}


def _shamir() -> JsonObject:
    """Return the test vector of Shamir sharing: secrets, coefficients and shares."""
    source = SeededRandomnessForSimulation(1, "secagg vectors shamir")
    cases = []
    for threshold, holders in ((1, (1,)), (2, (1, 2, 3)), (3, (2, 5, 300, 65535))):
        secret, coefficients = source.bytes(32), Recording(source)
        shares = shamir.split(secret, threshold, holders, coefficients)
        cases.append(
            {
                "secret": secret.hex(),
                "threshold": threshold,
                "holders": list(holders),
                "coefficients": coefficients.draws[0].hex(),
                "shares": [share.hex() for share in shares],
            }
        )
    return {**header("shamir", "shamir", "Shares over GF(2^128), block by block."), "cases": cases}


class _Scripted:
    """Randomness that returns prescribed words, one after the other."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._words = list(words)

    def bytes(self, n: int) -> bytes:
        return self._words.pop(0)[:n]


def _draws() -> JsonObject:
    """Return the test vector of drawing neighbours from random words."""
    source = SeededRandomnessForSimulation(1, "secagg vectors draws")
    cases = []
    for index, parties, degree in ((1, 5, 4), (1, 5, 2), (3, 6, 3), (1000, 1000, 8), (40000, 65535, 4)):
        words = Recording(source)
        drawn = draw_neighbours(index, parties, degree, words)
        cases.append(_draw(index, parties, degree, words.draws, drawn))
    # 2^64 - 1 is the one word that a bound of 3 rejects; the second 0 collides and becomes the top.
    script = [b"\xff" * 8, bytes(8), bytes(8)]
    cases.append(_draw(2, 5, 2, script, draw_neighbours(2, 5, 2, _Scripted(script))))
    return {
        **header("graph-draws", "graph-draws", "Neighbours that a party draws from 8-byte words."),
        "cases": cases,
    }


def _draw(index: int, parties: int, degree: int, words: Sequence[bytes], drawn: Sequence[int]) -> JsonObject:
    return {
        "index": index,
        "parties": parties,
        "degree": degree,
        "words": [word.hex() for word in words],
        "drawn": list(drawn),
    }


def _encodings() -> JsonObject:
    """Return the test vector of fixed-point encodings of vectors, with sums."""
    real = {"length": 4, "lower": -1.5, "upper": 1000.25, "precision": 0.001, "parties": 10}
    weighted = {
        "length": 2,
        "lower": -1.0,
        "upper": 1.0,
        "precision": 1e-6,
        "parties": 100,
        "max_weight": 5000,
    }
    wide = {"length": 2, "lower": 0, "upper": (1 << 22) - 1, "precision": None, "parties": 2000}
    integers = {"length": 3, "lower": -7, "upper": 9, "precision": None, "parties": 3}
    top = float((1 << 22) - 1)
    cases = [
        _encoding(real, [-1.5, 1000.25, 0.0, 0.12345], None, 1),
        _encoding(real, [0.00048828125, 0.00146484375, -0.00048828125, 2.5e-4], None, 10),
        _encoding(weighted, [-1.0, 0.333333], 5000, 100),
        _encoding(weighted, [1.0, -0.0], 0, 3),
        _encoding(wide, [(1 << 22) - 1, 0], None, 2000),
        _encoding({**wide, "lower": 0.0, "upper": top, "precision": 1.0}, [top, 1.0], None, 2000),
        _encoding(integers, [-7, 0, 9], None, 3),
    ]
    about = "One vector, its lanes, and the sum of `copies` such vectors; ties round to even."
    return {**header("encoding", "encoding", about), "cases": cases}


def _encoding(
    declared: Mapping[str, object], vector: Sequence[float], weight: int | None, copies: int
) -> JsonObject:
    encoding = msgspec.convert(declared, _Declared).plan()
    ring_vector, _ = encoding.encode(list(vector), party="alice", weight=weight)
    total = np.zeros_like(ring_vector)
    for _ in range(copies):
        total += ring_vector
    fixed_point, total_weight = encoding.decode(encoding.unpack(encoding.pack(total)), copies)
    return {
        "declared": dict(declared),
        "encoding": msgspec.to_builtins(encoding),
        "vector": list(vector),
        "weight": weight,
        "lanes": ring_vector.tolist(),
        "packed": encoding.pack(ring_vector).hex(),
        "copies": copies,
        "packed_total": encoding.pack(total).hex(),
        "fixed_point": fixed_point.tolist(),
        "total_weight": total_weight,
    }


class _Declared(msgspec.Struct, forbid_unknown_fields=True):
    length: int
    lower: float | int
    upper: float | int
    precision: float | None
    parties: int
    max_weight: int = 0

    def plan(self) -> Encoding:
        return Encoding.plan(**msgspec.structs.asdict(self))
