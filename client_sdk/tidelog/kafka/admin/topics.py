"""Topics, as scripts call KafkaAdminClient.

Owns kafka-python's forms of what is asked and answered. What is done is the client's.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from tidelog.client import NewTopic as Wanted
from tidelog.client.arguments import kinds
from tidelog.client.arguments.kinds import shown
from tidelog.client.types.records import CreatedTopic, PartitionDescription, TopicDescription
from tidelog.kafka import errors
from tidelog.kafka.admin.base import SPECIAL, AdminBase, listed, outcome_of, raise_first, uuid_of
from tidelog.kafka.admin.types import NewTopic
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.translation import translating
from tidelog.wire.errors import ErrorCode, TidelogError

_POLL_S: Final = 0.1
_COUNT: Final = kinds.whole(-1, kinds.INT32_MAX)
_SETTING: Final = kinds.either(
    str, kinds.text(), kinds.either(int, kinds.anything, kinds.text("a text or a number"))
)
_FIELDS: Final[Mapping[str, kinds.Check]] = {
    "name": kinds.topic,
    "num_partitions": _COUNT,
    "replication_factor": _COUNT,
    "replica_assignments": kinds.mapping(kinds.anything, kinds.anything, "partition: brokers"),
    "topic_configs": kinds.mapping(kinds.text(), _SETTING, "settings"),
}
"""Of a NewTopic, which takes anything; scripts give numbers as values of settings."""


class TopicCalls(AdminBase):
    """Create, delete, list, describe."""

    @checked
    def create_topics(
        self,
        new_topics: Iterable[Any] | Mapping[str, Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics: names, {name: settings}, or NewTopics. They are there when it returns."""
        if validate_only and wait_for_metadata:
            raise ValueError("validate_only and wait_for_metadata are mutually exclusive")
        wanted = [_wanted(each) for each in _spelled_out(new_topics)]
        if not wanted:
            raise ValueError(f"No valid topics found in new_topics: {shown(new_topics)}")
        with translating(SPECIAL):
            created = self._client.try_create_topics(wanted, timeout_ms, validate_only)
        raise_first(created, raise_errors=raise_errors)
        if wait_for_metadata:
            self.wait_for_topics([topic.name for topic in wanted])
        return {
            "topics": [_created(topic, found) for topic, found in zip(wanted, created, strict=True)]
        }

    @checked
    def delete_topics(
        self,
        topics: Iterable[str | UUID],
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Delete topics with all their records, by name or by id."""
        asked = listed(topics, "topics")
        with translating():
            deleted = self._client.try_delete_topics(
                [each.bytes if isinstance(each, UUID) else each for each in asked], timeout_ms
            )
        raise_first(deleted, raise_errors=raise_errors)
        shown: list[dict[str, Any]] = []
        for name, found in zip(asked, deleted, strict=True):
            error = found if isinstance(found, TidelogError) else None
            shown.append(
                {
                    "name": str(name) if isinstance(found, TidelogError) else found.name,
                    "topic_id": None
                    if isinstance(found, TidelogError)
                    else uuid_of(found.topic_id),
                    **outcome_of(error),
                }
            )
        return {"topics": shown}

    def list_topics(self) -> list[str]:
        """The names of all topics."""
        with translating():
            return self._client.list_topics()

    @checked
    def describe_topics(self, topics: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Of each topic its partitions; an unknown one has an error_code."""
        names = None if topics is None else listed(topics, "topics")
        with translating():
            if names is None:
                return [_described(topic) for topic in self._client.describe_topics()]
        return [self._described_alone(name) for name in names]

    @checked
    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: int = 10_000) -> None:
        """Until each of them has a leader for every partition; KafkaTimeoutError after that."""
        names = listed(topic_names, "topic_names")
        deadline = time.monotonic() + timeout_ms / 1000
        while names:
            waiting = [topic["name"] for topic in self.describe_topics(names) if not _ready(topic)]
            if not waiting:
                return
            if time.monotonic() >= deadline:
                raise errors.KafkaTimeoutError(
                    f"Topics not ready after {timeout_ms}ms: {', '.join(waiting)}"
                )
            time.sleep(_POLL_S)

    def _described_alone(self, name: str) -> dict[str, Any]:
        try:
            with translating():
                (found,) = self._client.describe_topics([name])
        except errors.KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise
            return {
                "error_code": errors.UnknownTopicOrPartitionError.errno,
                "name": name,
                "topic_id": None,
                "is_internal": False,
                "partitions": [],
            }
        return _described(found)


def _spelled_out(new_topics: Any) -> list[NewTopic]:
    if isinstance(new_topics, Mapping):
        return [_from_settings(name, settings) for name, settings in new_topics.items()]
    return [
        NewTopic(each) if isinstance(each, str) else each
        for each in listed(new_topics, "new_topics")
    ]


def _from_settings(name: Any, settings: Any) -> NewTopic:
    if not isinstance(settings, Mapping):
        raise TypeError(f"new_topics[{shown(name)}] must be a dict of settings: {shown(settings)}")
    return NewTopic(
        name,
        settings.get("num_partitions", -1),
        settings.get("replication_factor", -1),
        settings.get("assignments"),
        settings.get("configs"),
    )


def _wanted(topic: Any) -> Wanted:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"new_topics must be names or NewTopics: {shown(topic)}")
    with translating():
        found = {
            name: check(getattr(topic, name), "create topics", f"new_topics: {name}")
            for name, check in _FIELDS.items()
        }
    if topic.replica_assignments:
        raise errors.UnsupportedVersionError(
            f"create {topic.name}: replica_assignments: the cluster places the replicas of a new "
            "topic (hint: leave them out, then move them by alter_partition_reassignments)"
        )
    return Wanted(
        found["name"],
        max(0, found["num_partitions"]),
        max(0, found["replication_factor"]),
        {name: str(value) for name, value in found["topic_configs"].items()},
    )


def _created(topic: Wanted, found: CreatedTopic | TidelogError) -> dict[str, Any]:
    if isinstance(found, TidelogError):
        nothing = {"topic_id": None, "num_partitions": -1, "replication_factor": -1}
        return {"name": topic.name, **nothing, **outcome_of(found)}
    return {
        "name": topic.name,
        "topic_id": uuid_of(found.topic_id),
        "num_partitions": found.num_partitions,
        "replication_factor": found.replication_factor,
        **outcome_of(None),
    }


def _described(topic: TopicDescription) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": uuid_of(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": [_partition(each) for each in topic.partitions],
    }


def _partition(part: PartitionDescription) -> dict[str, Any]:
    return {
        "error_code": 0 if part.leader > 0 else errors.LeaderNotAvailableError.errno,
        "partition_index": part.partition,
        "leader_id": part.leader,
        "leader_epoch": part.leader_epoch,
        "replica_nodes": list(part.replicas),
        "isr_nodes": list(part.isr),
        "offline_replicas": [],
    }


def _ready(topic: Mapping[str, Any]) -> bool:
    partitions = topic["partitions"]
    return bool(partitions) and all(part["error_code"] == 0 for part in partitions)
