"""The arguments of the calls under kafka-python's names, and the decorator that looks them up here.

Owns what each may be where kafka-python has no word of its own about it, and sees to it that
whatever a call refuses, a script can name the error: Python's TypeError and ValueError, or one of
`errors`. It must never accept what the client below would refuse under another name.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar, cast

from tidelog.client.arguments.functions import plain_function
from tidelog.client.arguments.kinds import (
    INT32_MAX,
    INT64_MAX,
    Check,
    anything,
    either,
    flag,
    is_a,
    many,
    mapping,
    milliseconds,
    milliseconds_or_ever,
    one_of,
    optional,
    partition,
    place,
    seconds,
    shown,
    text,
    topic,
    whole,
    wrong_type,
)
from tidelog.client.shared.checked import checked_by
from tidelog.kafka.admin.types import (
    ConfigFilterType,
    ConfigResource,
    ElectionType,
    IsolationLevel,
    MemberToRemove,
    NamedNumber,
)
from tidelog.kafka.shared.translation import translating
from tidelog.kafka.structs import ConsumerGroupMetadata

P = ParamSpec("P")
R = TypeVar("R")

_TOPICS: Final = many(topic, "topics' names")
_PARTITIONS: Final = many(partition, "TopicPartitions")
_NUMBERS: Final = mapping(
    topic, many(whole(0, INT32_MAX), "partitions' numbers"), "topic: partitions' numbers"
)
_NODES: Final = many(whole(0, INT32_MAX, "a node's number"), "nodes' numbers")
_GROUP: Final = text("a group's name", bytes_min=1)
_GROUPS: Final = many(_GROUP, "groups' names")
_OFFSETS: Final = mapping(partition, place, "TopicPartition: OffsetAndMetadata")
_TIME_MS: Final = whole(-INT64_MAX, INT64_MAX, "a time in milliseconds since 1970")


def _number(kind: type[NamedNumber]) -> Check:
    """A member of a list of kafka-python's, its number or its name; ValueError as there."""

    def check(value: Any, tried: str, name: str) -> NamedNumber:
        del tried
        return kind.build_from(value, name)

    return check


def _closing(value: Any, tried: str, name: str) -> float:
    """ValueError as in kafka-python."""
    if is_a(value, int, float) and value < 0:
        raise ValueError(f"Invalid {name}: {shown(value)}")
    return seconds(value, tried, name)


def _not_negative(value: Any, tried: str, name: str) -> float:
    """ValueError as in kafka-python."""
    if is_a(value, int, float) and value < 0:
        raise ValueError(f"{name} is {shown(value)}: Timeout must not be negative")
    return milliseconds_or_ever(value, tried, name)


_MEMBER: Final = one_of(MemberToRemove, "a MemberToRemove")
_NAME: Final = optional(text())


def _member(value: Any, tried: str, name: str) -> MemberToRemove:
    """Its fields too: the answer is a dict of members."""
    member: MemberToRemove = _MEMBER(value, tried, name)
    for field in ("member_id", "group_instance_id", "reason"):
        _NAME(getattr(member, field), tried, f"{name}.{field}")
    return member


def _spec(value: Any, tried: str, name: str) -> Any:
    """An AbortTransactionSpec: its module stands on this one."""
    fields = ("topic_partition", "producer_id", "producer_epoch")
    if not isinstance(value, tuple) or not all(hasattr(value, each) for each in fields):
        raise wrong_type(tried, name, value, "an AbortTransactionSpec")
    number = whole(0, INT64_MAX)
    found: Any = value
    return found._replace(
        topic_partition=partition(found.topic_partition, tried, f"{name}.topic_partition"),
        producer_id=number(found.producer_id, tried, f"{name}.producer_id"),
        producer_epoch=number(found.producer_epoch, tried, f"{name}.producer_epoch"),
    )


def _membership(value: Any, tried: str, name: str) -> ConsumerGroupMetadata:
    """What KafkaConsumer.group_metadata() tells, of a consumer with a group."""
    found: ConsumerGroupMetadata = one_of(ConsumerGroupMetadata, "a ConsumerGroupMetadata")(
        value, tried, name
    )
    return found._replace(
        group_id=_GROUP(found.group_id, tried, f"{name}.group_id"),
        generation_id=whole(-1, INT32_MAX)(found.generation_id, tried, f"{name}.generation_id"),
        member_id=text()(found.member_id, tried, f"{name}.member_id"),
    )


TABLE: Final[Mapping[str, Check]] = {
    # Everywhere.
    "timeout_ms": optional(milliseconds),
    "timeout": optional(seconds),
    "close.timeout": optional(_closing),
    "raw": flag,
    "f": plain_function,
    "args": anything,
    "null_logger": anything,
    # Reading. Topics, offsets and numbers of records are refused in kafka-python's own words.
    "subscribe.topics": optional(many(anything, "topics' names")),
    "pattern": optional(text("a regular expression")),
    "listener": anything,
    "partition": partition,
    "partitions": _PARTITIONS,
    "offset": anything,
    "timestamps": mapping(partition, _TIME_MS, "TopicPartition: time"),
    "commit.offsets": optional(_OFFSETS),
    "commit_async.offsets": optional(_OFFSETS),
    "send_offsets_to_transaction.offsets": _OFFSETS,
    "group_metadata": either(str, _GROUP, _membership),
    "callback": optional(plain_function),
    "metadata": flag,
    "topic": topic,
    "refresh": flag,
    "poll.timeout_ms": _not_negative,
    "max_records": anything,
    "autocommit": flag,
    # Topics, settings, partitions.
    "new_topics": anything,
    "topics": anything,
    "topic_names": _TOPICS,
    "wait_for_topics.timeout_ms": milliseconds_or_ever,
    "validate_only": flag,
    "raise_errors": flag,
    "wait_for_metadata": flag,
    "config_resources": many(one_of(ConfigResource, "a ConfigResource"), "ConfigResources"),
    "include_synonyms": flag,
    "config_filter": _number(ConfigFilterType),
    "raise_on_unknown": flag,
    "incremental": optional(flag),
    "create_partitions.topic_partitions": mapping(topic, anything, "topic: NewPartitions"),
    "elect_leaders.topic_partitions": optional(either(Mapping, _NUMBERS, _TOPICS)),
    "describe_log_dirs.topic_partitions": optional(either(Mapping, _NUMBERS, _TOPICS)),
    "list_partition_reassignments.topic_partitions": optional(
        either(Mapping, _NUMBERS, _PARTITIONS)
    ),
    "election_type": _number(ElectionType),
    "records_to_delete": mapping(partition, whole(-1, INT64_MAX), "TopicPartition: offset"),
    "partition_leader_id": anything,
    "reassignments": mapping(partition, optional(_NODES), "TopicPartition: brokers"),
    "topic_partition_specs": mapping(partition, _TIME_MS, "TopicPartition: OffsetSpec or time"),
    "isolation_level": _number(IsolationLevel),
    "brokers": optional(_NODES),
    "send_request_to_controller": anything,
    # Groups. `list_consumer_groups` and others take names that mean nothing here.
    "broker_ids": anything,
    "states_filter": optional(many(anything, "GroupStates")),
    "types_filter": optional(many(anything, "GroupTypes")),
    "group_id": _GROUP,
    "group_ids": _GROUPS,
    "group_coordinator_id": anything,
    "include_authorized_operations": anything,
    "group_specs": anything,
    "alter_group_offsets.offsets": _OFFSETS,
    "offset_specs": mapping(partition, anything, "TopicPartition: OffsetSpec"),
    "list_consumer_group_offsets.partitions": optional(_PARTITIONS),
    "members": many(_member, "MembersToRemove"),
    # Transactions.
    "producer_id_filters": optional(many(whole(0, INT64_MAX), "producers' ids")),
    "state_filters": optional(many(anything, "TransactionStates")),
    "duration_filter_ms": optional(milliseconds),
    "transactional_id_pattern": optional(text("a regular expression")),
    "list_transactions.broker_ids": optional(_NODES),
    "find_hanging_transactions.broker_ids": optional(_NODES),
    "transactional_ids": many(text("a transactional id", bytes_min=1), "transactional ids"),
    "broker_id": anything,
    "spec": _spec,
    "max_transaction_timeout_ms": milliseconds,
}


def _check_of(call: str, name: str) -> Check:
    found = TABLE.get(f"{call}.{name}") or TABLE.get(name)
    assert found is not None, f"nobody says what {call}({name}) can be: add it to the table"
    return found


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """Hands the call its arguments as the table has them, and translates what is refused."""
    run_checked: Callable[..., Any] = checked_by(_check_of, call)

    @functools.wraps(call)
    def run(*given: Any, **named: Any) -> Any:
        with translating():
            return run_checked(*given, **named)

    return cast("Callable[P, R]", run)
