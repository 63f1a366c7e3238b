"""Exactly once from topic to topic: what is read, made and written is one step.

The worker dies again and again before a commit; no bill is lost, none is written twice.
`tidelog dev` in one terminal, `python examples/exactly_once.py` in another.
"""

from itertools import chain
from uuid import uuid4

from tidelog.client import Consumer, Producer

RUN, COUNT = uuid4().hex[:8], 100
ORDERS, BILLS = f"orders-{RUN}", f"bills-{RUN}"


def reader(topic: str, group: str | None = None) -> Consumer:
    """Of committed records, from the beginning or from where the group is."""
    return Consumer(
        topic,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        consumer_timeout_ms=2_000,
    )


def work(left: int, *, dies: bool) -> None:
    """Write a bill for each order that has none: ten in a transaction, with the offsets read."""
    done = 0
    with Producer(transactional_id=RUN) as producer, reader(ORDERS, "billing") as consumer:
        while done < left:
            with producer.transaction(consumer=consumer) as t:
                polled = consumer.poll(timeout_ms=500, max_records=10)
                for order in chain.from_iterable(polled.values()):
                    t.send(BILLS, b"bill for " + (order.value or b""))
                    done += 1
                if dies and done >= 30:
                    raise InterruptedError("between the writes and their commit")


def main() -> None:
    """A hundred orders."""
    with Producer() as producer:
        producer.send_batch(ORDERS, [b"order %d" % number for number in range(COUNT)])
    found = list[bytes | None]()
    while len(found) < COUNT:
        try:
            work(COUNT - len(found), dies=len(found) < 60)
        except InterruptedError as crash:
            print(f"died {crash}")
        with reader(BILLS) as consumer:
            found = [record.value for record in consumer]
    print(f"{COUNT} orders, {len(found)} bills, {len(set(found))} different ones")


if __name__ == "__main__":
    main()
