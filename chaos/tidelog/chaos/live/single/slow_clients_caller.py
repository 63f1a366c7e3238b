"""Callers that behave badly on purpose, in a process of their own: `python -m … KIND ADDRESS …`.

Owns what each kind does to a node; whoever starts the process measures the node beside it. A line
`ready` says that all of it is done and held; then the process holds on until it is killed, and
prints once a second how many of its connections the node has hung up on.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.chaos.live.single.slow_clients_wire import WINDOW_MAX, RawCaller, message_prefix
from tidelog.v1 import fetch_pb2

FETCH: Final = "/tidelog.v1.FetchService/Fetch"
FETCH_STREAM: Final = "/tidelog.v1.FetchService/FetchStream"
PRODUCE: Final = "/tidelog.v1.ProduceService/Produce"
PRODUCE_STREAM: Final = "/tidelog.v1.ProduceService/ProduceStream"

MIB: Final = 1024 * 1024
FETCH_BYTES: Final = 8 * MIB
CREDIT_BYTES: Final = 64 * MIB
WHOLE_BYTES: Final = 15 * MIB
"""What is announced of a message that is never finished: as much as a listener takes."""
HALF_BYTES: Final = 14 * MIB
FILL_SECONDS_MAX: Final = 12.0
DRIP_SECONDS: Final = 0.1
LIFE_SECONDS_MAX: Final = 300.0


def fetch_request(topic_id: bytes) -> bytes:
    """All that one answer may hold, of one partition."""
    request = fetch_pb2.FetchRequest(max_bytes=FETCH_BYTES)
    request.positions.add(
        topic_id=topic_id, leader_epoch=-1, last_fetched_epoch=-1, max_bytes=FETCH_BYTES
    )
    return request.SerializeToString()


def stream_request(topic_id: bytes) -> bytes:
    """The same as a stream, with credit for several answers."""
    request = fetch_pb2.FetchStreamRequest(
        credit_bytes=CREDIT_BYTES, session_epoch=1, max_bytes=FETCH_BYTES
    )
    request.positions.add(
        topic_id=topic_id, leader_epoch=-1, last_fetched_epoch=-1, max_bytes=FETCH_BYTES
    )
    return request.SerializeToString()


class Asked:
    """What the command line asks for."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.kind, self.address, topic_id, connections, calls = arguments
        self.topic_id = bytes.fromhex(topic_id)
        self.connections = int(connections)
        self.calls = int(calls)

    def open(self, window_bytes: int = WINDOW_MAX) -> list[RawCaller]:
        """All connections."""
        return [RawCaller(self.address, window_bytes=window_bytes) for _ in range(self.connections)]


def unread(asked: Asked) -> list[RawCaller]:
    """Ask for large answers, grant every window, read nothing from the socket."""
    callers = asked.open()
    for caller in callers:
        for _ in range(asked.calls):
            caller.call(FETCH, fetch_request(asked.topic_id))
    return callers


def no_window(asked: Asked) -> list[RawCaller]:
    """Ask for large answers and grant no window; pings are answered."""
    callers = asked.open(window_bytes=0)
    for caller in callers:
        for _ in range(asked.calls):
            caller.call(FETCH, fetch_request(asked.topic_id))
    return callers


def unread_streams(asked: Asked) -> list[RawCaller]:
    """Streams with credit, of which nothing is read."""
    callers = asked.open()
    for caller in callers:
        for _ in range(asked.calls):
            request = stream_request(asked.topic_id)
            stream_id = caller.begin(FETCH_STREAM)
            caller.send_some(stream_id, message_prefix(len(request)) + request)
    return callers


def half_messages(asked: Asked) -> list[RawCaller]:
    """Most of a large message each, and never the rest."""
    callers = asked.open()
    body = message_prefix(WHOLE_BYTES) + bytes(HALF_BYTES)
    sent = {
        (number, caller.begin(PRODUCE)): 0
        for number, caller in enumerate(callers)
        for _ in range(asked.calls)
    }
    deadline = time.monotonic() + FILL_SECONDS_MAX
    while time.monotonic() < deadline and min(sent.values()) < len(body):
        for (number, stream_id), done in sent.items():
            sent[number, stream_id] += callers[number].send_some(stream_id, body[done : done + MIB])
        for caller in callers:
            caller.read_some(0.001)
    return callers


def silent(asked: Asked) -> list[RawCaller]:
    """Calls and streams without a message."""
    callers = asked.open()
    for caller in callers:
        for number in range(asked.calls):
            caller.begin(PRODUCE if number % 2 else PRODUCE_STREAM)
    return callers


def drip(asked: Asked) -> list[RawCaller]:
    """A byte of a message now and then."""
    callers = asked.open()
    for caller in callers:
        for _ in range(asked.calls):
            stream_id = caller.begin(PRODUCE)
            caller.send_some(stream_id, message_prefix(MIB))
    return callers


KINDS: Final[dict[str, Callable[[Asked], list[RawCaller]]]] = {
    "unread": unread,
    "no-window": no_window,
    "unread-streams": unread_streams,
    "half-messages": half_messages,
    "silent": silent,
    "drip": drip,
}
READERS: Final = ("no-window", "silent", "drip", "half-messages")
"""Kinds that read what is no answer: they see themselves when the node hangs up."""


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    asked = Asked(arguments)
    callers = KINDS[asked.kind](asked)
    print("ready", flush=True)
    deadline = time.monotonic() + LIFE_SECONDS_MAX
    while time.monotonic() < deadline:
        if asked.kind in READERS:
            for caller in callers:
                caller.read_some(0.001)
                if asked.kind == "drip":
                    caller.send_some(1, b"\x00")
        time.sleep(DRIP_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
