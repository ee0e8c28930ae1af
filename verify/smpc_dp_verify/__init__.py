"""A second auditor of the logs of runs, written from their specification alone.

It has nothing of smpc-dp: its own curve in plain integers, hashes of pycryptodome, Ed25519 of `cryptography`.
Specification: protocols/gopa/verifiable.md, protocols/pairwise, protocols/log, docs/proofs.
"""

from smpc_dp_verify.errors import Refused
from smpc_dp_verify.verify import Opinion, Wanted, verify

__all__ = ["Opinion", "Refused", "Wanted", "verify"]
