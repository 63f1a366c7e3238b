"""Addresses where no Tidelog node answers as it should, each set up and taken down again.

Owns the places of `bench.wrong_addresses` and `bench.interrupts`. A swallowing place is a real node
behind a Toxiproxy that lets everything pass until it is told to swallow it, in both directions.
"""

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.client.support.contract_server import ContractServer
from tests.support.certificates import Authority
from tidelog.chaos.live.cluster.paths import CLIENTS, Paths, silence
from tidelog.chaos.live.processes.server import BOTH_ROLES
from tidelog.chaos.live.processes.toxiproxy import running_server
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.client import AdminClient, NewTopic, Producer
from tidelog.wire.errors import TidelogError

Options = dict[str, Any]
TOPIC: Final = "t"
GROUP: Final = "g"
NODE: Final = 1
SECONDS_MAX: Final = 30.0


class Spot(NamedTuple):
    """A place that is set up."""

    options: Options
    swallow: Callable[[], None] | None = None
    """From now on every byte is swallowed; None: it is as it is from the beginning."""
    heal: Callable[[], None] | None = None
    """Everything passes again; connections that lack bytes are closed."""


@contextmanager
def wrong_port() -> Iterator[Spot]:
    """Nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Spot({"bootstrap_servers": f"127.0.0.1:{taken.getsockname()[1]}"})


@contextmanager
def unknown_name() -> Iterator[Spot]:
    """A typing error in a host's name."""
    yield Spot({"bootstrap_servers": "no-such-host.invalid:9192"})


@contextmanager
def silent_socket() -> Iterator[Spot]:
    """Connections are taken by the system and never answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield Spot({"bootstrap_servers": f"127.0.0.1:{listener.getsockname()[1]}"})


@contextmanager
def black_hole() -> Iterator[Spot]:
    """A node behind a proxy that swallows everything, from the first connection on."""
    with swallowing() as spot:
        assert spot.swallow is not None, "a swallowing place can be told"
        spot.swallow()
        yield Spot(spot.options)


@contextmanager
def black_hole_in_mid_flow() -> Iterator[Spot]:
    """The same once everything has worked for a while."""
    with swallowing() as spot:
        yield spot


@contextmanager
def swallowing() -> Iterator[Spot]:
    """A node with a topic of one record, reached through a proxy only."""
    with (
        running_server() as toxiproxy,
        tempfile.TemporaryDirectory(prefix="bench-places-") as directory,
    ):
        paths = Paths(toxiproxy)
        try:
            with QuorumCluster(
                Path(directory), nodes=1, voters=1, roles=BOTH_ROLES, detour=paths.lay
            ) as cluster:
                cluster.begin()
                address = paths.address((CLIENTS, NODE))
                cluster.wait(lambda: _registered(address), SECONDS_MAX, tried="register the broker")
                with AdminClient(bootstrap_servers=address) as admin:
                    admin.create_topics([NewTopic(TOPIC, 1, 1)])
                with Producer(bootstrap_servers=address) as producer:
                    producer.send(TOPIC, b"value").get(SECONDS_MAX)
                toxics = [*silence(CLIENTS, NODE), *silence(NODE, CLIENTS)]
                options = {"bootstrap_servers": address}
                yield Spot(options, lambda: paths.apply(toxics), paths.clear)
                paths.clear()
        finally:
            paths.close()


def _registered(address: str) -> str | None:
    try:
        with AdminClient(bootstrap_servers=address) as admin:
            brokers = admin.describe_cluster().brokers
    except TidelogError as error:
        return str(error)
    return None if any(not each.is_fenced for each in brokers) else "the broker does not serve yet"


@contextmanager
def tls_expected() -> Iterator[Spot]:
    """The node wants TLS, the program speaks plaintext."""
    import grpc

    with tempfile.TemporaryDirectory(prefix="bench-tls-") as directory:
        pair = Authority(Path(directory)).issue("node")
        credentials = grpc.ssl_server_credentials(
            [(pair.key.read_bytes(), pair.certificate.read_bytes())]
        )
        with ContractServer(credentials=credentials) as server:
            yield Spot({"bootstrap_servers": server.address})


@contextmanager
def tls_not_expected() -> Iterator[Spot]:
    """The program speaks TLS, the node plaintext."""
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as directory:
        authority = Authority(Path(directory))
        with ContractServer() as server:
            yield Spot(
                {
                    "bootstrap_servers": server.address,
                    "security_protocol": "SSL",
                    "ssl_cafile": str(authority.certificate),
                }
            )


@contextmanager
def real_kafka() -> Iterator[Spot]:
    """The address of the old cluster."""
    from bench.peers.kafka.node import KafkaNode, prepare

    prepare()
    with KafkaNode() as node:
        yield Spot({"bootstrap_servers": node.bootstrap})


PLACES: Final[dict[str, Callable[[], AbstractContextManager[Spot]]]] = {
    "wrong port": wrong_port,
    "unknown DNS name": unknown_name,
    "silent socket": silent_socket,
    "black hole": black_hole,
    "black hole in mid-flow": black_hole_in_mid_flow,
    "TLS expected": tls_expected,
    "TLS not expected": tls_not_expected,
    "a real Kafka": real_kafka,
}
