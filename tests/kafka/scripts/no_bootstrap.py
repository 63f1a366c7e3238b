"""No address at all: each library has a default."""

from kafka import KafkaConsumer, KafkaProducer

producer = KafkaProducer()
print(producer.send("default", b"found").get(timeout=300).offset)
producer.close()

consumer = KafkaConsumer("default", auto_offset_reset="earliest", consumer_timeout_ms=300_000)
print([next(consumer).value])
