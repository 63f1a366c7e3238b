"""What the topic desk says and hears; producer and consumer share it.

Owns no behaviour.
"""

import msgspec

from tidelog.client.engine.cluster.metadata import ClusterView
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import TopicId


class TopicWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody waits for a topic that is not known yet."""

    topic: str


class MetadataArrived(msgspec.Struct, frozen=True, kw_only=True):
    """A broker answered."""

    view: ClusterView


class MetadataFailed(msgspec.Struct, frozen=True, kw_only=True):
    """No address answered; the error names each of them."""

    error: TidelogError


class FetchMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Ask any broker; answer with MetadataArrived or MetadataFailed."""

    topics: tuple[str, ...]
    may_create: bool = True
    """Somebody waits for one of them. Else an unknown one was deleted, and must stay so."""


class RouteTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The topic is known."""

    topic: str
    topic_id: TopicId
    partition_count: int


class RefuseTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Those who wait for the topic are told why they wait in vain."""

    topic: str
    error: TidelogError
    is_final: bool
    """False: it is still tried; the error is what a timeout would report."""
