"""Notices that a partition's batches do not get anywhere, and has it told, now and then.

Owns how long is waited before it is told and how often: a user who waits must not have to guess
for two minutes. It must never change what is sent. One notice tells of the partition that has been
in trouble for longest, and of how many others there are.
"""

from collections.abc import Mapping

from tidelog.client.engine.cluster.backoff import NS_PER_MS
from tidelog.client.engine.cluster.times import AGAIN_NS, FIRST_NS, LOOK_NS
from tidelog.client.engine.cluster.topics import TopicDesk, deleted
from tidelog.client.engine.produce.lane import Lane
from tidelog.client.engine.produce.link import Link
from tidelog.client.engine.produce.messages import TellWaiting
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId


class WaitWatch:
    """One per producer."""

    def __init__(self) -> None:
        self._look_at_ns = 0
        self._is_look_due = False
        self._told_at_ns: int | None = None

    def tick(
        self,
        lanes: Mapping[tuple[str, int], Lane],
        links: Mapping[int, Link],
        now_ns: int,
    ) -> list[TellWaiting]:
        """At most one notice."""
        if now_ns < self._look_at_ns:
            self._is_look_due = bool(lanes)
            return []
        self._look_at_ns, self._is_look_due = now_ns + LOOK_NS, False
        found: list[tuple[int, str, int]] = []
        for (topic, partition), lane in lanes.items():
            since_ns = trouble_since_ns(lane, links)
            # Nothing else may happen for long while a broker is silent: time has to be looked at.
            self._is_look_due = self._is_look_due or since_ns is not None
            if since_ns is not None and now_ns - since_ns >= FIRST_NS:
                found.append((since_ns, topic, partition))
        if not found:
            self._told_at_ns = None
            return []
        if self._told_at_ns is not None and now_ns - self._told_at_ns < AGAIN_NS:
            return []
        self._told_at_ns = now_ns
        since_ns, topic, partition = min(found)
        lane = lanes[topic, partition]
        return [
            TellWaiting(
                topic=topic,
                partition=PartitionId(partition),
                error=lane.trouble or _silent(topic, partition, lane.broker_id),
                attempts=lane.oldest.attempts,
                waited_ms=(now_ns - since_ns) // NS_PER_MS,
                others=len(found) - 1,
            )
        ]

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: nothing is in the way."""
        return self._look_at_ns if self._is_look_due else None


def trouble_since_ns(lane: Lane, links: Mapping[int, Link]) -> int | None:
    """Since when it gets nowhere; None: nothing is known to be wrong."""
    if lane.trouble is not None:
        return lane.trouble_since_ns
    link = links.get(lane.broker_id)
    if lane.in_flight and link is not None:
        return link.silent_since_ns
    return None


def note_missing(topic: str, partition: int, lane: Lane, topics: TopicDesk, now_ns: int) -> None:
    """Nobody leads the partition, or there is no such topic any more: then it is wanted again."""
    error = no_leader(topic, partition)
    if topic not in topics.metadata.topics:
        error = deleted(topic, f"produce to {topic}-{partition}")
        topics.want(topic, now_ns)
    lane.note_trouble(error, now_ns)
    lane.waiting[0].last_error = error


def no_leader(topic: str, partition: int) -> TidelogError:
    """Nobody could be sent anything."""
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=f"produce to {topic}-{partition}",
        happened=f"partition {topic}-{partition} has no leader",
        hint=f"see which brokers hold it, and whether they run: tidelog topic describe {topic}",
    )


def _silent(topic: str, partition: int, broker_id: int) -> TidelogError:
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=f"produce to {topic}-{partition}",
        happened=f"broker {broker_id} has not answered for partition {topic}-{partition}",
        hint="it may wait for replicas that are in sync: tidelog topic describe " + topic,
    )
