"""Measurements of which some may be lost: acks=0 waits for nobody and tells nothing.

Whatever a broker's death catches on its way is gone, and the program does not hear of it.
`tidelog dev` in one terminal, `python examples/fire_and_forget.py` in another.
"""

import time

from tidelog.client import Consumer, Producer, TopicPartition

PARTITION = TopicPartition("ticks", 0)
COUNT = 10_000


def stored() -> int:
    """How many records the partition has."""
    with Consumer() as consumer:
        return consumer.end_offsets([PARTITION])[PARTITION]


def main() -> None:
    """Send many, look at no outcome, and see how many have come."""
    with Producer(acks=0) as producer:
        producer.partitions_for(PARTITION.topic)
        before = stored()
        begun = time.perf_counter()
        for number in range(COUNT):
            producer.send(PARTITION.topic, b"%d" % number, partition=PARTITION.partition)
        print(f"{COUNT} records handed over in {time.perf_counter() - begun:.2f} s")
    # The offset of each is unknown here: nobody has answered. They arrive a moment later.
    with Consumer(consumer_timeout_ms=2_000) as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, before)
        arrived = sum(1 for _, _ in zip(range(COUNT), consumer, strict=False))
    print(f"{arrived} arrived")


if __name__ == "__main__":
    main()
