"""Replicas, leaders and brokers, as the admin client calls them."""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.client.shared.checked import checked
from tidelog.client.sync.admin.base import AdminBase
from tidelog.client.types.admin import (
    BrokerStatus,
    DrainOutcome,
    ElectionOutcome,
    ElectionType,
    PartitionReassignment,
    ReassignmentPlan,
)
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire import admin as wire_admin
from tidelog.client.wire import growth as wire_growth
from tidelog.wire.errors import TidelogError


class PartitionCalls(AdminBase):
    """Move, elect, drain."""

    @checked
    def elect_leaders(
        self,
        election_type: ElectionType,
        topic_partitions: Iterable[TopicPartition] | None = None,
        broker_id: int = -1,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[ElectionOutcome]:
        """Elect leaders; without partitions: all of them, for preferred leaders only."""
        limit_ms = self._limit_ms(timeout_ms)
        names: dict[bytes, str] = {}
        wanted: dict[bytes, list[int]] = {}
        for name in topic_partitions or ():
            topic_id = self._topic_id(name.topic, limit_ms, "elect leaders")
            names[topic_id] = name.topic
            wanted.setdefault(topic_id, []).append(name.partition)
        data = self._ask(
            "elect leaders",
            wire_admin.ELECT_LEADERS,
            wire_admin.elect_leaders_request(
                election_type,
                {topic_id: sorted(set(numbers)) for topic_id, numbers in wanted.items()},
                broker_id=broker_id,
                validate_only=validate_only,
            ),
            limit_ms,
            validate_only=validate_only,
        )
        results = wire_admin.read_elections(data)
        if any(topic_id not in names for topic_id, *_ in results):
            names.update(self._topic_names(limit_ms))
        return [
            ElectionOutcome(
                partition=TopicPartition(names.get(topic_id, topic_id.hex()), partition),
                leader=leader,
                error=error,
            )
            for topic_id, partition, leader, error in results
        ]

    @checked
    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        throttle_bytes_per_second: int = 0,
    ) -> dict[TopicPartition, TidelogError | None]:
        """Move replicas to these brokers, or, with None, call a move off; what became of each."""
        limit_ms = self._limit_ms(timeout_ms)
        moves = [
            (
                (self._topic_id(name.topic, limit_ms, "move replicas"), name.partition),
                tuple(replicas or ()),
            )
            for name, replicas in reassignments.items()
        ]
        answers = self._ask_in_portions(
            "move replicas",
            wire_admin.ALTER_REASSIGNMENTS,
            moves,
            lambda part: wire_admin.reassignments_request(
                part,
                validate_only=validate_only,
                throttle_bytes_per_second=throttle_bytes_per_second,
            ),
            limit_ms,
            validate_only=validate_only,
        )
        results = [
            each for _, data in answers for each in wire_admin.read_reassignment_results(data)
        ]
        return dict(zip(reassignments, results, strict=True))

    @checked
    def list_partition_reassignments(
        self, timeout_ms: int | None = None
    ) -> list[PartitionReassignment]:
        """Moves under way."""
        data = self._ask(
            "list moves of replicas",
            wire_admin.LIST_REASSIGNMENTS,
            wire_admin.list_reassignments_request(),
            self._limit_ms(timeout_ms),
        )
        return [
            PartitionReassignment(
                partition=TopicPartition(topic, partition),
                replicas=replicas,
                adding_replicas=adding,
                removing_replicas=removing,
                remaining_bytes=remaining_bytes,
            )
            for topic, partition, replicas, adding, removing, remaining_bytes in (
                wire_admin.read_reassignments(data)
            )
        ]

    @checked
    def plan_partition_reassignments(
        self,
        topics: Iterable[str] = (),
        drained_brokers: Iterable[int] = (),
        moves_max: int = 0,
        timeout_ms: int | None = None,
    ) -> ReassignmentPlan:
        """Few moves that would even out replicas and leaders, of all topics or of these; nothing is
        done. `drained_brokers` are to hold nothing in the end; 0 moves: the controller's limit.
        """
        limit_ms = self._limit_ms(timeout_ms)
        tried = "plan moves of replicas"
        names = {self._topic_id(name, limit_ms, tried): name for name in topics}
        data = self._ask(
            tried,
            wire_growth.PLAN_REASSIGNMENTS,
            wire_growth.plan_request(
                drained_brokers=drained_brokers, topic_ids=names, moves_max=moves_max
            ),
            limit_ms,
        )
        planned, warnings = wire_growth.read_plan(data)
        if any(topic_id not in names for topic_id, *_ in planned):
            names.update(self._topic_names(limit_ms))
        return ReassignmentPlan(
            moves={
                TopicPartition(names.get(topic_id, topic_id.hex()), partition): replicas
                for topic_id, partition, replicas in planned
            },
            warnings=warnings,
        )

    @checked
    def list_brokers(self, timeout_ms: int | None = None) -> list[BrokerStatus]:
        """What the controller knows of each broker."""
        data = self._ask(
            "list brokers",
            wire_admin.LIST_BROKERS,
            wire_admin.list_brokers_request(),
            self._limit_ms(timeout_ms),
        )
        return wire_admin.read_brokers(data)

    @checked
    def drain_broker(
        self,
        broker_id: int,
        cancel: bool = False,
        timeout_ms: int | None = None,
        validate_only: bool = False,
        throttle_bytes_per_second: int = 0,
    ) -> DrainOutcome:
        """Begin to empty a broker, or call that off; `list_brokers` shows the progress."""
        data = self._ask(
            f"drain broker {broker_id}",
            wire_admin.DRAIN_BROKER,
            wire_admin.drain_broker_request(
                broker_id,
                is_cancelled=cancel,
                validate_only=validate_only,
                throttle_bytes_per_second=throttle_bytes_per_second,
            ),
            self._limit_ms(timeout_ms),
            validate_only=validate_only,
        )
        return wire_admin.read_drain(data)

    @checked
    def remove_broker(
        self, broker_id: int, timeout_ms: int | None = None, validate_only: bool = False
    ) -> None:
        """Forget a broker that is stopped and holds no replicas."""
        self._ask(
            f"remove broker {broker_id}",
            wire_admin.REMOVE_BROKER,
            wire_admin.remove_broker_request(broker_id, validate_only=validate_only),
            self._limit_ms(timeout_ms),
            may_repeat=False,
            validate_only=validate_only,
        )

    def _topic_id(self, name: str, timeout_ms: int, tried: str) -> bytes:
        self._learn_brokers(tried, timeout_ms)
        return self._calls.topic(name, timeout_ms, tried=tried).topic_id

    def _topic_names(self, timeout_ms: int) -> dict[bytes, str]:
        view = self._calls.refresh((), timeout_ms, all_topics=True)
        return {topic.topic_id: topic.name for topic in view.topics}
