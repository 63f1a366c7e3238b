"""A group that reads the topics whose names begin with a match."""

import os
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

with KafkaAdminClient(bootstrap_servers=servers) as admin:
    admin.create_topics(["pattern-a", "pattern-b", "no-pattern-c"])
    admin.wait_for_topics(["pattern-a", "pattern-b", "no-pattern-c"])
with KafkaProducer(bootstrap_servers=servers) as producer:
    for name in ("pattern-a", "pattern-b", "no-pattern-c"):
        producer.send(name, name.encode())

for pattern in ("^pattern-", "pattern-b"):
    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id=f"group of {pattern}", auto_offset_reset="earliest"
    )
    consumer.subscribe(pattern=pattern)
    found: set[bytes] = set()
    wanted = 2 if pattern.startswith("^") else 1
    deadline = time.monotonic() + 300
    while len(found) < wanted and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            found |= {record.value for record in records}
    print(pattern, sorted(found), sorted(each.topic for each in consumer.assignment()))
    consumer.close()
