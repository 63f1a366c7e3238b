"""kafka-python's names: how an object is made, used rightly, and found to be alive.

Whatever a call refuses, it is by an error that a script written for kafka-python can name: one of
`kafka.errors`, or Python's own TypeError and ValueError, which then name the argument.
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from tests.client.support.hostile_calls import Verdict, public_methods, verdict_of
from tests.client.support.hostile_structs import StructSubject, Taken, handed_out
from tests.client.support.hostile_subjects import HELD, READ, WAIT_S, Good, Subject
from tidelog.client.errors import TidelogError
from tidelog.kafka import (
    ConsumerGroupMetadata,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    TopicPartitionReplica,
)
from tidelog.kafka.admin import (
    AbortTransactionSpec,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)
from tidelog.kafka.admin.transactions import (
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from tidelog.kafka.consumer.commit_future import CommitFuture
from tidelog.kafka.errors import IllegalStateError, KafkaError
from tidelog.kafka.producer.future import FutureRecordMetadata
from tidelog.kafka.shared.checked import TABLE
from tidelog.kafka.shared.option_table import ADMIN, CONSUMER, PRODUCER, Option
from tidelog.kafka.shared.translation import translating
from tidelog.wire.errors import ErrorCode

SHORT: Final[Mapping[type, Mapping[str, Any]]] = {
    KafkaProducer: {
        "bootstrap_timeout_ms": 300,
        "max_block_ms": 300,
        "request_timeout_ms": 500,
        "delivery_timeout_ms": 1_000,
    },
    KafkaConsumer: {"bootstrap_timeout_ms": 300, "consumer_timeout_ms": 300},
    KafkaAdminClient: {"bootstrap_timeout_ms": 300, "request_timeout_ms": 300},
}
"""Of clients that may have been given a wrong address."""


class KafkaSubject(Subject):
    """Judges by kafka-python's names."""

    def verdict_of(self, error: BaseException, parameter: str) -> Verdict:
        told = f"{type(error).__name__}: {error}"
        if isinstance(error, IllegalStateError) or "Topics not ready" in told:
            # What a right argument is told at the wrong time, or when nothing comes of it.
            return Verdict("typed", told)
        if isinstance(error, KafkaError):
            cause = error.__cause__
            if isinstance(cause, TidelogError):
                return verdict_of(cause, parameter)
            is_named = error.code is not ErrorCode.UNSPECIFIED or names(told, parameter)
            return Verdict("typed" if is_named else "unnamed", told)
        if type(error) in (TypeError, ValueError):
            return Verdict("typed" if names(told, parameter) else "unnamed", told)
        return Verdict("internal", told)


def names(told: str, parameter: str) -> bool:
    """Whether the text is about the argument; kafka-python's own texts begin with a capital."""
    return parameter.lower().removesuffix("s") in told.lower()


def send_offsets_of(subject: object, value: object) -> None:
    """As far as a producer looks at a member before it asks anybody."""
    del subject
    with translating():
        TABLE["group_metadata"](value, "send offsets", "group_metadata")


class ProducerSubject(KafkaSubject):
    good: ClassVar[Good] = {
        "topic": "sent", "value": b"v", "send.value": b"v", "group_metadata": "g",
        "offsets": {READ: OffsetAndMetadata(1, "", -1)},
    }  # fmt: skip

    def make(self) -> Any:
        return self.kind(bootstrap_servers=self.bootstrap, linger_ms=0, max_block_ms=5_000)

    def check(self) -> None:
        self.call("send", "sent", b"alive")


class ConsumerSubject(KafkaSubject):
    good: ClassVar[Good] = {
        "topics": ["read"], "partitions": [READ], "partition": READ, "offset": 0, "topic": "read",
        "timestamps": {READ: 0}, "offsets": {READ: OffsetAndMetadata(1, "", -1)}, "callback": None,
        "subscribe.topics": ["read"],
    }  # fmt: skip
    options: ClassVar[Mapping[str, Any]] = {}

    def make(self) -> Any:
        return self.kind(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **self.options,
        )

    def call(self, name: str, /, *positional: Any, **named: Any) -> Any:
        if name == "commit_async":
            # Its future is told by a later poll, and nothing waits for it.
            return self.object.commit_async(*positional, **named)
        return super().call(name, *positional, **named)

    def check(self) -> None:
        self.object.unsubscribe()
        self.call("assign", [READ])
        self.call("seek", READ, 0)
        self.call("resume", READ)
        if not self.call("poll", WAIT_S * 1000, 1):
            raise AssertionError("nothing was read")
        # For the next call: one that may wait for ever finds a record.
        self.call("seek", READ, 0)


class MemberSubject(ConsumerSubject):
    options: ClassVar[Mapping[str, Any]] = {"group_id": "hostile-kafka"}


class AdminSubject(KafkaSubject):
    good: ClassVar[Good] = {
        "new_topics": {"new": {"num_partitions": 1}}, "topics": ["held"], "topic_names": ["held"],
        "group_specs": {"g": [HELD]},
        "group_id": "g", "group_ids": ["g"], "partitions": [HELD], "offsets": {HELD: 0},
        "offset_specs": {HELD: OffsetSpec.EARLIEST}, "members": [MemberToRemove(member_id="m")],
        "transactional_ids": ["t"], "spec": AbortTransactionSpec(HELD, 0, 0),
        "config_resources": [ConfigResource(ConfigResourceType.TOPIC, "held", {})],
        "election_type": "preferred", "topic_partitions": {"held": 2},
        "elect_leaders.topic_partitions": {"held": [0]}, "topic_partition_specs": {HELD: -1},
        "list_partition_reassignments.topic_partitions": {"held": [0]},
        "describe_log_dirs.topic_partitions": {"held": [0]},
        "reassignments": {HELD: [1]}, "records_to_delete": {HELD: 0}, "validate_only": True,
        "delete_topics.topics": ["odd"], "wait_for_topics.timeout_ms": 100,
    }  # fmt: skip

    def make(self) -> Any:
        return self.kind(bootstrap_servers=self.bootstrap)

    def check(self) -> None:
        found = self.call("list_topics")
        if not {"held", "read", "sent"} <= set(found):
            raise AssertionError(f"topics are gone: {found}")


class Maker(KafkaSubject):
    """A constructor: what it accepts is used as well."""

    def __init__(self, subject: KafkaSubject, table: Mapping[str, Option]) -> None:
        super().__init__(subject.kind, subject.bootstrap)
        self.subject = subject
        self.table = table

    def functions(self) -> dict[str, Callable[..., Any]]:
        def made(**configs: Any) -> Any:
            return self.kind(**configs)

        keyword = inspect.Parameter.KEYWORD_ONLY
        made.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, keyword, default=None) for name in self.table]
        )
        made.__annotations__ = dict.fromkeys(self.table, Any)
        return {"__init__": made}

    def make(self) -> Any:
        return None

    def check(self) -> None:
        """There is nothing left of the last one."""

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        del name
        self.subject.object = self.kind(
            *positional, **{"bootstrap_servers": self.bootstrap, **SHORT[self.kind], **named}
        )
        try:
            self.subject.check()
        except AssertionError:
            return
        except KafkaError:
            # What was asked for is honoured: too little time, memory, or another address.
            return
        finally:
            with contextlib.suppress(KafkaError):
                self.subject.end()
            self.subject.object = None

    def end(self) -> None:
        self.subject.end()


class FutureSubject(KafkaSubject):
    """What send() or commit_async() has returned: done, asked again and again."""

    good: ClassVar[Good] = {"f": lambda *_, **__: None}

    def functions(self) -> dict[str, Callable[..., Any]]:
        return public_methods(self.kind, ("settle",))

    def make(self) -> Any:
        if self.kind is CommitFuture:
            done = CommitFuture()
            done.settle({}, None)
            return done
        with KafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            made = producer.send("sent", b"v")
            made.get(WAIT_S)
        return made

    def check(self) -> None:
        if not self.object.succeeded():
            raise AssertionError("it is not done any more")

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        if positional:
            # Of `*args`: they stand behind the function.
            positional = (named.pop("f"), *positional)
        return getattr(self.object, name)(*positional, **named)

    def end(self) -> None:
        self.object = None


TAKEN: Final[Mapping[type, Taken]] = {
    TopicPartition: Taken(
        lambda at, value: at.admin.list_partition_reassignments([value]),
        {"topic": "held", "partition": 0},
    ),
    OffsetAndMetadata: Taken(
        lambda at, value: at.admin.alter_group_offsets("g", {HELD: value}), {"offset": 0}
    ),
    OffsetTimestamp: Taken(
        lambda at, value: at.admin.reset_group_offsets("g", {HELD: value}), {}
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
    ConsumerGroupMetadata: Taken(
        send_offsets_of, {"group_id": "g"}
    ),
    AbortTransactionSpec: Taken(
        handed_out,  # The admin client's own call is handed wrong ones.
        {"topic_partition": HELD, "producer_id": 1, "producer_epoch": 0},
    ),
    OffsetAndTimestamp: Taken(handed_out, {"offset": 0, "timestamp": 0}),
    TransactionListing: Taken(
        handed_out,
        {"transactional_id": "t", "producer_id": 1, "state": TransactionState.EMPTY},
    ),
    TransactionDescription: Taken(
        handed_out,
        {
            "coordinator_id": 1, "state": TransactionState.EMPTY, "producer_id": 1,
            "producer_epoch": 0, "transaction_timeout_ms": 1, "transaction_start_time_ms": -1,
            "topic_partitions": {HELD},
        },
    ),
    ProducerState: Taken(
        handed_out,
        {
            "producer_id": 1, "producer_epoch": 0, "last_sequence": 0, "last_timestamp": 0,
            "coordinator_epoch": -1, "current_transaction_start_offset": -1,
        },
    ),
    PartitionProducerState: Taken(handed_out, {"active_producers": []}),
    TopicPartitionReplica: Taken(handed_out, {"topic": "held", "partition": 0, "broker_id": 1}),
}  # fmt: skip


class KafkaStructSubject(KafkaSubject, StructSubject):
    """kafka-python's small values, made with one wrong field and handed to a call."""

    taken = TAKEN

    def __init__(self, bootstrap: str) -> None:
        Subject.__init__(self, KafkaAdminClient, bootstrap)

    def right(self) -> Good:
        # Not for the other calls: whoever places replicas is refused for that alone.
        return {**super().right(), "replica_assignments": {0: [1]}}

    def make(self) -> Any:
        self.admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self.admin

    def end(self) -> None:
        if self.object is not None:
            self.admin.close()
        self.object = None


SUBJECTS: Final[dict[str, Callable[[str], Subject]]] = {
    "KafkaProducer": lambda at: ProducerSubject(KafkaProducer, at),
    "KafkaConsumer": lambda at: ConsumerSubject(KafkaConsumer, at),
    "KafkaConsumer in a group": lambda at: MemberSubject(KafkaConsumer, at),
    "KafkaAdminClient": lambda at: AdminSubject(KafkaAdminClient, at),
    "FutureRecordMetadata": lambda at: FutureSubject(FutureRecordMetadata, at),
    "CommitFuture": lambda at: FutureSubject(CommitFuture, at),
    "KafkaProducer()": lambda at: Maker(ProducerSubject(KafkaProducer, at), PRODUCER),
    "KafkaConsumer()": lambda at: Maker(ConsumerSubject(KafkaConsumer, at), CONSUMER),
    "KafkaAdminClient()": lambda at: Maker(AdminSubject(KafkaAdminClient, at), ADMIN),
    "Structs": KafkaStructSubject,
}
