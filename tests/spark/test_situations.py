"""Batch, stream and AvailableNow in every situation of a topic, read from a real node.

The readers are called as Spark calls them, without a session: what they plan and what their tasks
yield. Each cell states what is to come of it: rows, or the error's text; with failOnDataLoss=false
the rows that are left, and a warning.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from pyspark.sql.types import StructType

from tidelog.chaos.live.processes.node import NodeProcess
from tidelog.client import AdminClient, NewTopic, Producer, TopicPartition
from tidelog.client.types.admin import NewPartitions
from tidelog.spark.batch_reader import BatchReader
from tidelog.spark.options import parse_options
from tidelog.spark.source import TidelogDataSource
from tidelog.spark.stream_reader import StreamReader
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = [pytest.mark.slow, pytest.mark.live]

MODES: Final = ("batch", "stream", "now")
RECORDS: Final = 200
"""In each of two partitions: many more than a consumer is sent ahead of its reader."""
PARTITIONS: Final = 2
STARTS: Final[dict[str, dict[str, str]]] = {
    "earliest": {"startingOffsets": "earliest"},
    "offsets": {"startingOffsets": '{"TOPIC":{"0":0,"1":-2}}'},
    "time": {"startingTimestamp": "0"},
}
LOSSES: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID)


class World:
    """A topic on the node, and a query over it."""

    def __init__(self, node: NodeProcess, topic: str, admin: AdminClient) -> None:
        self.node, self.topic, self.admin = node, topic, admin
        self.settled: Any = None

    def create(self, partitions: int = PARTITIONS, topic: str | None = None) -> None:
        settings = {"retention.ms": "-1"}
        new = NewTopic(topic or self.topic, partitions, 1, topic_configs=settings)
        self.admin.create_topics([new])

    def produce(
        self, count: int = RECORDS, mark: bytes = b"first", partitions: int = PARTITIONS
    ) -> None:
        """Small batches, so that many of them make a range."""
        with Producer(bootstrap_servers=self.node.bootstrap, batch_size=6_000) as producer:
            for number in range(count):
                for partition in range(partitions):
                    producer.send(self.topic, mark.ljust(1_000, b"."), partition=partition)
                if number % 5 == 4:
                    producer.flush()

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])

    def recreate(self) -> None:
        self.delete()
        self.create()
        self.produce(RECORDS + 50, b"other")

    def trim(self) -> None:
        to = {TopicPartition(self.topic, number): RECORDS - 10 for number in range(PARTITIONS)}
        self.admin.delete_records(to)

    def trim_all(self) -> None:
        """And new records come, by which a reader that skipped ahead would see its end."""
        to = {TopicPartition(self.topic, number): RECORDS for number in range(PARTITIONS)}
        self.admin.delete_records(to)
        self.produce(50, b"after")

    def grow(self) -> None:
        self.admin.create_partitions({self.topic: NewPartitions(PARTITIONS + 1)})
        self.produce(20, b"after", PARTITIONS + 1)

    def query(self, mode: str, **options: str) -> "Query":
        raw = {
            "bootstrap.servers": self.node.bootstrap,
            # A reader is sent two batches ahead of what it yields.
            "kafka.fetch.max.bytes": "12000",
            **{name: text.replace("TOPIC", self.topic) for name, text in options.items()},
        }
        if not raw.keys() & {"subscribe", "subscribePattern", "assign"}:
            raw["subscribe"] = self.topic
        return BatchQuery(raw) if mode == "batch" else StreamQuery(raw, is_now=mode == "now")


class Query:
    """What Spark does with a reader."""

    reader: Any

    def plan(self) -> list[Any]:
        """The tasks of the next batch."""
        raise NotImplementedError

    def rows(self, tasks: list[Any], midway: Callable[[], None] | None = None) -> list[bytes]:
        """What the tasks yield; `midway` happens while the first one is read."""
        found: list[bytes] = []
        for task in tasks or [None]:
            for batch in self._batches(task):
                found += [value.as_py().rstrip(b".") for value in batch.column("value")]
                if midway is not None:
                    midway()
                    midway = None
        return found

    def _batches(self, task: Any) -> Iterator[Any]:
        yield from self.reader.read(task)

    def close(self) -> None:
        """Nothing is kept."""


class BatchQuery(Query):
    def __init__(self, raw: dict[str, str]) -> None:
        self.reader = BatchReader(parse_options(raw, is_streaming=False))

    def plan(self) -> list[Any]:
        return list(self.reader.partitions())


class StreamQuery(Query):
    """Pins its start at once, as Spark's first trigger does."""

    def __init__(self, raw: dict[str, str], *, is_now: bool) -> None:
        self.reader = StreamReader(raw)
        self._is_now = is_now
        self._begin()
        self.offset = self._next(self.reader.initialOffset())

    def _begin(self) -> None:
        if self._is_now:
            self.reader.prepareForTriggerAvailableNow()

    def _next(self, start: Any) -> Any:
        return self.reader.latestOffset(start, self.reader.getDefaultReadLimit())

    def plan(self) -> list[Any]:
        self._begin()
        ended = self._next(self.offset)
        tasks = [] if ended == self.offset else self.reader.partitions(self.offset, ended)
        self.offset = ended
        return tasks

    def rows(self, tasks: list[Any], midway: Callable[[], None] | None = None) -> list[bytes]:
        return super().rows(tasks, midway) if tasks else []

    def close(self) -> None:
        self.reader.stop()


@pytest.fixture
def world(request: pytest.FixtureRequest, spark_node: NodeProcess) -> Iterator[World]:
    allowed = [each if each.isalnum() else "-" for each in str(request.node.name)]
    name = "".join(allowed).removeprefix("test-")[-80:]
    with AdminClient(bootstrap_servers=spark_node.bootstrap) as admin:
        yield World(spark_node, name, admin)


strictness = pytest.mark.parametrize("strict", ["true", "false"])
modes = pytest.mark.parametrize("mode", MODES)
streams = pytest.mark.parametrize("mode", MODES[1:])


NOTHING: Final[dict[str, dict[str, str]]] = {
    "empty": {"startingOffsets": "earliest"},
    "latest": {"startingOffsets": "latest"},
    "future": {"startingTimestamp": "4102444800000"},
    "no-match": {"subscribePattern": "nothing-is-called-this.*"},
    "ends": {"startingOffsets": '{"TOPIC":{"0":-1,"1":-1}}'},
}


@modes
@strictness
@pytest.mark.parametrize("what", NOTHING)
def test_a_read_of_nothing_is_empty(world: World, mode: str, strict: str, what: str) -> None:
    world.create()
    if what != "empty":
        world.produce(20)
    query = world.query(mode, failOnDataLoss=strict, **NOTHING[what])
    assert query.rows(query.plan()) == []
    query.close()


@streams
@strictness
@pytest.mark.parametrize("what", ["empty", "latest", "future", "no-match"])
def test_a_stream_that_began_with_nothing_reads_what_comes(
    world: World, mode: str, strict: str, what: str
) -> None:
    options = NOTHING[what]
    if what == "no-match":
        options = {"subscribePattern": f"{world.topic}.*"}
    else:
        world.create()
    query = world.query(mode, failOnDataLoss=strict, **options)
    assert query.rows(query.plan()) == []
    if what == "no-match":
        world.create()
    world.produce(20, b"late")
    assert query.rows(query.plan()) == [b"late"] * 20 * PARTITIONS
    query.close()


@strictness
@pytest.mark.parametrize("start", STARTS)
@modes
def test_what_is_there_is_read_from_every_start(
    world: World, mode: str, strict: str, start: str
) -> None:
    world.create()
    world.produce(40)
    query = world.query(mode, failOnDataLoss=strict, **STARTS[start])
    assert query.rows(query.plan()) == [b"first"] * 40 * PARTITIONS
    query.close()


def test_an_available_now_run_from_latest_ends_although_records_keep_coming(world: World) -> None:
    world.create()
    world.produce(20)
    options = {"subscribe": world.topic, "bootstrap.servers": world.node.bootstrap}
    reader = StreamReader(options)
    reader.prepareForTriggerAvailableNow()
    world.produce(20, b"busy")
    pinned = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    world.produce(20, b"busy")
    assert reader.latestOffset(pinned, reader.getDefaultReadLimit()) == pinned
    # Whatever came since is the next run's.
    reader.prepareForTriggerAvailableNow()
    ended = reader.latestOffset(pinned, reader.getDefaultReadLimit())
    spans = [task.span for task in reader.partitions(pinned, ended)]  # type: ignore[attr-defined]
    assert sum(span.length for span in spans) == 20 * PARTITIONS
    reader.stop()


def check(
    query: Query,
    strict: str,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[], None],
    *,
    is_midway: bool,
) -> None:
    """Strict: all, or an error that names the loss. Otherwise only what was planned, and a word."""
    planned = query.plan()
    count = sum(task.span.length for task in planned)
    midway: Callable[[], None] | None = harm if is_midway else None
    if not is_midway:
        harm()
    found: list[bytes] = []
    failed: TidelogError | None = None
    try:
        found = query.rows(planned, midway)
    except TidelogError as error:
        failed = error
    if failed is not None:
        assert strict == "true", failed
        assert failed.code in LOSSES, failed
        assert "failOnDataLoss" in str(failed)
        return
    assert set(found) <= {b"first"}, "records that were not planned"
    assert strict == "false" or len(found) == count, f"{len(found)} of {count} without an error"
    assert len(found) == count or caplog.messages, f"{len(found)} of {count} without a word"


@modes
@strictness
@pytest.mark.parametrize("start", ["earliest", "offsets"])
@pytest.mark.parametrize("when", ["planned", "reading"])
@pytest.mark.parametrize("how", ["trim", "trim_all"])
def test_a_range_that_is_trimmed_under_its_reader_is_not_cut_short_in_silence(
    world: World,
    mode: str,
    strict: str,
    start: str,
    when: str,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    world.create()
    world.produce()
    query = world.query(mode, failOnDataLoss=strict, **STARTS[start])
    harm: Callable[[], None] = getattr(world, how)
    check(query, strict, caplog, harm, is_midway=when == "reading")
    query.close()


@pytest.mark.parametrize("mode", ["batch", "stream"])
@strictness
@pytest.mark.parametrize("when", ["planned", "reading"])
@pytest.mark.parametrize("how", ["delete", "recreate"])
def test_a_planned_range_is_never_read_from_another_topic_of_the_same_name(
    world: World, mode: str, strict: str, when: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world.create()
    world.produce()
    query = world.query(mode, failOnDataLoss=strict, startingOffsets="earliest")
    harm: Callable[[], None] = getattr(world, how)
    check(query, strict, caplog, harm, is_midway=when == "reading")
    assert how == "recreate" or world.topic not in world.admin.list_topics(), "a reader made it"
    query.close()


@streams
@pytest.mark.parametrize(
    ("how", "told", "left"),
    [
        ("grow", None, [b"after"] * 20 * (PARTITIONS + 1)),
        ("delete", "is gone", []),
        ("recreate", "was created again", [b"other"] * (RECORDS + 50) * PARTITIONS),
        ("trim_all", None, [b"after"] * 50 * PARTITIONS),
    ],
)
@strictness
def test_a_stream_goes_on_over_what_happens_between_its_batches(
    world: World,
    mode: str,
    strict: str,
    how: str,
    told: str | None,
    left: list[bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    world.create()
    world.produce()
    query = world.query(mode, failOnDataLoss=strict, startingOffsets="earliest")
    assert query.rows(query.plan()) == [b"first"] * RECORDS * PARTITIONS
    getattr(world, how)()
    if told is not None and strict == "true":
        with pytest.raises(TidelogError, match=told) as caught:
            query.plan()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    else:
        assert query.rows(query.plan()) == left
        assert query.rows(query.plan()) == []
        assert len([line for line in caplog.messages if "lost" in line]) == (told is not None)
    query.close()


@modes
@strictness
def test_a_start_or_end_beyond_the_log_is_told_at_once(
    world: World, mode: str, strict: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world.create()
    world.produce(20)
    options = {"startingOffsets": '{"TOPIC":{"0":500,"1":0}}'}
    if mode == "batch":
        options["endingOffsets"] = '{"TOPIC":{"0":900,"1":700}}'
    if strict == "true":
        with pytest.raises(TidelogError, match="the log ends at 20"):
            world.query(mode, failOnDataLoss=strict, **options).plan()
        return
    query = world.query(mode, failOnDataLoss=strict, **options)
    assert query.rows(query.plan()) == [b"first"] * 20
    assert any("the log ends at 20" in line for line in caplog.messages)
    query.close()


@modes
def test_a_topic_that_was_never_there_is_a_mistake_also_without_fail_on_data_loss(
    world: World, mode: str
) -> None:
    with pytest.raises(TidelogError) as caught:
        world.query(mode, failOnDataLoss="false").plan()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


def test_holes_that_compaction_leaves_are_read_over(world: World) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
    }
    world.admin.create_topics([NewTopic(world.topic, 1, 1, topic_configs=settings)])
    with Producer(bootstrap_servers=world.node.bootstrap, batch_size=4_000) as producer:
        for number in range(400):
            producer.send(world.topic, b"v".ljust(500, b"."), key=b"%d" % (number % 3))
            if number % 5 == 4:
                producer.flush()
    query = world.query("batch", subscribe=world.topic)
    assert 0 < len(query.rows(query.plan())) <= 400


@strictness
def test_what_was_trimmed_takes_nothing_of_a_limit(
    world: World, strict: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither from what is left nor from partitions that are alive."""
    caplog.set_level(logging.WARNING)
    world.create()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    query = world.query("stream", failOnDataLoss=strict, **options)
    assert query.rows(query.plan()) == []
    world.produce()
    world.trim_all()
    if strict == "true":
        with pytest.raises(TidelogError, match="it is kept from offset 200 on"):
            query.plan()
        return
    found = [query.rows(query.plan()) for _ in range(6)]
    assert found == [[b"after"] * 20] * 5 + [[]]
    told = [line for line in caplog.messages if "lost" in line]
    assert len(told) == PARTITIONS, "each loss is told once"
    query.close()


@pytest.mark.parametrize("option", ["subscribe", "assign"])
@strictness
def test_what_the_options_leave_out_is_not_called_lost(
    world: World, option: str, strict: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world.create()
    world.create(topic=f"{world.topic}-too")
    world.produce(20)
    both, one = f"{world.topic},{world.topic}-too", world.topic
    if option == "assign":
        both, one = '{"TOPIC":[0,1]}', '{"TOPIC":[0]}'
    begun = world.query("stream", startingOffsets="earliest", **{option: both})
    offset = begun.offset  # type: ignore[attr-defined]
    begun.close()
    query = world.query("stream", failOnDataLoss=strict, **{option: one})
    query.offset = offset  # type: ignore[attr-defined]
    left_out = f"{world.topic}-too" if option == "subscribe" else f"{world.topic}-1"
    if strict == "true":
        with pytest.raises(TidelogError, match=f"go on reading {left_out}") as caught:
            query.plan()
        assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
        assert "name it again" in caught.value.hint
    else:
        assert len(query.rows(query.plan())) == 20 * (PARTITIONS if option == "subscribe" else 1)
        (told,) = caplog.messages
        assert told.startswith("records are left out, and failOnDataLoss is false")
        assert left_out in told
    query.close()


CALLS: Final[dict[str, Callable[[StreamReader], object]]] = {
    "initialOffset": lambda reader: reader.initialOffset(),
    "getDefaultReadLimit": lambda reader: reader.getDefaultReadLimit(),
    "prepareForTriggerAvailableNow": lambda reader: reader.prepareForTriggerAvailableNow(),
    "partitions": lambda reader: reader.partitions({}, {}),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_option_of_a_stream_is_raised_by_its_first_call_and_not_when_it_is_made(
    call: str,
) -> None:
    """PySpark buries what is raised while a reader is made under an error of its own."""
    source = TidelogDataSource({"subscribe": "t", "maxOffsetsPerTrigger": "0"})
    reader = source.streamReader(StructType())
    assert isinstance(reader, StreamReader)
    with pytest.raises(TidelogError, match="0 is below 1"):
        CALLS[call](reader)
    reader.stop()
