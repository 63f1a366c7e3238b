"""The consumer groups' part of a scrape: of the groups that this broker coordinates.

Owns the bound on the number of lines: the groups and partitions that lag most are told one by one,
of the others how many there are.
"""

from collections.abc import Awaitable, Callable, Mapping
from heapq import nlargest
from typing import Final

from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.coordinator.lag import GroupLag
from tidelog.broker.groups.state.answers import GroupState
from tidelog.broker.shared.meter import Meter
from tidelog.metadata.image.image import Image
from tidelog.server.metrics.scrape import Scrape
from tidelog.server.roles.broker_groups import BrokerGroups
from tidelog.wire.ids import PartitionKey

GROUPS_MAX: Final = 1_000
"""Groups whose lag has a line of its own."""
PARTITIONS_MAX: Final = 5_000
"""Partitions of groups whose lag has a line of its own."""
GROUPS_A_LOOK: Final = 64
"""After so many it is looked whether the loop should turn."""


async def gather_groups(
    scrape: Scrape,
    groups: BrokerGroups,
    meter: Meter,
    image: Image,
    breathe: Callable[[], Awaitable[None]],
) -> None:
    """All of it."""
    await _gather_states(scrape, groups.coordinators, breathe)
    scrape.set("tidelog_group_heartbeats", meter.group_heartbeats)
    scrape.set("tidelog_group_rebalances", meter.group_rebalances)
    for reason, number in meter.group_departures.items():
        scrape.set("tidelog_group_departures", number, reason)
    scrape.set("tidelog_group_commits", meter.committed_offsets)
    for code, number in meter.commit_refusals.items():
        scrape.set("tidelog_group_commit_refusals", number, code)
    await breathe()
    _gather_lag(scrape, groups.lag.groups, image)


async def _gather_states(
    scrape: Scrape, coordinators: GroupCoordinators, breathe: Callable[[], Awaitable[None]]
) -> None:
    counts = dict.fromkeys(GroupState, 0)
    members = loaded = led = 0
    for coordinator in list(coordinators.led()):
        core = coordinator.core
        led += 1
        loaded += core is not None
        for place, name in enumerate([] if core is None else list(core.groups)):
            group = None if core is None else core.groups.get(name)
            if group is not None:
                counts[group.state] += 1
                members += len(group.members)
            if place % GROUPS_A_LOOK == GROUPS_A_LOOK - 1:
                await breathe()
    scrape.set("tidelog_group_coordinators", loaded, "loaded")
    scrape.set("tidelog_group_coordinators", led - loaded, "loading")
    for state, number in counts.items():
        scrape.set("tidelog_groups", number, state.name.lower())
    scrape.set("tidelog_group_members", members)


def _gather_lag(scrape: Scrape, groups: Mapping[str, GroupLag], image: Image) -> None:
    totals = [(lag.total, name) for name, lag in groups.items()]
    partitions = [
        (lag, name, key) for name, group in groups.items() for key, lag in group.partitions.items()
    ]
    for total, name in sorted(nlargest(GROUPS_MAX, totals), key=lambda each: each[1]):
        scrape.set("tidelog_group_lag_records", total, name)
    shown = nlargest(PARTITIONS_MAX, partitions, key=lambda each: each[0])
    for lag, name, key in sorted(shown, key=lambda each: each[1:]):
        scrape.set(
            "tidelog_group_partition_lag_records",
            lag,
            name,
            _topic_name(image, key),
            str(key.partition),
        )
    left_out = max(0, len(totals) - GROUPS_MAX) + max(0, len(partitions) - PARTITIONS_MAX)
    scrape.set("tidelog_group_lag_left_out", left_out)


def _topic_name(image: Image, key: PartitionKey) -> str:
    topic = image.topics.get(key.topic_id)
    return key.topic_id.hex() if topic is None else topic.name
