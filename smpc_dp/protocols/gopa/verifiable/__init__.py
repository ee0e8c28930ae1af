"""GOPA with commitments, proofs and a bulletin board: docs/verifiable.md, protocols/gopa/README.md."""
