"""Uniform for members that do not subscribe to the same topics. Pure.

Owns the search for an even load. Members and topics are a graph: one leads to another over a topic
of which it has a partition and to which the other subscribes. As long as a path leads from a member
to one with at least two partitions less, one partition is handed on along each of its edges: the
first loses one, the last gains one, those between keep their number. Where no such path is left no
assignment is more even (the loads are those of an optimal semi-matching). Paths are as short as
they can be and hand on what was given last, so that few partitions leave their former owner.
"""

import heapq
from collections import deque
from typing import Final

from tidelog.broker.groups.assignors.types import Assignment, Wanted, partitions_of
from tidelog.wire.ids import PartitionKey, TopicId


def assign(wanted: Wanted) -> Assignment:
    """Every partition of every topic, to one of its subscribers."""
    search = _Search(wanted)
    search.keep_and_fill()
    search.even_out()
    return search.assignment()


class _Search:
    """Who has what while it is being changed."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted: Final = wanted
        self._names: Final = [member.member_id for member in wanted.members]
        self._topics: Final = [dict.fromkeys(member.topics) for member in wanted.members]
        self._subscribers: Final[dict[TopicId, tuple[int, ...]]] = self._find_subscribers()
        self._owned: Final[list[dict[TopicId, list[PartitionKey]]]] = [{} for _ in self._names]
        self._loads: Final = [0 for _ in self._names]

    def _find_subscribers(self) -> dict[TopicId, tuple[int, ...]]:
        found: dict[TopicId, list[int]] = {}
        for at, topics in enumerate(self._topics):
            for topic_id in topics:
                found.setdefault(topic_id, []).append(at)
        return {topic_id: tuple(places) for topic_id, places in found.items()}

    def _give(self, at: int, key: PartitionKey) -> None:
        self._owned[at].setdefault(key.topic_id, []).append(key)
        self._loads[at] += 1

    def keep_and_fill(self) -> None:
        """First what each had; then the rest, the topics with the fewest takers first."""
        kept: dict[PartitionKey, None] = {}
        for at, name in enumerate(self._names):
            for key in sorted(self._wanted.former.get(name, {})):
                count = self._wanted.partition_counts.get(key.topic_id, 0)
                if key.topic_id in self._topics[at] and key.partition < count and key not in kept:
                    kept[key] = None
                    self._give(at, key)
        counts = self._wanted.partition_counts
        scarce = sorted(
            (topic_id for topic_id in counts if topic_id in self._subscribers),
            key=lambda topic_id: len(self._subscribers[topic_id]),
        )
        heaps: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for topic_id in scarce:
            takers = self._subscribers[topic_id]
            heap = heaps.get(takers)
            if heap is None:
                heap = heaps[takers] = [(self._loads[at], at) for at in takers]
                heapq.heapify(heap)
            for key in partitions_of(topic_id, counts[topic_id]):
                if key not in kept:
                    self._give(self._least_loaded(heap), key)

    def _least_loaded(self, heap: list[tuple[int, int]]) -> int:
        """Loads in a heap are out of date where another heap has given: put right at the top."""
        while heap[0][0] != self._loads[heap[0][1]]:
            at = heap[0][1]
            heapq.heapreplace(heap, (self._loads[at], at))
        at = heap[0][1]
        heapq.heapreplace(heap, (self._loads[at] + 1, at))
        return at

    def even_out(self) -> None:
        """From the most loaded down, until no path is left that helps."""
        is_moving = True
        while is_moving:
            is_moving = False
            done: dict[int, None] = {}
            for at in sorted(range(len(self._names)), key=lambda each: -self._loads[each]):
                while at not in done and self._lighten(at, done):
                    is_moving = True

    def _lighten(self, start: int, done: dict[int, None]) -> bool:
        """Hand one on along the shortest path to a member with two less; False: there is none.

        Then nobody within reach is two below `start`, nor two below itself: `done`, and no way
        for anybody that has not more than `start`.
        """
        limit = self._loads[start] - 2
        came: dict[int, tuple[int, TopicId]] = {}
        seen_topics: dict[TopicId, None] = {}
        queue = deque([start])
        while queue:
            at = queue.popleft()
            for topic_id, keys in self._owned[at].items():
                if not keys or topic_id in seen_topics:
                    continue
                seen_topics[topic_id] = None
                takers = self._subscribers[topic_id]
                found = min(takers, key=lambda each: (self._loads[each], each))
                if self._loads[found] <= limit:
                    came[found] = (at, topic_id)
                    self._hand_on(start, found, came)
                    return True
                for each in takers:
                    if each != start and each not in came and each not in done:
                        came[each] = (at, topic_id)
                        queue.append(each)
        done[start] = None
        for each in came:
            done[each] = None
        return False

    def _hand_on(self, start: int, end: int, came: dict[int, tuple[int, TopicId]]) -> None:
        at = end
        while at != start:
            giver, topic_id = came[at]
            key = self._owned[giver][topic_id].pop()
            self._owned[at].setdefault(topic_id, []).append(key)
            at = giver
        self._loads[start] -= 1
        self._loads[end] += 1

    def assignment(self) -> Assignment:
        """As every assignor gives it."""
        return {
            name: sorted(key for keys in owned.values() for key in keys)
            for name, owned in zip(self._names, self._owned, strict=True)
        }
