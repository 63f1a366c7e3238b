"""Tidelog with its own client, for `bench.torn`.

Owns the node, its client and its reader. The client is used as its documentation says: an error
that is retriable is answered by the same call once more, one that demands it by an abort.
"""

import time
from types import TracebackType
from typing import Final, Self

from bench.holding_proxy import HoldingProxy
from bench.peers.tidelog_node import TidelogNode
from tidelog.client import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.wire.errors import TidelogError

TOPIC: Final = "torn"
CALL_SECONDS: Final = 60.0
TRIES_MAX: Final = 20
READ_SECONDS_MAX: Final = 60.0
_FRAME_HEAD_BYTES: Final = 9
_OF_A_CALL: Final = (0, 1)
"""Types of frames: DATA and HEADERS."""


class EndOfTransaction:
    """Finds the request in what a client sends: armed while nothing else carries its id.

    A call is a head, which is compressed, and a message, which holds the transactional id in plain
    bytes. Where the head went ahead, the server waits for the message: the same delay.
    """

    def __init__(self) -> None:
        self.transactional_id = ""

    def __call__(self, data: bytes) -> int | None:
        return 0 if self.transactional_id.encode() in data else None


def holds_answer(data: bytes) -> bool:
    """Whether there is a frame of HTTP/2 that belongs to a call: a head or data, no settings."""
    place = 0
    while place + _FRAME_HEAD_BYTES <= len(data):
        if data[place + 3] in _OF_A_CALL:
            return True
        place += _FRAME_HEAD_BYTES + int.from_bytes(data[place : place + 3], "big")
    return False


class TidelogProgram:
    """See `bench.torn.Program`."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._producer = self._made()

    def _made(self) -> Producer:
        made = Producer(bootstrap_servers=self._bootstrap, transactional_id=self._transactional_id)
        made.init_transactions(CALL_SECONDS)
        return made

    def begin(self) -> None:
        """See `bench.torn.Program`."""
        self._producer.begin_transaction()

    def send(self, partition: int, value: str) -> None:
        """See `bench.torn.Program`."""
        self._producer.send(TOPIC, value.encode(), partition=partition).get(CALL_SECONDS)

    def end(self, *, is_commit: bool) -> None:
        """See `bench.torn.Program`."""
        call = self._producer.commit_transaction if is_commit else self._producer.abort_transaction
        for _ in range(TRIES_MAX):
            try:
                call(CALL_SECONDS)
            except TidelogError as error:
                if not error.retriable:
                    raise
            else:
                return
        raise RuntimeError("the end of the transaction was tried often enough")

    def give_up(self) -> None:
        """See `bench.torn.Program`."""
        try:
            self.end(is_commit=False)
        except (TidelogError, RuntimeError):
            self._producer.close()
            self._producer = self._made()

    def close(self) -> None:
        """See `bench.torn.Program`."""
        self._producer.close()


class TidelogTarget:
    """See `bench.torn.Target`."""

    name = "Tidelog"

    def __init__(self) -> None:
        self._wanted = EndOfTransaction()
        self.proxy = HoldingProxy(self._wanted, holds_answer)
        try:
            self._node = TidelogNode(advertised=self.proxy.address)
        except BaseException:
            self.proxy.close()
            raise
        self.proxy.lead_to(self._node.bootstrap)
        try:
            with AdminClient(bootstrap_servers=self.proxy.address) as admin:
                admin.create_topics([NewTopic(TOPIC, 2, 1)])
        except BaseException:
            self.close()
            raise

    def start(self, label: str) -> TidelogProgram:
        """See `bench.torn.Target`."""
        self._wanted.transactional_id = f"torn-{label}"
        return TidelogProgram(self.proxy.address, self._wanted.transactional_id)

    def committed(self) -> list[str]:
        """See `bench.torn.Target`."""
        names = [TopicPartition(TOPIC, number) for number in (0, 1)]
        with Consumer(
            bootstrap_servers=self.proxy.address,
            isolation_level="read_committed",
            enable_auto_commit=False,
            group_id=None,
            auto_offset_reset="earliest",
        ) as reader:
            with AdminClient(bootstrap_servers=self.proxy.address) as admin:
                found = admin.list_partition_offsets(dict.fromkeys(names, "latest"))
            ends = {name: 0 if at is None else at.offset for name, at in found.items()}
            reader.assign(names)
            reader.seek_to_beginning(*names)
            values: list[str] = []
            deadline = time.monotonic() + READ_SECONDS_MAX
            while any(reader.position(name) < ends[name] for name in names):
                for records in reader.poll(timeout_ms=100).values():
                    values += [(each.value or b"").decode() for each in records]
                if time.monotonic() > deadline:
                    raise RuntimeError("a reader of committed records waits")
        return values

    def close(self) -> None:
        """End the node and the proxy."""
        self.proxy.close()
        self._node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
