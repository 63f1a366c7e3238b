"""Transactions: both entries of a transfer count, or neither does.

Some transfers die between their two entries. Readers of committed records never see a half.
`tidelog dev` in one terminal, `python examples/transfers.py` in another.
"""

import contextlib
from collections import Counter
from uuid import uuid4

from tidelog.client import Consumer, Producer

TOPIC = f"entries-{uuid4().hex[:8]}"
ACCOUNTS = [b"ada", b"bob", b"cyd"]


class Died(Exception):
    """Stands for whatever goes wrong between the two entries."""


def transfer(producer: Producer, payer: bytes, payee: bytes, amount: int, *, dies: bool) -> None:
    """The end of the block commits, an exception aborts."""
    with producer.transaction() as t:
        t.send(TOPIC, b"%d" % -amount, key=payer)
        if dies:
            raise Died
        t.send(TOPIC, b"%d" % amount, key=payee)


def balances() -> Counter[bytes]:
    """As committed entries tell them."""
    found: Counter[bytes] = Counter()
    with Consumer(
        TOPIC,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=2_000,
    ) as consumer:
        for record in consumer:
            assert record.key is not None
            assert record.value is not None
            found[record.key] += int(record.value)
    return found


def main() -> None:
    """Thirty transfers, of which ten die."""
    with Producer(transactional_id="transfers") as producer:
        for number in range(30):
            payer, payee = ACCOUNTS[number % 3], ACCOUNTS[(number + 1) % 3]
            with contextlib.suppress(Died):
                transfer(producer, payer, payee, 10, dies=number % 3 == 2)
    found = balances()
    print(
        " ".join(f"{name.decode()} {found[name]:+d}" for name in ACCOUNTS), "in all", found.total()
    )


if __name__ == "__main__":
    main()
