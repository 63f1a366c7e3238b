"""Async functions where the client calls plain ones: refused where it can be seen, and never taken
for done where it cannot.

The places are read from the signatures: whatever is annotated as a function is tried.
"""

import asyncio
import collections.abc
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.client.support.contract_server import ContractServer
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.client import (
    Consumer,
    ConsumerRebalanceListener,
    Producer,
    RecordHandler,
    RetryPolicy,
    SendBatchFuture,
    SendFuture,
    Table,
    TopicPartition,
)
from tidelog.client.aio import (
    AsyncConsumer,
    AsyncProducer,
    AsyncRecordHandler,
    AsyncSendBatchFuture,
    AsyncSendFuture,
    AsyncTable,
)
from tidelog.client.errors import ArgumentTypeError

KINDS: Final = (
    Producer, AsyncProducer, Consumer, AsyncConsumer, Table, AsyncTable, RecordHandler,
    SendFuture, SendBatchFuture, AsyncSendFuture, AsyncSendBatchFuture,
)  # fmt: skip
GOOD: Final[dict[str, Any]] = {
    "topic": "t", "consumer": SimpleNamespace(poll=print), "producer": SimpleNamespace(send=print),
    "handle": print, "dead_letter_topic": "dead", "arguments": {},
}  # fmt: skip
PLACES_MIN: Final = 25
"""There were 37 when this was written."""


async def async_function(*_: object) -> None:
    """Does nothing at all when it is called."""


class Async:
    async def method(self, *_: object) -> None:
        """As `async_function`."""

    async def __call__(self, *_: object) -> None:
        """As `async_function`."""


async def async_generator(*_: object) -> typing.AsyncIterator[int]:
    yield 1


ASYNC: Final[dict[str, Any]] = {
    "async def": async_function,
    "a method": Async().method,
    "an object": Async(),
    "a partial": functools.partial(functools.partial(async_function, 1), 2),
    "a partial of an object": functools.partial(Async()),
    "a generator": async_generator,
}


def is_function(hint: Any) -> bool:
    kinds = {typing.get_origin(each) for each in (hint, *typing.get_args(hint))}
    return collections.abc.Callable in kinds


def places() -> Iterator[tuple[type, str, str]]:
    for kind in KINDS:
        for name, call in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_") and name != "__init__":
                continue
            hints = typing.get_type_hints(call)
            unpacked = hints.pop("arguments", None)
            if unpacked is not None:
                hints |= typing.get_type_hints(typing.get_args(unpacked)[0])
            yield from ((kind, name, each) for each, hint in hints.items() if is_function(hint))


PLACES: Final = list(places())


def use(kind: Any, name: str, given: dict[str, Any]) -> None:
    """The call itself, on an object that can do nothing else."""
    if name == "__init__":
        kind(**given)
    elif issubclass(kind, SendFuture):
        getattr(kind(None, 0, 0), name)(**given)
    else:
        getattr(kind.__new__(kind), name)(**given)


def test_the_places_were_found() -> None:
    assert len(PLACES) >= PLACES_MIN, PLACES


@pytest.mark.parametrize(
    ("kind", "name", "parameter"), PLACES, ids=lambda each: getattr(each, "__name__", each)
)
@pytest.mark.parametrize("form", ASYNC)
def test_an_async_function_is_refused_where_a_plain_one_is_called(
    kind: Any, name: str, parameter: str, form: str
) -> None:
    call = getattr(kind, name)
    given = {
        each.name: GOOD[each.name]
        for each in inspect.signature(call).parameters.values()
        if each.default is each.empty and each.name in GOOD and each.name != "arguments"
    }
    given[parameter] = ASYNC[form]
    with pytest.raises(ArgumentTypeError) as caught:
        use(kind, name, given)
    assert parameter in caught.value.happened
    assert "plain function" in caught.value.hint


@pytest.mark.parametrize("name", ["revoked", "assigned", "lost"])
def test_an_async_method_of_a_plain_consumers_listener_is_refused(name: str) -> None:
    listener = ConsumerRebalanceListener()
    setattr(listener, f"on_partitions_{name}", async_function)
    with Consumer(group_id="g") as consumer, pytest.raises(ArgumentTypeError) as caught:
        consumer.subscribe("t", listener=listener)
    assert f"on_partitions_{name}" in caught.value.happened


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer(default_partitions=1) as running:
        with Producer(bootstrap_servers=running.address) as producer:
            producer.send("t", b"v", b"k").get(HANG_SECONDS)
        yield running


def hidden(*_: object) -> Any:
    """A plain function by its looks."""
    return async_function()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["handle", "commit", "sleep"])
def test_no_record_counts_as_handled_by_what_nobody_awaits(
    server: ContractServer, name: str
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError

    commits: list[Any] = []
    given: dict[str, Any] = {"handle": print, "commit": commits.append, "sleep": print}
    if name == "sleep":
        given["handle"] = fail
    given[name] = hidden
    with (
        Producer(bootstrap_servers=server.address) as producer,
        Consumer(bootstrap_servers=server.address, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        handler = RecordHandler(consumer, producer=producer, dead_letter_topic="dead", **given)
        with pytest.raises(ArgumentTypeError) as caught:
            handler.run_once(HANG_MS)
        assert f"{name} returned a coroutine" in caught.value.happened
        assert handler.counts.dead_letters == 0
        assert not commits
        if name != "commit":
            assert handler.counts.handled == 0
            assert consumer.position(TopicPartition("t", 0)) == 0


@pytest.mark.slow
def test_a_callback_that_nobody_awaits_is_told_of(
    server: ContractServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(bootstrap_servers=server.address) as producer:
        producer.send("t", b"v").add_callback(hidden).get(HANG_SECONDS)
        producer.send_batch("t", [b"v"]).add_callback(hidden).get(HANG_SECONDS)
    assert caplog.text.count("returned a coroutine, which nobody awaits") == 2


@pytest.mark.slow
def test_progress_that_nobody_awaits_ends_the_loading(server: ContractServer) -> None:
    table = Table("t", on_progress=hidden, bootstrap_servers=server.address)
    with pytest.raises(ArgumentTypeError, match="on_progress returned a coroutine"):
        table.__enter__()


@pytest.mark.slow
def test_a_pause_that_is_none_ends_the_asynchronous_handler(server: ContractServer) -> None:
    asyncio.run(_handle_with_a_plain_pause(server))


async def _handle_with_a_plain_pause(server: ContractServer) -> None:
    def fail(_: object) -> Any:
        raise RuntimeError

    pauses: list[float] = []
    async with (
        AsyncProducer(bootstrap_servers=server.address) as producer,
        AsyncConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        handler = AsyncRecordHandler(
            consumer,
            fail,
            producer,
            "dead",
            policy=RetryPolicy(tries=3),
            sleep=typing.cast("Callable[[float], Any]", pauses.append),
        )
        with pytest.raises(ArgumentTypeError, match="sleep is no async function"):
            await handler.run_once(HANG_MS)
    assert len(pauses) == 1
