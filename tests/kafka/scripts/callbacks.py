"""What is called once a record is stored, or is not."""

import os
from typing import Any

from kafka import KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]
done: list[object] = []


def stored(label: str, metadata: Any, extra: str = "") -> None:
    done.append((label, metadata.topic, metadata.partition, metadata.offset, extra))


def failed(label: str, error: Exception) -> None:
    done.append((label, type(error).__name__))


producer = KafkaProducer(bootstrap_servers=servers, max_request_size=3_000_000, linger_ms=5)
first = producer.send("callbacks", b"small")
first.add_callback(stored, "first", extra="more").add_errback(failed, "first")
producer.flush()
large = producer.send("callbacks", os.urandom(2_000_000))
large.add_callback(stored, "large").add_errback(failed, "large")
producer.flush()
print(done)
print(large.failed(), type(large.exception).__name__, large.retriable())
first.add_callback(stored, "afterwards")
first.add_both(lambda outcome: done.append(type(outcome).__name__))
print(done[2:])
producer.close()
