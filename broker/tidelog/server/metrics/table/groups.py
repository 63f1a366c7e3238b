"""Metrics of consumer groups, of those that a broker coordinates."""

from typing import Final

from tidelog.server.metrics.seen import (
    of_group_lags,
    of_group_partition_lags,
    of_groups,
    of_records,
)
from tidelog.server.metrics.table.metric import Rows, counter, gauge

GROUPS: Final[Rows] = {
    "tidelog_group_coordinators": gauge(
        "Partitions of `__groups` that it leads; `loading`: what is stored is being read, and "
        "nobody is answered.",
        of_groups(lambda groups: {"loaded": groups.loaded, "loading": groups.led - groups.loaded}),
        "state",
    ),
    "tidelog_groups": gauge(
        "Groups.",
        of_groups(
            lambda groups: {state.name.lower(): number for state, number in groups.states.items()}
        ),
        "state",
    ),
    "tidelog_group_members": gauge("Members of them.", of_groups(lambda groups: groups.members)),
    "tidelog_group_heartbeats": counter(
        "Heartbeats that came to it.", of_records(lambda meter: meter.group_heartbeats)
    ),
    "tidelog_group_rebalances": counter(
        "Assignments that it has computed.", of_records(lambda meter: meter.group_rebalances)
    ),
    "tidelog_group_departures": counter(
        "Members that are members no more, by the reason.",
        of_records(lambda meter: meter.group_departures),
        "reason",
    ),
    "tidelog_group_commits": counter(
        "Offsets that members and others have committed.",
        of_records(lambda meter: meter.committed_offsets),
    ),
    "tidelog_group_commit_refusals": counter(
        "Offsets that were not stored, by the code told.",
        of_records(lambda meter: meter.commit_refusals),
        "code",
    ),
    "tidelog_group_sent_offsets": counter(
        "Offsets that were sent to transactions; they are committed with them or not at all.",
        of_records(lambda meter: meter.sent_offsets),
    ),
    "tidelog_group_lag_records": gauge(
        "Records that are committed by producers and not read by the group, over all of its "
        "partitions; looked at every 5 seconds. Of the 1,000 groups that lag most.",
        of_group_lags(lambda lag: lag),
        "group",
    ),
    "tidelog_group_partition_lag_records": gauge(
        "The same of one partition. Of the 5,000 that lag most.",
        of_group_partition_lags(lambda lag: lag),
        "group",
        "topic",
        "partition",
    ),
    "tidelog_group_lag_left_out": gauge(
        "Groups and partitions of groups whose lag has no line of its own.",
        of_groups(lambda groups: groups.left_out),
    ),
}
