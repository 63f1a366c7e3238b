"""Decides when metadata is fetched, for which topics, and who is told what came of it.

Owns the list of topics in use, the waiting for unknown ones and the refresh rules: at most one
request at a time, backoff after a failure, a refresh when the age limit is reached or somebody
found the view stale.
"""

from typing import Protocol

import msgspec

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.metadata import ClusterView, MetadataCache
from tidelog.client.engine.cluster.topic_messages import FetchMetadata, RefuseTopic, RouteTopic
from tidelog.wire.errors import ErrorCode, TidelogError

UNKNOWN_TOPIC_GRACE_MS = 2_000
"""A topic that is being created may be unknown to the broker that was asked."""

TOPICS_A_REQUEST = 1_000
"""The contract's bound: a request that names more is refused."""

TopicEffect = FetchMetadata | RouteTopic | RefuseTopic


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the desk needs of a client's options."""

    max_age_ms: int
    bootstrap_timeout_ms: int


class HasTried(Protocol):
    """Names what the waiting caller is doing, for errors."""

    def __call__(self, topic: str) -> str: ...


def produce_to(topic: str) -> str:
    """What a producer is doing with a topic."""
    return f"produce to {topic}"


def deleted(topic: str, tried: str) -> TidelogError:
    """Of a topic that was in use."""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC,
        tried=tried,
        happened=f"topic {topic!r} was deleted",
        hint=f"create it again with `tidelog topic create {topic}`",
    )


class TopicDesk:
    """One per client; shared by nobody."""

    def __init__(
        self,
        settings: TopicSettings,
        metadata: MetadataCache,
        backoff: Backoff,
        tried: HasTried = produce_to,
    ) -> None:
        self.metadata = metadata
        self.wanted: dict[str, int] = {}
        """Topics somebody waits for, and since when."""
        self.noticed: dict[str, None] = {}
        """Topics of which it would be good to know; they need not be there, and are not made."""
        self.used: dict[str, None] = {}
        self.gone: dict[str, None] = {}
        """Topics in use that are not there any more; told once."""
        self._asked: dict[str, None] = {}
        """In the present round: more topics than one request may name take several."""
        self._is_round_open = False
        self.is_fetching = False
        self.due_at_ns: int | None = None
        """When the next request is to go out; None: no need for one."""
        self.failures = 0
        self.failure: TidelogError | None = None
        """Why the last request was not answered; None: it was."""
        self._asked_at_ns = -(1 << 62)
        self._settings = settings
        self._backoff = backoff
        self._tried = tried

    def want(self, topic: str, now_ns: int) -> None:
        """Somebody waits for this topic."""
        if topic in self.wanted:
            return
        self.wanted[topic] = now_ns
        if not self.failures:
            self.due_at_ns = now_ns
            return
        self.refresh(now_ns)

    def notice(self, topic: str, now_ns: int) -> None:
        """Find out what the topic has, if it is there."""
        if topic not in self.used and topic not in self.wanted:
            self.noticed[topic] = None
            self.refresh(now_ns)

    def refresh(self, now_ns: int) -> None:
        """The view is stale: ask again, at once unless that was done just now."""
        at_ns = self._asked_at_ns + self._backoff.delay_ns(max(1, self.failures))
        at_ns = max(at_ns, now_ns)
        if self.due_at_ns is None or at_ns < self.due_at_ns:
            self.due_at_ns = at_ns

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do; None while a request is under way."""
        return None if self.is_fetching else self.due_at_ns

    def tick(self, now_ns: int) -> list[TopicEffect]:
        """Ask if it is time and nobody is asking already."""
        if self.is_fetching or self.due_at_ns is None or now_ns < self.due_at_ns:
            return []
        self.is_fetching = True
        self._asked_at_ns = now_ns
        self.due_at_ns = None
        if not self._is_round_open:
            self._asked = {}
        # A request that may make topics names only those that somebody waits for.
        also = self.wanted or self.noticed
        left = [name for name in dict.fromkeys((*also, *self.used)) if name not in self._asked]
        names = left[:TOPICS_A_REQUEST]
        self._asked.update(dict.fromkeys(names))
        self._is_round_open = len(left) > len(names)
        may_create = any(name in self.wanted for name in names)
        return [FetchMetadata(topics=tuple(names), may_create=may_create)]

    def on_metadata(self, view: ClusterView, now_ns: int) -> list[TopicEffect]:
        """Take the answer in; tell those who wait."""
        self.is_fetching = False
        try:
            is_newer = self.metadata.apply(view, now_ns)
        except TidelogError as error:
            return self.on_failure(error, now_ns)
        if not is_newer:
            self._is_round_open = False
            self.refresh(now_ns)
            return []
        self.failures = 0
        self.failure = None
        effects: list[TopicEffect] = []
        for topic in view.topics:
            effects += self._settle(topic.name, topic.error, now_ns)
        # A topic that became wanted while the request was under way is not in this answer.
        missing = [name for name in self.wanted if name not in self.metadata.topics]
        if self._is_round_open:
            self.due_at_ns = now_ns
        elif missing:
            answered = {topic.name for topic in view.topics} | self._asked.keys()
            if any(name not in answered for name in missing):
                self.due_at_ns = now_ns
            else:
                self.refresh(now_ns)
        elif self.used:
            at_ns = now_ns + self._settings.max_age_ms * NS_PER_MS
            self.due_at_ns = at_ns if self.due_at_ns is None else min(self.due_at_ns, at_ns)
        return effects

    def on_failure(self, error: TidelogError, now_ns: int) -> list[TopicEffect]:
        """Nobody answered. A client that never had a cluster gives up soon, others go on."""
        self.is_fetching = self._is_round_open = False
        self.failures += 1
        self.failure = error
        limit_ns = self._settings.bootstrap_timeout_ms * NS_PER_MS
        effects: list[TopicEffect] = []
        for name, since_ns in list(self.wanted.items()):
            is_final = not error.retriable or (
                not self.metadata.is_known and now_ns >= since_ns + limit_ns
            )
            effects.append(RefuseTopic(topic=name, error=error, is_final=is_final))
            if is_final:
                del self.wanted[name]
        if self.wanted or self.used:
            self.refresh(now_ns)
        return effects

    def _settle(self, name: str, error: TidelogError | None, now_ns: int) -> list[TopicEffect]:
        topic = self.metadata.topics.get(name)
        if error is None and topic is not None and topic.partitions:
            self.wanted.pop(name, None)
            self.noticed.pop(name, None)
            self.used[name] = None
            self.gone.pop(name, None)
            route = RouteTopic(
                topic=name, topic_id=topic.topic_id, partition_count=len(topic.partitions)
            )
            return [route]
        since_ns = self.wanted.get(name)
        is_unknown = error is None or error.code is ErrorCode.UNKNOWN_TOPIC
        if since_ns is None:
            if not is_unknown or name not in self.used or name in self.gone:
                return []
            self.gone[name] = None
            return [RefuseTopic(topic=name, error=deleted(name, self._tried(name)), is_final=True)]
        if error is None or is_unknown:
            # The broker knows all names, this client only those that it has used.
            hint = "" if error is None else error.hint
            error = self.metadata.unknown_topic(name, tried=self._tried(name), hint=hint)
        is_final = not error.retriable or now_ns >= since_ns + UNKNOWN_TOPIC_GRACE_MS * NS_PER_MS
        if is_final:
            del self.wanted[name]
        return [RefuseTopic(topic=name, error=error, is_final=is_final)]
