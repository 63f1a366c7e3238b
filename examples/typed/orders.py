"""A user's program, typed from end to end: orders in, a total for each customer out.

Owns the user's view of the types of `tidelog.client`: `make check` reads it in the strictest mode.

    .venv/bin/tidelog dev                       # in one terminal
    .venv/bin/python examples/typed/orders.py   # in another
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.client.errors import TidelogError

TOPIC = "orders"


class Order(NamedTuple):
    """What a customer bought."""

    customer: str
    cents: int


def encode(order: Order) -> bytes:
    """The value of a record."""
    return json.dumps(order._asdict()).encode()


def decode(value: bytes) -> Order:
    """The order in the value of a record."""
    fields = json.loads(value)
    return Order(customer=str(fields["customer"]), cents=int(fields["cents"]))


def create_topic() -> None:
    """Creates the topic; one that is there already is as good."""
    with AdminClient() as admin:
        try:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1)])
        except TidelogError as error:
            if error.code.name != "TOPIC_ALREADY_EXISTS":
                raise


def write(orders: Iterable[Order]) -> int:
    """Sends the orders and waits until they are on disk; the offset after the last one."""
    with Producer() as producer:
        sent = [
            producer.send(TOPIC, encode(order), key=order.customer.encode()) for order in orders
        ]
        places = [future.get(timeout=10) for future in sent]
    return max(place.offset for place in places) + 1


def totals() -> dict[str, int]:
    """What each customer spent, over everything that is in the topic."""
    spent: dict[str, int] = {}
    with Consumer(consumer_timeout_ms=1000) as consumer:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        for record in consumer:
            if isinstance(record.value, bytes):
                order = decode(record.value)
                spent[order.customer] = spent.get(order.customer, 0) + order.cents
    return spent


def main() -> None:
    """Writes three orders, prints what was spent."""
    create_topic()
    write([Order("alice", 1250), Order("bob", 300), Order("alice", 99)])
    for customer, cents in sorted(totals().items()):
        print(f"{customer}: {cents / 100:.2f}")


if __name__ == "__main__":
    main()
