"""Further classes of the client's surface, as `hostile_subjects` has the first ones."""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Final

from tests.client.support.hostile_calls import public_methods
from tests.client.support.hostile_subjects import ONCE, READ, WAIT_S, Good, Subject
from tidelog.client import Producer
from tidelog.client.aio import AsyncConsumer, AsyncProducer, AsyncRecordHandler, AsyncTable
from tidelog.client.sync.batch_future import SendBatchFuture
from tidelog.client.sync.future import SendFuture
from tidelog.testing import TestCluster

RISKY: Final = (
    "kill",
    "delete_topic",
    "crash",
    "pause",
    "stop",
    "restart",
    "close",
    "start",
    "isolate",
)
"""What stops the nodes that the other calls need, where the argument happens to be a right one."""


class AsyncTableSubject(Subject):
    """A table of a topic on a loop: made, loaded and asked."""

    good: ClassVar[Good] = {
        "topic": "read",
        "place": {0: 0},
        "as_of_offset": {0: 0},
        "wait_for.timeout_ms": 100,
    }

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {name: inspect.getattr_static(self.kind, name) for name in ("__init__", "wait_for")}

    def make(self) -> Any:
        async def begin() -> Any:
            return await AsyncTable("read", bootstrap_servers=self.bootstrap).__aenter__()

        assert self.loop is not None
        return self.loop.run(begin)

    def check(self) -> None:
        self.call("wait_for", 0)

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        if name != "__init__":
            return super().call(name, *positional, **named)
        given = {"bootstrap_servers": self.bootstrap, "load_timeout_ms": 1_000, **named}
        short = {"default_api_timeout_ms": 1_000, "bootstrap_timeout_ms": 300}

        async def once() -> Any:
            async with AsyncTable(*positional, **{**short, **given}) as made:
                return made.metrics()

        assert self.loop is not None
        return self.loop.run(once)


class AsyncHandlerSubject(Subject):
    """A handler of records on a loop, which is asked to handle one."""

    good: ClassVar[Good] = {"dead_letter_topic": "held"}

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {name: inspect.getattr_static(self.kind, name) for name in ("__init__", "run_once")}

    def right(self) -> Good:
        return {
            **self.good,
            "consumer": self.consumer,
            "producer": self.producer,
            "handle": self._handle,
        }

    async def _handle(self, record: object) -> None:
        del record

    def make(self) -> Any:
        async def begin() -> Any:
            self.consumer = AsyncConsumer(
                bootstrap_servers=self.bootstrap, auto_offset_reset="earliest"
            )
            self.producer = AsyncProducer(bootstrap_servers=self.bootstrap)
            self.consumer.assign([READ])
            return AsyncRecordHandler(
                self.consumer, self._handle, self.producer, "held", policy=ONCE
            )

        assert self.loop is not None
        return self.loop.run(begin)

    def check(self) -> None:
        assert self.loop is not None
        self.loop.run(self.consumer.seek, READ, 0)

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        if name != "__init__":
            return super().call(name, *positional, **named)

        async def once() -> int:
            return await AsyncRecordHandler(**{"policy": ONCE, **named}).run_once()

        assert self.loop is not None
        return self.loop.run(once)

    def end(self) -> None:
        if self.object is not None and self.loop is not None:
            self.loop.run(self.consumer.close)
            self.loop.run(self.producer.close)
        self.object = None


class FutureSubject(Subject):
    """What `send` or `send_many` has returned: done, asked again and again."""

    good: ClassVar[Good] = {"function": lambda *_, **__: None}

    def functions(self) -> dict[str, Callable[..., Any]]:
        return public_methods(self.kind)

    def make(self) -> Any:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            if self.kind.__name__ == "SendFuture":
                made: Any = producer.send("sent", b"v")
            else:
                made = producer.send_batch("sent", [b"a", b"b"])
            made.get(WAIT_S)
        return made

    def check(self) -> None:
        self.object.get(WAIT_S)

    def call(self, name: str, *positional: Any, **named: Any) -> Any:
        if positional:
            # Of `*args`: they stand behind the function.
            positional = (named.pop("function"), *positional)
        return getattr(self.object, name)(*positional, **named)

    def end(self) -> None:
        self.object = None


class TestClusterSubject(Subject):
    """Nodes inside a test; those of these calls are never stopped."""

    __test__ = False
    good: ClassVar[Good] = {
        "name": "of-the-test",
        "topic": "t",
        "node": 1,
        "configs": {"retention.ms": "1"},
    }

    def functions(self) -> dict[str, Callable[..., Any]]:
        return public_methods(self.kind, (*RISKY, "producer", "consumer", "admin"))

    def make(self) -> Any:
        made = TestCluster(settings={"auto_create_topics": False})
        made.start()
        made.create_topic("t")
        return made

    def call(self, name: str, /, *positional: Any, **named: Any) -> Any:
        return getattr(self.object, name)(*positional, **named)

    def check(self) -> None:
        if self.object.leader_of("t") != 1:
            raise AssertionError("nobody leads")


OTHERS: Final[dict[str, Callable[[str], Subject]]] = {
    "AsyncTable": lambda at: AsyncTableSubject(AsyncTable, at),
    "AsyncRecordHandler": lambda at: AsyncHandlerSubject(AsyncRecordHandler, at),
    "SendFuture": lambda at: FutureSubject(SendFuture, at),
    "SendBatchFuture": lambda at: FutureSubject(SendBatchFuture, at),
    "TestCluster": lambda at: TestClusterSubject(TestCluster, at),
}
