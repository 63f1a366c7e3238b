"""Fetch answers as bytes: batches are copied once, and large answers are made one at a time.

Protobuf would copy batches into its message and out of it again, which for 8 MiB holds the loop up
longer than reading them. Envelopes are still protobuf's, batches are put behind them by hand.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from tidelog.v1 import fetch_pb2

LARGE_BYTES: Final = 256 * 1024
"""Answers of that size take turns."""

_LENGTH_DELIMITED: Final = 2
_PARTITIONS: Final = fetch_pb2.FetchResponse.PARTITIONS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_BATCHES: Final = fetch_pb2.PartitionBatches.BATCHES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
assert (
    fetch_pb2.FetchStreamResponse.PARTITIONS_FIELD_NUMBER
    == fetch_pb2.FetchResponse.PARTITIONS_FIELD_NUMBER
), "both answers have their partitions at one place"
assert max(_PARTITIONS, _BATCHES) < 1 << 7, "a tag of one byte"


def answer_bytes(partitions: Sequence[tuple[bytes, bytes]], rest: bytes) -> bytes:
    """An answer of (envelope, batches) of each partition, and its other fields."""
    parts: list[bytes] = []
    for envelope, batches in partitions:
        batches_head = bytes([_BATCHES]) + varint(len(batches)) if batches else b""
        length = len(envelope) + len(batches_head) + len(batches)
        parts += (bytes([_PARTITIONS]) + varint(length), envelope, batches_head, batches)
    return b"".join((*parts, rest))


def varint(value: int) -> bytes:
    """As protobuf writes lengths."""
    assert value >= 0, "lengths are not negative"
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


class LoopTurns:
    """Lets one large answer be made in a turn of the loop: what else is ready goes in between.

    Many reads can end at once. Without it all answers would be made one behind the other, while
    every other call, heartbeat and deadline of the node waits.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    async def wait(self, length_bytes: int) -> None:
        """For a turn, if the answer is large."""
        if length_bytes < LARGE_BYTES:
            return
        loop = asyncio.get_running_loop()
        if not self._is_taken:
            self._is_taken = True
            loop.call_soon(self._next)
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        """The turn is over, whoever had it: one who is cancelled in the moment in which it is
        given to him could not hand it on, and no answer would ever be made again.
        """
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._is_taken = False
