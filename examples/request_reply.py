"""Ask over the log and get an answer: a topic of requests, a topic of replies, a number on both.

The log keeps who asked what and when. Where no record of it is wanted a plain RPC is simpler.
`tidelog dev` in one terminal, `python examples/request_reply.py` in another.
"""

import threading
import uuid

from tidelog.client import Consumer, ConsumerRecord, Producer, TopicPartition

REQUESTS = TopicPartition("sums", 0)
REPLIES = TopicPartition("sums-replies", 0)
ID = "request-id"


def reader_of(partition: TopicPartition) -> Consumer:
    """Reads what comes from now on; knows where that is before anything is written."""
    consumer = Consumer(consumer_timeout_ms=10_000)
    consumer.assign([partition])
    consumer.seek(partition, consumer.end_offsets([partition])[partition])
    return consumer


def id_of(record: ConsumerRecord) -> bytes:
    """Which request it belongs to."""
    return dict(record.headers)[ID] or b""


def serve(requests: Consumer, producer: Producer, count: int) -> None:
    """Answer so many requests."""
    for _, record in zip(range(count), requests, strict=False):
        total = sum(int(number) for number in record.value.split())
        producer.send(REPLIES.topic, b"%d" % total, headers=[(ID, id_of(record))])


def ask(replies: Consumer, producer: Producer, question: bytes) -> int:
    """Send a request, pass over the replies to others, return its own."""
    number = uuid.uuid4().bytes
    producer.send(REQUESTS.topic, question, headers=[(ID, number)])
    return next(int(reply.value) for reply in replies if id_of(reply) == number)


def main() -> None:
    """A server in a thread, a client here."""
    with Producer(linger_ms=0) as producer:
        for partition in (REQUESTS, REPLIES):
            producer.partitions_for(partition.topic)
        with reader_of(REQUESTS) as requests, reader_of(REPLIES) as replies:
            server = threading.Thread(target=serve, args=(requests, producer, 2))
            server.start()
            for question in (b"1 2 3", b"40 2"):
                print(f"{question.decode()} -> {ask(replies, producer, question)}")
            server.join()


if __name__ == "__main__":
    main()
