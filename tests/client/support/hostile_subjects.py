"""The public surface of the client: how an object is made, used rightly, and found to be alive."""

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from tests.client.support.drivers import LoopThread
from tests.client.support.hostile_calls import (
    Tally,
    Triple,
    Verdict,
    Worker,
    all_triples,
    arguments,
    public_methods,
    verdict_of,
)
from tidelog.client import (
    AdminClient,
    ClientQuota,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    ElectionType,
    MemberToRemove,
    NewTopic,
    Producer,
    RecordHandler,
    RetryPolicy,
    Table,
    TopicPartition,
    TransactionToken,
)
from tidelog.client.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer
from tidelog.wire.errors import TidelogError

WAIT_S: Final = 30.0
READ: Final = TopicPartition("read", 0)
HELD: Final = TopicPartition("held", 0)

Good = Mapping[str, Any]


def table() -> Any:
    """What send_arrow() takes, where the extra is installed."""
    with contextlib.suppress(ImportError):
        import pyarrow as pa

        return pa.table({"value": [b"v"]})
    return None


class Subject:
    """One class, whose objects are made again after one was broken."""

    good: ClassVar[Good] = {}
    leave_out: tuple[str, ...] = ()

    def __init__(self, kind: type, bootstrap: str) -> None:
        self.kind = kind
        self.bootstrap = bootstrap
        self.is_async = kind.__name__.startswith("Async")
        self.loop = LoopThread() if self.is_async else None
        self.object: Any = None

    def functions(self) -> dict[str, Callable[..., Any]]:
        return public_methods(self.kind, ("close", "stop", *self.leave_out))

    def right(self) -> Good:
        """Right arguments, by name."""
        return self.good

    def make(self) -> Any:
        raise NotImplementedError

    def check(self) -> None:
        """Raises unless the object does its work."""
        raise NotImplementedError

    def verdict_of(self, error: BaseException, parameter: str) -> Verdict:
        """Of what a call has raised; a surface with errors of its own has another rule."""
        return verdict_of(error, parameter)

    def call(self, name: str, /, *positional: Any, **named: Any) -> Any:
        method = getattr(self.object, name)
        if self.loop is not None:
            return self.loop.run(self._awaited, method, positional, named)
        return _used(method(*positional, **named))

    @staticmethod
    async def _awaited(method: Callable[..., Any], positional: Any, named: Any) -> Any:
        found = method(*positional, **named)
        while inspect.isawaitable(found):
            found = await found
        return found

    def end(self) -> None:
        if self.object is not None:
            with contextlib.suppress(TidelogError):
                self.call("close")
        self.object = None

    def close(self) -> None:
        self.end()
        if self.loop is not None:
            self.loop.close()
            self.loop = None

    def begin(self) -> None:
        self.end()
        if self.is_async and self.loop is None:
            self.loop = LoopThread()
        self.object = self.make()
        self.check()


def _used(found: Any) -> Any:
    """A future is waited for, what is handed out piece by piece is taken."""
    if hasattr(found, "add_errback"):
        return found.get(WAIT_S)
    return list(found) if isinstance(found, Iterator) else found


class ProducerSubject(Subject):
    good: ClassVar[Good] = {
        "topic": "sent", "value": b"v", "values": [b"a", b"b"], "partition": 0, "data": table(),
        "send_arrow.value": "value", "headers": [("h", b"1")], "offsets": {HELD: 1},
        "group_metadata": "g", "token": TransactionToken("t", 1, 0),
    }  # fmt: skip

    def make(self) -> Any:
        return self.kind(bootstrap_servers=self.bootstrap, linger_ms=0, max_block_ms=5_000)

    def check(self) -> None:
        self.call("send", "sent", b"alive")


class TransactionalSubject(ProducerSubject):
    """A producer with transactions, between two of them before each call."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        found = super().functions()
        return {name: each for name, each in found.items() if not name.startswith("send_")} | {
            "send_offsets_to_transaction": found["send_offsets_to_transaction"]
        }

    def make(self) -> Any:
        self.number = getattr(self, "number", 0) + 1
        return self.kind(
            bootstrap_servers=self.bootstrap,
            linger_ms=0,
            max_block_ms=5_000,
            transactional_id=f"hostile {self.kind.__name__} {self.number}",
        )

    def check(self) -> None:
        with contextlib.suppress(TidelogError):
            self.call("init_transactions")
        with contextlib.suppress(TidelogError):
            self.call("abort_transaction")
        self.call("begin_transaction")
        self.call("send", "sent", b"alive")
        self.call("commit_transaction")


class ConsumerSubject(Subject):
    good: ClassVar[Good] = {
        "topics": ["read"], "partitions": [READ], "partition": READ, "offset": 0, "topic": "read",
        "timestamps": {READ: 0}, "offsets": {READ: 1}, "callback": None,
    }  # fmt: skip
    leave_out: tuple[str, ...] = ("commit", "commit_async", "committed")
    """Without a group they are refused whatever they are given."""
    options: ClassVar[Mapping[str, Any]] = {}

    def make(self) -> Any:
        return self.kind(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            default_api_timeout_ms=10_000,
            **self.options,
        )

    def check(self) -> None:
        self.call("assign", [READ])
        self.call("seek", READ, 0)
        self.call("resume", READ)
        poll = "getmany" if self.is_async else "poll"
        if not self.call(poll, WAIT_S * 1000, 1):
            raise AssertionError("nothing was read")
        # For the next call: one that may wait for ever finds a record.
        self.call("seek", READ, 0)


class MemberSubject(ConsumerSubject):
    leave_out = ()
    options: ClassVar[Mapping[str, Any]] = {"group_id": "hostile"}


class AdminSubject(Subject):
    good: ClassVar[Good] = {
        "new_topics": [NewTopic("new", 1)], "topics": ["held"], "group_id": "g",
        "group_ids": ["g"], "partitions": [HELD], "list_partition_offsets.partitions":
        {HELD: "latest"}, "offsets": {HELD: 0}, "offset_specs": {HELD: "earliest"},
        "group_specs": {"g": None}, "members": [MemberToRemove(member_id="m")],
        "config_resources": [ConfigResource(ConfigResourceType.TOPIC, "held", {})],
        "quotas": {"c": ClientQuota()}, "election_type": ElectionType.PREFERRED,
        "topic_partitions": {"held": 2}, "elect_leaders.topic_partitions": [HELD],
        "broker_id": 99, "node_id": 99, "directory_uuid": bytes(16), "path": "/",
        "feature_updates": {"odd": 1}, "reassignments": {HELD: [1]},
        "records_to_delete": {HELD: 0}, "validate_only": True, "delete_topics.topics": ["odd"],
        "transactional_id": "t", "transactional_ids": ["t"], "decision": "abort",
        "partition": HELD, "producer_id": 0, "transaction_start_offset": 0,
    }  # fmt: skip

    def make(self) -> Any:
        return self.kind(bootstrap_servers=self.bootstrap)

    def check(self) -> None:
        found = self.call("list_topics")
        if not {"held", "read", "sent"} <= set(found):
            raise AssertionError(f"topics are gone: {found}")


class Maker(Subject):
    """A constructor: what it accepts is used as well."""

    good: ClassVar[Good] = {}

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.kind, subject.bootstrap)
        self.subject = subject

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {"__init__": inspect.getattr_static(self.kind, "__init__")}

    def make(self) -> Any:
        return None

    def check(self) -> None:
        """There is nothing left of the last one."""

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        del name
        arguments = {"bootstrap_servers": self.bootstrap, **SHORT[self.subject.__class__], **named}
        if self.loop is not None:
            made = self.loop.run(lambda: self.kind(*positional, **arguments))
        else:
            made = self.kind(*positional, **arguments)
        self.subject.object = made
        try:
            self.subject.check()
        except AssertionError:
            return
        except TidelogError:
            # What was asked for is honoured: too little time, memory, or another address.
            return
        finally:
            self.subject.end()

    def end(self) -> None:
        self.subject.end()

    def close(self) -> None:
        self.subject.close()
        super().close()


class TableSubject(Subject):
    """A table of a topic: made, loaded and asked."""

    good: ClassVar[Good] = {
        "topic": "read",
        "place": {0: 0},
        "as_of_offset": {0: 0},
        "wait_for.timeout_ms": 100,
    }

    def functions(self) -> dict[str, Callable[..., Any]]:
        made = inspect.getattr_static(self.kind, "__init__")
        return {"__init__": made, "wait_for": inspect.getattr_static(self.kind, "wait_for")}

    def make(self) -> Any:
        return self.kind("read", bootstrap_servers=self.bootstrap).__enter__()

    def check(self) -> None:
        self.call("wait_for", 0)

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        if name != "__init__":
            return super().call(name, *positional, **named)
        given = {"bootstrap_servers": self.bootstrap, "load_timeout_ms": 1_000, **named}
        short = {"default_api_timeout_ms": 1_000, "bootstrap_timeout_ms": 300}
        with self.kind(*positional, **{**short, **given}) as made:
            return made.metrics()


class HandlerSubject(Subject):
    """A handler of records, which is asked to handle one."""

    good: ClassVar[Good] = {"dead_letter_topic": "held", "handle": lambda record: record}

    def functions(self) -> dict[str, Callable[..., Any]]:
        made = inspect.getattr_static(self.kind, "__init__")
        return {"__init__": made, "run_once": inspect.getattr_static(self.kind, "run_once")}

    def right(self) -> Good:
        return {**self.good, "consumer": self.consumer, "producer": self.producer}

    def make(self) -> Any:
        self.consumer = Consumer(
            "read", bootstrap_servers=self.bootstrap, auto_offset_reset="earliest"
        )
        self.producer = Producer(bootstrap_servers=self.bootstrap)
        return self.kind(self.consumer, print, self.producer, "held", policy=ONCE)

    def check(self) -> None:
        self.consumer.assign([READ])
        self.consumer.seek(READ, 0)

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        if name != "__init__":
            return super().call(name, *positional, **named)
        return self.kind(**{"policy": ONCE, **named}).run_once()

    def end(self) -> None:
        if self.object is not None:
            self.consumer.close()
            self.producer.close()
        self.object = None


ONCE: Final = RetryPolicy(tries=1)
SHORT: Final[dict[type, dict[str, Any]]] = {
    ProducerSubject: {
        "bootstrap_timeout_ms": 300,
        "max_block_ms": 300,
        "request_timeout_ms": 500,
        "delivery_timeout_ms": 1_000,
    },
    ConsumerSubject: {"bootstrap_timeout_ms": 300, "default_api_timeout_ms": 300},
    AdminSubject: {"bootstrap_timeout_ms": 300, "request_timeout_ms": 300},
}
"""Of clients that may have been given a wrong address."""

SUBJECTS: Final[dict[str, Callable[[str], Subject]]] = {
    "Producer": lambda at: ProducerSubject(Producer, at),
    "AsyncProducer": lambda at: ProducerSubject(AsyncProducer, at),
    "Producer with transactions": lambda at: TransactionalSubject(Producer, at),
    "AsyncProducer with transactions": lambda at: TransactionalSubject(AsyncProducer, at),
    "Consumer": lambda at: ConsumerSubject(Consumer, at),
    "AsyncConsumer": lambda at: ConsumerSubject(AsyncConsumer, at),
    "Consumer in a group": lambda at: MemberSubject(Consumer, at),
    "AsyncConsumer in a group": lambda at: MemberSubject(AsyncConsumer, at),
    "AdminClient": lambda at: AdminSubject(AdminClient, at),
    "AsyncAdminClient": lambda at: AdminSubject(AsyncAdminClient, at),
    "Table": lambda at: TableSubject(Table, at),
    "RecordHandler": lambda at: HandlerSubject(RecordHandler, at),
    "Producer()": lambda at: Maker(ProducerSubject(Producer, at)),
    "AsyncProducer()": lambda at: Maker(ProducerSubject(AsyncProducer, at)),
    "Consumer()": lambda at: Maker(ConsumerSubject(Consumer, at)),
    "AsyncConsumer()": lambda at: Maker(ConsumerSubject(AsyncConsumer, at)),
    "AdminClient()": lambda at: Maker(AdminSubject(AdminClient, at)),
    "AsyncAdminClient()": lambda at: Maker(AdminSubject(AsyncAdminClient, at)),
}


def tally_of(subject: Subject) -> Tally:
    """Every call with one wrong argument, and whether the object lives on."""
    tally, worker, functions = Tally(), Worker(), subject.functions()
    worker.run(subject.begin)
    try:
        for triple in all_triples(functions):
            tally.note(triple, _verdict(subject, worker, functions, triple))
    finally:
        worker.run(subject.close)
        worker.close()
    return tally


def _verdict(
    subject: Subject, worker: Worker, functions: Mapping[str, Callable[..., Any]], triple: Triple
) -> Verdict:
    method = triple.place.method
    positional, named = arguments(triple, functions[method], subject.right())
    verdict, begun = Verdict("accepted"), time.monotonic()
    try:
        worker.run(lambda: subject.call(method, *positional, **named))
    except TimeoutError:
        subject.object = subject.loop = None
        worker.run(subject.begin)
        return Verdict("hung")
    except Exception as error:  # noqa: BLE001 - judged
        verdict = subject.verdict_of(error, triple.place.parameter)
    verdict = verdict._replace(seconds=time.monotonic() - begun)
    try:
        worker.run(subject.check)
    except Exception as error:  # noqa: BLE001 - judged
        verdict = Verdict("broke", f"{verdict.kind} {verdict.told} and then {error!r}")
        with contextlib.suppress(Exception):
            worker.run(subject.end)
        subject.object = None
        worker.run(subject.begin)
    return verdict
