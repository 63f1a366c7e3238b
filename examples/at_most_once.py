"""At most once: commit before the work. What a death catches in between is not done, and not told.

For work that must not be done twice and may be left out, such as a push notification.
`tidelog dev` in one terminal, `python examples/at_most_once.py` in another.
"""

from itertools import islice

from tidelog.client import Consumer, Producer

TOPIC = "notifications"
COUNT = 10


class Died(Exception):
    """Stands for a crash of the process."""


def work(shown: list[bytes], count: int, *, dies_at: int | None) -> None:
    """Show so many notifications, each committed before; perhaps die after a commit."""
    with Consumer(
        TOPIC, group_id="phones", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        for number, record in enumerate(islice(consumer, count)):
            consumer.commit()
            if number == dies_at:
                raise Died(f"after the commit of {record.value.decode()}, before showing it")
            shown.append(record.value)


def main() -> None:
    """Ten notifications, and a consumer that dies at the fifth."""
    with Producer() as producer:
        for number in range(COUNT):
            producer.send(TOPIC, b"notification %d" % number)
    shown: list[bytes] = []
    try:
        work(shown, COUNT, dies_at=4)
    except Died as death:
        print(f"died {death}")
    work(shown, COUNT - 5, dies_at=None)
    print(f"{len(shown)} of {COUNT} shown, {len(set(shown))} different ones")


if __name__ == "__main__":
    main()
