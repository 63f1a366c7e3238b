"""Consumers of one group for tests, and what they are read, polled and told with.

`from tests.client.support.group_members import clients, member, server` gives a test its fixtures.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.waiting import wait_until
from tidelog.client import ConsumerRebalanceListener, Producer, TopicPartition
from tidelog.client.errors import TidelogError

PARTITIONS = 4
T = [TopicPartition("t", number) for number in range(PARTITIONS)]


@pytest.fixture(params=BOTH, ids=repr)
def clients(request: pytest.FixtureRequest) -> Clients:
    found = request.param
    assert isinstance(found, Clients)
    return found


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer(default_partitions=PARTITIONS) as running:
        running.create("t", PARTITIONS)
        yield running


class Member:
    """Makes consumers of one group, and closes what a test leaves open."""

    def __init__(self, clients: Clients, server: ContractServer) -> None:
        self._clients = clients
        self._server = server
        self.made: list[Any] = []

    def __call__(self, *topics: str, group: str | None = "g", **options: Any) -> Any:
        made = self._clients.Consumer(
            *topics,
            bootstrap_servers=self._server.address,
            group_id=group,
            **{"auto_offset_reset": "earliest", "retry_backoff_ms": 20, **options},
        )
        self.made.append(made)
        return made


@pytest.fixture
def member(clients: Clients, server: ContractServer) -> Iterator[Member]:
    found = Member(clients, server)
    yield found
    server.groups.is_away = False
    for each in found.made:
        each.close()


def produce(server: ContractServer, count: int) -> None:
    """So many records a partition; the value is the offset."""
    with Producer(bootstrap_servers=server.address) as producer:
        for name in T:
            for number in range(count):
                producer.send("t", b"%d" % number, partition=name.partition)


def until(holds: Callable[[], object], *polled: Any) -> None:
    """Consumers are polled until it holds; what they are given is thrown away."""

    def turn() -> None:
        for each in polled:
            each.poll(10)

    wait_until(holds, turn=turn)


def read(consumer: Any, count: int) -> list[int]:
    """Values of so many records."""
    found: list[int] = []

    def turn() -> None:
        for records in consumer.poll(100).values():
            found.extend(int(record.value) for record in records)

    wait_until(
        lambda: len(found) >= count,
        turn=turn,
        told=lambda: f"{len(found)} of {count} records came",
    )
    return found


def refused(call: Callable[[], object]) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        call()
    return caught.value


class Told(ConsumerRebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, what: str, names: set[TopicPartition]) -> None:
        numbers = " ".join(str(name.partition) for name in sorted(names))
        self.lines.append(f"{what} {numbers}".rstrip())


class CoroutinesTold(Told):
    """The same, as coroutines."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:  # type: ignore[override]
        self._note("revoked", revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:  # type: ignore[override]
        self._note("assigned", assigned)
