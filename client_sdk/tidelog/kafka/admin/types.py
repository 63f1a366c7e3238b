"""What scripts hand to KafkaAdminClient, with kafka-python's names and numbers.

Owns these types and how they become the client's. Values only.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Self

from tidelog.client.arguments.kinds import INT64_MAX, shown, whole
from tidelog.kafka.shared.translation import translating


class NamedNumber(IntEnum):
    """Numbers that scripts may give by name as well, in any case."""

    @classmethod
    def build_from(cls, value: Any, name: str = "") -> Self:
        """From a member, its number or its name; `name` is the argument that it was given as."""
        if isinstance(value, cls):
            return value
        try:
            if isinstance(value, str):
                return cls[value.strip().upper().replace("-", "_")]
            if isinstance(value, int) and not isinstance(value, bool):
                return cls(value)
        except (KeyError, ValueError):
            pass
        raise ValueError(f"{name and name + ': '}Unrecognized {cls.__name__}: {shown(value)}")


class AlterConfigOp(NamedNumber):
    """What is done with a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigFilterType(NamedNumber):
    """Which settings are shown."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class ConfigResourceType(NamedNumber):
    """What has settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSourceType(NamedNumber):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class OffsetSpec(NamedNumber):
    """A place in a partition."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


_TIME_MS: Final = whole(-INT64_MAX, INT64_MAX, "a time in milliseconds since 1970")


class OffsetTimestamp(int):
    """Milliseconds since 1970, as a place in a partition."""

    def __new__(cls, timestamp_ms: int) -> Self:
        """Refuses what a plain int() would read or cut: a text, a float, a datetime."""
        with translating():
            return super().__new__(cls, _TIME_MS(timestamp_ms, "make a place", "timestamp_ms"))


class IsolationLevel(NamedNumber):
    """What a reader sees of transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ElectionType(NamedNumber):
    """Which replica is to lead."""

    PREFERRED = 0
    UNCLEAN = 1


class NewTopic:
    """A topic to create; -1 takes the cluster's default."""

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = {} if replica_assignments is None else replica_assignments
        self.topic_configs = {} if topic_configs is None else topic_configs


class NewPartitions:
    """How many partitions a topic is to have in all, and where the new ones stand."""

    def __init__(
        self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class ConfigResource:
    """Something that has settings; `configs`: names, or values to set."""

    def __init__(self, resource_type: Any, name: str, configs: Any = None) -> None:
        self.resource_type = ConfigResourceType.build_from(resource_type, "resource_type")
        self.name = name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type}, {self.name}, {self.configs})"


class MemberToRemove:
    """A member by its id, or a static one by its name."""

    __slots__ = ("group_instance_id", "member_id", "reason")

    def __init__(
        self,
        member_id: str | None = None,
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemberToRemove) and self._names() == other._names()

    def __hash__(self) -> int:
        return hash(self._names())

    def __repr__(self) -> str:
        return f"<MemberToRemove member_id={self.member_id}, ...={self.group_instance_id}>"

    def _names(self) -> tuple[str | None, str | None]:
        return self.member_id, self.group_instance_id
