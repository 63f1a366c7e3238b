"""Records of one key stay in one partition, and so in their order; different keys share the work.

`tidelog dev` in one terminal, `python examples/keys_and_order.py` in another.
"""

from itertools import islice

from tidelog.client import AdminClient, Consumer, NewTopic, Producer

TOPIC = "accounts"
MOVES = [("ada", "+100"), ("bob", "+20"), ("ada", "-30"), ("cyd", "+5"), ("bob", "-20")]


def main() -> None:
    """Write moves of three accounts, read them back account by account."""
    with AdminClient() as admin:
        # One outcome a topic; that it is there already does no harm.
        admin.try_create_topics([NewTopic(TOPIC, num_partitions=4)])

    with Producer(key_serializer=str.encode, value_serializer=str.encode) as producer:
        futures = [producer.send(TOPIC, move, key=account) for account, move in MOVES]
        places = [future.get(timeout=10) for future in futures]
    for (account, move), place in zip(MOVES, places, strict=True):
        print(f"{account} {move} -> partition {place.partition}")

    begin = {place.topic_partition: place.offset for place in reversed(places)}
    moves_of: dict[str, list[str]] = {}
    with Consumer(key_deserializer=bytes.decode, value_deserializer=bytes.decode) as consumer:
        consumer.assign(begin)
        for partition, offset in begin.items():
            consumer.seek(partition, offset)
        for record in islice(consumer, len(MOVES)):
            moves_of.setdefault(record.key, []).append(record.value)
    for account, moves in sorted(moves_of.items()):
        print(f"{account}: {' '.join(moves)}")


if __name__ == "__main__":
    main()
