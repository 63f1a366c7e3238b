"""The public structs of the client, as `hostile_subjects` has its classes.

A struct is a plain value: its constructor may take anything. So each is made with one wrong field
and handed to a call that takes it, and what refuses it names the field.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

import tidelog.client
from tests.client.support.hostile_calls import Verdict
from tests.client.support.hostile_subjects import HELD, READ, Good, Subject
from tidelog.client import (
    AdminClient,
    ClientQuota,
    ConfigResource,
    ConfigResourceType,
    ConsumerGroupMetadata,
    ConsumerRecord,
    ElectionType,
    HandlerCounts,
    HangingTransaction,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetTimestamp,
    RawBatch,
    RecordMetadata,
    RetryPolicy,
    SendFuture,
    SentBatch,
    SentPart,
    Table,
    TableSnapshot,
    TopicPartition,
    TransactionToken,
)
from tidelog.client.shared.checked import TABLE

Use = Callable[["StructSubject", Any], object]


class Taken(NamedTuple):
    """How a struct is used."""

    use: Use
    right: Mapping[str, Any]
    """Fields that are right, without which the call would not look at the wrong one."""


def handed_out(subject: "StructSubject", value: object) -> None:
    """Nothing takes it: a script may still make one, in a test of its own."""
    del subject, value


TAKEN: Final[Mapping[type, Taken]] = {
    TopicPartition: Taken(
        lambda at, value: at.admin.elect_leaders(
            ElectionType.PREFERRED, [value], validate_only=True
        ),
        {"topic": "held", "partition": 0},
    ),
    OffsetAndMetadata: Taken(
        lambda at, value: at.admin.alter_group_offsets("g", {HELD: value}, validate_only=True),
        {"offset": 0},
    ),
    OffsetTimestamp: Taken(
        lambda at, value: at.admin.reset_group_offsets("g", {HELD: value}, validate_only=True),
        {},
    ),
    NewTopic: Taken(
        lambda at, value: at.admin.create_topics([value], validate_only=True),
        {"name": "new", "topic_configs": {"retention.ms": "1"}},
    ),
    NewPartitions: Taken(
        lambda at, value: at.admin.create_partitions({"held": value}, validate_only=True),
        {"total_count": 2, "new_assignments": ((1,),)},
    ),
    ConfigResource: Taken(
        lambda at, value: at.admin.alter_configs([value], validate_only=True),
        {
            "resource_type": ConfigResourceType.TOPIC,
            "name": "held",
            "configs": {"retention.ms": "1"},
        },
    ),
    MemberToRemove: Taken(lambda at, value: at.admin.remove_group_members("g", [value]), {}),
    ClientQuota: Taken(
        lambda at, value: at.admin.alter_client_quotas({"c": value}, validate_only=True), {}
    ),
    RetryPolicy: Taken(
        lambda at, value: value.pause_ms(1, KeyError()), {"give_up_on": (ValueError,)}
    ),
    RecordMetadata: Taken(
        lambda at, value: at.table.wait_for(value, timeout_ms=100),
        {"topic": "read", "partition": 0, "offset": 0, "timestamp": 0},
    ),
    TransactionToken: Taken(
        lambda at, value: TABLE["token"](value, "complete", "token"),
        {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0},
    ),
    ConsumerGroupMetadata: Taken(
        lambda at, value: TABLE["group_metadata"](value, "send offsets", "group_metadata"),
        {"group_id": "g", "member_epoch": 1, "member_id": ""},
    ),
    ConsumerRecord: Taken(
        handed_out,
        {
            "topic": "read", "partition": 0, "leader_epoch": 0, "offset": 0, "timestamp": 0,
            "timestamp_type": 0, "key": None, "value": b"", "headers": [],
        },
    ),
    HandlerCounts: Taken(handed_out, {}),
    HangingTransaction: Taken(
        handed_out,
        {
            "partition": READ, "producer_id": 1, "producer_epoch": 0,
            "transaction_start_offset": 0, "last_timestamp_ms": 0,
        },
    ),
    OffsetAndTimestamp: Taken(handed_out, {"offset": 0, "timestamp": 0}),
    RawBatch: Taken(
        handed_out,
        {
            "topic_partition": READ, "data": b"", "high_watermark": 0, "first_offset": 0,
            "next_offset": 0, "leader_epoch": 0,
        },
    ),
    SentBatch: Taken(handed_out, {"topic": "sent", "parts": ()}),
    SentPart: Taken(
        handed_out, {"topic": "sent", "partition": 0, "offset": 0, "positions": range(1)}
    ),
    TableSnapshot: Taken(handed_out, {"entries": {"a": 1}, "offsets": {0: 1}}),
}  # fmt: skip


def structs_of(module: Any) -> set[type]:
    """The values among the names that a module exports."""
    every = (getattr(module, name) for name in module.__all__)
    return {each for each in every if inspect.isclass(each) and is_struct(each)}


def is_struct(kind: type) -> bool:
    """Whether it is made of its fields, or of one number."""
    is_value = issubclass(kind, msgspec.Struct | tuple)
    return is_value or kind.__bases__ == (int,)


def constructor(kind: Any) -> Callable[..., Any]:
    """With the signature of the struct, as the methods of a class have theirs."""

    def made(*given: Any, **named: Any) -> Any:
        return kind(*given, **named)

    hints = typing.get_type_hints(kind.__new__ if kind.__bases__ == (int,) else kind)
    if not is_struct(kind):
        hints = typing.get_type_hints(kind.__init__)
    parameters = inspect.signature(kind).parameters
    made.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    made.__annotations__ = {name: hints[name] for name in parameters}
    return made


class StructSubject(Subject):
    """All of them."""

    taken: Mapping[type, Taken] = TAKEN
    admin: Any
    table: Any

    def __init__(self, bootstrap: str) -> None:
        super().__init__(AdminClient, bootstrap)

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {kind.__name__: constructor(kind) for kind in self.taken}

    def right(self) -> Good:
        return {
            f"{kind.__name__}.{field}": value
            for kind, taken in self.taken.items()
            for field, value in taken.right.items()
        }

    def make(self) -> Any:
        self.admin = AdminClient(bootstrap_servers=self.bootstrap)
        self.table = Table("read", bootstrap_servers=self.bootstrap).__enter__()
        return self.admin

    def call(self, name: str, /, *positional: Any, **named: Any) -> Any:
        kind = next(each for each in self.taken if each.__name__ == name)
        return self.taken[kind].use(self, self.functions()[name](*positional, **named))

    def verdict_of(self, error: BaseException, parameter: str) -> Verdict:
        verdict = super().verdict_of(error, parameter)
        # A record that may still come is waited for, and it is named.
        is_told = verdict.kind == "waited" and "wait for offsets" in verdict.told
        return Verdict("typed", verdict.told) if is_told else verdict

    def check(self) -> None:
        if "held" not in self.admin.list_topics():
            raise AssertionError("the topic is gone")

    def end(self) -> None:
        if self.object is not None:
            self.table.__exit__(None, None, None)
            self.admin.close()
        self.object = None


EXPORTED: Final = structs_of(tidelog.client) - {SendFuture}
"""A future is made by send() alone; its methods are tried elsewhere."""
