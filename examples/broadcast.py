"""Broadcast: every group gets every record, whatever the others have read.

`tidelog dev` in one terminal, `python examples/broadcast.py` in another.
"""

from itertools import islice

from tidelog.client import Consumer, Producer

TOPIC = "prices"
GROUPS = ("website", "alerts", "archive")


def main() -> None:
    """Three prices, read by three groups."""
    prices = ["TIDE 101", "TIDE 103", "TIDE 99"]
    with Producer(value_serializer=str.encode) as producer:
        for price in prices:
            producer.send(TOPIC, price)
    for group in GROUPS:
        # Closing commits: a group that runs again goes on where it was.
        with Consumer(
            TOPIC, group_id=group, auto_offset_reset="earliest", value_deserializer=bytes.decode
        ) as consumer:
            print(f"{group}:", ", ".join(record.value for record in islice(consumer, len(prices))))


if __name__ == "__main__":
    main()
