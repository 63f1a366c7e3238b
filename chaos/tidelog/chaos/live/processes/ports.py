"""Ports for nodes that are told where to listen, and that stop and start at the same port.

Owns that no two of them are the same, in this process or in another worker's of a test run: they
are drawn from below the ports that a system gives out by itself, so that nobody gets one by chance
while its node is down.
"""

import os
import socket
from typing import Final

FIRST: Final = 20_000
LAST: Final = 31_999
_WORKERS_MAX: Final = 8
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_SHARE: Final = (LAST - FIRST + 1) // _WORKERS_MAX
_MINE: Final = FIRST + _WORKER % _WORKERS_MAX * _SHARE

_given = os.getpid() * 97 % _SHARE


def free_ports(count: int) -> list[int]:
    """Ports of this worker that it has not given out lately, and that nobody listens at."""
    found: list[int] = []
    for _ in range(_SHARE):
        if len(found) == count:
            return found
        port = _next()
        if _is_free(port):
            found.append(port)
    raise AssertionError(f"{count} free ports between {_MINE} and {_MINE + _SHARE - 1}")


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def _next() -> int:
    global _given
    _given = (_given + 1) % _SHARE
    return _MINE + _given


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
