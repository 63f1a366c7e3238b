"""Python values as JSON: a serializer on one side, a deserializer on the other.

`tidelog dev` in one terminal, `python examples/json_values.py` in another.
"""

import json
from itertools import islice
from typing import Any

from tidelog.client import Consumer, Producer

TOPIC = "readings"


def to_json(value: Any) -> bytes:
    """What is stored."""
    return json.dumps(value).encode()


def main() -> None:
    """Write two readings, read them back."""
    readings = [
        {"sensor": "cellar", "celsius": 11.5},
        {"sensor": "attic", "celsius": 28.25, "alarm": True},
    ]
    with Producer(value_serializer=to_json) as producer:
        futures = [producer.send(TOPIC, reading) for reading in readings]
        first = futures[0].get(timeout=10)

    with Consumer(value_deserializer=json.loads) as consumer:
        consumer.assign([first.topic_partition])
        consumer.seek(first.topic_partition, first.offset)
        for record in islice(consumer, len(readings)):
            print(f"{record.value['sensor']}: {record.value['celsius']} °C")


if __name__ == "__main__":
    main()
