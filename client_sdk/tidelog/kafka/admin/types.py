"""What scripts hand to KafkaAdminClient, with kafka-python's names and numbers.

Owns these types and how they become the client's. Values only.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Self


class NamedNumber(IntEnum):
    """Numbers that scripts may give by name as well, in any case."""

    @classmethod
    def build_from(cls, value: Any) -> Self:
        """From a member, its number or its name."""
        if isinstance(value, cls):
            return value
        try:
            return cls(value)
        except ValueError:
            pass
        try:
            return cls[str(value).strip().upper().replace("-", "_")]
        except KeyError:
            raise ValueError(f"Unrecognized {cls.__name__}: {value}") from None


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


class OffsetTimestamp(int):
    """Milliseconds since 1970, as a place in a partition."""


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
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


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
        self.resource_type = ConfigResourceType.build_from(resource_type)
        self.name = name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type}, {self.name}, {self.configs})"
