"""What a web server sees of a WebSocket: the heads of the requests, and the content of the messages."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import defaultdict
from pathlib import Path


def recorded(file: Path) -> dict[str, bytes]:
    """Return the bytes that `relay.py` has recorded, by connection and direction."""
    result: dict[str, bytes] = defaultdict(bytes)
    for line in file.read_text("ascii").splitlines():
        side, content = json.loads(line)
        result[side] += b64decode(content)
    return dict(result)


def opened(stream: bytes) -> tuple[bytes, bytes]:
    """Return the head of a stream and the content of its whole frames, unmasked (RFC 6455, 5.2)."""
    head, _, rest = stream.partition(b"\r\n\r\n")
    content = bytearray()
    while len(rest) >= 2:
        length, at = rest[1] & 127, 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length, at = int.from_bytes(rest[at : at + size], "big"), at + size
        key = b""
        if rest[1] & 128:
            key, at = rest[at : at + 4], at + 4
        payload = rest[at : at + length]
        if key:
            payload = bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))
        content += payload
        rest = rest[at + length :]
    return head, bytes(content)
