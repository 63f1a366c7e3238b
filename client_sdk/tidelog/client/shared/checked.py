"""The arguments of every public call in one table, and the decorator that looks them up there.

Owns what an argument's name means: it means the same in every call, or the table says otherwise
under the call's name. Both drivers, tables, handlers and test clusters are checked by it, before
anything of a call is done. `send()` calls the checks of `arguments.records` instead, because it is
made for each record.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar, cast

import msgspec

from tidelog.client.arguments.functions import plain_function
from tidelog.client.arguments.isolation import isolation_level
from tidelog.client.arguments.kinds import (
    INT32_MAX,
    INT64_MAX,
    Check,
    anything,
    either,
    flag,
    function,
    is_a,
    listed,
    many,
    mapping,
    milliseconds,
    milliseconds_or_ever,
    one_of,
    optional,
    partition,
    place,
    seconds,
    text,
    topic,
    whole,
    wrong_type,
    wrong_value,
)
from tidelog.client.shared.retry_parts import RetryPolicy
from tidelog.client.types.admin import (
    ClientQuota,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewPartitions,
)
from tidelog.client.types.groups import (
    OFFSET_WORDS,
    GroupState,
    GroupType,
    MemberToRemove,
    OffsetTimestamp,
)
from tidelog.client.types.records import ConsumerGroupMetadata, NewTopic, RecordMetadata
from tidelog.client.types.transaction_token import (
    PRODUCER_EPOCH_MAX,
    PRODUCER_ID_MAX,
    TransactionToken,
)
from tidelog.client.types.transactions import TransactionState

P = ParamSpec("P")
R = TypeVar("R")


def fields(kind: type[msgspec.Struct], **checks: Check) -> Check:
    """A value of the client's own, whose constructor looks at nothing."""
    is_one = one_of(kind, f"a {kind.__name__}")

    def check(value: Any, tried: str, name: str) -> Any:
        is_one(value, tried, name)
        found = {
            field: content(getattr(value, field), tried, f"{name}.{field}")
            for field, content in checks.items()
        }
        return msgspec.structs.replace(value, **found)

    return check


def _uuid(value: Any, tried: str, name: str) -> bytes:
    plain: bytes = one_of(bytes, "16 bytes")(value, tried, name)
    if len(plain) != 16:
        raise wrong_value(tried, name, value, "16 bytes")
    return plain


def _column(value: Any, tried: str, name: str) -> Any:
    """One for each record; a list of many is not copied for the check."""
    if is_a(value, list, tuple):
        return value
    is_one = is_a(value, str, bytes, bytearray, memoryview)
    hint = "use send() for one record" if is_one else ""
    is_column = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    if is_one or not is_column or is_a(value, Mapping):
        raise wrong_type(tried, name, value, "a list of one for each record", hint)
    return listed(value, tried, name)


def _with_method(*names: str) -> Check:
    """A client, or what stands for one in a test."""

    def check(value: Any, tried: str, name: str) -> Any:
        for each in names:
            if callable(getattr(value, each, None)):
                return value
        raise wrong_type(tried, name, value, f"a client with {' or '.join(names)}()")

    return check


_TEXT: Final = text()
_TEXTS: Final = many(_TEXT, "texts")
_TOPICS: Final = many(topic, "topics' names")
_PARTITIONS: Final = many(partition, "TopicPartitions")
_NODE: Final = whole(0, INT32_MAX, "a node's number")
_NODES: Final = many(_NODE, "nodes' numbers")
_COUNT: Final = whole(0, INT32_MAX)
_BYTES: Final = whole(0, INT64_MAX, "a number of bytes")
_RATE: Final = whole(1, INT64_MAX, "None or a number")
_TIME_MS: Final = whole(-INT64_MAX, INT64_MAX, "a time in milliseconds since 1970")
_GROUP: Final = text("a group's name", bytes_min=1)
_TOPIC_ID: Final = one_of(bytes, "a topic's id")
_NUMBER: Final = whole(-INT64_MAX, INT64_MAX, "a partition's number")
_RESOURCE: Final = fields(
    ConfigResource,
    resource_type=one_of(ConfigResourceType, "a ConfigResourceType"),
    name=_TEXT,
    configs=mapping(_TEXT, optional(text("a text or None")), "settings"),
)
_NEW_TOPIC: Final = fields(
    NewTopic,
    name=topic,
    num_partitions=whole(-1, INT32_MAX),
    replication_factor=whole(-1, INT32_MAX),
    topic_configs=mapping(_TEXT, _TEXT, "settings"),
)
_NEW_PARTITIONS: Final = fields(
    NewPartitions,
    total_count=_COUNT,
    new_assignments=many(_NODES, "lists of brokers"),
)
_MEMBER: Final = fields(
    MemberToRemove, member_id=optional(_TEXT), group_instance_id=optional(_TEXT)
)


_TRANSACTIONAL_ID: Final = text("a transactional id", bytes_min=1)
_TRANSACTION_STATES: Final = many(
    one_of(TransactionState, "a TransactionState"), "TransactionStates"
)


def _decision(value: Any, tried: str, name: str) -> str:
    plain: str = _TEXT(value, tried, name)
    if plain not in ("commit", "abort"):
        raise wrong_value(tried, name, value, "commit or abort")
    return plain


def _word(value: Any, tried: str, name: str) -> str:
    plain: str = _TEXT(value, tried, name)
    if plain not in OFFSET_WORDS:
        raise wrong_value(tried, name, value, f"{', '.join(OFFSET_WORDS)} or a number")
    return plain


_SPEC: Final = either(str, _word, either(OffsetTimestamp, anything, _TIME_MS))
_OFFSETS: Final = mapping(partition, place, "TopicPartition: offset")
_PLACE: Final = whole(0, INT64_MAX, "an offset")


def _stored_at(value: Any, tried: str, name: str) -> RecordMetadata:
    """Where a record was stored, as far as it is looked at here."""
    return RecordMetadata(
        topic(value.topic, tried, f"{name}.topic"),
        whole(0, INT32_MAX)(value.partition, tried, f"{name}.partition"),
        whole(-1, INT64_MAX)(value.offset, tried, f"{name}.offset"),
        value.timestamp,
        value.leader_epoch,
    )


def _member(value: Any, tried: str, name: str) -> ConsumerGroupMetadata:
    """As a consumer's group_metadata() tells it."""
    found: ConsumerGroupMetadata = one_of(ConsumerGroupMetadata, "a ConsumerGroupMetadata")(
        value, tried, name
    )
    return found._replace(
        group_id=_GROUP(found.group_id, tried, f"{name}.group_id"),
        member_epoch=whole(-1, INT32_MAX)(found.member_epoch, tried, f"{name}.member_epoch"),
        member_id=_TEXT(found.member_id, tried, f"{name}.member_id"),
    )


_TOKEN: Final = fields(
    TransactionToken,
    transactional_id=text("a transactional id", bytes_min=1),
    producer_id=whole(0, PRODUCER_ID_MAX, "a producer id"),
    producer_epoch=whole(0, PRODUCER_EPOCH_MAX, "a producer's epoch"),
)
_AS_OF: Final = either(Mapping, mapping(_COUNT, _PLACE, "partition: offset"), _PLACE)

TABLE: Final[Mapping[str, Check]] = {
    # Everywhere.
    "timeout": optional(seconds),
    "timeout_ms": optional(milliseconds),
    "validate_only": flag,
    "topic": topic,
    "function": plain_function,
    "args": anything,
    # Records.
    "values": _column,
    "keys": optional(_column),
    "headers": optional(_column),
    "send_batch.partition": optional(_NUMBER),
    "timestamp_ms": optional(either(int, _TIME_MS, _column)),
    "send_arrow.data": anything,
    "send_arrow.value": _TEXT,
    "send_arrow.key": optional(_TEXT),
    "send_arrow.timestamp": optional(_TEXT),
    "send_arrow.partition": optional(_NUMBER),
    # Reading.
    "topics": optional(_TOPICS),
    "subscribe.topics": either(str, topic, _TOPICS),
    "pattern": optional(text("a regular expression")),
    "listener": anything,
    "partition": partition,
    "partitions": _PARTITIONS,
    "offset": place,
    "topic_id": optional(_TOPIC_ID),
    "offsets": optional(_OFFSETS),
    "timestamps": mapping(partition, _TIME_MS, "TopicPartition: time"),
    "callback": optional(plain_function),
    "metadata": flag,
    "autocommit": flag,
    # Transactions.
    "send_offsets_to_transaction.offsets": _OFFSETS,
    "send_offsets.offsets": _OFFSETS,
    "group_metadata": either(str, _GROUP, _member),
    "transaction.consumer": anything,
    "token": either(str, _TEXT, _TOKEN),
    "max_records": optional(whole(1, INT64_MAX)),
    "max_bytes": whole(0, INT64_MAX, "a number of bytes"),
    "include_headers": flag,
    "include_left_out": flag,
    "poll.timeout_ms": milliseconds_or_ever,
    "getmany.timeout_ms": milliseconds_or_ever,
    "poll_batches.timeout_ms": milliseconds_or_ever,
    "get_batches.timeout_ms": milliseconds_or_ever,
    "poll_arrow.timeout_ms": milliseconds_or_ever,
    "get_arrow.timeout_ms": milliseconds_or_ever,
    # Topics, settings, partitions.
    "new_topics": many(_NEW_TOPIC, "NewTopics"),
    "delete_topics.topics": many(either(bytes, _TOPIC_ID, topic), "topics' names or ids"),
    "try_delete_topics.topics": many(either(bytes, _TOPIC_ID, topic), "topics' names or ids"),
    "plan_partition_reassignments.topics": _TOPICS,
    "describe_log_dirs.topics": _TOPICS,
    "include_internal": flag,
    "with_replicas": flag,
    "directories_only": flag,
    "topic_partitions": optional(_PARTITIONS),
    "create_partitions.topic_partitions": mapping(
        topic, either(NewPartitions, _NEW_PARTITIONS, _COUNT), "topic: NewPartitions or number"
    ),
    "config_resources": many(_RESOURCE, "ConfigResources"),
    "names": _TEXTS,
    "quotas": mapping(
        _TEXT,
        optional(
            fields(
                ClientQuota,
                produce_bytes_per_second=optional(_RATE),
                fetch_bytes_per_second=optional(_RATE),
                requests_per_second=optional(_RATE),
            )
        ),
        "client id: ClientQuota",
    ),
    "client_ids": optional(_TEXTS),
    "records_to_delete": mapping(partition, whole(-1, INT64_MAX), "TopicPartition: offset"),
    "list_partition_offsets.partitions": mapping(partition, _SPEC, "TopicPartition: place"),
    "isolation_level": isolation_level,
    "election_type": one_of(ElectionType, "an ElectionType"),
    "reassignments": mapping(partition, optional(_NODES), "TopicPartition: brokers"),
    "throttle_bytes_per_second": _BYTES,
    "drained_brokers": _NODES,
    "moves_max": _COUNT,
    "broker_ids": _NODES,
    # Nodes and the quorum.
    "broker_id": whole(-1, INT32_MAX, "a broker's number"),
    "cancel": flag,
    "node_id": whole(-1, INT32_MAX, "a node's number"),
    "directory_uuid": _uuid,
    "path": _TEXT,
    "feature_updates": mapping(_TEXT, _COUNT, "feature: level"),
    "allow_downgrade": flag,
    # Groups.
    "group_id": _GROUP,
    "group_ids": many(_GROUP, "groups' names"),
    "states_filter": many(one_of(GroupState, "a GroupState"), "GroupStates"),
    "types_filter": many(one_of(GroupType, "a GroupType"), "GroupTypes"),
    "group_specs": either(
        str,
        _GROUP,
        either(
            Mapping,
            mapping(_GROUP, optional(_PARTITIONS), "group: TopicPartitions"),
            many(_GROUP, "groups' names"),
        ),
    ),
    "alter_group_offsets.offsets": _OFFSETS,
    "offset_specs": mapping(partition, _SPEC, "TopicPartition: place"),
    "members": optional(many(_MEMBER, "MembersToRemove")),
    # Transactions.
    "transactional_id": _TRANSACTIONAL_ID,
    "transactional_ids": many(_TRANSACTIONAL_ID, "transactional ids"),
    "list_transactions.states_filter": _TRANSACTION_STATES,
    "try_list_transactions.states_filter": _TRANSACTION_STATES,
    "older_than_ms": milliseconds,
    "decision": _decision,
    "find_hanging_transactions.partitions": optional(_PARTITIONS),
    "producer_id": whole(0, INT64_MAX, "a producer's id"),
    "transaction_start_offset": _PLACE,
    # Test clusters.
    "brokers": whole(-INT32_MAX, INT32_MAX, "a number of brokers"),
    "settings": optional(mapping(_TEXT, anything, "settings")),
    "node": whole(1, INT32_MAX, "a node's number"),
    "leader_of.partition": whole(0, INT32_MAX, "a partition's number"),
    "create_topic.name": topic,
    "create_topic.partitions": whole(-1, INT32_MAX),
    "create_topic.replication_factor": whole(-1, INT32_MAX),
    "create_topic.configs": optional(mapping(_TEXT, _TEXT, "settings")),
    "delete_topic.name": topic,
    # Tables and handlers.
    "as_of_offset": optional(_AS_OF),
    "as_of_time_ms": optional(_TIME_MS),
    "load_timeout_ms": milliseconds_or_ever,
    "on_progress": optional(plain_function),
    "place": either(RecordMetadata, _stored_at, _AS_OF),
    "wait_for.timeout_ms": milliseconds_or_ever,
    "dead_letter_topic": topic,
    "dead_letter_timeout_ms": milliseconds,
    "handle": function,
    "commit": optional(function),
    "consumer": _with_method("poll", "getmany"),
    "producer": _with_method("send"),
    "policy": optional(one_of(RetryPolicy, "a RetryPolicy")),
    "sleep": optional(function),
    "poll_ms": milliseconds_or_ever,
}


def check_of(call: str, name: str) -> Check:
    """Of a parameter; one that is missing in the table is found when its module is imported."""
    found = TABLE.get(f"{call}.{name}") or TABLE.get(name)
    assert found is not None, f"nobody says what {call}({name}) can be: add it to the table"
    return found


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """Hands the call its arguments as the table has them, or refuses one by name."""
    return checked_by(check_of, call)


def checked_by(check_of: Callable[[str, str], Check], call: Callable[P, R]) -> Callable[P, R]:
    """The same with another table, for a surface that has names of its own."""
    run_call = cast("Callable[..., Any]", call)
    parameters = list(inspect.signature(call).parameters.values())[1:]
    checks = {
        each.name: check_of(call.__name__, each.name)
        for each in parameters
        if each.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }
    rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")
    of_rest = check_of(call.__name__, rest) if rest else None
    name_of_call = call.__name__
    in_order = list(checks.items())

    def right(self: object, given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        # The class that the caller has made, which may inherit the call.
        tried = f"call {type(self).__name__}.{name_of_call}()"
        taken = [
            check(value, tried, name) for (name, check), value in zip(in_order, given, strict=False)
        ]
        for name, value in named.items():
            if name in checks:
                named[name] = checks[name](value, tried, name)
        left = given[len(taken) :]
        # Too many without such a parameter are left as they are: Python says so better.
        return [*taken, *(left if of_rest is None else of_rest(left, tried, rest))]

    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def wait(self: Any, *given: Any, **named: Any) -> Any:
            return await run_call(self, *right(self, given, named), **named)

        return cast("Callable[P, R]", wait)

    @functools.wraps(call)
    def run(self: Any, *given: Any, **named: Any) -> Any:
        return run_call(self, *right(self, given, named), **named)

    return cast("Callable[P, R]", run)
