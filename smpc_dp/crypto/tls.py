"""TLS 1.3 without its sockets, for channels of bulk data: `rustls`, which works on the caller's memory.

Python's `ssl` copies each byte three or four times on its way, and offers no choice of the cipher.
"""

from __future__ import annotations

from smpc_dp._core import TlsConnection, TlsContext, TlsError

__all__ = ["TlsConnection", "TlsContext", "TlsError"]
