"""What every client is put together from, whatever it does and on whichever driver.

Owns what the options that all clients have mean for their cores. Holds no state.
"""

import time

from tidelog.client.arguments.options import AdminOptions, ConsumerOptions, ProducerOptions
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.topic_messages import MetadataArrived, MetadataFailed
from tidelog.client.engine.cluster.topics import TopicSettings
from tidelog.client.wire import calls as wire
from tidelog.wire.errors import TidelogError

AnyOptions = AdminOptions | ConsumerOptions | ProducerOptions


def backoff_of(options: AnyOptions) -> Backoff:
    """How long the client waits before it tries again; two clients do not wait alike."""
    return Backoff(
        initial_ms=options.retry_backoff_ms,
        max_ms=options.retry_backoff_max_ms,
        salt=time.monotonic_ns() & 0xFFFF,
    )


def topic_settings_of(options: AnyOptions) -> TopicSettings:
    """When its topics are asked for again, and how long a first answer is waited for."""
    return TopicSettings(
        max_age_ms=options.metadata_max_age_ms, bootstrap_timeout_ms=options.bootstrap_timeout_ms
    )


def metadata_came(answer: bytes | TidelogError) -> MetadataArrived | MetadataFailed:
    """What came of FetchMetadata."""
    if isinstance(answer, TidelogError):
        return MetadataFailed(error=answer)
    return MetadataArrived(view=wire.read_metadata(answer))
