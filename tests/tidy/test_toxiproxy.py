"""The fault injector itself: a proxied connection carries bytes and is cut on command."""

import socket
import threading
from collections.abc import Iterator

import pytest
import toxiproxy

from tests.support.waiting import HANG_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server on loopback that returns what it gets, one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve_echo, args=(listener,), daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(HANG_SECONDS)
        assert not thread.is_alive(), "the echo server did not end"


def _serve_echo(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(HANG_SECONDS)
            while data := connection.recv(65536):
                connection.sendall(data)


def test_bytes_travel_through_a_proxy_until_it_is_taken_down(
    toxiproxy_address: tuple[str, int], echo_port: int
) -> None:
    server = toxiproxy.Toxiproxy()
    server.update_api_consumer(*toxiproxy_address)
    proxy = server.create(upstream=f"127.0.0.1:{echo_port}", name=f"echo-{echo_port}")
    host, _, port = proxy.listen.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=HANG_SECONDS) as client:
            client.sendall(b"a record")
            assert client.recv(64) == b"a record"
            proxy.disable()
            assert client.recv(64) == b"", "a proxy that is down keeps its connections"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=HANG_SECONDS)
    finally:
        proxy.destroy()
