"""What was fetched and waits for the user, oldest first.

Owns the queue of verified bytes and gives their credit back when they are handed over or dropped.
It must never hand over bytes of a generation that is over: a seek made them void.

What waits of a paused partition is kept, within the window of its broker. When it leaves the others
no room, the newest of it goes and is asked for again once the user has taken the rest: so whoever
pauses and resumes at each poll is not sent the same bytes at each poll.
"""

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from tidelog.client.engine.fetch.link import FetchLink
from tidelog.client.engine.fetch.messages import Fetched
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.types.records import TopicPartition


class ReadyQueue:
    """Over the consumer's own partitions and links, which it only looks up."""

    def __init__(
        self, partitions: Mapping[TopicPartition, PartitionState], links: Mapping[int, FetchLink]
    ) -> None:
        self._partitions = partitions
        self._links = links
        self._waiting: deque[Fetched] = deque()

    def __iter__(self) -> Iterator[Fetched]:
        return iter(self._waiting)

    def add(self, fetched: Fetched) -> None:
        """Bytes came."""
        self._waiting.append(fetched)

    def take(self) -> Fetched | None:
        """The next bytes for the user; paused and held partitions are skipped."""
        for index, fetched in enumerate(self._waiting):
            state = self._partitions.get(fetched.topic_partition)
            assert state is not None, f"{fetched.topic_partition} is ready but not assigned"
            assert state.generation == fetched.generation, f"{state!r} kept void bytes"
            if state.is_silent:
                continue
            del self._waiting[index]
            self._give_back(fetched)
            return fetched
        return None

    def put_back(self, fetched: Fetched, first_offset: int) -> None:
        """Nothing from the offset on could be given to the user: it is the next again."""
        state = self._partitions.get(fetched.topic_partition)
        if state is None or state.generation != fetched.generation:
            return
        assert fetched.first_offset <= first_offset < fetched.next_offset, (
            f"{state!r}: {first_offset} is not in what was fetched"
        )
        self._waiting.appendleft(msgspec.structs.replace(fetched, first_offset=first_offset))
        link = self._links.get(fetched.broker_id)
        if link is not None:
            link.take_back(len(fetched.data))

    def drop_void(self) -> None:
        """Let go of bytes that a seek, a step back or a new assignment made void."""
        kept: deque[Fetched] = deque()
        for fetched in self._waiting:
            state = self._partitions.get(fetched.topic_partition)
            if state is not None and state.keeps(fetched):
                kept.append(fetched)
            else:
                self._give_back(fetched)
        self._waiting = kept

    def make_room(self, link: FetchLink, room_bytes: int, window_bytes: int) -> None:
        """Let go of the newest of paused partitions where the others have no credit left and would
        get no `room_bytes` of the window, however much of theirs the user takes.
        """
        kept_bytes_max = window_bytes - room_bytes
        if link.outstanding_bytes > 0 or link.buffered_bytes <= kept_bytes_max:
            return
        silent = {name for name, state in self._partitions.items() if state.is_silent}
        is_read = any(state.broker_id == link.broker_id for state in self._partitions.values())
        if not silent or not is_read:
            return
        kept = [
            fetched
            for fetched in self._waiting
            if fetched.topic_partition in silent and fetched.broker_id == link.broker_id
        ]
        excess_bytes = sum(len(fetched.data) for fetched in kept) - kept_bytes_max
        while excess_bytes > 0:
            fetched = kept.pop()
            self._partitions[fetched.topic_partition].let_go(fetched.first_offset)
            excess_bytes -= len(fetched.data)
        self.drop_void()

    def _give_back(self, fetched: Fetched) -> None:
        link = self._links.get(fetched.broker_id)
        if link is not None:
            link.consume(len(fetched.data))
