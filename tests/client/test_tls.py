"""Encrypted connections of the SDK: what works, and what each mistake is called by each client."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.certificates import Authority, Pair, encrypt_key, has_openssl
from tests.support.waiting import HANG_MS
from tidelog.client import AdminClient, Consumer, Producer
from tidelog.client.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.skipif(not has_openssl(), reason="there is no openssl command")

Arguments = dict[str, Any]


class Shop:
    """Certificates of one test."""

    def __init__(self, directory: Path) -> None:
        self.ours = Authority(directory, "ours")
        self.theirs = Authority(directory, "theirs")
        self.node = self.ours.issue("node")
        self.alice = self.ours.issue("alice")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Made once: nothing in it is changed."""
    return Shop(tmp_path_factory.mktemp("certificates"))


@contextmanager
def serving(
    node: Pair | None, wanted: Authority | None = None, port: int = 0
) -> Iterator[ContractServer]:
    """A node with the certificate; `wanted`: of whom callers need one."""
    credentials = None
    if node is not None:
        credentials = grpc.ssl_server_credentials(
            [(node.key.read_bytes(), node.certificate.read_bytes())],
            None if wanted is None else wanted.certificate.read_bytes(),
            wanted is not None,
        )
    with ContractServer(credentials=credentials, port=port) as server:
        yield server


def trusting(authority: Authority, own: Pair | None = None, **more: Any) -> Arguments:
    """Arguments of a client."""
    found: Arguments = {
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.certificate),
        **more,
    }
    if own is not None:
        found |= {"ssl_certfile": str(own.certificate), "ssl_keyfile": str(own.key)}
    return found


def round_trip(
    server: ContractServer, arguments: Arguments, clients: Clients = BOTH[0]
) -> bytes | None:
    """One record there and back."""
    plain: Arguments = {"enable_idempotence": False, "delivery_timeout_ms": HANG_MS}
    plain["request_timeout_ms"] = HANG_MS // 2
    with clients.Producer(bootstrap_servers=server.address, **plain, **arguments) as producer:
        producer.send("letters", b"hello").get(HANG_MS / 1000)
    with clients.Consumer(
        bootstrap_servers=server.address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=HANG_MS,
        **arguments,
    ) as consumer:
        consumer.subscribe(["letters"])
        value: bytes | None = next(consumer).value
        return value


def test_records_go_there_and_back_encrypted(shop: Shop) -> None:
    with serving(shop.node) as server:
        assert round_trip(server, trusting(shop.ours)) == b"hello"


def test_a_client_proves_who_it_is(shop: Shop) -> None:
    with serving(shop.node, shop.ours) as server:
        assert round_trip(server, trusting(shop.ours, shop.alice)) == b"hello"


def test_a_certificate_that_is_for_clients_alone_is_enough_for_a_client(shop: Shop) -> None:
    clients_only = shop.ours.issue("clients-only", uses="clientAuth")
    with serving(shop.node, shop.ours) as server:
        assert round_trip(server, trusting(shop.ours, clients_only)) == b"hello"


def test_one_file_may_hold_certificate_and_key(shop: Shop, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(shop.alice.certificate.read_bytes() + shop.alice.key.read_bytes())
    with serving(shop.node, shop.ours) as server:
        arguments = {**trusting(shop.ours), "ssl_certfile": str(both)}
        assert round_trip(server, arguments) == b"hello"


@pytest.mark.parametrize("clients", BOTH, ids=repr)
def test_without_the_check_of_host_names_a_certificate_for_another_name_will_do(
    shop: Shop, clients: Clients
) -> None:
    elsewhere = shop.ours.issue("elsewhere", names=("DNS:elsewhere.example",))
    with serving(elsewhere) as server:
        arguments = trusting(shop.ours, ssl_check_hostname=False)
        assert round_trip(server, arguments, clients) == b"hello"


@pytest.mark.parametrize("clients", BOTH, ids=repr)
def test_without_the_check_of_host_names_a_new_certificate_is_followed(
    shop: Shop, clients: Clients
) -> None:
    first = shop.ours.issue(f"first-{clients}", names=("DNS:first.example",))
    second = shop.ours.issue(f"second-{clients}", names=("DNS:second.example",))
    arguments = trusting(shop.ours, ssl_check_hostname=False)
    with ExitStack() as closing:
        with serving(first) as server:
            reader = clients.AdminClient(bootstrap_servers=server.address, **arguments)
            closing.callback(reader.close)
            assert reader.list_topics() == []
        with serving(second, port=server.port):
            assert reader.list_topics() == []


@pytest.mark.parametrize("name", ["admin", "async_admin"])
def test_without_the_check_of_host_names_the_authority_still_counts(shop: Shop, name: str) -> None:
    client = admin if name == "admin" else async_admin
    with serving(shop.node) as server:
        error = failure_of(client, server, trusting(shop.theirs, ssl_check_hostname=False))
        assert "authority that is not trusted" in error.happened


def admin(arguments: Arguments) -> None:
    """Ask for topics."""
    with AdminClient(**arguments) as client:
        client.list_topics()


def producer(arguments: Arguments) -> None:
    """Send one record."""
    client = Producer(**arguments)
    try:
        client.send("letters", b"x").get(HANG_MS / 1000)
    finally:
        client.close(0)


def consumer(arguments: Arguments) -> None:
    """Ask for one record."""
    with Consumer(**arguments) as client:
        client.subscribe(["letters"])
        client.poll(HANG_MS)


def async_admin(arguments: Arguments) -> None:
    """The same on a loop."""
    with BOTH[1].AdminClient(**arguments) as client:
        client.list_topics()


def async_consumer(arguments: Arguments) -> None:
    """The same on a loop."""
    with BOTH[1].Consumer(**arguments) as client:
        client.subscribe(["letters"])
        client.poll(HANG_MS)


CLIENTS = [admin, producer, consumer, async_admin, async_consumer]


def failure_of(
    client: Callable[[Arguments], None], server: ContractServer, arguments: Arguments
) -> TidelogError:
    """What the client raises; it takes no longer than a wrong address would."""
    with pytest.raises(TidelogError) as caught:
        client({"bootstrap_servers": server.address, "bootstrap_timeout_ms": 3_000, **arguments})
    assert server.address in caught.value.happened
    return caught.value


@pytest.mark.parametrize("client", CLIENTS)
class TestMistakes:
    """Each is an error of three lines by itself."""

    def test_a_wrong_host(self, shop: Shop, client: Callable[[Arguments], None]) -> None:
        elsewhere = shop.ours.issue("wrong", names=("DNS:a.example", "DNS:b.example"))
        with serving(elsewhere) as server:
            error = failure_of(client, server, trusting(shop.ours))
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "for a.example, b.example, not for 127.0.0.1" in error.happened

    def test_an_expired_certificate(self, shop: Shop, client: Callable[[Arguments], None]) -> None:
        with serving(shop.ours.issue("expired", days=-1)) as server:
            error = failure_of(client, server, trusting(shop.ours))
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "its certificate has expired" in error.happened

    def test_an_unknown_authority(self, shop: Shop, client: Callable[[Arguments], None]) -> None:
        with serving(shop.node) as server:
            error = failure_of(client, server, trusting(shop.theirs))
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "authority that is not trusted" in error.happened
        assert "ssl_cafile" in error.hint

    def test_plaintext_against_tls(self, shop: Shop, client: Callable[[Arguments], None]) -> None:
        with serving(shop.node) as server:
            error = failure_of(client, server, {})
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "speaks TLS, and this client does not" in error.happened
        assert "security_protocol='SSL'" in error.hint

    def test_tls_against_plaintext(self, shop: Shop, client: Callable[[Arguments], None]) -> None:
        with serving(None) as server:
            error = failure_of(client, server, trusting(shop.ours))
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "does not speak TLS" in error.happened

    def test_a_missing_client_certificate(
        self, shop: Shop, client: Callable[[Arguments], None]
    ) -> None:
        with serving(shop.node, shop.ours) as server:
            error = failure_of(client, server, trusting(shop.ours))
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "wants a client certificate" in error.happened
        assert "ssl_certfile" in error.hint

    def test_a_client_certificate_of_another_authority(
        self, shop: Shop, client: Callable[[Arguments], None]
    ) -> None:
        mallory = shop.theirs.issue("mallory")
        with serving(shop.node, shop.ours) as server:
            error = failure_of(client, server, trusting(shop.ours, mallory))
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "does not accept this client's certificate" in error.happened


def refusal(**arguments: Any) -> TidelogError:
    """Why a client is not made."""
    with pytest.raises(TidelogError) as caught:
        AdminClient(bootstrap_servers="localhost:1", **arguments)
    return caught.value


def test_files_that_are_of_no_use_are_refused_when_the_client_is_made(
    shop: Shop, tmp_path: Path
) -> None:
    missing = refusal(security_protocol="SSL", ssl_cafile=str(tmp_path / "no.pem"))
    assert (missing.code, missing.happened) == (
        ErrorCode.INVALID_CONFIGURATION,
        "No such file or directory",
    )
    assert "no.pem" in missing.tried
    expired = refusal(**trusting(shop.ours, shop.ours.issue("old", days=-1)))
    assert expired.happened == "the certificate has expired"
    other_key = Pair(shop.alice.certificate, shop.node.key)
    assert "is not its key" in refusal(**trusting(shop.ours, other_key)).happened
    locked = shop.ours.issue("locked")
    encrypt_key(locked.key)
    assert "is encrypted" in refusal(**trusting(shop.ours, locked)).happened
    of_a_server = refusal(**trusting(shop.ours, shop.ours.issue("server", uses="serverAuth")))
    assert (of_a_server.code, of_a_server.happened) == (
        ErrorCode.INVALID_CONFIGURATION,
        "unsuitable certificate purpose",
    )
    assert "clientAuth" in of_a_server.hint
    alone = refusal(**{**trusting(shop.ours, shop.alice), "ssl_keyfile": None})
    assert "holds no private key" in alone.happened
    assert "set ssl_keyfile" in alone.hint


def test_what_would_be_left_out_in_silence_is_refused(shop: Shop) -> None:
    given = refusal(ssl_cafile=str(shop.ours.certificate))
    assert "nothing would be encrypted" in given.happened
    assert "security_protocol='SSL'" in given.hint
    assert "SASL_SSL" in refusal(security_protocol="SASL_SSL").happened
    assert "without ssl_certfile" in refusal(security_protocol="SSL", ssl_keyfile="x").happened
    assert refusal(ssl_context=object()).code is ErrorCode.NOT_IMPLEMENTED
