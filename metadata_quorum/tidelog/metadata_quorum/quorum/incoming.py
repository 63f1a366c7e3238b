"""What members ask of this node and the core answers later: streams, votes, reads.

Owns the way back. The core's answers find the call or stream that they belong to; an answer that
nobody waits for is lost, as on any network. It must never hold more calls than its limits.
"""

import asyncio
from collections import deque

from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.waiting import again, settle
from tidelog.metadata_quorum.raft.messages import (
    AppendResponse,
    ReadIndexResponse,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import MemberId
from tidelog.wire.errors import ErrorCode, TidelogError


class IncomingStream:
    """The end of a leader's stream here; one task sends the answers."""

    def __init__(self, sender: MemberId, limits: QuorumLimits) -> None:
        self.sender = sender
        self._limits = limits
        self._answers: deque[AppendResponse] = deque()
        self._news = asyncio.Event()
        self._failure: TidelogError | None = None

    def push(self, response: AppendResponse) -> None:
        """Answer; when the leader does not take them the oldest are lost."""
        self._answers.append(response)
        if len(self._answers) > self._limits.peer_queue_max:
            self._answers.popleft()
        self._news.set()

    def fail(self, error: TidelogError) -> None:
        """This node stops."""
        self._failure = error
        self._news.set()

    async def wait_answer(self) -> AppendResponse:
        """The next answer; raises when this node stops."""
        while not self._answers:
            if self._failure is not None:
                raise again(self._failure)
            self._news.clear()
            await self._news.wait()
        return self._answers.popleft()


class Incoming:
    """All calls and streams of members that wait for the core."""

    def __init__(self, limits: QuorumLimits) -> None:
        self._limits = limits
        self._streams: dict[MemberId, IncomingStream] = {}
        self._votes: dict[tuple[MemberId, bool], deque[asyncio.Future[VoteResponse]]] = {}
        self._votes_waiting = 0
        self._reads: dict[int, asyncio.Future[ReadIndexResponse]] = {}
        self._reads_made = 0

    def open(self, sender: MemberId) -> IncomingStream:
        """A stream begins; it takes the place of an older one of the same sender."""
        older = self._streams.pop(sender, None)
        if older is not None:
            older.fail(_replaced(sender))
        stream = self._streams[sender] = IncomingStream(sender, self._limits)
        return stream

    def close(self, stream: IncomingStream) -> bool:
        """A stream has ended; False: a newer one of the same sender is there."""
        if self._streams.get(stream.sender) is not stream:
            return False
        del self._streams[stream.sender]
        return True

    def expect_vote(self, sender: MemberId, *, is_pre_vote: bool) -> "asyncio.Future[VoteResponse]":
        """Before a vote request is handed to the core."""
        if self._votes_waiting >= self._limits.answers_waiting_max:
            raise _too_many("vote requests", self._limits.answers_waiting_max)
        future: asyncio.Future[VoteResponse] = asyncio.get_running_loop().create_future()
        self._votes.setdefault((sender, is_pre_vote), deque()).append(future)
        self._votes_waiting += 1
        return future

    def forget_vote(
        self, sender: MemberId, future: "asyncio.Future[VoteResponse]", *, is_pre_vote: bool
    ) -> None:
        """The call has ended."""
        waiting = self._votes.get((sender, is_pre_vote))
        if waiting is not None and future in waiting:
            waiting.remove(future)
            self._votes_waiting -= 1
            if not waiting:
                del self._votes[sender, is_pre_vote]

    def expect_read(self) -> tuple[int, "asyncio.Future[ReadIndexResponse]"]:
        """Before a read request is handed to the core; its `read_id` here."""
        if len(self._reads) >= self._limits.answers_waiting_max:
            raise _too_many("reads", self._limits.answers_waiting_max)
        self._reads_made += 1
        future: asyncio.Future[ReadIndexResponse] = asyncio.get_running_loop().create_future()
        self._reads[self._reads_made] = future
        return self._reads_made, future

    def forget_read(self, read_id: int) -> None:
        """The call has ended."""
        self._reads.pop(read_id, None)

    def answer(self, message: AppendResponse | VoteResponse | ReadIndexResponse) -> None:
        """The core answered."""
        match message:
            case AppendResponse():
                stream = self._streams.get(message.receiver)
                if stream is not None:
                    stream.push(message)
            case VoteResponse():
                waiting = self._votes.get((message.receiver, message.is_pre_vote))
                if waiting:
                    settle(waiting[0], message)
                    self.forget_vote(message.receiver, waiting[0], is_pre_vote=message.is_pre_vote)
            case ReadIndexResponse():
                future = self._reads.pop(message.read_id, None)
                if future is not None:
                    settle(future, message)

    def fail_all(self, error: TidelogError) -> None:
        """This node stops: nobody is left without an outcome."""
        for stream in list(self._streams.values()):
            stream.fail(error)
        for waiting in list(self._votes.values()):
            for vote in waiting:
                settle(vote, again(error))
        for read in list(self._reads.values()):
            settle(read, again(error))


def _too_many(what: str, limit: int) -> TidelogError:
    return TidelogError(
        ErrorCode.RESOURCE_EXHAUSTED,
        tried="ask a member of the quorum",
        happened=f"{limit} {what} wait here",
    )


def _replaced(sender: MemberId) -> TidelogError:
    return TidelogError(
        ErrorCode.CLOSED,
        tried=f"answer node {sender.node_id}",
        happened="it has opened a newer stream",
    )
