"""Callbacks with what they belong to, and what a producer counts."""

import functools
import os
import threading

from kafka import KafkaProducer
from kafka.errors import KafkaError, MessageSizeTooLargeError
from kafka.producer.future import RecordMetadata

servers = os.environ["KAFKA_BOOTSTRAP"]
told = []
lock = threading.Lock()


def on_success(name, metadata, unit=None):
    assert isinstance(metadata, RecordMetadata)
    with lock:
        told.append(f"{name}: {metadata.topic} {metadata.partition} {metadata.offset} {unit}")


def on_error(name, error):
    with lock:
        told.append(f"{name}: {type(error).__name__}")


producer = KafkaProducer(bootstrap_servers=servers, max_request_size=10000)
producer.send("told", b"a").add_callback(on_success, "a").add_errback(on_error, "a").get(60)
producer.send("told", b"b").add_callback(functools.partial(on_success, "b"), unit="ms").get(60)
producer.send("told", b"c").add_both(lambda outcome: told.append(outcome.offset)).get(60)
try:
    producer.send("told", b"d" * 20000).add_errback(on_error, "d").get(60)
except MessageSizeTooLargeError as error:
    told.append(f"{type(error).__name__} {isinstance(error, KafkaError)} {error.errno}")
producer.flush()
print("\n".join(str(each) for each in told))
metrics = producer.metrics()
print(metrics["producer-metrics"]["record-send-total"])
producer.close()
try:
    producer.send("told", b"e")
except KafkaError as error:
    print(type(error).__name__)
