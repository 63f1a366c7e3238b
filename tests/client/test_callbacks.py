"""What a callback of send() may do: it runs on the client's own thread, and nothing there waits.

Every public call of every client is made from a callback; what is not on the list of those that
never wait must be refused at once, and the client goes on. The calls are read from the classes, so
that one that comes tomorrow is tried as well.
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.hostile_subjects import AdminSubject, ConsumerSubject, ProducerSubject
from tests.support.waiting import HANG_SECONDS
from tidelog.client import (
    AdminClient,
    Consumer,
    Producer,
    RecordHandler,
    SendFuture,
    Table,
    TopicPartition,
)
from tidelog.client.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow

READ: Final = TopicPartition("read", 0)
NEVER_WAIT: Final = {
    Producer: {
        "bootstrap_connected", "metrics", "partitions_for", "send", "send_arrow", "send_batch",
        "transaction",
    },
    Consumer: {
        "assignment", "group_metadata", "highwater", "metrics", "paused", "subscription", "wakeup",
    },
    AdminClient: {"close"},
}  # fmt: skip
"""They look at what is there: a topic, or a cluster, that is known needs no look-up."""
INSIDE: Final = {"become_forked", "close_at_exit", "read_for_transactions"}
GOOD: Final = {
    **ProducerSubject.good, **ConsumerSubject.good, **AdminSubject.good,
    "partition": READ, "topic": "sent",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer(default_partitions=1) as running:
        running.create("sent", 1)
        running.create("read", 1)
        yield running


@pytest.fixture
def producer(server: ContractServer) -> Iterator[Producer]:
    # Nothing leaves before flush(): a callback that was added before runs on the I/O thread.
    with Producer(
        bootstrap_servers=server.address, linger_ms=60_000, max_block_ms=60_000
    ) as producer:
        producer.partitions_for("sent")
        yield producer


def in_callback(producer: Producer, call: Callable[[], Any]) -> Any:
    """What the call returns or raises where callbacks run."""
    found: Future[Any] = Future()

    def on_stored(_: object) -> None:
        assert threading.current_thread().name == "tidelog-producer"
        try:
            found.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            found.set_exception(error)

    producer.send("sent", b"v").add_callback(on_stored)
    threading.Thread(target=producer.flush, daemon=True).start()
    return found.result(HANG_SECONDS)


def refusal(producer: Producer, call: Callable[[], Any]) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        in_callback(producer, call)
    assert caught.value.code is ErrorCode.CONCURRENT_USE, caught.value
    assert "thread of your own" in caught.value.hint
    assert producer.send("sent", b"after").is_done is False
    producer.flush(HANG_SECONDS)
    return caught.value


def calls_of(kind: type) -> Iterator[str]:
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        if not name.startswith("_") and name not in INSIDE and inspect.isfunction(found):
            yield name


def arguments_of(kind: type, name: str) -> dict[str, Any]:
    needed = [
        each.name
        for each in inspect.signature(getattr(kind, name)).parameters.values()
        if each.default is each.empty and each.name != "self"
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    return {each: GOOD.get(f"{name}.{each}", GOOD.get(each)) for each in needed}


def make(kind: type, server: ContractServer) -> Any:
    # What is appended stays: on a busy machine it would be done before anybody waits for it.
    more: dict[type, dict[str, Any]] = {
        Consumer: {"group_id": "g"},
        Producer: {"linger_ms": 60_000},
    }
    return kind(bootstrap_servers=server.address, **more.get(kind, {}))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, id=f"{kind.__name__}.{name}")
        for kind in (Producer, Consumer, AdminClient)
        for name in calls_of(kind)
        if name not in NEVER_WAIT[kind]
    ],
)
def test_a_call_that_may_wait_is_refused_in_a_callback(
    kind: type, name: str, server: ContractServer, producer: Producer
) -> None:
    client = make(kind, server)
    if kind is Producer:
        client.send("sent", b"v")  # Something to wait for.
    elif kind is Consumer:
        client.assign([READ])
    method = getattr(client, name)
    error = refusal(producer, lambda: _used(method(**arguments_of(kind, name))))
    assert "callback" in error.tried
    client.close()


def _used(found: Any) -> Any:
    return list(found) if isinstance(found, Iterator) else found


def test_waiting_for_a_record_inside_a_callback_is_refused(producer: Producer) -> None:
    def wait(wanted: Callable[[], Any]) -> TidelogError:
        return refusal(producer, wanted)

    error = wait(lambda: producer.send("sent", b"w").get())
    assert error.tried == "wait for a record to sent-0 inside a callback"
    wait(lambda: producer.send("sent", b"w").result(5))
    wait(lambda: producer.send("sent", b"w").exception(5))
    wait(lambda: producer.send_batch("sent", [b"w"]).get())
    wait(lambda: producer.send_batch("sent", [b"w"]).exception(5))
    wait(lambda: producer.send("another", b"topic"))
    assert in_callback(producer, lambda: producer.send("sent", b"w").exception()) is None


def test_a_full_buffer_inside_a_callback_is_refused_and_the_producer_goes_on(
    server: ContractServer,
) -> None:
    with Producer(
        bootstrap_servers=server.address,
        linger_ms=60_000,
        max_block_ms=3_600_000,
        buffer_memory=3_000,
        batch_size=500,
    ) as producer:
        producer.partitions_for("sent")

        def fill() -> None:
            while True:
                producer.send("sent", bytes(400))

        assert "full" in refusal(producer, fill).tried
        error = refusal(producer, lambda: producer.send_batch("sent", [bytes(400)] * 50))
        assert "full" in error.tried


def test_closing_its_own_producer_in_a_callback_waits_for_nobody(server: ContractServer) -> None:
    producer = Producer(bootstrap_servers=server.address, linger_ms=60_000)
    producer.partitions_for("sent")
    later: list[SendFuture] = []

    def end() -> None:
        later.append(producer.send("sent", b"later"))
        producer.close()

    in_callback(producer, end)
    error = later[0].exception(HANG_SECONDS)
    assert error is not None
    # By then it may have been on its way already.
    assert error.code in (ErrorCode.CLOSED, ErrorCode.INDETERMINATE)


def test_tables_and_handlers_are_not_run_in_a_callback(
    server: ContractServer, producer: Producer
) -> None:
    refusal(producer, Table("read", bootstrap_servers=server.address).__enter__)
    with Consumer("read", bootstrap_servers=server.address) as consumer:
        handler = RecordHandler(consumer, print, producer, "sent")
        refusal(producer, handler.run_once)
