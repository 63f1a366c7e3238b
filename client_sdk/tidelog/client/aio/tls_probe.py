"""The look of `sync/tls_probe.py` without holding up the loop.

Owns a connection for the time of the look.
"""

import asyncio

from tidelog.client.tls.look import (
    LOOK_TIMEOUT_S,
    Seen,
    context_of,
    name_to_ask_for,
    names_in,
    place_of,
)
from tidelog.client.tls.security import Security


async def look(address: str, security: Security) -> Seen | None:
    """None: there was no handshake, for whatever reason."""
    try:
        host, port = place_of(address)
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                host,
                port,
                ssl=context_of(security),
                server_hostname=name_to_ask_for(address) or "",
            )
    except (OSError, ValueError):
        return None
    try:
        names = names_in(writer.get_extra_info("peercert"))
        return Seen(names, await _is_closed(reader))
    finally:
        writer.transport.abort()


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    """A node says its settings at once; one that refuses this end closes instead."""
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except OSError:
        return True
