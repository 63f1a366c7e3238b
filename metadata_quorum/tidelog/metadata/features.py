"""Which levels of which features this release speaks. Pure.

A feature's level is finalised in the log, separately from any node's release: what is written and
sent follows the level, so that nodes of two releases can run side by side. A level that a node
does not know stops it: it would misread what follows.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.metadata.image.nodes import BrokerImage
from tidelog.metadata.records.broker import FeatureRange
from tidelog.metadata.records.cluster import ClusterRecord, FeatureRecord, FormatRecord
from tidelog.wire.errors import ErrorCode, TidelogError

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"

SUPPORTED: Final[Mapping[str, FeatureRange]] = {
    GROUP_VERSION: FeatureRange(0, 1),
    METADATA_VERSION: FeatureRange(1, 1),
    TRANSACTION_VERSION: FeatureRange(0, 2),
}
"""What this release speaks, in ascending order of name; level 0: the feature is off.

`group.version` 1: groups whose members the coordinator assigns, with records of version 1 in
`__groups`. Off, no broker names a coordinator: a cluster whose metadata are of before, or with
brokers that do not know groups, takes them up once the level is raised.

`transaction.version` 2: transactions whose every end brings a new epoch, with records of version 1
in `__transactions` and markers in the logs. Below it no broker names a coordinator and no leader
takes a transactional batch. 1 is kept for the listener for Kafka's protocol, and is as off as 0.
"""

TRANSACTIONS_ON: Final = 2
"""From this level of `transaction.version` on there are transactions."""

OFF: Final = FeatureRange(0, 0)


def validate_level(name: str, level: int) -> None:
    """UNSUPPORTED_VERSION if this release cannot work at the level."""
    supported = SUPPORTED.get(name, OFF)
    if not supported.level_min <= level <= supported.level_max:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=f"work with `{name}` at level {level}",
            happened=f"this release speaks levels {supported.level_min} to {supported.level_max}",
            hint="Upgrade this node; a level that is in force is not lowered by a restart.",
        )


def common_range(name: str, brokers: Iterable[BrokerImage]) -> FeatureRange | None:
    """The levels that this release and all the brokers speak; None: there is none."""
    ranges = [SUPPORTED.get(name, OFF)]
    ranges += [broker.features.get(name, OFF) for broker in brokers]
    lowest = max(each.level_min for each in ranges)
    highest = min(each.level_max for each in ranges)
    return FeatureRange(lowest, highest) if lowest <= highest else None


def bootstrap_records(
    cluster_id: str,
    *,
    default_replication_factor: int,
    internal_replication_factor: int,
    internal_partition_counts: Mapping[str, int],
) -> tuple[FormatRecord | ClusterRecord | FeatureRecord, ...]:
    """The first command of a new cluster, with every feature at its highest level."""
    assert cluster_id, "a cluster has an id"
    assert default_replication_factor >= 1, "a topic has at least one replica"
    assert internal_replication_factor >= 1, "an internal topic has at least one replica"
    return (
        FormatRecord(cluster_id=cluster_id),
        *(
            FeatureRecord(name=name, level=supported.level_max)
            for name, supported in SUPPORTED.items()
            if supported.level_max > 0
        ),
        ClusterRecord(
            default_replication_factor=default_replication_factor,
            internal_replication_factor=internal_replication_factor,
            internal_partition_counts=dict(sorted(internal_partition_counts.items())),
        ),
    )
