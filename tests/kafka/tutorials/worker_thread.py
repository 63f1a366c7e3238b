"""A consumer in a thread of its own, ended by an event, that hands on what it reads."""

import os
import queue
import threading

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]


class Reader(threading.Thread):
    def __init__(self, found):
        super().__init__()
        self.stop_event = threading.Event()
        self.found = found

    def stop(self):
        self.stop_event.set()

    def run(self):
        consumer = KafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=100
        )
        consumer.subscribe(["threaded"])
        while not self.stop_event.is_set():
            for message in consumer:
                self.found.put(message)
                if self.stop_event.is_set():
                    break
        consumer.close()


producer = KafkaProducer(bootstrap_servers=servers)
producer.send("threaded", b"first").get(60)
found = queue.Queue()
reader = Reader(found)
reader.start()
print(found.get(timeout=300).value)
threads = [
    threading.Thread(target=lambda: [producer.send("threaded", b"x") for _ in range(50)])
    for _ in range(4)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
producer.flush()
print(len([found.get(timeout=300) for _ in range(200)]))
reader.stop()
reader.join(timeout=300)
print(reader.is_alive())
producer.close()
