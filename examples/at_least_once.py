"""At least once: commit after the work. What a death catches in between is done again.

So make the work such that doing it twice does no harm: here a set of numbers.
`tidelog dev` in one terminal, `python examples/at_least_once.py` in another.
"""

from itertools import islice

from tidelog.client import Consumer, Producer

TOPIC = "payments"


class Died(Exception):
    """Stands for a crash of the process."""


def work(booked: set[bytes], count: int, *, dies_at: int | None) -> None:
    """Book so many payments, committing after each; perhaps die between booking and commit."""
    with Consumer(
        TOPIC, group_id="booking", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        for number, record in enumerate(islice(consumer, count)):
            is_again = record.value in booked
            booked.add(record.value)
            if is_again:
                print(f"{record.value.decode()} came again: booked already")
            if number == dies_at:
                raise Died(f"after booking {record.value.decode()}, before its commit")
            consumer.commit()


def main() -> None:
    """Ten payments, and a consumer that dies at the fifth."""
    with Producer() as producer:
        for number in range(10):
            producer.send(TOPIC, b"payment %d" % number)
    booked: set[bytes] = set()
    try:
        work(booked, 10, dies_at=4)
    except Died as death:
        print(f"died {death}")
    work(booked, 6, dies_at=None)
    print(f"{len(booked)} payments booked")


if __name__ == "__main__":
    main()
