"""Batch and streaming reads by a real Spark from a real node return exactly what was produced."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader

from tests.support.waiting import HANG_SECONDS, wait_until
from tidelog.chaos.live.processes.node import NodeProcess
from tidelog.client import AdminClient, NewTopic, Producer, TopicPartition
from tidelog.client.types.admin import NewPartitions
from tidelog.spark.stream_reader import StreamReader

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.live,
    # Spark's own sockets to its workers are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

STARTS_MAX = 3
WORKER_IS_LATE = "Python worker failed to connect back"
"""Spark gives the process that plans a stream ten seconds to start, which no setting changes, and
ends the query: whoever operates it starts it again."""


@pytest.fixture
def topic(request: pytest.FixtureRequest, spark_node: NodeProcess) -> str:
    """A topic of three partitions named after the test."""
    name = str(request.node.name)[:80]
    with AdminClient(bootstrap_servers=spark_node.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 3, 1, topic_configs={"retention.ms": "-1"})])
    return name


def produce(node: NodeProcess, topic: str, first: int, count: int) -> None:
    """Values v<n> with keys, nulls, headers and timestamps, compressed."""
    with Producer(bootstrap_servers=node.bootstrap, compression_type="lz4") as producer:
        for number in range(first, first + count):
            producer.send(
                topic,
                None if number % 100 == 99 else b"v%d" % number,
                key=b"k%d" % number if number % 2 else None,
                headers=[("number", b"%d" % number), ("none", None)] if number % 5 == 0 else None,
                timestamp_ms=1_700_000_000_000 + number,
            )
        producer.flush()


def frame(spark: SparkSession, node: NodeProcess, topic: str, **options: str) -> DataFrame:
    """A batch read."""
    reader = spark.read.format("tidelog").option("bootstrap.servers", node.bootstrap)
    return reader.options(subscribe=topic, **options).load()


def run_stream(
    spark: SparkSession, node: NodeProcess, topic: str, folder: Path, **options: str
) -> list[dict[str, Any]]:
    """One AvailableNow run into parquet; what each batch read."""
    stream = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .options(subscribe=topic, **options)
        .load()
    )
    for starts_left in reversed(range(STARTS_MAX)):
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(HANG_SECONDS), "the query ended in time"
            return [{"rows": run.numInputRows, "id": run.batchId} for run in query.recentProgress]
        except StreamingQueryException as error:
            if WORKER_IS_LATE not in str(error) or query.recentProgress or not starts_left:
                raise
        finally:
            query.stop()
    raise AssertionError("the last start has raised or returned")


def written_values(spark: SparkSession, folder: Path) -> Counter[bytes | None]:
    """How often each value was written."""
    rows = spark.read.parquet(str(folder / "out")).select("value").collect()
    return Counter(None if row.value is None else bytes(row.value) for row in rows)


def values(first: int, count: int) -> Counter[bytes | None]:
    """What `produce` sends."""
    return Counter(
        None if number % 100 == 99 else b"v%d" % number for number in range(first, first + count)
    )


def test_a_batch_read_returns_every_record_as_it_was_produced(
    spark: SparkSession, spark_node: NodeProcess, topic: str
) -> None:
    produce(spark_node, topic, 0, 30_000)
    rows = frame(spark, spark_node, topic, includeHeaders="true").collect()
    assert len(rows) == 30_000
    assert {row.topic for row in rows} == {topic}
    places = Counter((row.partition, row.offset) for row in rows)
    assert max(places.values()) == 1
    for row in rows:
        number = round(row.timestamp.timestamp() * 1000) - 1_700_000_000_000
        assert row.key == (b"k%d" % number if number % 2 else None)
        assert row.value == (None if number % 100 == 99 else b"v%d" % number)
        assert row.timestampType == 0
        headers = row.headers and [(header.key, header.value) for header in row.headers]
        expected = [("number", b"%d" % number), ("none", None)] if number % 5 == 0 else None
        assert headers == expected
    for partition in range(3):
        offsets = [offset for place, offset in places if place == partition]
        assert sorted(offsets) == list(range(len(offsets)))


def test_a_batch_read_keeps_to_its_offsets_and_splits(
    spark: SparkSession, spark_node: NodeProcess, topic: str
) -> None:
    produce(spark_node, topic, 0, 6_000)
    with AdminClient(bootstrap_servers=spark_node.bootstrap) as admin:
        ends = admin.list_partition_offsets(
            {TopicPartition(topic, partition): "latest" for partition in range(3)}
        )
    last = ends[TopicPartition(topic, 0)]
    assert last is not None
    read = frame(
        spark,
        spark_node,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":5,"1":-2,"2":-1}}}}',
        endingOffsets=f'{{"{topic}":{{"0":{last.offset - 3},"1":0,"2":-1}}}}',
        minPartitions="4",
    )
    offsets = sorted(row.offset for row in read.collect())
    assert offsets == list(range(5, last.offset - 3))
    assert read.rdd.getNumPartitions() == 4


def test_a_batch_read_may_begin_at_a_time(
    spark: SparkSession, spark_node: NodeProcess, topic: str
) -> None:
    produce(spark_node, topic, 0, 1_000)
    rows = frame(spark, spark_node, topic, startingTimestamp="1700000000900").collect()
    assert Counter(row.value for row in rows) == values(900, 100)


def test_a_stream_returns_everything_once_over_restarts(
    spark: SparkSession, spark_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    produce(spark_node, topic, 0, 5_000)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2000"}
    first = run_stream(spark, spark_node, topic, tmp_path, **options)
    assert [batch["rows"] for batch in first] == [0, 2000, 2000, 1000]
    produce(spark_node, topic, 5_000, 700)
    second = run_stream(spark, spark_node, topic, tmp_path, **options)
    assert [batch["rows"] for batch in second] == [700]
    assert written_values(spark, tmp_path) == values(0, 5_700)


def test_a_stream_that_began_at_latest_begins_there_also_after_a_restart(
    spark: SparkSession, spark_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    produce(spark_node, topic, 0, 500)
    assert [each["rows"] for each in run_stream(spark, spark_node, topic, tmp_path)] == [0]
    produce(spark_node, topic, 500, 300)
    run_stream(spark, spark_node, topic, tmp_path)
    assert written_values(spark, tmp_path) == values(500, 300)


def test_a_start_is_pinned_before_it_is_used(spark_node: NodeProcess, topic: str) -> None:
    """What Spark does when it dies before its first batch is committed: it asks again."""
    options = {"subscribe": topic, "bootstrap.servers": spark_node.bootstrap}
    produce(spark_node, topic, 0, 100)
    planned = ask_latest(options, None)
    produce(spark_node, topic, 100, 50)
    # The log of the query holds `planned`; a new process asks for the initial offset once more.
    again = stream_reader(options)
    assert again.initialOffset() == {"initial": True}
    assert again.partitions(again.initialOffset(), planned) == []
    following = ask_latest(options, planned)
    spans = [part.span for part in again.partitions(planned, following)]  # type: ignore[attr-defined]
    assert sum(span.length for span in spans) == 50
    again.stop()


def test_a_batch_read_of_nothing_has_no_rows(
    spark: SparkSession, spark_node: NodeProcess, topic: str
) -> None:
    assert frame(spark, spark_node, topic).collect() == []
    produce(spark_node, topic, 0, 10)
    assert frame(spark, spark_node, topic, startingOffsets="latest").collect() == []
    assert frame(spark, spark_node, topic, startingTimestamp="4102444800000").collect() == []


def test_a_range_that_is_trimmed_under_its_task_fails_the_query(
    spark: SparkSession, spark_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    """The task is held at its first row; what is trimmed meanwhile it has not been sent yet."""
    produce(spark_node, topic, 0, 40_000)
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    seen: list[str] = []
    read = frame(spark, spark_node, topic, **{"kafka.fetch.max.bytes": "100000"})

    def harm() -> None:
        wait_until(begun.exists)
        with AdminClient(bootstrap_servers=spark_node.bootstrap) as admin:
            ends = {TopicPartition(topic, number): -1 for number in range(3)}
            admin.delete_records(ends)
        produce(spark_node, topic, 0, 100)
        go_on.touch()
        seen.append("trimmed")

    trimming = threading.Thread(target=harm)
    trimming.start()
    try:
        with pytest.raises(PySparkException, match="OFFSET_OUT_OF_RANGE"):
            read.rdd.mapPartitions(holding(begun, go_on)).collect()
    finally:
        trimming.join()
    assert seen == ["trimmed"]


def holding(begun: Path, go_on: Path) -> Callable[[Iterable[Any]], Iterable[int]]:
    """Takes the first row, then waits until it may go on."""

    def hold(rows: Iterable[Any]) -> Iterable[int]:
        count = 0
        for _ in rows:
            count += 1
            begun.touch()
            wait_until(go_on.exists)
        yield count

    return hold


def test_a_running_stream_reads_partitions_that_are_added(
    spark: SparkSession, spark_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    produce(spark_node, topic, 0, 300)
    options = {"startingOffsets": "earliest"}
    run_stream(spark, spark_node, topic, tmp_path, **options)
    with AdminClient(bootstrap_servers=spark_node.bootstrap) as admin:
        admin.create_partitions({topic: NewPartitions(5)})
    produce(spark_node, topic, 300, 300)
    run_stream(spark, spark_node, topic, tmp_path, **options)
    assert written_values(spark, tmp_path) == values(0, 600)


def test_a_batch_that_is_run_again_is_not_read_from_another_topic_of_the_same_name(
    spark: SparkSession, spark_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    produce(spark_node, topic, 0, 500)
    options = {"startingOffsets": "earliest"}
    run_stream(spark, spark_node, topic, tmp_path, **options)
    # As if Spark had died before it committed its last batch: it is planned, and runs again.
    for commit in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        commit.unlink()
    with AdminClient(bootstrap_servers=spark_node.bootstrap) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 3, 1)])
    produce(spark_node, topic, 1_000, 900)
    with pytest.raises(StreamingQueryException, match="UNKNOWN_TOPIC_ID"):
        run_stream(spark, spark_node, topic, tmp_path, **options)
    assert written_values(spark, tmp_path) == values(0, 500)


def test_a_mistake_in_an_option_is_told_by_spark(
    spark: SparkSession, spark_node: NodeProcess, topic: str
) -> None:
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        frame(spark, spark_node, topic, startingOfsets="latest").collect()


def test_an_unknown_topic_is_told_by_spark(spark: SparkSession, spark_node: NodeProcess) -> None:
    with pytest.raises(PySparkException, match="UNKNOWN_TOPIC"):
        frame(spark, spark_node, "no-such-topic").collect()


def stream_reader(options: dict[str, str]) -> DataSourceStreamReader:
    """The reader as Spark's runner makes it."""
    return StreamReader(options)


def ask_latest(options: dict[str, str], start: dict[str, Any] | None) -> dict[str, Any]:
    """What a fresh process at the driver plans."""
    reader = stream_reader(options)
    try:
        begin = reader.initialOffset() if start is None else start
        return reader.latestOffset(begin, reader.getDefaultReadLimit())
    finally:
        reader.stop()
