"""A second auditor of the logs of verifiable averages, written from their specification alone.

It has nothing of smpc-dp: its own curve in plain integers, hashes of pycryptodome, Ed25519 of `cryptography`.
Specification: protocols/gopa/verifiable.md, protocols/log/README.md, docs/proofs/zero-knowledge.md.
"""

from smpc_dp_verify.errors import Refused, Unsupported
from smpc_dp_verify.verify import Opinion, Wanted, verify

__all__ = ["Opinion", "Refused", "Unsupported", "Wanted", "verify"]
