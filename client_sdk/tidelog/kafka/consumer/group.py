"""KafkaConsumer: kafka-python's consumer over Tidelog's.

Owns the names, the checks of a script's arguments and what they raise. Fetching, positions and
groups are the client's: there must never be a second engine here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from tidelog.client import Consumer, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tidelog.client import ConsumerRecord as Read
from tidelog.kafka import errors
from tidelog.kafka.admin.types import IsolationLevel
from tidelog.kafka.consumer.commit_future import CommitFuture
from tidelog.kafka.consumer.fetcher import ConsumerRecord, RecordMaker
from tidelog.kafka.consumer.subscription_state import checked_listener
from tidelog.kafka.coordinator.assignors.abstract import strategy_of
from tidelog.kafka.metrics import shown
from tidelog.kafka.serializer import read_by
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.option_table import CONSUMER
from tidelog.kafka.shared.options import function_of, honoured, without_none
from tidelog.kafka.shared.reach import reach, reach_or_close
from tidelog.kafka.shared.topic_names import ensure_valid_topic_name
from tidelog.kafka.shared.translation import COMMITTING, translated, translating
from tidelog.kafka.structs import ConsumerGroupMetadata, MemberState
from tidelog.wire.errors import TidelogError

_NAME: Final = "KafkaConsumer"
_EXCLUSIVE: Final = "Subscription to topics, partitions and pattern are mutually exclusive"
_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}


class _Kind(Enum):
    """What the script has asked for."""

    NOTHING = "nothing"
    TOPICS = "topics"
    PATTERN = "pattern"
    PARTITIONS = "partitions"


def _isolation(level: Any) -> str:
    """By name, as kafka-python takes it, or as its number."""
    try:
        return IsolationLevel.build_from(level).name.lower()
    except ValueError:
        raise errors.KafkaConfigurationError("Unrecognized isolation_level") from None


class KafkaConsumer:
    """Reads records of topics. One thread at a time.

    `for record in KafkaConsumer("topic", auto_offset_reset="earliest"): ...`
    """

    def __init__(self, *topics: str, **configs: Any) -> None:
        arguments = honoured(_NAME, CONSUMER, configs)
        self._has_metrics: bool = arguments.pop("metrics_enabled", True)
        self._metric_group: str = arguments.pop("metric_group_prefix", "consumer")
        self._deserializers: list[Any] = []
        for name in ("key_deserializer", "value_deserializer"):
            self._deserializers.append(arguments.pop(name, None))
            function_of(_NAME, name, self._deserializers[-1], "deserialize")
        self._maker = RecordMaker(*map(read_by, self._deserializers))
        self._on_committed = arguments.pop("default_offset_commit_callback", None)
        if "partition_assignment_strategy" in arguments:
            strategy = strategy_of(arguments.pop("partition_assignment_strategy"))
            arguments["partition_assignment_strategy"] = strategy
        level = arguments.pop("isolation_level", None)
        if level is not None:
            arguments["isolation_level"] = _isolation(level)
        self._group_id: str | None = arguments.get("group_id")
        reset = arguments.get("auto_offset_reset")
        if reset is None or isinstance(reset, str):
            arguments["auto_offset_reset"] = _OLD_RESETS.get(str(reset), reset or "latest")
        self._arguments = without_none(arguments, "client_id", "client_rack")
        self._kind = _Kind.NOTHING
        with translating():
            self._client = Consumer(**self._arguments)
        if configs.get("api_version") is None:
            reach_or_close(self._client, self._arguments)
        if topics:
            self.subscribe(topics)

    # What is read.

    @checked
    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: object = None,
    ) -> None:
        """Read the topics, or those whose names begin with a match; with a group its members share
        their partitions.
        """
        if not topics and not pattern:
            raise ValueError("Must provide topics or pattern")
        if topics and pattern:
            raise errors.IllegalStateError(_EXCLUSIVE)
        _check_topics(topics or ())
        told = checked_listener(listener)
        self._become(_Kind.PATTERN if pattern else _Kind.TOPICS)
        if self._group_id is None:
            # There is nobody to take a partition away.
            told = None
        elif pattern is not None:
            # A group's pattern matches whole names, a script's the beginning of one.
            pattern = f"(?:{pattern}).*"
        with translating():
            self._client.subscribe(topics or (), pattern, told)

    @checked
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        wanted = list(partitions)
        if not wanted:
            self.unsubscribe()
            return
        self._become(_Kind.PARTITIONS)
        with translating():
            self._client.assign(wanted)

    def unsubscribe(self) -> None:
        """Read nothing."""
        with translating():
            self._client.unsubscribe()
        self._kind = _Kind.NOTHING

    def subscription(self) -> set[str] | None:
        """The topics of `subscribe`; None without it."""
        if self._kind in (_Kind.NOTHING, _Kind.PARTITIONS):
            return None
        return self._client.subscription()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read; a subscribed topic's appear once it is known."""
        return self._client.assignment()

    @checked
    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these; their positions stay."""
        _check_partitions(partitions)
        with translating():
            self._client.pause(*partitions)

    @checked
    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver again."""
        _check_partitions(partitions)
        with translating():
            self._client.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._client.paused()

    # Positions.

    @checked
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from this offset."""
        _check_partitions((partition,), one=True)
        _check_offset(offset)
        if partition not in self._client.assignment():
            raise ValueError("Unassigned partition")
        with translating():
            self._client.seek(partition, offset)

    @checked
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first record that is kept; without arguments: everywhere."""
        self._check_assigned(partitions)
        with translating():
            self._client.seek_to_beginning(*partitions)

    @checked
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record; without arguments: everywhere."""
        self._check_assigned(partitions)
        with translating():
            self._client.seek_to_end(*partitions)

    @checked
    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int | None:
        """The offset of the next record that will be delivered; None: not known in time."""
        self._check_one(partition)
        try:
            with translating():
                return self._client.position(partition, timeout_ms)
        except errors.KafkaTimeoutError:
            if timeout_ms is None:
                raise
            return None

    @checked
    def highwater(self, partition: TopicPartition) -> int | None:
        """The first offset that was not committed when the partition last had news."""
        self._check_one(partition)
        with translating():
            return self._client.highwater(partition)

    @checked
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that is kept, each."""
        with translating():
            return self._client.beginning_offsets(partitions, timeout_ms)

    @checked
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last committed record, each."""
        with translating():
            return self._client.end_offsets(partitions, timeout_ms)

    @checked
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, each; None where there is none."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(
                    f"timestamps: The target time for partition {partition} is {timestamp}. "
                    "The target time cannot be negative."
                )
        with translating():
            return self._client.offsets_for_times(timestamps, timeout_ms)

    # Commits.

    @checked
    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Store these offsets, or the positions of all partitions; returns once they are stored."""
        self._check_group()
        with translating(COMMITTING):
            self._client.commit(offsets, timeout_ms)

    @checked
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> CommitFuture:
        """The same without waiting; `callback(offsets, error or None)` runs inside a later poll."""
        self._check_group()
        future = CommitFuture()
        told = callback or self._on_committed

        def on_committed(stored: Any, error: TidelogError | None) -> None:
            failure = None if error is None else translated(error, COMMITTING)
            if told is not None:
                told(stored, failure)
            future.settle(stored, failure)

        with translating(COMMITTING):
            self._client.commit_async(offsets, on_committed)
        return future

    @checked
    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None
    ) -> int | OffsetAndMetadata | None:
        """What the group has committed; None: nothing. With `metadata` all of it."""
        self._check_group()
        _check_partitions((partition,), one=True)
        with translating():
            return self._client.committed(partition, metadata, timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Which member of which group this is."""
        if self._group_id is None:
            return ConsumerGroupMetadata()
        found = self._client.group_metadata()
        is_member = found.generation_id > 0
        return ConsumerGroupMetadata(
            found.group_id,
            found.generation_id if is_member else -1,
            found.member_id if is_member else "",
            found.group_instance_id,
            MemberState.STABLE if is_member else MemberState.UNJOINED,
        )

    # Topics.

    def topics(self) -> set[str]:
        """The names of all topics."""
        with translating():
            return self._client.topics()

    @checked
    def partitions_for_topic(self, topic: str) -> set[int]:
        """The topic's partitions; empty if there is no such topic."""
        with translating():
            return self._client.partitions_for_topic(topic) or set()

    @checked
    def bootstrap(self, timeout_ms: int | None = None, refresh: bool = False) -> None:
        """Raise NoBrokersAvailable unless the cluster answers in time."""
        if refresh or not self.bootstrap_connected():
            reach(self._arguments, timeout_ms)

    def bootstrap_connected(self) -> bool:
        """Whether the cluster answers, or has answered this client before."""
        with translating():
            return self._client.bootstrap_connected()

    # Records.

    @checked
    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to max_records (max_poll_records) records; empty when none came in time."""
        if max_records is not None and not isinstance(max_records, int):
            raise TypeError("max_records must be an integer")
        if max_records is not None and max_records <= 0:
            raise ValueError("max_records must be positive")
        if self._client.is_closed:
            raise errors.IllegalStateError("KafkaConsumer is closed")
        with translating():
            found = self._client.poll(timeout_ms, max_records)
        return self._made(found)

    def _made(
        self, found: Mapping[TopicPartition, list[Read]]
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """With keys and values as the deserializers make them.

        One that cannot be made is delivered again, as are those behind it: the error is raised once
        it stands first, at each poll until the script has sought past it.
        """
        made: dict[TopicPartition, list[ConsumerRecord]] = {}
        failure: Exception | None = None
        for name, every in found.items():
            records: list[ConsumerRecord] = []
            for read in every:
                try:
                    records.append(self._maker.record(read))
                except Exception as error:  # noqa: BLE001 - whatever the script's own code raises
                    failure = failure or error
                    self._client.seek(name, read.offset)
                    break
            if records:
                made[name] = records
        if failure is not None and not made:
            raise failure
        return made

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        if self._client.is_closed:
            raise StopIteration
        try:
            read = next(self._client)
        except TidelogError as error:
            raise translated(error) from error
        try:
            return self._maker.record(read)
        except Exception:
            self._client.seek(TopicPartition(read.topic, read.partition), read.offset)
            raise

    # The rest.

    @checked
    def metrics(self, raw: bool = False) -> Mapping[str, Any] | None:
        """Counters by group; `raw`: as Tidelog's own consumer has them."""
        if not self._has_metrics:
            return None
        counters = self._client.metrics()
        return counters if raw else shown(f"{self._metric_group}-metrics", counters)

    @checked
    def close(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """Commit what was read, if that is done by itself, leave the group, end the streams."""
        with translating():
            self._client.close(autocommit=autocommit, timeout_ms=timeout_ms)
        for deserializer in self._deserializers:
            close = getattr(deserializer, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(autocommit=kind is None)

    # Inside.

    def _become(self, kind: _Kind) -> None:
        if self._kind not in (_Kind.NOTHING, kind):
            raise errors.IllegalStateError(_EXCLUSIVE)
        self._kind = kind

    def _check_group(self) -> None:
        if self._group_id is None:
            raise errors.IllegalStateError("Requires group_id")

    def _check_one(self, partition: TopicPartition) -> None:
        _check_partitions((partition,), one=True)
        if partition not in self._client.assignment():
            raise errors.IllegalStateError("Partition is not assigned")

    def _check_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        _check_partitions(partitions)
        assigned = self._client.assignment()
        if not partitions and not assigned:
            raise ValueError("No partitions are currently assigned")
        for partition in partitions:
            if partition not in assigned:
                raise ValueError(f"Unassigned partition: {partition}")


def _check_offset(offset: object) -> None:
    if not isinstance(offset, int) or offset < 0:
        raise ValueError("Offset must be int >= 0")


def _check_topics(topics: object) -> None:
    if isinstance(topics, str) or not isinstance(topics, Sequence):
        raise TypeError("Topics must be a list (or non-str sequence)")
    for topic in topics:
        ensure_valid_topic_name(topic)


def _check_partitions(partitions: Iterable[object], *, one: bool = False) -> None:
    if not all(isinstance(each, TopicPartition) for each in partitions):
        wanted = "partition must be a TopicPartition namedtuple"
        raise TypeError(wanted if one else "partitions must be TopicPartition namedtuples")
