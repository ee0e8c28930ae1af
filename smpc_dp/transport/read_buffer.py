"""One buffer for all TLS connections of an event loop, into which asyncio reads what comes.

asyncio gives each connection one of 256 KiB, which holds nothing between two of its calls: 10,000
connections keep 2.6 GB.
"""

from __future__ import annotations

import asyncio
from asyncio import selector_events
from weakref import WeakKeyDictionary

# By event loop: two loops may run at once, in two threads.
_VIEWS: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


def share_read_buffer(transport: asyncio.BaseTransport) -> None:
    """Let a TLS connection read into the buffer of its event loop; does nothing with other event loops.

    Only where the system is asked for bytes when they are there, and they are taken in the same call: other
    loops hand out buffers that are filled later.
    """
    loop = asyncio.get_running_loop()
    protocol = getattr(transport, "_ssl_protocol", None)
    buffer = getattr(protocol, "_ssl_buffer", None)
    if not isinstance(loop, selector_events.BaseSelectorEventLoop) or not isinstance(buffer, bytearray):
        return
    view = _VIEWS.get(loop)
    if view is None or len(view) < len(buffer):
        view = _VIEWS[loop] = memoryview(bytearray(len(buffer)))
    # asyncio has no public way; where these names are gone each connection keeps its own buffer.
    protocol._ssl_buffer, protocol._ssl_buffer_view = view.obj, view  # type: ignore[union-attr]
