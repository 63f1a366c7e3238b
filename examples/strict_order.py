"""One order for everything: a topic with a single partition, and a producer that numbers batches.

Order holds within a partition. A batch that has to be sent again, as when its leader dies, keeps
its place: the producer is idempotent unless it is told otherwise (`acks="all"`, the default).
`tidelog dev` in one terminal, `python examples/strict_order.py` in another.
"""

from itertools import islice

from tidelog.client import AdminClient, Consumer, NewTopic, Producer, TopicPartition

LEDGER = TopicPartition("ledger", 0)
COUNT = 1_000


def main() -> None:
    """Write numbers in many batches, read them in the same order."""
    with AdminClient() as admin:
        admin.try_create_topics([NewTopic(LEDGER.topic, num_partitions=1)])

    # Small batches: several are on their way at once, and still none overtakes another.
    with Producer(batch_size=512, linger_ms=0) as producer:
        futures = [producer.send(LEDGER.topic, b"%d" % number) for number in range(COUNT)]
        offsets = [future.get(timeout=10).offset for future in futures]
    print(f"offsets rise by one: {offsets == list(range(offsets[0], offsets[0] + COUNT))}")

    with Consumer() as consumer:
        consumer.assign([LEDGER])
        consumer.seek(LEDGER, offsets[0])
        read = [int(record.value) for record in islice(consumer, COUNT)]
    print(f"read in the order of writing: {read == list(range(COUNT))}")


if __name__ == "__main__":
    main()
