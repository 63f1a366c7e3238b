"""Notices that a partition is not read although it should be, and has it told, now and then.

Owns what counts as in the way, and since when: a user whose `poll` stays empty must not have to
guess whether there is nothing to read or nobody to read it from. It must never change what is
asked. As `waiting` for producers: one notice tells of the partition that has waited for longest,
and of how many others there are; a last one, that nothing is in the way any more.

Theory of operation. A partition is looked at twice a second, while anything happens at all.

    served ──not read by an open stream──► hindered ──5 s──► told ──30 s──► told again ──► …
      ▲                                       │                │
      └──── read for a second on end ◄────────┴────────────────┘

That second tells a leader that serves from one that takes the position and then refuses it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.client.engine.cluster.backoff import NS_PER_MS
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.times import AGAIN_NS, FIRST_NS, LOOK_NS
from tidelog.client.engine.cluster.topics import TopicDesk
from tidelog.client.engine.fetch.link import FetchLink
from tidelog.client.engine.fetch.messages import TellReadAgain, TellUnread
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

STEADY_NS: Final = 1_000 * NS_PER_MS
"""Of being read, before a hindrance counts as over."""
UNDRIVEN_NS: Final = 1_000 * NS_PER_MS
"""Without a look that was due: nobody was inside a call."""


class _Hindered(msgspec.Struct):
    since_ns: int
    error: TidelogError
    read_since_ns: int | None = None
    """It seems to be over since then."""


class ReadWatch:
    """One per consumer."""

    def __init__(
        self, metadata: MetadataCache, topics: TopicDesk, links: Mapping[int, FetchLink]
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._links = links
        self._hindered: dict[TopicPartition, _Hindered] = {}
        self._look_at_ns = 0
        self._is_look_due = False
        """Something has happened since the last look."""
        self._told_at_ns: int | None = None
        self._told_since_ns = 0

    def tick(
        self, partitions: Mapping[TopicPartition, PartitionState], now_ns: int
    ) -> list[TellUnread | TellReadAgain]:
        """At most one notice."""
        if now_ns < self._look_at_ns:
            self._is_look_due = True
            return []
        if self._is_look_due and now_ns - self._look_at_ns >= UNDRIVEN_NS:
            # The user was busy elsewhere: what his thread did not wait for has hindered nobody.
            self._hindered.clear()
            self._told_at_ns = None
        self._look_at_ns = now_ns + LOOK_NS
        self._look(partitions, now_ns)
        # Nothing else may happen for long while a broker is silent: time has to be looked at.
        self._is_look_due = bool(self._hindered)
        return self._news(now_ns)

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: all is well."""
        return self._look_at_ns if self._is_look_due else None

    def _look(self, partitions: Mapping[TopicPartition, PartitionState], now_ns: int) -> None:
        for gone in [name for name in self._hindered if name not in partitions]:
            del self._hindered[gone]
        for name, state in partitions.items():
            found = self._hindered.get(name)
            if not self._is_wanted(state):
                self._hindered.pop(name, None)
            elif (error := self._in_the_way(state)) is not None:
                if found is None:
                    self._hindered[name] = _Hindered(now_ns, error)
                else:
                    found.error, found.read_since_ns = error, None
            elif found is not None:
                found.read_since_ns = found.read_since_ns or now_ns
                if now_ns - found.read_since_ns >= STEADY_NS:
                    del self._hindered[name]

    def _news(self, now_ns: int) -> list[TellUnread | TellReadAgain]:
        late = [
            (each.since_ns, name)
            for name, each in self._hindered.items()
            if now_ns - each.since_ns >= FIRST_NS
        ]
        if not late:
            if self._told_at_ns is None:
                return []
            self._told_at_ns = None
            return [TellReadAgain(waited_ms=(now_ns - self._told_since_ns) // NS_PER_MS)]
        if self._told_at_ns is not None and now_ns - self._told_at_ns < AGAIN_NS:
            return []
        since_ns, name = min(late)
        self._told_at_ns, self._told_since_ns = now_ns, since_ns
        leader = self._metadata.leader(*name)
        return [
            TellUnread(
                partition=name,
                address="" if leader is None else leader[0].address,
                error=self._hindered[name].error,
                waited_ms=(now_ns - since_ns) // NS_PER_MS,
                others=len(late) - 1,
            )
        ]

    @staticmethod
    def _is_wanted(state: PartitionState) -> bool:
        """Whether it would be read if nothing were in the way; held ones are their group's."""
        has_rule = state.fetch_offset is not None or state.reset is not None
        return has_rule and state.error is None and not state.is_silent and not state.is_draining

    def _in_the_way(self, state: PartitionState) -> TidelogError | None:
        """Why it is not read now; None: it is."""
        name = state.topic_partition
        link = None if state.broker_id is None else self._links.get(state.broker_id)
        if link is not None and link.is_open:
            return None
        if self._topics.failure is not None:
            return self._topics.failure
        if name.topic not in self._metadata.topics:
            return _missing(name, "nobody has told yet who leads it")
        leader = self._metadata.leader(name.topic, name.partition)
        if leader is None:
            return _missing(name, f"partition {name.topic}-{name.partition} has no leader")
        if state.failures and state.failure is not None:
            return state.failure
        to_leader = self._links.get(leader[0].broker_id)
        if to_leader is not None and to_leader.failures and to_leader.failure is not None:
            return to_leader.failure
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=f"read {name.topic}-{name.partition}",
            happened=f"{leader[0].address}: no answer yet",
        )


def _missing(name: TopicPartition, happened: str) -> TidelogError:
    topic = name.topic
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=f"read {topic}-{name.partition}",
        happened=happened,
        hint=f"see which brokers hold it, and whether they run: tidelog topic describe {topic}",
    )
