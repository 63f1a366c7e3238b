"""A database as the other half: a row and a record, both or neither, by a commit in two phases.

After a crash, tokens that were stored with a row are completed, and the others abandoned.
`tidelog dev` in one terminal, `python examples/two_phases.py` in another.
"""

import sqlite3

from tidelog.client import AdminClient, Consumer, Producer, TransactionState, TransactionToken

TOPIC = "shipments"


def ship(db: sqlite3.Connection, parcel: str, *, dies: str) -> None:
    with Producer(transactional_id="shipping") as producer:
        with producer.transaction() as t:
            t.send(TOPIC, parcel.encode())
            token = t.prepare()
        if dies == "before the row":
            raise InterruptedError(dies)
        with db:  # This decides: the row and the token, or neither.
            db.execute("INSERT INTO shipped VALUES (?, ?)", (parcel, str(token)))
        if dies == "after the row":
            raise InterruptedError(dies)
        producer.complete(token)


def recover(db: sqlite3.Connection) -> None:
    """What a new process does first."""
    known = {token for (token,) in db.execute("SELECT token FROM shipped")}
    with AdminClient() as admin, Producer() as producer:
        for found in admin.list_transactions([TransactionState.PREPARED]):
            if found.transactional_id == "shipping":
                token = TransactionToken("shipping", found.producer_id, found.producer_epoch)
                decide = producer.complete if str(token) in known else producer.abandon
                decide(token)


def main() -> None:
    """Three parcels, of which two meet a crash."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE shipped (parcel TEXT, token TEXT)")
    for parcel, dies in {"silk": "", "tea": "before the row", "rum": "after the row"}.items():
        try:
            ship(db, parcel, dies=dies)
        except InterruptedError:
            recover(db)
    rows = " ".join(parcel for (parcel,) in db.execute("SELECT parcel FROM shipped"))
    with Consumer(
        TOPIC,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=2_000,
    ) as consumer:
        records = [(record.value or b"").decode() for record in consumer]
    print(f"rows: {rows}\nrecords: {' '.join(records[-2:])}")


if __name__ == "__main__":
    main()
