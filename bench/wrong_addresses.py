"""A script of kafka-python's, moved over, at addresses where no Tidelog node answers as it should.

`python -m bench.wrong_addresses` makes a KafkaProducer at each of them with default timeouts, and
prints how long it took and what it said; Apache Kafka itself is one of them. Owns the places.
"""

import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.client.contract_server import ContractServer
from tests.support.certificates import Authority
from tidelog.kafka import KafkaProducer
from tidelog.kafka.errors import KafkaError

Options = dict[str, Any]


class Told(NamedTuple):
    """What the script was told."""

    name: str
    seconds: float
    error: str


@contextmanager
def wrong_port() -> Iterator[Options]:
    """Nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield {"bootstrap_servers": f"127.0.0.1:{taken.getsockname()[1]}"}


@contextmanager
def unknown_name() -> Iterator[Options]:
    """A typing error in a host's name."""
    yield {"bootstrap_servers": "no-such-host.invalid:9192"}


@contextmanager
def black_hole() -> Iterator[Options]:
    """Connections are taken and never answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield {"bootstrap_servers": f"127.0.0.1:{listener.getsockname()[1]}"}


@contextmanager
def tls_expected() -> Iterator[Options]:
    """The node wants TLS, the script speaks plaintext."""
    import grpc

    with tempfile.TemporaryDirectory(prefix="bench-tls-") as directory:
        pair = Authority(Path(directory)).issue("node")
        credentials = grpc.ssl_server_credentials(
            [(pair.key.read_bytes(), pair.certificate.read_bytes())]
        )
        with ContractServer(credentials=credentials) as server:
            yield {"bootstrap_servers": server.address}


@contextmanager
def tls_not_expected() -> Iterator[Options]:
    """The script speaks TLS, the node plaintext."""
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as directory:
        authority = Authority(Path(directory))
        with ContractServer() as server:
            yield {
                "bootstrap_servers": server.address,
                "security_protocol": "SSL",
                "ssl_cafile": str(authority.certificate),
            }


@contextmanager
def real_kafka() -> Iterator[Options]:
    """The address of the old cluster."""
    from bench.peers.kafka.node import KafkaNode, prepare

    prepare()
    with KafkaNode() as node:
        yield {"bootstrap_servers": node.bootstrap}


PLACES: Final = (
    wrong_port,
    unknown_name,
    black_hole,
    tls_expected,
    tls_not_expected,
    real_kafka,
)


def told(name: str, place: AbstractContextManager[Options]) -> Told:
    """With a producer's own timeouts."""
    with place as options:
        began = time.monotonic()
        try:
            KafkaProducer(**options).close()
        except KafkaError as error:
            return Told(name, time.monotonic() - began, str(error))
        return Told(name, time.monotonic() - began, "nothing was wrong")


def main() -> int:
    """The exit status is 1 if a place was not noticed."""
    every = [told(place.__name__, place()) for place in PLACES]
    for each in every:
        print(f"{each.name:18} {each.seconds:5.2f} s  {each.error}")
    return int(any(each.error == "nothing was wrong" for each in every))


if __name__ == "__main__":
    sys.exit(main())
