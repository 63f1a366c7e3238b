"""A small program under strict type checkers: what a user of the SDK sees of its types.

`mypy --strict examples/typed` and `basedpyright` (strict) pass on it without a comment.
"""

from collections.abc import Iterator

import msgspec

from tidelog.client import (
    AdminClient,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    RecordMetadata,
    SendFuture,
    TopicPartition,
)
from tidelog.client.errors import ErrorCode, TidelogError

TOPIC = "orders"


class Order(msgspec.Struct, frozen=True):
    """What travels as JSON."""

    customer: str
    cents: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Order)


def create(bootstrap: str) -> None:
    """Make the topic unless it is there."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        try:
            admin.create_topics([NewTopic(TOPIC, num_partitions=3)])
        except TidelogError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def write(producer: Producer, orders: list[Order]) -> list[RecordMetadata]:
    """Send all, then wait for all."""
    futures: list[SendFuture] = [
        producer.send(TOPIC, _encoder.encode(order), key=order.customer.encode())
        for order in orders
    ]
    return [future.get(timeout=30) for future in futures]


def read(consumer: Consumer) -> Iterator[tuple[TopicPartition, int, Order]]:
    """Orders with their places, until none comes for consumer_timeout_ms."""
    record: ConsumerRecord
    for record in consumer:
        name = TopicPartition(record.topic, record.partition)
        value: bytes = record.value
        yield name, record.offset, _decoder.decode(value)


def main(bootstrap: str = "localhost:9192") -> None:
    """The whole round."""
    create(bootstrap)
    with Producer(bootstrap_servers=bootstrap, compression_type="lz4") as producer:
        stored = write(producer, [Order("ada", 1_200), Order("bob", 80), Order("ada", 5)])
    print(f"stored at {[place.offset for place in stored]}")
    with Consumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=2_000,
    ) as consumer:
        for name, offset, order in read(consumer):
            print(f"{name.topic}-{name.partition}@{offset}: {order.customer} {order.cents}")


if __name__ == "__main__":
    main()
