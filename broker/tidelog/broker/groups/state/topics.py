"""Which topics there are, and which of them a subscription means. Pure.

Owns the view of the metadata and the regular expressions. Patterns are RE2's: matching takes time
linear in the name, whatever the pattern, and a pattern that would need much memory is refused. It
must never be asked before the first view is there: a group would lose all of its partitions.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import re2

from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.messages import GroupTopic
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.ids import TopicId
from tidelog.wire.refusals import invalid

PATTERN_MEMORY_BYTES: Final = 1024 * 1024
"""What one compiled pattern may take; RE2 refuses those that need more."""


class Pattern(Protocol):
    """A compiled pattern, as far as it is used here."""

    def fullmatch(self, text: str) -> object | None:
        """None: it does not match the whole text."""
        ...


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return options


_OPTIONS: Final = _options()


def compile_pattern(pattern: str) -> Pattern:
    """INVALID_ARGUMENT if RE2 does not take it."""
    tried = f"subscribe to topics that match {pattern!r}"
    if len(pattern.encode()) > limits.PATTERN_BYTES_MAX:
        raise invalid(tried, f"it has more than {limits.PATTERN_BYTES_MAX} bytes")
    try:
        compiled: Pattern = re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        hint = "Write the pattern in RE2's syntax: no back references, no look-around."
        raise invalid(tried, f"it is no regular expression of RE2: {text}", hint) from error
    return compiled


class TopicView:
    """All topics of the metadata; a new one replaces it."""

    def __init__(self, topics: Iterable[GroupTopic] = ()) -> None:
        self.by_id: Final[dict[TopicId, GroupTopic]] = {each.topic_id: each for each in topics}
        self._by_name: Final = {each.name: each for each in self.by_id.values()}
        self._resolved: dict[tuple[tuple[str, ...], str], tuple[GroupTopic, ...]] = {}

    def resolve(self, subscription: Subscription) -> tuple[GroupTopic, ...]:
        """The topics that it means and that exist, in ascending order of name."""
        key = (subscription.topics, subscription.topic_pattern)
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = self._resolve(subscription)
        return found

    def _resolve(self, subscription: Subscription) -> tuple[GroupTopic, ...]:
        names = {name: None for name in subscription.topics if name in self._by_name}
        if subscription.topic_pattern:
            pattern = compile_pattern(subscription.topic_pattern)
            for name in self._by_name:
                if pattern.fullmatch(name) is not None:
                    names[name] = None
        return tuple(self._by_name[name] for name in sorted(names))

    def name_of(self, topic_id: TopicId) -> str:
        """Empty: it was deleted."""
        topic = self.by_id.get(topic_id)
        return topic.name if topic else ""


def digest(topics: Mapping[TopicId, GroupTopic]) -> bytes:
    """Says whether two sets of topics are the same, partition counts included."""
    summary = hashlib.blake2b(digest_size=16)
    for topic_id in sorted(topics):
        summary.update(topic_id)
        summary.update(topics[topic_id].partition_count.to_bytes(4, "big"))
    return summary.digest()
