"""Answered by the leader alone, and not at all."""

import os

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConfigurationError

servers = os.environ["KAFKA_BOOTSTRAP"]

with KafkaProducer(bootstrap_servers=servers, acks=1, retries=3, linger_ms=10) as producer:
    futures = [producer.send("acks", b"%d" % number) for number in range(5)]
    print([future.get(timeout=300).offset for future in futures])

with KafkaProducer(bootstrap_servers=servers, acks=0) as producer:
    print(producer.send("acks", b"unanswered").get(timeout=300).topic)

try:
    KafkaProducer(bootstrap_servers=servers, acks=1, enable_idempotence=True)
except KafkaConfigurationError as error:
    print(type(error).__name__)

with KafkaConsumer("acks", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
    print([next(consumer).value for _ in range(6)])
