"""A TCP proxy that keeps one request back: what a network does that delivers it late.

Owns one listener and its connections. When it is armed, the first bytes from a client that `wanted`
recognises, and all behind them on that connection, stay here; the client's side is reset, as by a
middlebox that forgot the connection, while the server's side stays open. `let_go` delivers them.
It must never change a byte, nor the order of bytes on one connection: TCP promises no more, and
between two connections it promises nothing.
"""

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

CHUNK_BYTES: Final = 65_536
CONNECT_SECONDS_MAX: Final = 10.0
WAIT_SECONDS_MAX: Final = 60.0
ANSWER_SECONDS_MAX: Final = 20.0

Answers = Callable[[bytes], bool]
"""Whether the server's bytes, from when a request was delivered on, hold its answer."""
Wanted = Callable[[bytes], int | None]
"""Where in these bytes of a client the request begins that is to be kept back; None: it is not
there."""


class NothingHeldError(RuntimeError):
    """No such request came by in time."""


class NotAnsweredError(RuntimeError):
    """The server did not answer what was delivered late: nobody knows whether it came there."""


class HoldingProxy:
    """`with HoldingProxy(wanted) as proxy:` listens at `proxy.address`; `lead_to` a server."""

    def __init__(self, wanted: Wanted, answers: Answers = bool) -> None:
        self._wanted = wanted
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._server = ""
        self._is_armed = threading.Event()
        self._holds = threading.Event()
        self._lock = threading.Lock()
        self._held: tuple[socket.socket, bytes] | None = None
        self._open: set[socket.socket] = set()
        self._is_closed = False

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def lead_to(self, server: str) -> None:
        """From now on connections go there."""
        self._server = server
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def arm(self) -> None:
        """Keep the next such request back."""
        assert self._held is None, "one request is kept back at a time"
        self._holds.clear()
        self._is_armed.set()

    def wait_held(self) -> None:
        """Until it is here."""
        if not self._holds.wait(WAIT_SECONDS_MAX):
            raise NothingHeldError(f"no such request came by in {WAIT_SECONDS_MAX:.0f} s")

    def let_go(self, *, is_delivered: bool = True) -> None:
        """Deliver what was kept back, and wait for its answer; or lose it."""
        with self._lock:
            assert self._held is not None, "nothing is kept back"
            (server, data), self._held = self._held, None
        try:
            if is_delivered:
                self._deliver(server, data)
        finally:
            self._end(server)

    def _deliver(self, server: socket.socket, data: bytes) -> None:
        answer = b""
        try:
            server.settimeout(ANSWER_SECONDS_MAX)
            server.sendall(data)
            while not self._answers(answer):
                more = server.recv(CHUNK_BYTES)
                if not more:
                    raise NotAnsweredError("the server has closed the connection")
                answer += more
        except OSError as error:
            raise NotAnsweredError(f"the server has not answered: {error}") from None

    # -- inside ----------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self._server.rpartition(":")
                server = socket.create_connection((host, int(port)), CONNECT_SECONDS_MAX)
                for each in (client, server):
                    each.settimeout(None)
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open |= {client, server}
                threading.Thread(
                    target=self._carry, args=(client, server), name="proxy", daemon=True
                ).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while not self._is_closed:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    data = server.recv(CHUNK_BYTES)
                    if not data:
                        break
                    client.sendall(data)
                if client in ready:
                    data = client.recv(CHUNK_BYTES)
                    if not data:
                        break
                    if self._keeps(client, server, data):
                        return
                    server.sendall(data)
        self._end(client)
        self._end(server)

    def _keeps(self, client: socket.socket, server: socket.socket, data: bytes) -> bool:
        """Whether these bytes hold the request: then all from there on stay here."""
        if not self._is_armed.is_set():
            return False
        begin = self._wanted(data)
        if begin is None:
            return False
        self._is_armed.clear()
        if begin:
            server.sendall(data[:begin])
        with self._lock:
            self._held = (server, data[begin:])
        self._reset(client)
        self._holds.set()
        return True

    def _reset(self, client: socket.socket) -> None:
        """The client is told at once that its connection is gone."""
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end(client)

    def _end(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        with contextlib.suppress(OSError):
            one.close()

    def close(self) -> None:
        """End every connection."""
        self._is_closed = True
        self._listener.close()
        with self._lock:
            left = list(self._open)
        for each in left:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            self._end(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
