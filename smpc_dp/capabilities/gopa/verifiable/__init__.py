"""GOPA with commitments, proofs and a bulletin board. Specification: protocols/gopa/verifiable.md."""
