"""Addresses where no node answers: every call ends in time, and says what is wrong with each."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tests.support.waiting import ended
from tidelog.client import AdminClient, Consumer, Producer
from tidelog.client.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow

LIMIT_MS = 1_500


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def unknown_name() -> Iterator[str]:
    yield "no-such-host.invalid:9192"


@contextmanager
def black_hole() -> Iterator[str]:
    """Connections are taken by the system and never answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def web_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        BaseHTTPRequestHandler.log_message = lambda *_: None  # type: ignore[method-assign]
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


PLACES: dict[Callable[[], AbstractContextManager[str]], tuple[str, ...]] = {
    closed_port: ("refused",),
    unknown_name: ("cannot be resolved (DNS)",),
    black_hole: ("no answer within", "did not accept the connection", "says nothing"),
    web_server: ("not a Tidelog node",),
}


def produce(address: str) -> None:
    with Producer(bootstrap_servers=address, bootstrap_timeout_ms=LIMIT_MS) as producer:
        producer.send("t", b"v")


def consume(address: str) -> None:
    with Consumer("t", bootstrap_servers=address, bootstrap_timeout_ms=LIMIT_MS) as consumer:
        next(consumer)


def list_topics(address: str, limit_ms: int = LIMIT_MS) -> None:
    with AdminClient(bootstrap_servers=address, bootstrap_timeout_ms=limit_ms) as admin:
        admin.list_topics()


@pytest.mark.parametrize("use", [produce, consume, list_topics])
@pytest.mark.parametrize("place", list(PLACES), ids=lambda place: place.__name__)
def test_the_error_names_the_address_and_the_reason(
    place: Callable[[], AbstractContextManager[str]], use: Callable[[str], None]
) -> None:
    with place() as address, pytest.raises(TidelogError) as caught:
        ended(lambda: use(address))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.retriable
    assert address in caught.value.happened
    assert any(reason in caught.value.happened for reason in PLACES[place])
    assert "bootstrap_servers" in caught.value.hint


def test_each_of_several_addresses_is_named() -> None:
    """Each that was tried: on a busy machine the limit may end before the last one is."""
    told = ""
    with closed_port() as closed, unknown_name() as unknown, web_server() as web:
        for limit_ms in (LIMIT_MS, 10 * LIMIT_MS, 100 * LIMIT_MS):
            with pytest.raises(TidelogError) as caught:
                list_topics(f"{closed},{unknown},{web}", limit_ms)
            told = caught.value.happened
            if all(each in told for each in (closed, unknown, web)):
                return
    raise AssertionError(told)


def test_one_good_address_among_bad_ones_is_enough() -> None:
    from tests.client.support.contract_server import ContractServer

    with closed_port() as closed, ContractServer() as server:
        list_topics(f"{closed},{server.address}")


def test_the_bootstrap_check_answers_instead_of_raising() -> None:
    with (
        closed_port() as closed,
        Producer(bootstrap_servers=closed, bootstrap_timeout_ms=LIMIT_MS) as producer,
    ):
        assert not producer.bootstrap_connected()
