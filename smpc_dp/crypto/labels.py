"""Every domain-separation label of the library.

A label is the customisation string of one TupleHash256 use, or the purpose of one derived key. No two
uses share a label; a label's meaning, and with it the parts that follow it, never changes: a new
meaning is a new label.
"""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class Label(StrEnum):
    """What a hash or a derived key is for."""

    SESSION_DIGEST = "smpc-dp/1/session-digest"
    RUN_ID = "smpc-dp/1/run-id"
    ROSTER = "smpc-dp/1/roster"
    CERTIFICATE_SERIAL = "smpc-dp/1/certificate-serial"
    ENVELOPE = "smpc-dp/1/envelope"
    SEAL_KEY = "smpc-dp/1/seal-key"
    SEAL_AAD = "smpc-dp/1/seal-aad"
    MASK_SEED = "smpc-dp/1/mask-seed"
    SELF_MASK = "smpc-dp/1/self-mask"
    SHARE = "smpc-dp/1/share"
    SHARE_DIGEST = "smpc-dp/1/share-digest"
    NEIGHBOUR_COMMITMENT = "smpc-dp/1/neighbour-commitment"
    SELF_COMMITMENT = "smpc-dp/1/self-commitment"
    STAR_RUN_ID = "smpc-dp/1/star-run-id"
    NONCES = "smpc-dp/1/nonces"
    COMMITMENTS = "smpc-dp/1/commitments"
    ROLL = "smpc-dp/1/roll"
    ATTESTATIONS = "smpc-dp/1/attestations"
    CERTIFICATE_CHALLENGE = "smpc-dp/1/certificate-challenge"
    CERTIFICATE_SAMPLE = "smpc-dp/1/certificate-sample"
    MERKLE_LEAF = "smpc-dp/1/merkle-leaf"
    MERKLE_NODE = "smpc-dp/1/merkle-node"
    MERKLE_ROOT = "smpc-dp/1/merkle-root"
    PARTICIPANTS = "smpc-dp/1/participants"
    SURVIVORS = "smpc-dp/1/survivors"
    CIRCUIT = "smpc-dp/1/circuit"
    PAIRWISE_TRANSCRIPT = "smpc-dp/1/pairwise-transcript"
    PAIRWISE_KEYS = "smpc-dp/1/pairwise-keys"
    PAIRWISE_TRANSFER = "smpc-dp/1/pairwise-transfer"
    PAIRWISE_OUTPUTS = "smpc-dp/1/pairwise-outputs"
    PAIRWISE_PLAN = "smpc-dp/1/pairwise-plan"
    PAIRWISE_PIECES = "smpc-dp/1/pairwise-pieces"
    PAIRWISE_OPEN = "smpc-dp/1/pairwise-open"
    LOCAL_PAIRWISE = "smpc-dp/1/local-pairwise"
    LOCAL_AUC = "smpc-dp/1/local-auc"
    DIRECT_RUN_ID = "smpc-dp/1/direct-run-id"
    DIRECT_TOTAL = "smpc-dp/1/direct-total"
    PROOF_CONTEXT = "smpc-dp/1/proof-context"
    STATISTIC_TERMS = "smpc-dp/1/statistic-terms"
    STATISTIC_COIN = "smpc-dp/1/statistic-coin"
    STATISTIC_BEACON = "smpc-dp/1/statistic-beacon"
    STATISTIC_MATCHING = "smpc-dp/1/statistic-matching"
    STATISTIC_PAIR = "smpc-dp/1/statistic-pair"
    BOARD_HEADER = "smpc-dp/1/board-header"
    BOARD_ENTRY = "smpc-dp/1/board-entry"
    BOARD_HEAD = "smpc-dp/1/board-head"
    BOARD_ATTESTATION = "smpc-dp/1/board-attestation"
    COIN_COMMITMENT = "smpc-dp/1/coin-commitment"
    COINS = "smpc-dp/1/coins"
    COIN_BITS = "smpc-dp/1/coin-bits"
    EDGE_BLINDING = "smpc-dp/1/edge-blinding"
    GROUP = "smpc-dp/1/group"
    EXCHANGE_RUN_ID = "smpc-dp/1/exchange-run-id"
