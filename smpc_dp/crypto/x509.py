"""Certificates and private keys in the forms that TLS reads, by the crates `x509-cert` and `ed25519`."""

from __future__ import annotations

from smpc_dp._core import certificate_parts, private_key_pem

__all__ = ["certificate_parts", "private_key_pem"]
