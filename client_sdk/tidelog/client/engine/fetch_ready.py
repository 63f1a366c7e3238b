"""What was fetched and waits for the user, oldest first.

Owns the queue of verified bytes and gives their credit back when they are handed over or dropped.
It must never hand over bytes of a generation that is over: a seek made them void.
"""

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from tidelog.client.engine.fetch_link import FetchLink
from tidelog.client.engine.fetch_messages import Fetched
from tidelog.client.engine.fetch_partition import PartitionState
from tidelog.client.types import TopicPartition


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
            if state.is_paused or state.is_held:
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
            if state is not None and state.generation == fetched.generation:
                kept.append(fetched)
            else:
                self._give_back(fetched)
        self._waiting = kept

    def _give_back(self, fetched: Fetched) -> None:
        link = self._links.get(fetched.broker_id)
        if link is not None:
            link.consume(len(fetched.data))
