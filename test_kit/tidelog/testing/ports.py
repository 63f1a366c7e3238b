"""Ports of this machine that belong to a test cluster for its life, also while a node is down.

Owns a bound socket for each: the system gives such a port to nobody else, refuses whoever connects
to it, and still lets a node of this process listen there (Linux). It must never listen itself.
"""

import contextlib
import os
import socket
import stat
import struct
import sys
from collections.abc import Sequence
from typing import Final

from tidelog.wire.errors import ErrorCode, TidelogError

HOST: Final = "127.0.0.1"
_RESET: Final = struct.pack("ii", 1, 0)
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_FOLDERS: Final = ("/proc/self/fd", "/dev/fd")


class HeldPort:
    """A port that the system chose."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Both sides have to say so: then a listener may share the port with what only holds it.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, 0))
        except OSError as error:
            self._socket.close()
            raise TidelogError(
                ErrorCode.UNAVAILABLE, tried=f"take a free port of {HOST}", happened=str(error)
            ) from None
        self.number: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.number}"

    def make_room(self) -> None:
        """Before a node listens. Elsewhere than on Linux two sockets cannot share a port, so that
        another program may take it while the node is down."""
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        """Give it back to the system."""
        self._socket.close()


def break_connections(ports: Sequence[int]) -> None:
    """Every connection to a listener at these ports is reset, and the listener is gone.

    As the end of a process does it: without a word of HTTP/2. gRPC finds its connections closed.
    Listeners go first: gRPC's threads accept until then, and what they accepted is found behind it.
    """
    for is_listener in (True, False):
        for descriptor in _descriptors():
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    # It is done to a duplicate: the number may change hands meanwhile.
                    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                        if not _is_at(duplicate, ports, is_listener=is_listener):
                            continue
                        if is_listener:
                            _put_aside(descriptor)
                        else:
                            _reset(duplicate)


def _is_at(found: socket.socket, ports: Sequence[int], *, is_listener: bool) -> bool:
    if found.family not in _FAMILIES or found.getsockname()[1] not in ports:
        return False
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) is is_listener


def _put_aside(listener: int) -> None:
    """gRPC keeps a descriptor, of a socket that never listened: it would tell of a closed one."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
        os.dup2(other.fileno(), listener, inheritable=False)


def _reset(connection: socket.socket) -> None:
    # Raises for what is not connected, such as a port that is only held.
    connection.getpeername()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.shutdown(socket.SHUT_RDWR)


def _descriptors() -> list[int]:
    for folder in _FOLDERS:
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(folder) if name.isdigit()]
    return []
