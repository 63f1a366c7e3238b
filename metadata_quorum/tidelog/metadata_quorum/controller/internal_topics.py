"""Topics that the cluster itself writes: how they are made, and what nobody else may do to them.

Pure. Owns their settings and the rule that a reserved name only ever gets the topic that the
formatting of the cluster has announced: whoever asks for it first, it comes out the same. It must
never lower the number of replicas that was decided then. `__groups` holds what the coordinators of
groups know; the other names are kept free for coordinators that later releases bring.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata_quorum.controller import setting_catalogue as catalogue
from tidelog.metadata_quorum.controller.load import may_take_replicas
from tidelog.metadata_quorum.controller.refusals import invalid
from tidelog.metadata_quorum.image import Image, TopicImage
from tidelog.wire.batch.limits import BATCH_BYTES_MAX
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

GROUPS_TOPIC: Final = "__groups"
SEGMENT_BYTES: Final = 4 * 1024 * 1024
"""Only closed segments are compacted, and a new coordinator reads all that is left: so much is read
in a second or two."""

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    GROUPS_TOPIC: {
        catalogue.CLEANUP_POLICY: "compact",
        catalogue.FLUSH: "sync",
        catalogue.MAX_MESSAGE_BYTES: str(BATCH_BYTES_MAX),
        catalogue.SEGMENT_BYTES: str(SEGMENT_BYTES),
    },
}
"""Of those that this release writes."""


def is_reserved(image: Image, name: str) -> bool:
    """Whether the name is the cluster's own."""
    return name in image.cluster.internal_partition_counts


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


def refuse_internal(topic: TopicImage, *, tried: str) -> None:
    """What is written by the cluster itself is changed by nobody else."""
    if topic.is_internal:
        raise invalid(tried, "the cluster itself uses it")


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """Why an internal topic cannot be made yet."""

    needed: int
    alive: tuple[BrokerId, ...]
    """Those that may be given replicas."""
    missing: tuple[BrokerId, ...]
    """Registered, and not there at the moment, stopping, or being emptied."""

    def __str__(self) -> str:
        if not self.missing:
            others = "no other is registered"
        else:
            others = f"missing: {', '.join(str(each) for each in self.missing[:20])}"
        return f"it needs {self.needed} brokers, {len(self.alive)} take replicas; {others}"


def shortage_of(image: Image) -> Shortage | None:
    """What is missing for an internal topic; None: nothing."""
    needed = image.cluster.internal_replication_factor
    alive = [each for each, broker in image.brokers.items() if may_take_replicas(broker)]
    if len(alive) >= needed:
        return None
    missing = [each for each in image.brokers if each not in alive]
    return Shortage(needed=needed, alive=tuple(sorted(alive)), missing=tuple(sorted(missing)))
