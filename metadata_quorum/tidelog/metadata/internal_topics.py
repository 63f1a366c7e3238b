"""The names that are the cluster's own, and what their topics lack. Pure."""

from typing import Final

import msgspec

from tidelog.metadata.eligibility import may_take_replicas
from tidelog.metadata.image.image import Image, TopicImage
from tidelog.wire.ids import BrokerId
from tidelog.wire.refusals import invalid

GROUPS_TOPIC: Final = "__groups"
TRANSACTIONS_TOPIC: Final = "__transactions"


def is_reserved(image: Image, name: str) -> bool:
    """Whether the name is the cluster's own."""
    return name in image.cluster.internal_partition_counts


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
