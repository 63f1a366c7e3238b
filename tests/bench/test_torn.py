"""The comparison by late requests: what its proxy keeps back, and what it calls torn."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from bench.holding_proxy import HoldingProxy, NotAnsweredError
from bench.torn import CASES, Case, Count, Ended, HoldingProxyLike, is_torn, measure
from bench.torn_kafka import END_TXN, end_of_transaction
from bench.torn_tidelog import holds_answer

COMMITTED = Ended(("a", "b"), is_commit=True, complaint="")
ABORTED = Ended(("a", "b"), is_commit=False, complaint="")
REFUSED = Ended(("a", "b"), is_commit=True, complaint="it was fenced")


@pytest.mark.parametrize(
    ("ended", "seen", "expected"),
    [
        (COMMITTED, {"a", "b"}, False),
        (COMMITTED, {"a"}, True),
        (COMMITTED, set[str](), True),
        (ABORTED, set[str](), False),
        (ABORTED, {"b"}, True),
        (ABORTED, {"a", "b"}, True),
        (REFUSED, set[str](), False),
        (REFUSED, {"a", "b"}, False),
        (REFUSED, {"b"}, True),
    ],
)
def test_a_transaction_is_torn_where_readers_see_part_of_it_or_not_what_was_told(
    ended: Ended, seen: set[str], expected: bool
) -> None:
    assert is_torn(ended, seen) is expected


class Server:
    """Remembers, by connection, what came, and answers each chunk with `ok`."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.came: list[bytes] = []
        self.answer = b"ok"
        self.changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65_536):
                with self.changed:
                    self.came.append(data)
                    self.changed.notify_all()
                if not self.answer:
                    return
                connection.sendall(self.answer)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.listener.close()


def connect(proxy: HoldingProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=60)


def asked(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(10)


@pytest.mark.parametrize("is_delivered", [True, False])
def test_what_is_kept_back_comes_after_what_was_sent_later_on_another_connection(
    server: Server, is_delivered: bool
) -> None:
    with HoldingProxy(lambda data: 0 if b"end" in data else None) as proxy:
        proxy.lead_to(server.address)
        with connect(proxy) as first:
            assert asked(first, b"begin, end") == b"ok", "it is not armed"
            proxy.arm()
            assert asked(first, b"work") == b"ok"
            first.sendall(b"end 1")
            proxy.wait_held()
            with pytest.raises(OSError, match="reset"):
                first.recv(1)
        with connect(proxy) as second:
            assert asked(second, b"end again") == b"ok", "only one is kept back"
            assert asked(second, b"work 2") == b"ok"
            proxy.let_go(is_delivered=is_delivered)
            assert asked(second, b"end 2") == b"ok"
    late = [b"end 1"] if is_delivered else []
    assert server.came == [b"begin, end", b"work", b"end again", b"work 2", *late, b"end 2"]


def test_a_late_request_without_an_answer_is_no_round(server: Server) -> None:
    with HoldingProxy(lambda data: 0, answers=lambda data: b"never" in data) as proxy:
        proxy.lead_to(server.address)
        with connect(proxy) as client:
            proxy.arm()
            client.sendall(b"end")
            proxy.wait_held()
        server.answer = b""
        with pytest.raises(NotAnsweredError):
            proxy.let_go()


def test_an_answer_is_told_from_what_else_a_server_says() -> None:
    settings = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00" + bytes(6)
    head = b"\x00\x00\x03\x01\x04\x00\x00\x00\x07" + bytes(3)
    assert not holds_answer(b"")
    assert not holds_answer(settings + settings)
    assert holds_answer(settings + head)


def frame(key: int, size: int) -> bytes:
    return struct.pack(">ihh", size, key, 1) + bytes(size - 4)


def test_the_request_is_found_among_others_of_kafkas_protocol() -> None:
    before = frame(3, 20) + frame(END_TXN + 1, 4)
    assert end_of_transaction(before) is None
    assert end_of_transaction(before + frame(END_TXN, 30) + frame(3, 9)) == len(before)
    assert end_of_transaction(frame(END_TXN, 30)) == 0
    assert end_of_transaction(frame(3, 20)[:5]) is None


class Log:
    """A system without markers: an end decides whatever is open. It tears by a late request."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.shown: list[str] = []

    def end(self, *, is_commit: bool) -> None:
        if is_commit:
            self.shown += self.open
        self.open = []


class Link:
    """The proxy's calls without a network: keeps the first end that comes once it is armed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._is_armed = False
        self.late: bool | None = None

    def arm(self) -> None:
        self._is_armed = True

    def keep(self, *, is_commit: bool) -> None:
        if self._is_armed:
            self._is_armed, self.late = False, is_commit

    def wait_held(self) -> None:
        assert self.late is not None

    def let_go(self, *, is_delivered: bool = True) -> None:
        assert self.late is not None
        if is_delivered:
            self._log.end(is_commit=self.late)


class Target:
    """Its programs ask again under the same identity, as clients do that have no new one."""

    name = "one that tears"

    def __init__(self) -> None:
        self.log = Log()
        self.link = Link(self.log)

    @property
    def proxy(self) -> HoldingProxyLike:
        return self.link

    def start(self, label: str) -> "Target":
        del label
        return self

    def begin(self) -> None:
        """Nothing."""

    def send(self, partition: int, value: str) -> None:
        del partition
        self.log.open.append(value)

    def end(self, *, is_commit: bool) -> None:
        self.link.keep(is_commit=is_commit)
        self.log.end(is_commit=is_commit)

    def give_up(self) -> None:
        self.log.end(is_commit=False)

    def close(self) -> None:
        """Nothing."""

    def committed(self) -> list[str]:
        return self.log.shown


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_system_that_obeys_a_late_end_is_found_torn_and_a_lost_one_harms_nobody(
    case: Case,
) -> None:
    count: Count = measure(Target(), 3, case)
    assert (count.rounds, count.failures) == (3, [])
    assert count.torn == count.silent == (3 if case.is_delivered else 0)
