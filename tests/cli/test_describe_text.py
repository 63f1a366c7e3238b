"""What `topic describe`, `cluster describe` and `broker log-dirs` print, from values alone."""

import json
from typing import Any

import msgspec
import pytest

from tidelog.cli.broker import log_dirs as broker_log_dirs
from tidelog.cli.cluster import confirm_clock as cluster_confirm_clock
from tidelog.cli.cluster import describe as cluster_describe
from tidelog.cli.frame.commands import make_parser
from tidelog.cli.show.clock_text import clock_text
from tidelog.cli.topic import describe as topic_describe
from tidelog.client.types.admin import BrokerStatus
from tidelog.client.types.directories import BrokerLogDirs, LogDir, LogDirReplica
from tidelog.client.types.records import (
    BrokerDescription,
    ClusterDescription,
    IneligibleReplica,
    PartitionDescription,
    PartitionSummary,
    ReplicaDescription,
    TopicDescription,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.moments import moment

DAMAGE = TidelogError(
    ErrorCode.STORAGE_CORRUPT, tried="read x", happened="damage at byte 7", hint="Look at it."
)


def part(number: int, **values: Any) -> PartitionDescription:
    known: dict[str, Any] = {
        "partition": number,
        "leader": 1,
        "leader_epoch": 1,
        "replicas": (1, 2),
        "isr": (1, 2),
        "log_start_offset": 0,
        "high_watermark": 10,
        "size_bytes": 100,
    }
    return PartitionDescription(**{**known, **values})


def topic(*parts: PartitionDescription) -> TopicDescription:
    return TopicDescription(
        name="t",
        topic_id=bytes(16),
        is_internal=False,
        replication_factor=2,
        configs={"min.insync.replicas": "2"},
        partitions=parts,
    )


LED = ReplicaDescription(
    broker_id=1, log_end_offset=12, flushed_offset=12, lag=0, size_bytes=100, is_known=True
)
BEHIND = ReplicaDescription(broker_id=2, log_end_offset=9, lag=3, caught_up_ago_ms=40)


def test_the_lag_of_a_partition_is_that_of_its_furthest_follower() -> None:
    text = topic_describe.as_text(topic(part(0, replica_states=(LED, BEHIND)), part(1)))
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [row[-1] for row in rows] == ["3", "-"]


def test_each_replica_has_a_line_with_how_it_stands() -> None:
    gone = ReplicaDescription(broker_id=3)
    stopped = msgspec.structs.replace(BEHIND, broker_id=4, is_known=True, failure=DAMAGE)
    text = topic_describe.as_text(
        topic(part(0, replicas=(1, 2, 3, 4), replica_states=(LED, BEHIND, gone, stopped))),
        replicas=True,
    )
    lines = text.splitlines()
    states = [line.split("  ")[-1] for line in lines[5:9]]
    assert states == ["in sync", "not reached", "not reached", "stopped"]
    assert lines[-2:] == [
        "  partition 0 on broker 4 has stopped [STORAGE_CORRUPT]: damage at byte 7",
        "    hint: Look at it.",
    ]


def test_a_partition_without_a_leader_says_who_may_lead() -> None:
    told = list(topic_describe.troubles(part(3, leader=-1, eligible=(2,))))
    assert told == ["partition 3 has no leader; may lead without a loss: 2"]
    assert next(topic_describe.troubles(part(3, leader=-1))).endswith("nobody")


@pytest.mark.parametrize(
    ("live", "told"),
    [
        ({1}, "; broker 2, which has a replica of it, is not there: start it"),
        (set[int](), "; brokers 1,2, which have replicas of it, are not there: start them"),
        ({1, 2}, ": nobody"),
    ],
)
def test_a_partition_without_a_leader_names_the_brokers_that_it_waits_for(
    live: set[int], told: str
) -> None:
    assert next(topic_describe.troubles(part(3, leader=-1), live)).endswith(told)


def test_a_replica_that_may_not_lead_is_named_with_the_reason_and_a_hint() -> None:
    found = IneligibleReplica(broker_id=2, reason="its directory went back", hint="Wait.")
    shown = msgspec.structs.replace(part(3), ineligible=(found,))
    assert list(topic_describe.troubles(shown)) == [
        "partition 3 on broker 2 may not lead: its directory went back",
        "  hint: Wait.",
    ]
    printed = json.dumps(topic_describe.as_json(topic(shown)))
    assert '"broker_id": 2, "reason": "its directory went back", "hint": "Wait."' in printed


def test_conditions_choose_partitions_and_several_choose_more() -> None:
    all_ = topic(part(0), part(1, isr=(1,)), part(2, leader=-1), part(3, isr=()))

    def shown(*words: str) -> list[int]:
        arguments = make_parser(("topic", "describe")).read(words)
        assert arguments is not None
        is_wanted = topic_describe.choice(arguments)
        assert is_wanted is not None
        return [each.partition for each in topic_describe.chosen(all_, is_wanted).partitions]

    assert shown("--under-replicated-partitions") == [1, 3]
    assert shown("--under-min-isr-partitions") == [1, 3]
    assert shown("--at-min-isr-partitions") == [0, 2]
    assert shown("--unavailable-partitions") == [2]
    assert shown("--unavailable-partitions", "--under-min-isr-partitions") == [1, 2, 3]


def test_programs_get_the_state_of_each_replica() -> None:
    found: Any = topic_describe.as_json(topic(part(0, replica_states=(LED,), eligible=(1, 2))))
    (state,) = found["partitions"][0]["replica_states"]
    assert (state["broker_id"], state["lag"], state["failure"]) == (1, 0, None)
    assert found["partitions"][0]["eligible"] == [1, 2]


REPLICA = LogDirReplica(
    topic="t", topic_id=bytes(16), partition=0, size_bytes=2048, log_end_offset=9, offset_lag=1
)
DIRECTORY = LogDir(path="d1", directory_uuid=bytes(16), free_bytes=1024, replicas=(REPLICA,))


def test_directories_show_sizes_and_why_one_has_stopped() -> None:
    failed = LogDir(path="d2", directory_uuid=bytes(16), free_bytes=-1, replicas=(), failure=DAMAGE)
    dead = BrokerLogDirs(broker_id=2, directories=(), failure=DAMAGE)
    text = broker_log_dirs.as_text(
        [BrokerLogDirs(broker_id=1, directories=(DIRECTORY, failed)), dead], replicas=True
    )
    lines = text.splitlines()
    assert lines[1].split() == ["1", "d1", "ok", "1", "2.0", "KiB", "1.0", "KiB"]
    assert lines[2].split()[:3] == ["1", "d2", "stopped"]
    assert "not reached" in lines[3]
    assert lines[6].split() == ["1", "d1", "t:0", "9", "1", "2.0", "KiB", "ok"]
    assert lines[7] == "broker 1, d2: [STORAGE_CORRUPT] damage at byte 7 (hint: Look at it.)"
    assert lines[8].startswith("broker 2: [STORAGE_CORRUPT]")


def test_a_cluster_shows_what_needs_a_look_and_brokers_that_could_not_be_asked() -> None:
    brokers = tuple(
        BrokerDescription(
            broker_id=each,
            address=f"n{each}:1",
            rack="",
            is_fenced=each == 2,
            leader_count=1,
            replica_count=2,
        )
        for each in (1, 2)
    )
    cluster = ClusterDescription(
        cluster_id="c",
        controller_id=1,
        brokers=brokers,
        release="r",
        partitions=PartitionSummary(topic_count=1, partition_count=2, under_replicated_count=2),
    )
    known = {1: BrokerLogDirs(broker_id=1, directories=(DIRECTORY,))}
    lines = cluster_describe.as_text(cluster, known).splitlines()
    assert lines[1] == "Partitions: 1 topic, 2 partitions; 2 under-replicated"
    assert lines[3].split() == ["1", "n1:1", "-", "live", "1", "2", "2.0", "KiB", "1", "-"]
    assert lines[4].split() == ["2", "n2:1", "-", "fenced", "1", "2", "-", "-", "-"]
    found: Any = cluster_describe.as_json(cluster, known)
    assert [each["size_bytes"] for each in found["brokers"]] == [2048, -1]
    assert found["partitions"]["under_replicated_count"] == 2
    assert found["without_controller_ms"] == 0
    stale = msgspec.structs.replace(cluster, controller_id=-1, without_controller_ms=42_999)
    lines = cluster_describe.as_text(stale, {}).splitlines()
    assert lines[1].startswith("No controller for 42 s: this is as it was then, and may have ")
    assert [line.split()[3] for line in lines[-2:]] == ["not", "fenced"]


def status(broker_id: int, state: str, skew_ms: int = 0) -> BrokerStatus:
    return BrokerStatus(
        broker_id=broker_id,
        broker_epoch=1,
        address="",
        rack="",
        host="",
        is_fenced=False,
        is_draining=False,
        is_shutting_down=False,
        leader_count=0,
        replica_count=0,
        last_contact_ms=0,
        release="r",
        clock_state=state,
        clock_skew_ms=skew_ms,
        clock_wall_ms=1_790_000_000_000,
    )


def test_a_cluster_shows_which_clocks_are_off_and_by_how_much() -> None:
    broker = BrokerDescription(
        broker_id=2, address="n2:1", rack="", is_fenced=False, leader_count=0, replica_count=0
    )
    cluster = ClusterDescription(
        cluster_id="c",
        controller_id=1,
        brokers=(broker,),
        release="r",
        partitions=PartitionSummary(topic_count=0, partition_count=0),
    )
    clocks = {2: status(2, "off", 86_400_000)}
    assert cluster_describe.as_text(cluster, None, clocks).splitlines()[3].endswith("off +24h00m")
    found: Any = cluster_describe.as_json(cluster, None, clocks)
    assert found["brokers"][0]["clock_state"] == "off"
    assert found["brokers"][0]["clock_skew_ms"] == 86_400_000


@pytest.mark.parametrize(
    ("state", "skew_ms", "text"),
    [
        ("right", 12, "right +12ms"),
        ("right", -1_500, "right -1.5s"),
        ("off", 65_000, "off +1m05s"),
        ("off", -86_400_000 * 20_000, "off -20000d00h"),
        ("held", 7 * 86_400_000, "held +7d00h"),
        ("alone", 0, "alone"),
        ("no_majority", 0, "no majority"),
        ("unknown", 0, "-"),
    ],
)
def test_a_clock_in_a_column(state: str, skew_ms: int, text: str) -> None:
    assert clock_text(status(1, state, skew_ms)) == text


def test_confirming_a_clock_shows_first_what_it_says() -> None:
    held = [status(1, "held", 86_400_000)]
    shown = cluster_confirm_clock.as_text(held, is_executed=False).splitlines()
    assert "2026-09-21T14:13:20+00:00, +24h00m off" in shown[0]
    assert shown[1].startswith("nothing was done")
    assert "confirmed" in cluster_confirm_clock.as_text(held, is_executed=True)
    assert "nothing to confirm" in cluster_confirm_clock.as_text([], is_executed=True)
    assert cluster_confirm_clock.resource(held[0]).name == "1"
    assert moment(10**18) == f"{10**18} ms since 1970"
