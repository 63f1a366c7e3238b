"""Clients made of dicts, as services keep them, with what older examples set."""

import json
import os
import warnings

from kafka import KafkaConsumer, KafkaProducer

warnings.simplefilter("ignore")
common = {
    "bootstrap_servers": os.environ["KAFKA_BOOTSTRAP"].split(","),
    "client_id": "configured",
    "api_version": (2, 0, 2),
    "security_protocol": "PLAINTEXT",
    "request_timeout_ms": 30000,
    "retry_backoff_ms": 100,
    "metadata_max_age_ms": 300000,
    "connections_max_idle_ms": 540000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1000,
    "receive_buffer_bytes": 65536,
    "send_buffer_bytes": 131072,
    "sasl_mechanism": None,
    "ssl_context": None,
}
producer = KafkaProducer(
    **common,
    acks=1,
    retries=5,
    batch_size=32768,
    linger_ms=5,
    buffer_memory=33554432,
    max_block_ms=60000,
    max_request_size=1048576,
    max_in_flight_requests_per_connection=1,
    compression_type="lz4",
    key_serializer=str.encode,
    value_serializer=lambda value: json.dumps(value).encode("utf-8"),
)
for number in range(3):
    producer.send("configured", key=str(number), value={"number": number})
producer.flush()
producer.close()
consumer = KafkaConsumer(
    "configured",
    **common,
    group_id="configured-readers",
    auto_offset_reset="earliest",
    enable_auto_commit=True,
    auto_commit_interval_ms=5000,
    fetch_min_bytes=1,
    fetch_max_wait_ms=500,
    fetch_max_bytes=52428800,
    max_partition_fetch_bytes=1048576,
    max_poll_records=500,
    max_poll_interval_ms=300000,
    session_timeout_ms=10000,
    heartbeat_interval_ms=3000,
    check_crcs=True,
    exclude_internal_topics=True,
    consumer_timeout_ms=60000,
    value_deserializer=lambda value: json.loads(value.decode("utf-8")),
)
for message in consumer:
    print(message.key, message.value["number"])
    if message.value["number"] == 2:
        break
consumer.close()
