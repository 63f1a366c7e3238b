"""Whatever happens to a log between a plan and its reading, no record is lost or added in silence.

A model of a cluster is changed at any moment: records appended, logs trimmed, truncated by a leader
that lacks their end, topics deleted and created again, partitions added. The planner and the tasks
are the real ones. What a batch yields is compared with what its offsets held when it was planned.
"""

import logging
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.fake_log import FakeCluster, FakeLog
from tidelog.spark.options import SourceOptions, parse_options
from tidelog.spark.planning import OffsetRange
from tidelog.spark.reading import RangeReader
from tidelog.spark.stream import StreamPlanner
from tidelog.wire.errors import ErrorCode, TidelogError

Key = tuple[str, int, int]
Op = tuple[Any, ...]

LOSSES = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID)


def options(*, strict: bool, **given_options: str) -> SourceOptions:
    """Of a stream from the beginning."""
    raw = {"subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": str(strict).lower()}
    return parse_options({**raw, **given_options}, is_streaming=True)


def places(span: OffsetRange) -> tuple[str, int, int, int]:
    """What of a range may not change when it is planned again."""
    return span.topic_id, span.partition, span.start, span.end


class Query:
    """One streaming query over the model, with what Spark does around it."""

    def __init__(self, cluster: FakeCluster, *, strict: bool) -> None:
        self.cluster = cluster
        self.options = options(strict=strict)
        self.restart()
        self.offset = self.planner.initial_offset()
        self.delivered: Counter[int] = Counter()
        self.missing = 0
        self.seen: set[int] = set()
        """Records that were there at one of the planner's looks."""

    def restart(self) -> None:
        self.planner = StreamPlanner(self.options, self.cluster)

    def trigger(
        self, limit: int | None, meanwhile: list[Op], reading: list[Op], *, again: bool
    ) -> bool:
        """One micro-batch; whether there was one."""
        self.seen |= there(self.cluster)
        ended = self.planner.latest_offset(self.offset, limit)
        if ended == self.offset:
            return False
        ranges = self.planner.plan(self.offset, ended)
        planned = self.held(ranges)
        for op in meanwhile:
            apply(self.cluster, op)
        found = self.read(ranges, planned, reading)
        if again:
            # Spark died before it committed the batch: a new planner plans it, and it runs again.
            self.restart()
            planned_again = self.planner.plan(self.offset, ended)
            assert [places(span) for span in planned_again] == [places(span) for span in ranges]
            found = self.read(ranges, planned, [])
        self.delivered.update(found)
        self.missing += len(planned) - len(found)
        self.offset = ended
        return True

    def held(self, ranges: list[OffsetRange]) -> dict[Key, int]:
        """The records that the ranges stand for, as they are now."""
        return {
            (span.topic_id, span.partition, offset): number
            for span in ranges
            for offset, number in self.cluster.log(span.partition, span.topic).records().items()
            if span.start <= offset < span.end
        }

    def read(
        self, ranges: list[OffsetRange], planned: dict[Key, int], reading: list[Op]
    ) -> list[int]:
        """The records' numbers; each is the one that was planned at its place."""
        left = list(reading)

        def before_poll() -> None:
            if left:
                apply(self.cluster, left.pop(0))

        self.cluster.before_poll = before_poll
        found: dict[Key, int] = {}
        clients: Any = self.cluster
        for span in ranges:
            for columns in RangeReader(self.options, span, clients).columns():
                offsets = [each for chunk in columns.offsets for each in chunk.to_pylist()]
                values = [each for chunk in columns.values for each in chunk.to_pylist()]
                for offset, value in zip(offsets, values, strict=True):
                    key = (span.topic_id, span.partition, offset)
                    assert key not in found, f"{key} came twice"
                    found[key] = int(value)
        self.cluster.before_poll = lambda: None
        for key, number in found.items():
            assert planned.get(key) == number, f"{key} holds {number}, planned was {planned}"
        if self.options.fail_on_data_loss:
            assert found == planned, f"planned {planned}, got {found}"
        return list(found.values())


def apply(cluster: FakeCluster, op: Op) -> None:
    """One change of the model; those that are not possible now do nothing."""
    kind, partition, amount = op
    if kind == "create" or "t" not in cluster.topics_by_name:
        cluster.create(partitions=1 + partition)
        return
    before = there(cluster)
    logs = cluster.topics_by_name["t"].logs
    log = logs[partition % len(logs)]
    if kind == "append":
        cluster.append(amount, partition % len(logs))
    elif kind == "cut":
        log.cut(log.end - amount)
        cluster.cut_away |= before - there(cluster)
    elif kind == "trim":
        log.trim(log.start + amount)
    elif kind == "grow":
        logs.append(type(log)())
    elif kind == "delete":
        del cluster.topics_by_name["t"]


changes = st.tuples(
    st.sampled_from(["append", "append", "append", "cut", "trim", "create", "grow", "delete"]),
    st.integers(0, 2),
    st.integers(1, 6),
)
some = st.lists(changes, max_size=3)
rounds = st.lists(
    st.tuples(some, st.none() | st.integers(1, 5), some, some, st.booleans()),
    min_size=1,
    max_size=5,
)


def started(strict: bool) -> Query:
    """A query that has pinned its beginning in a topic with some records."""
    cluster = FakeCluster()
    cluster.create()
    for partition in (0, 1, 0):
        cluster.append(3, partition)
    query = Query(cluster, strict=strict)
    assert query.trigger(None, [], [], again=False)
    return query


@pytest.mark.slow
@given(rounds)
@settings(max_examples=400)
def test_a_strict_stream_delivers_what_was_planned_or_fails(rounds: list[Any]) -> None:
    query = started(strict=True)
    failed: TidelogError | None = None
    try:
        for before, limit, meanwhile, reading, again in rounds:
            for op in before:
                apply(query.cluster, op)
            query.trigger(limit, meanwhile, reading, again=again)
        finish(query)
    except TidelogError as error:
        failed = error
    if failed is not None:
        assert failed.code in LOSSES, failed
        return
    # Nothing failed: so nothing is missing of what was there, whatever became of it since.
    check_all_delivered(query)
    missing = query.seen - query.delivered.keys() - query.cluster.cut_away
    assert not missing, f"the query has seen {missing}, and neither read them nor failed"


@pytest.mark.slow
@given(rounds)
@settings(max_examples=400)
def test_a_lax_stream_tells_what_it_misses_and_delivers_all_that_stays(rounds: list[Any]) -> None:
    query = started(strict=False)
    told = Told()
    logger = logging.getLogger("tidelog.spark")
    logger.addHandler(told)
    logger.propagate = False
    try:
        for before, limit, meanwhile, reading, again in rounds:
            for op in before:
                apply(query.cluster, op)
            missed, warned = query.missing, told.count
            query.trigger(limit, meanwhile, reading, again=again)
            assert query.missing == missed or told.count > warned, "missed without a word"
        finish(query)
    finally:
        logger.removeHandler(told)
        logger.propagate = True
    check_all_delivered(query)


class Told(logging.Handler):
    """Counts warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def finish(query: Query) -> None:
    """Until nothing is left to read."""
    for _ in range(10):
        if not query.trigger(None, [], [], again=False):
            return
    raise AssertionError("ten batches without a change of the log, and no end")


def there(cluster: FakeCluster) -> set[int]:
    """The records that can be read now."""
    topic = cluster.topics_by_name.get("t")
    return {number for log in topic.logs for number in log.records().values()} if topic else set()


def check_all_delivered(query: Query) -> None:
    """Whatever is there now was delivered, and nothing twice."""
    missing = there(query.cluster) - query.delivered.keys()
    assert not missing, f"{missing} are there and were never read"
    assert all(count == 1 for count in query.delivered.values()), "a record was delivered twice"


# The same by hand, one of each kind.


def planned_batch(*, strict: bool) -> tuple[FakeCluster, SourceOptions, OffsetRange]:
    """Two batches of five records, planned."""
    cluster = FakeCluster()
    cluster.create(partitions=1)
    cluster.append(5)
    cluster.append(5)
    asked = options(strict=strict)
    planner = StreamPlanner(asked, cluster)
    pinned = planner.latest_offset(planner.initial_offset(), None)
    ended = planner.latest_offset(pinned, None)
    [span] = planner.plan(pinned, ended)
    return cluster, asked, span


def rows(cluster: FakeCluster, asked: SourceOptions, span: OffsetRange) -> int:
    clients: Any = cluster
    return sum(columns.records for columns in RangeReader(asked, span, clients).columns())


def trim(cluster: FakeCluster) -> None:
    cluster.log().trim(5)


def cut(cluster: FakeCluster) -> None:
    cluster.log().cut(5)


def write_again(cluster: FakeCluster) -> None:
    cluster.log().cut(5)
    cluster.append(9)


def recreate(cluster: FakeCluster) -> None:
    cluster.create(partitions=1)
    cluster.append(20)


def delete(cluster: FakeCluster) -> None:
    cluster.topics_by_name.clear()


def lose_a_batch(cluster: FakeCluster) -> None:
    del cluster.log().batches[0]


HARM = {
    trim: (5, "is kept from offset 5 on"),
    cut: (5, "the log ends at 5 now"),
    write_again: (5, "truncated and written again"),
    recreate: (0, "is gone"),
    delete: (0, "is gone"),
    lose_a_batch: (5, "records are missing there"),
}


@pytest.mark.parametrize("harm", HARM, ids=lambda each: each.__name__)
def test_a_range_that_cannot_be_read_in_full_fails_or_says_what_is_missing(
    harm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    left, text = HARM[harm]
    cluster, asked, span = planned_batch(strict=True)
    harm(cluster)
    with pytest.raises(TidelogError) as caught:
        rows(cluster, asked, span)
    assert text in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    cluster, asked, span = planned_batch(strict=False)
    harm(cluster)
    assert rows(cluster, asked, span) == left
    [line] = caplog.messages
    assert text in line


def test_a_broker_that_lags_behind_the_plan_is_not_believed_when_it_knows_no_such_topic() -> None:
    """What it says would be taken for a loss, and what is there would never be read."""
    cluster, asked, span = planned_batch(strict=False)
    assert span.metadata_version == cluster.version
    delete(cluster)
    cluster.version -= 1
    with pytest.raises(TidelogError) as caught:
        rows(cluster, asked, span)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


def grow_and_trim(cluster: FakeCluster) -> None:
    cluster.topics_by_name["t"].logs.append(FakeLog())
    cluster.append(6, 1)
    cluster.log(1).trim(6)
    cluster.append(6, 1)


@pytest.mark.parametrize(
    ("harm", "text", "goes_on_with"),
    [
        (cut, "truncated at offset 5", []),
        (write_again, "truncated at offset 5", [(0, 5, 14)]),
        (recreate, "created again as", [(0, 0, 20)]),
        (delete, "is gone", []),
        (grow_and_trim, "t-1 from offset 0: it is kept from offset 6 on", [(1, 6, 12)]),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_planner_tells_what_became_of_that_which_it_has_read(
    harm: Any, text: str, goes_on_with: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def plan_next(*, strict: bool) -> list[tuple[int, int, int]]:
        cluster = FakeCluster()
        cluster.create(partitions=1)
        cluster.append(5)
        cluster.append(5)
        query = Query(cluster, strict=strict)
        for _ in range(2):
            assert query.trigger(None, [], [], again=False)
        harm(cluster)
        # The checkpoint knows it, whatever process goes on from there.
        query.restart()
        ended = query.planner.latest_offset(query.offset, None)
        assert query.planner.latest_offset(query.offset, None) == ended
        spans = query.planner.plan(query.offset, ended)
        return [(span.partition, span.start, span.end) for span in spans]

    with pytest.raises(TidelogError) as caught:
        plan_next(strict=True)
    assert text in str(caught.value)
    assert caught.value.code in LOSSES
    assert plan_next(strict=False) == goes_on_with
    [line] = caplog.messages
    assert text in line, "told, and told once"


def test_holes_of_a_compacted_topic_are_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    cluster, asked, span = planned_batch(strict=True)
    cluster.is_compacted_topic = True
    lose_a_batch(cluster)
    assert rows(cluster, asked, span) == 5
    assert caplog.messages == []
