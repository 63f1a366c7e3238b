"""A service that waits for its brokers, and mistakes that Python programs make."""

import os
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, NoBrokersAvailable

servers = os.environ["KAFKA_BOOTSTRAP"]
addresses = ["127.0.0.1:1", servers]
for address in addresses:
    try:
        producer = KafkaProducer(bootstrap_servers=address, bootstrap_timeout_ms=2000)
        break
    except NoBrokersAvailable as error:
        print("waiting", isinstance(error, KafkaError), error.retriable)
        time.sleep(0.1)
print(producer.bootstrap_connected())
for arguments in (
    {"topic": "mistakes", "value": "text"},
    {"topic": "mistakes", "value": {"a": 1}},
    {"topic": "mistakes", "value": b"v", "key": 7},
    {"topic": "mistakes", "value": b"v", "headers": {"a": b"1"}},
    {"topic": "a topic", "value": b"v"},
    {"topic": "mistakes"},
    {"topic": None, "value": b"v"},
):
    try:
        producer.send(**arguments)
    except (TypeError, ValueError) as error:
        print(type(error).__name__)
try:
    producer.send("mistakes", b"v", partition=99).get(timeout=60)
except ValueError as error:
    print(type(error).__name__)
producer.send("mistakes", b"v").get(timeout=60)
consumer = KafkaConsumer(bootstrap_servers=servers)
for call in (
    lambda: consumer.subscribe("mistakes"),
    lambda: consumer.subscribe(topics=[]),
    lambda: consumer.seek(TopicPartition("mistakes", 0), 0),
    lambda: consumer.position(TopicPartition("mistakes", 0)),
    lambda: consumer.commit(),
    lambda: consumer.poll(timeout_ms=-1),
    lambda: consumer.offsets_for_times({TopicPartition("mistakes", 0): -1}),
    lambda: KafkaConsumer(bootstrap_servers=servers, no_such_option=1),
    lambda: KafkaProducer(bootstrap_servers=servers, no_such_option=1),
    lambda: producer.close(timeout=-1),
):
    try:
        print(call())
    except KafkaError as error:
        print("KafkaError", isinstance(error, ValueError))
    except (TypeError, ValueError) as error:
        print(type(error).__name__)
consumer.close()
producer.close()
print(issubclass(KafkaTimeoutError, KafkaError))
