"""The consumer groups' part of a scrape: of the groups that this broker coordinates.

Owns the bound on the number of lines: the groups and partitions that lag most are told one by one,
of the others how many there are.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from tidelog.broker.groups.coordinator.lag import GroupLag
from tidelog.broker.groups.state.answers import GroupState
from tidelog.metadata.image.image import Image
from tidelog.server.roles.broker_groups import BrokerGroups
from tidelog.wire.ids import PartitionKey

GROUPS_MAX: Final = 1_000
"""Groups whose lag has a line of its own."""
PARTITIONS_MAX: Final = 5_000
"""Partitions of groups whose lag has a line of its own."""
GROUPS_A_LOOK: Final = 64
"""After so many it is looked whether the loop should turn."""


class GroupSums(msgspec.Struct, frozen=True, kw_only=True):
    """The groups that this broker coordinates."""

    led: int
    """Partitions of `__groups`."""
    loaded: int
    states: Mapping[GroupState, int]
    members: int
    lags: Sequence[tuple[str, int]]
    """By group, of those that lag most."""
    partition_lags: Sequence[tuple[tuple[str, str, str], int]]
    """By group, topic and partition, of those that lag most."""
    left_out: int
    """Groups and partitions whose lag is not among these."""


async def sum_groups(
    groups: BrokerGroups, image: Image, breathe: Callable[[], Awaitable[None]]
) -> GroupSums:
    """Look at every group once."""
    states, members = dict.fromkeys(GroupState, 0), 0
    loaded = led = 0
    for coordinator in list(groups.coordinators.led()):
        core = coordinator.core
        led += 1
        loaded += core is not None
        for place, name in enumerate([] if core is None else list(core.groups)):
            group = None if core is None else core.groups.get(name)
            if group is not None:
                states[group.state] += 1
                members += len(group.members)
            if place % GROUPS_A_LOOK == GROUPS_A_LOOK - 1:
                await breathe()
    await breathe()
    lags, partition_lags, left_out = _largest(groups.lag.groups, image)
    return GroupSums(
        led=led,
        loaded=loaded,
        states=states,
        members=members,
        lags=lags,
        partition_lags=partition_lags,
        left_out=left_out,
    )


def _largest(
    groups: Mapping[str, GroupLag], image: Image
) -> tuple[list[tuple[str, int]], list[tuple[tuple[str, str, str], int]], int]:
    totals = [(lag.total, name) for name, lag in groups.items()]
    partitions = [
        (lag, name, key) for name, group in groups.items() for key, lag in group.partitions.items()
    ]
    lags = sorted(nlargest(GROUPS_MAX, totals), key=lambda each: each[1])
    shown = nlargest(PARTITIONS_MAX, partitions, key=lambda each: each[0])
    partition_lags = [
        ((name, _topic_name(image, key), str(key.partition)), lag)
        for lag, name, key in sorted(shown, key=lambda each: each[1:])
    ]
    left_out = max(0, len(totals) - GROUPS_MAX) + max(0, len(partitions) - PARTITIONS_MAX)
    return [(name, total) for total, name in lags], partition_lags, left_out


def _topic_name(image: Image, key: PartitionKey) -> str:
    topic = image.topics.get(key.topic_id)
    return key.topic_id.hex() if topic is None else topic.name
