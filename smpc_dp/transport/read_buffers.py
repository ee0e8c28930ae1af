"""Buffers that all TLS connections of an event loop share: for what comes, and for what is decrypted of it.

Nothing is in them between two calls of a connection. asyncio gives each connection a buffer of its own:
10,000 connections keep 2.6 GB.
"""

from __future__ import annotations

import asyncio
from asyncio import selector_events
from typing import TypeAlias
from weakref import WeakKeyDictionary

# By event loop: two loops may run at once, in two threads.
_Views: TypeAlias = WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview]
_ENCRYPTED: _Views = WeakKeyDictionary()
_DECRYPTED: _Views = WeakKeyDictionary()


def share_read_buffer(transport: asyncio.BaseTransport) -> None:
    """Let a TLS connection use its event loop's shared read buffer; do nothing on other loops than asyncio's.

    Only where the system is asked for bytes when they are there, and they are taken in the same call: other
    loops hand out buffers that are filled later.
    """
    protocol = getattr(transport, "_ssl_protocol", None)
    buffer = getattr(protocol, "_ssl_buffer", None)
    selects = isinstance(asyncio.get_running_loop(), selector_events.BaseSelectorEventLoop)
    if selects and isinstance(buffer, bytearray):
        # asyncio has no public way; where these names are gone each connection keeps its own buffer.
        view = _view(_ENCRYPTED, len(buffer))
        protocol._ssl_buffer, protocol._ssl_buffer_view = view.obj, view  # type: ignore[union-attr]


def decrypted_view(size: int) -> memoryview:
    """Return `size` bytes of a buffer that the event loop's connections share, valid for one read."""
    return _view(_DECRYPTED, size)[:size]


def _view(views: _Views, size: int) -> memoryview:
    """Return a view of the running event loop's shared buffer, at least `size` bytes long."""
    loop = asyncio.get_running_loop()
    view = views.get(loop)
    if view is None or len(view) < size:
        view = views[loop] = memoryview(bytearray(size))
    return view
