"""A topic as a table: the latest value of each key, rebuilt at the start and kept up to date.

The topic is compacted: of each key the log keeps the last value. A null value removes its key.
`tidelog dev` in one terminal, `python examples/table_state.py` in another.
"""

from tidelog.client import AdminClient, NewTopic, Producer, Table

TOPIC = "menu"


def main() -> None:
    """Change prices, look at them now, and as they were before."""
    with AdminClient() as admin:
        admin.try_create_topics([NewTopic(TOPIC, 1, topic_configs={"cleanup.policy": "compact"})])
    with (
        Producer(key_serializer=str.encode) as producer,
        Table(TOPIC, key_deserializer=bytes.decode, value_deserializer=bytes.decode) as prices,
    ):
        changes = [("espresso", b"2.20"), ("ristretto", b"2.10"), ("espresso", b"2.40")]
        last = [producer.send(TOPIC, price, key=drink) for drink, price in changes][-1].get(10)
        # Other processes see it a moment later; who has the place can wait for it.
        prices.wait_for(last)
        print("now:", dict(sorted(prices.items())))
        prices.wait_for(producer.send(TOPIC, None, key="ristretto").get(timeout=10))
        print("sold out:", dict(sorted(prices.items())))

    with Table(
        TOPIC,
        as_of_offset=last.offset,
        key_deserializer=bytes.decode,
        value_deserializer=bytes.decode,
    ) as before:
        print("before the last price:", dict(sorted(before.items())))


if __name__ == "__main__":
    main()
