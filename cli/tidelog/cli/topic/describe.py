"""`tidelog topic describe`: a topic, a line for each partition, what is wrong with it."""

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json, stale_text
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK, print_stderr
from tidelog.cli.show.table import known, listed, size, table

if TYPE_CHECKING:
    from tidelog.client.types.records import (
        PartitionDescription,
        ReplicaDescription,
        TopicDescription,
    )

DESCRIPTION: Final = (
    "Describe topics: partition count, replication factor and settings, then leader, "
    "replicas and in-sync replicas (Isr) of each partition, its first offset (Start), the "
    "offset behind its last committed record (End), its size on the leader's disk, and how "
    "many records the furthest follower lacks (Lag), as the leader answers. `-`: it could not "
    "be reached. Below: replicas that have stopped and why, partitions without a leader."
)
EXAMPLES: Final = (
    ("tidelog topic describe orders", "one topic"),
    ("tidelog topic describe orders --replicas", "each replica: how far, how large, in order?"),
    ("tidelog topic describe --under-replicated-partitions", "what lacks a replica, of all topics"),
    ("tidelog topic describe --json", "all topics, for programs"),
)
_HEAD: Final = ("Partition", "Leader", "Replicas", "Isr", "Start", "End", "Size", "Lag")
_RIGHT: Final = "Partition Leader Start End Size Lag"
_REPLICA_HEAD: Final = (
    "Partition",
    "Broker",
    "Role",
    "LogEnd",
    "Flushed",
    "Lag",
    "CaughtUp",
    "Size",
    "State",
)
_REPLICA_RIGHT: Final = "Partition Broker LogEnd Flushed Lag CaughtUp Size"
_MIN_ISR: Final = "min.insync.replicas"


def configure(parser: Parser) -> None:
    """Names, choice and form."""
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    parser.add_argument(
        "--replicas", action="store_true", help="a line for each replica, as its broker knows it"
    )
    parser.add_argument(
        "--under-replicated-partitions",
        action="store_true",
        help="only partitions with fewer replicas in sync than they have",
    )
    parser.add_argument(
        "--under-min-isr-partitions",
        action="store_true",
        help=f"only those with fewer in sync than {_MIN_ISR}",
    )
    parser.add_argument(
        "--at-min-isr-partitions", action="store_true", help="only those with exactly as many"
    )
    parser.add_argument(
        "--unavailable-partitions", action="store_true", help="only those without a leader"
    )
    add_json(
        parser,
        "a list of {name, topic_id, is_internal, partition_count, replication_factor, configs, "
        "partitions: [{partition, leader, leader_epoch, replicas, isr, eligible, "
        "ineligible: [{broker_id, reason, hint}], log_start_offset, high_watermark, size_bytes, "
        "replica_states: [{broker_id, log_end_offset, flushed_offset, lag, caught_up_ago_ms, "
        "size_bytes, is_known, failure}]}]}; -1: not known",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin:
        found = admin.describe_topics(arguments.topics or None, with_replicas=True)
        cluster = admin.describe_cluster()
    live = {each.broker_id for each in cluster.brokers if not each.is_fenced}
    if stale := stale_text(cluster):
        # Also beside JSON, which has no place for it.
        print_stderr(stale)
    is_wanted = choice(arguments)
    if is_wanted is not None:
        found = [topic for each in found if (topic := chosen(each, is_wanted)).partitions]
    if arguments.json:
        print_json([as_json(topic) for topic in found])
    elif found:
        texts = (as_text(topic, replicas=arguments.replicas, live=live) for topic in found)
        print("\n\n".join(texts))
    else:
        print("there are no topics yet" if is_wanted is None else "there are no such partitions")
    return EXIT_OK


IsWanted = Callable[["TopicDescription", "PartitionDescription"], bool]


def choice(arguments: argparse.Namespace) -> IsWanted | None:
    """Which partitions are to be shown; None: all. Of several conditions one is enough."""
    conditions: list[IsWanted] = []
    if arguments.under_replicated_partitions:
        conditions.append(lambda _, part: len(part.isr) < len(part.replicas))
    if arguments.under_min_isr_partitions:
        conditions.append(lambda topic, part: len(part.isr) < min_isr(topic))
    if arguments.at_min_isr_partitions:
        conditions.append(lambda topic, part: len(part.isr) == min_isr(topic))
    if arguments.unavailable_partitions:
        conditions.append(lambda _, part: part.leader < 0)
    if not conditions:
        return None
    return lambda topic, part: any(condition(topic, part) for condition in conditions)


def min_isr(topic: "TopicDescription") -> int:
    """Resolved when the topic was created."""
    return int(topic.configs.get(_MIN_ISR, "1"))


def chosen(topic: "TopicDescription", is_wanted: IsWanted) -> "TopicDescription":
    """The topic with those of its partitions."""
    import msgspec

    kept = tuple(part for part in topic.partitions if is_wanted(topic, part))
    return msgspec.structs.replace(topic, partitions=kept)


def as_text(
    topic: "TopicDescription", *, replicas: bool = False, live: "set[int] | None" = None
) -> str:
    """What a person reads; `live`: the brokers that are there, where that is known."""
    configs = ",".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
    head = "  ".join(
        (
            f"Topic: {topic.name}",
            f"TopicId: {topic.topic_id.hex()}",
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {topic.replication_factor}",
            f"Configs: {configs or '-'}",
        )
    )
    rows = [
        (
            each.partition,
            known(each.leader),
            listed(each.replicas),
            listed(each.isr),
            known(each.log_start_offset),
            known(each.high_watermark),
            size(each.size_bytes),
            known(_lag(each)),
        )
        for each in topic.partitions
    ]
    lines = table(_HEAD, rows, right=_RIGHT).splitlines()
    if replicas:
        below = [row for part in topic.partitions for row in _replica_rows(part)]
        lines += ["", *table(_REPLICA_HEAD, below, right=_REPLICA_RIGHT).splitlines()]
    lines += [line for part in topic.partitions for line in troubles(part, live)]
    return "\n".join([head, *(f"  {line}".rstrip() for line in lines)])


def _lag(part: "PartitionDescription") -> int:
    """Of the follower that is furthest behind; -1: of none is it known."""
    return max(
        (each.lag for each in part.replica_states if each.broker_id != part.leader), default=-1
    )


def _replica_rows(part: "PartitionDescription") -> Iterator[tuple[object, ...]]:
    for each in part.replica_states:
        role = "leader" if each.broker_id == part.leader else "follower"
        caught_up = "-" if each.caught_up_ago_ms < 0 else f"{each.caught_up_ago_ms} ms ago"
        if each.lag == 0:
            caught_up = "now"
        yield (
            part.partition,
            each.broker_id,
            role,
            known(each.log_end_offset),
            known(each.flushed_offset),
            known(each.lag),
            "-" if role == "leader" else caught_up,
            size(each.size_bytes),
            _state(part, each),
        )


def _state(part: "PartitionDescription", replica: "ReplicaDescription") -> str:
    if replica.failure is not None:
        return "stopped"
    if not replica.is_known:
        return "not reached"
    return "in sync" if replica.broker_id in part.isr else "out of sync"


def troubles(part: "PartitionDescription", live: "set[int] | None" = None) -> Iterator[str]:
    """What an operator should know of a partition, a line each."""
    if part.leader < 0:
        yield (
            f"partition {part.partition} has no leader; may lead without a loss: "
            f"{listed(part.eligible) if part.eligible else 'nobody'}{_waits_for(part, live)}"
        )
    for replica in part.ineligible:
        yield (
            f"partition {part.partition} on broker {replica.broker_id} may not lead: "
            f"{replica.reason}"
        )
        yield f"  hint: {replica.hint}"
    for each in part.replica_states:
        if each.failure is not None:
            error = each.failure
            yield (
                f"partition {part.partition} on broker {each.broker_id} has stopped "
                f"[{error.code.name}]: {error.happened}"
            )
            if error.hint:
                yield f"  hint: {error.hint}"


def _waits_for(part: "PartitionDescription", live: "set[int] | None") -> str:
    """Whose logs nobody has seen yet: one of them may be what all wait for."""
    away = [] if live is None else [each for each in part.replicas if each not in live]
    if not away:
        return ""
    if len(away) == 1:
        return f"; broker {listed(away)}, which has a replica of it, is not there: start it"
    return f"; brokers {listed(away)}, which have replicas of it, are not there: start them"


def as_json(topic: "TopicDescription") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": dict(sorted(topic.configs.items())),
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "eligible": list(each.eligible),
                "log_start_offset": each.log_start_offset,
                "high_watermark": each.high_watermark,
                "size_bytes": each.size_bytes,
                "ineligible": [
                    {
                        "broker_id": replica.broker_id,
                        "reason": replica.reason,
                        "hint": replica.hint,
                    }
                    for replica in each.ineligible
                ],
                "replica_states": [_replica_json(state) for state in each.replica_states],
            }
            for each in topic.partitions
        ],
    }


def _replica_json(state: "ReplicaDescription") -> dict[str, object]:
    return {
        "broker_id": state.broker_id,
        "log_end_offset": state.log_end_offset,
        "flushed_offset": state.flushed_offset,
        "lag": state.lag,
        "caught_up_ago_ms": state.caught_up_ago_ms,
        "size_bytes": state.size_bytes,
        "is_known": state.is_known,
        "failure": None if state.failure is None else str(state.failure),
    }
