"""Size of a certificate: how many signatures prove that a quorum has signed, and their bytes.

[Micali, Reyzin, Vlachos, Wahby, Zeldovich 2021, Compact certificates of collective knowledge]: here without
weights, and samples are drawn without replacement. Proof in protocols/secagg/README.md.
"""

from __future__ import annotations

from functools import lru_cache

# An adversary gets a sample of valid signatures alone with probability 2^-this for each root that it tries.
SAMPLE_BITS = 128

DIGEST = 32  # also a nonce, a key, a commitment, a share
SIGNATURE = 64


@lru_cache(maxsize=256)
def expected_samples(claimed: int, quorum: int) -> int:
    """Return how many random signatures of `claimed` to check to prove that at least `quorum` are valid.

    The least s for which s distinct ones at random are all among at most quorum - 1 good ones with a
    probability of at most 2^-128: C(quorum - 1, s) / C(claimed, s), in integers. 0 < quorum <= claimed.
    """
    passing, drawn = 1, 1
    for samples in range(quorum):
        if passing << SAMPLE_BITS <= drawn:
            return samples
        passing *= quorum - 1 - samples
        drawn *= claimed - samples
    return quorum


def proof_nodes(size: int, shown: int) -> float:
    """Return the expected number of nodes in a Merkle proof of `shown` random leaves out of `size`.

    A node is in it if no place below it is shown and one below its sibling is. Exact for powers of two.
    """

    def none_of(leaves: float) -> float:
        """Return the probability that none of so many leaves is shown."""
        probability = 1.0
        for index in range(shown):
            probability *= max(0.0, 1 - leaves / (size - index))
        return probability

    nodes, leaves = 0.0, 1
    while leaves < size:
        nodes += size / leaves * (none_of(leaves) - none_of(2 * leaves))
        leaves *= 2
    return nodes


def certificate_bytes(claimed: int, quorum: int) -> float:
    """Return the expected bytes of a quorum certificate in its shorter form: signatures, root and proof."""
    samples = expected_samples(claimed, quorum)
    sample = SIGNATURE * samples + DIGEST * (1 + proof_nodes(claimed, samples))
    return min(float(SIGNATURE * quorum), sample)
