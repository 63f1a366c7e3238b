"""Topics that the cluster itself writes: how they are made, and what nobody else may do to them.

Pure. Owns their settings and the rule that a reserved name only ever gets the topic that the
formatting of the cluster has announced: whoever asks for it first, it comes out the same. It must
never lower the number of replicas that was decided then. `__groups` holds what the coordinators of
groups know, `__transactions` what those of transactions know; the other names are kept free for
coordinators that later releases bring.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata.image.image import Image
from tidelog.metadata.internal_topics import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.metadata.settings import catalogue
from tidelog.wire.batch.limits import BATCH_BYTES_MAX
from tidelog.wire.errors import ErrorCode, TidelogError

SEGMENT_BYTES: Final = 4 * 1024 * 1024
"""Only closed segments are compacted, and a new coordinator reads all that is left: so much is read
in a second or two."""

_OF_COORDINATORS: Final[Mapping[str, str]] = {
    catalogue.CLEANUP_POLICY: "compact",
    catalogue.FLUSH: "sync",
    catalogue.MAX_MESSAGE_BYTES: str(BATCH_BYTES_MAX),
    catalogue.SEGMENT_BYTES: str(SEGMENT_BYTES),
}
_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    GROUPS_TOPIC: _OF_COORDINATORS,
    TRANSACTIONS_TOPIC: _OF_COORDINATORS,
}
"""Of those that this release writes."""


class InternalTopic(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic of a reserved name is made."""

    partition_count: int
    replication_factor: int
    settings: Mapping[str, str]


def announced(image: Image, name: str) -> InternalTopic | None:
    """What the name stands for; None: the name is anybody's."""
    count = image.cluster.internal_partition_counts.get(name)
    if count is None:
        return None
    settings = _SETTINGS.get(name)
    if settings is None:
        raise TidelogError(
            ErrorCode.INVALID_TOPIC_NAME,
            tried=f"create topic {name}",
            happened="the name is reserved for the cluster itself",
        )
    factor = image.cluster.internal_replication_factor
    return InternalTopic(partition_count=count, replication_factor=factor, settings=settings)
