"""Partitions, replicas and offsets, as scripts call KafkaAdminClient.

Owns kafka-python's forms of what is asked and answered. What is done is the client's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidelog.client import ElectionType as Election
from tidelog.client import NewPartitions as Growth
from tidelog.client import OffsetAndTimestamp, TopicPartition
from tidelog.client.arguments import kinds
from tidelog.client.arguments.kinds import shown
from tidelog.kafka import errors
from tidelog.kafka.admin.base import AdminBase, outcome_of, raise_first, uuid_of
from tidelog.kafka.admin.types import ElectionType, IsolationLevel, NewPartitions, OffsetSpec
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.translation import translated, translating

_SPECS: Final[Mapping[int, str]] = {
    OffsetSpec.LATEST: "latest",
    OffsetSpec.EARLIEST: "earliest",
    OffsetSpec.MAX_TIMESTAMP: "max_timestamp",
}
_GROW: Final = "create partitions"
_COUNT: Final = kinds.whole(0, kinds.INT32_MAX)
_PLACED: Final = kinds.many(
    kinds.many(kinds.whole(0, kinds.INT32_MAX, "a broker's number"), "brokers"), "lists of brokers"
)
Numbers = Mapping[str, Iterable[int]]
"""Partitions by topic."""


class PartitionCalls(AdminBase):
    """Grow, trim, move, elect, look up."""

    @checked
    def create_partitions(
        self,
        topic_partitions: Mapping[str, Any],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Raise numbers of partitions to these in all."""
        results: list[dict[str, Any]] = []
        failures: list[errors.KafkaError] = []
        for topic, count in topic_partitions.items():
            try:
                with translating():
                    self._client.create_partitions(
                        {topic: _growth(topic, count)}, timeout_ms, validate_only
                    )
                results.append({"name": topic, "error_code": 0, "error_message": None})
            except errors.BrokerResponseError as error:
                failures.append(error)
                told = {"error_code": error.errno, "error_message": str(error)}
                results.append({"name": topic, **told})
        if failures and raise_errors:
            raise failures[0]
        return {"results": results}

    @checked
    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, int]]:
        """Delete all records below an offset (-1: all that are committed)."""
        with translating():
            found = self._client.delete_records(records_to_delete, timeout_ms)
        return {
            name: {"partition_index": name.partition, "low_watermark": first, "error_code": 0}
            for name, first in found.items()
        }

    @checked
    def elect_leaders(
        self,
        election_type: Any,
        topic_partitions: Numbers | Iterable[str] | None = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Elect leaders; what became of each partition."""
        wanted = Election[ElectionType.build_from(election_type, "election_type").name]
        names = None if topic_partitions is None else self._named(topic_partitions)
        with translating():
            outcomes = self._client.elect_leaders(wanted, names, timeout_ms=timeout_ms)
        raise_first((each.error for each in outcomes), raise_errors=raise_errors)
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for each in outcomes:
            told = {"partition_id": each.partition.partition, **outcome_of(each.error)}
            by_topic.setdefault(each.partition.topic, []).append(told)
        return {
            "error_code": 0,
            "replica_election_results": [
                {"topic": topic, "partition_result": results} for topic, results in by_topic.items()
            ],
        }

    @checked
    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, type[errors.KafkaError] | None]:
        """Move replicas to these brokers, or, with None, call a move off; None: accepted."""
        with translating():
            outcomes = self._client.alter_partition_reassignments(reassignments, timeout_ms)
        return {
            name: None if error is None else type(translated(error))
            for name, error in outcomes.items()
        }

    @checked
    def list_partition_reassignments(
        self,
        topic_partitions: Numbers | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """Moves under way."""
        wanted: set[TopicPartition] | None = None
        if isinstance(topic_partitions, Mapping):
            wanted = set(_flat(topic_partitions))
        elif topic_partitions is not None:
            wanted = set(topic_partitions)
        with translating():
            found = self._client.list_partition_reassignments(timeout_ms)
        return {
            each.partition: {
                "replicas": list(each.replicas),
                "adding_replicas": list(each.adding_replicas),
                "removing_replicas": list(each.removing_replicas),
            }
            for each in found
            if wanted is None or each.partition in wanted
        }

    @checked
    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, int],
        isolation_level: Any = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets at an OffsetSpec or at a time in ms since 1970; -1 where there is none."""
        level = IsolationLevel.build_from(isolation_level).name.lower()
        wanted: dict[TopicPartition, str | int] = {}
        for name, spec in topic_partition_specs.items():
            wanted[name] = _SPECS.get(spec, spec)
        with translating():
            found = self._client.list_partition_offsets(wanted, timeout_ms, level)
        return {name: at or OffsetAndTimestamp(-1, -1, -1) for name, at in found.items()}

    @checked
    def describe_log_dirs(
        self,
        topic_partitions: Numbers | Iterable[str] | None = None,
        brokers: Iterable[int] | None = None,
    ) -> list[dict[str, Any]]:
        """Data directories with their replicas and sizes, of these brokers or of all."""
        topics = [] if topic_partitions is None else list(topic_partitions)
        numbers = topic_partitions if isinstance(topic_partitions, Mapping) else {}
        with translating():
            found = self._client.describe_log_dirs(brokers or (), topics)
        return [
            {
                "broker": broker.broker_id,
                "log_dirs": [
                    {
                        **outcome_of(directory.failure or broker.failure),
                        "log_dir": directory.path,
                        "usable_bytes": directory.free_bytes,
                        "topics": _by_topic(directory.replicas, numbers),
                    }
                    for directory in broker.directories
                ],
            }
            for broker in found
        ]

    def _named(self, topics: Numbers | Iterable[str]) -> list[TopicPartition]:
        if isinstance(topics, Mapping):
            return _flat(topics)
        return [
            TopicPartition(topic.name, part.partition)
            for topic in self._client.describe_topics(topics)
            for part in topic.partitions
        ]


def _flat(numbers: Numbers) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for topic, every in numbers.items() for each in every]


def _growth(topic: str, wanted: Any) -> Growth:
    name = f"topic_partitions[{shown(topic)}]"
    count: Any
    assignments: Any
    if isinstance(wanted, NewPartitions):
        count, assignments = wanted.total_count, wanted.new_assignments
    elif isinstance(wanted, Mapping):
        count, assignments = wanted.get("count"), wanted.get("assignments")
    else:
        count, assignments = wanted, None
    placed = [] if assignments is None else _PLACED(assignments, _GROW, f"{name}: new_assignments")
    return Growth(
        _COUNT(count, _GROW, f"{name}: total_count"), tuple(tuple(each) for each in placed)
    )


def _by_topic(replicas: Iterable[Any], numbers: Numbers) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in replicas:
        if each.topic in numbers and each.partition not in set(numbers[each.topic]):
            continue
        topic = found.setdefault(
            each.topic, {"name": each.topic, "topic_id": uuid_of(each.topic_id), "partitions": []}
        )
        topic["partitions"].append(
            {
                "partition_index": each.partition,
                "partition_size": each.size_bytes,
                "offset_lag": each.offset_lag,
                "is_future_key": False,
            }
        )
    return list(found.values())
