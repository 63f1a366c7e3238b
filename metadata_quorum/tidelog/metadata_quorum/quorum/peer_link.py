"""The leader's AppendEntries stream to one member: a bounded queue, one sender, one receiver.

Theory of operation. The stream is opened when there is something to send, kept while heartbeats
flow, and opened again after a break, with a growing wait. Many requests may be in flight; queued
ones that follow each other are joined, so that a busy leader sends few large messages. Whatever is
lost here Raft sends again.

    push ──► queue ──► join ──► stream.send ─────────────► member
                                stream.receive ◄────────── answers ──► deliver

It must never hold more than its limits, nor reorder what it sends.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.wire.messages import (
    decode_append_response,
    encode_append_request,
)
from tidelog.metadata_quorum.quorum.wire.route import Identity
from tidelog.metadata_quorum.raft.messages import AppendRequest, Message
from tidelog.metadata_quorum.raft.types import MemberId
from tidelog.ports import Clock, DeathHint, Network, PeerUnreachable, Random, Stream, TaskScope
from tidelog.wire.errors import TidelogError

METHOD: Final = "/tidelog.v1.QuorumService/AppendEntries"
_OVERHEAD_BYTES: Final = 64


class LinkPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What every link stands on."""

    network: Network
    clock: Clock
    random: Random
    limits: QuorumLimits
    here: Identity
    deliver: Callable[[Message, int], bool]
    on_dead: Callable[[int], None]
    """The member's process is said to be gone."""
    own_address: Callable[[], str] = str
    """Where this node is reached, as far as it knows."""


class PeerLink:
    """`push` from the runner's task; `run` is a task of its own."""

    def __init__(self, member_id: MemberId, address: Callable[[], str], ports: LinkPorts) -> None:
        self.member_id = member_id
        self._address = address
        self._ports = ports
        self._queue: deque[AppendRequest] = deque()
        self._queue_bytes = 0
        self._news = asyncio.Event()
        self._failures = 0
        self._is_reported_dead = False
        self.last_error: TidelogError | None = None
        self.messages_lost = 0

    def push(self, request: AppendRequest) -> None:
        """Send when it is its turn; over the limit the oldest heartbeats go, then the oldest."""
        assert request.receiver == self.member_id, "a link leads to one member"
        self._queue.append(request)
        self._queue_bytes += size_of(request)
        limits = self._ports.limits
        while len(self._queue) > 1 and (
            len(self._queue) > limits.peer_queue_max
            or self._queue_bytes > limits.peer_queue_bytes_max
        ):
            self._lose_one()
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wait_news()
            stream: Stream | None = None
            try:
                stream = self._ports.network.stream(self._address(), METHOD)
                await self._talk(stream)
            except TidelogError as error:
                self._on_break(error)
                await self._back_off()
            finally:
                if stream is not None:
                    stream.cancel()

    async def _talk(self, stream: Stream) -> None:
        """Send and receive until the stream breaks or has been idle for long."""
        async with TaskScope() as scope:
            scope.start(self._receive(stream), name=f"answers of {self.member_id.node_id}")
            idle_s = self._ports.limits.stream_idle_ms / 1_000
            while True:
                try:
                    async with asyncio.timeout(idle_s):
                        await self._wait_news()
                except TimeoutError:
                    break
                while self._queue:
                    await stream.send(
                        encode_append_request(
                            self._ports.here, self._take(), self._ports.own_address()
                        )
                    )
            await stream.end_sending()
            scope.cancel()

    async def _receive(self, stream: Stream) -> None:
        while (data := await stream.receive()) is not None:
            self._failures = 0
            self._is_reported_dead = False
            self._ports.deliver(decode_append_response(self._ports.here, data), len(data))
        raise PeerUnreachable(
            tried=f"replicate to node {self.member_id.node_id}",
            happened="the member ended the stream",
            death_hint=DeathHint.NONE,
        )

    async def _wait_news(self) -> None:
        if not self._queue:
            self._news.clear()
            await self._news.wait()

    def _take(self) -> AppendRequest:
        """The oldest, joined with those that go on where it ends."""
        first = self._pop()
        entries = list(first.entries)
        size_bytes = size_of(first)
        last = first
        while self._queue and entries and follows(last, self._queue[0]):
            size_bytes += size_of(self._queue[0])
            if size_bytes > self._ports.limits.append_bytes_max:
                break
            last = self._pop()
            entries += last.entries
        if last is first:
            return first
        return msgspec.structs.replace(
            first,
            entries=tuple(entries),
            commit_index=max(first.commit_index, last.commit_index),
            round=last.round,
        )

    def _pop(self) -> AppendRequest:
        request = self._queue.popleft()
        self._queue_bytes -= size_of(request)
        return request

    def _lose_one(self) -> None:
        self.messages_lost += 1
        for place in range(len(self._queue) - 1):
            request = self._queue[place]
            if not request.entries and request.snapshot is None:
                del self._queue[place]
                self._queue_bytes -= size_of(request)
                return
        self._pop()

    def _on_break(self, error: TidelogError) -> None:
        self.last_error = error
        self._failures += 1
        if self._failures > 1:
            # What waited through a failed attempt is old; the leader's next heartbeat tells more.
            self._queue.clear()
            self._queue_bytes = 0
        hint = error.death_hint if isinstance(error, PeerUnreachable) else DeathHint.NONE
        if hint is not DeathHint.NONE and not self._is_reported_dead:
            self._is_reported_dead = True
            self._ports.on_dead(self.member_id.node_id)

    async def _back_off(self) -> None:
        limits = self._ports.limits
        wait_ms = min(
            limits.reconnect_max_ms, limits.reconnect_first_ms << min(self._failures - 1, 10)
        )
        await self._ports.clock.sleep(wait_ms // 2 + self._ports.random.below(wait_ms // 2 + 1))


def size_of(request: AppendRequest) -> int:
    """About what the request takes in memory and on the wire."""
    size_bytes = _OVERHEAD_BYTES
    for entry in request.entries:
        size_bytes += len(entry.data) + _OVERHEAD_BYTES
    return size_bytes


def follows(first: AppendRequest, second: AppendRequest) -> bool:
    """Whether both together say what one request with the entries of both says."""
    return (
        bool(first.entries)
        and bool(second.entries)
        and first.term == second.term
        and first.sender == second.sender
        and second.snapshot is None
        and first.snapshot is None
        and second.previous_index == first.entries[-1].index
        and second.previous_term == first.entries[-1].term
    )
