"""Columns in, columns out: an Arrow table is written and read without a Python object a record.

Needs the extra: `pip install 'tidelog[arrow]'`. Polars and pandas take what comes out as it is
(`polars.from_arrow(table)`, `table.to_pandas()`).
`tidelog dev` in one terminal, `python examples/arrow_tables.py` in another.
"""

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client import Consumer, Producer, TopicPartition

PARTITION = TopicPartition("trades", 0)
ROWS = 10_000


def main() -> None:
    """Write a table, read it back, sum up by key."""
    trades = pa.table(
        {
            "key": ["TIDE" if row % 3 else "WAVE" for row in range(ROWS)],
            "value": [str(row % 100) for row in range(ROWS)],
        }
    )
    with Producer(compression_type="lz4") as producer:
        stored = producer.send_arrow(PARTITION.topic, trades, partition=0).get(timeout=30)

    parts: list[pa.Table] = []
    with Consumer() as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, stored.offsets()[0])
        while sum(part.num_rows for part in parts) < ROWS:
            parts.append(consumer.poll_arrow(timeout_ms=5_000))
    read = pa.concat_tables(parts)
    amounts = pc.cast(pc.cast(read["value"], pa.string()), pa.int64())
    symbols = pc.cast(read["key"], pa.string())
    sums = (
        pa.table({"symbol": symbols, "amount": amounts})
        .group_by("symbol")
        .aggregate([("amount", "sum")])
    )
    for row in sorted(sums.to_pylist(), key=lambda each: str(each["symbol"])):
        print(f"{row['symbol']}: {row['amount_sum']}")


if __name__ == "__main__":
    main()
