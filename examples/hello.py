"""Writes three records and reads them back.

`tidelog dev` in one terminal, `python examples/hello.py` in another. TIDELOG_BOOTSTRAP names
another address than localhost:9192.
"""

from tidelog.client import Consumer, Producer


def main() -> None:
    """Produce, then consume."""
    with Producer(value_serializer=str.encode) as producer:
        futures = [producer.send("hello", f"hello, log {number}") for number in range(3)]
        for future in futures:
            stored = future.get(timeout=10)
            print(f"stored in {stored.topic}-{stored.partition} at offset {stored.offset}")

    with Consumer(
        "hello",
        auto_offset_reset="earliest",
        consumer_timeout_ms=2_000,
        value_deserializer=bytes.decode,
    ) as consumer:
        for record in consumer:
            print(f"read {record.value!r} from {record.topic}-{record.partition}@{record.offset}")


if __name__ == "__main__":
    main()
