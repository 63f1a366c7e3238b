"""No address at all: each library has a default."""

from kafka import KafkaConsumer, KafkaProducer

producer = KafkaProducer()
print(producer.send("default", b"found").get(timeout=10).offset)
producer.close()

consumer = KafkaConsumer("default", auto_offset_reset="earliest", consumer_timeout_ms=3000)
print([message.value for message in consumer])
