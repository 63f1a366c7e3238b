"""The sockets below gRPC: how much each has received, and how one connection is hung up on.

gRPC hands out neither. This process's descriptors are looked through for sockets at the listener's
port; a descriptor may be closed and taken by something else meanwhile, so that whatever is done is
done to a duplicate whose ends were compared. Where a system does not list its descriptors, or tells
nothing of a connection, nothing is found.
"""

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any, Final

_FOLDERS: Final = ("/proc/self/fd", "/dev/fd")
_TCP_INFO: Final = 11
_RECEIVED_AT: Final = 128
"""Where Linux's tcp_info has the bytes received, 64 bits."""
_INFO_BYTES: Final = 192
_MAPPED: Final = "::ffff:"
_RESET: Final = struct.pack("ii", 1, 0)


def descriptors() -> list[int]:
    """All of this process."""
    for folder in _FOLDERS:
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(folder) if name.isdigit()]
    return []


def connection_at(descriptor: int, port: int) -> tuple[str, int] | None:
    """The caller as gRPC names it, and the bytes received; None: no connection at this port."""
    with _borrowed(descriptor) as found:
        try:
            if found is None or found.getsockname()[1] != port:
                return None
            name = caller_name(found.getpeername())
            return (name, received_bytes(found)) if name else None
        except (OSError, IndexError, TypeError):
            return None


def hang_up(descriptor: int, port: int, caller: str) -> bool:
    """Break the connection if it is still the caller's; gRPC sees it closed."""
    try:
        duplicate = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False
    with duplicate:
        try:
            if duplicate.getsockname()[1] != port:
                return False
            if caller_name(duplicate.getpeername()) != caller:
                return False
            # Reset, or the system goes on offering what is queued to a caller that reads nothing.
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            duplicate.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError, TypeError):
            return False
    return True


def caller_name(address: Any) -> str:
    """As gRPC writes it: `ipv4:127.0.0.1:9092`, `ipv6:%5B::1%5D:9092`."""
    if not isinstance(address, tuple):
        return ""
    host, port = address[0], address[1]
    if host.startswith(_MAPPED) and "." in host:
        host = host[len(_MAPPED) :]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def received_bytes(found: socket.socket) -> int:
    """Since it was connected; 0: the system does not tell."""
    if sys.platform != "linux":
        return 0
    try:
        info = found.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
    except OSError:
        return 0
    if len(info) < _RECEIVED_AT + 8:
        return 0
    received: int = struct.unpack_from("=Q", info, _RECEIVED_AT)[0]
    return received


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket | None]:
    """A socket object that is never closed: the descriptor is gRPC's."""
    try:
        # Family and type are not asked of the system: they matter to nothing that is done here.
        found = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=descriptor)
    except OSError:
        yield None
        return
    try:
        yield found
    finally:
        found.detach()
