"""Ports of the testing kit: held while nobody listens, refused then, and broken without a word."""

import errno
import socket
import sys

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.testing import ports
from tidelog.testing.ports import HOST, HeldPort, break_connections

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="two sockets share a port on Linux")


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=HANG_SECONDS)


def listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen()
    return listener


def test_whoever_connects_to_a_port_that_is_only_held_is_refused() -> None:
    held = HeldPort()
    with pytest.raises(ConnectionRefusedError):
        connect(held.number)
    held.close()


def test_a_held_port_can_be_listened_at_again_and_again() -> None:
    held = HeldPort()
    for _ in range(2):
        held.make_room()
        with listen(held.number), connect(held.number):
            pass
    held.close()


def test_a_held_port_is_given_to_nobody_who_asks_for_any() -> None:
    held = [HeldPort() for _ in range(50)]
    assert len({each.number for each in held}) == 50
    for each in held:
        each.close()


def test_breaking_resets_both_ends_and_ends_the_listener_but_nothing_else() -> None:
    held, other = HeldPort(), HeldPort()
    with (
        listen(held.number) as listener,
        listen(other.number) as bystander,
        connect(held.number) as caller,
        connect(other.number) as bystander_caller,
    ):
        served, kept = listener.accept()[0], bystander.accept()[0]
        caller.sendall(b"not read")
        break_connections([held.number])
        with served, pytest.raises(OSError, match=r".*") as broken:
            served.send(b"x")
        assert broken.value.errno in (errno.EPIPE, errno.ECONNRESET)
        assert caller.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(held.number)
        with kept:
            bystander_caller.sendall(b"y")
            assert kept.recv(1) == b"y"
    held.close()
    other.close()


def test_what_a_thread_accepts_while_connections_are_looked_for_is_broken_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = HeldPort()
    listed = ports._descriptors
    accepted: list[socket.socket] = []

    def accepting() -> list[int]:
        found = listed()
        if not accepted:
            # The list holds the number by which it was read: that one is taken first.
            with socket.socket():
                accepted.append(listener.accept()[0])
        return found

    with listen(held.number) as listener, connect(held.number) as caller:
        monkeypatch.setattr(ports, "_descriptors", accepting)
        break_connections([held.number])
        with accepted[0]:
            assert caller.recv(1) == b""
    held.close()
