"""Deleting records from the head of partitions, as the admin client calls it.

Each partition's leader is asked; what a leader has done or refused for good stands, and only what
may still work is asked again.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.client.engine.cluster.tries import Doubt
from tidelog.client.shared.checked import checked
from tidelog.client.shared.portions import portions
from tidelog.client.sync.admin.base import AdminBase
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire import admin as wire_admin
from tidelog.wire.errors import ErrorCode, TidelogError

ALL_COMMITTED: Final = -1
"""In place of an offset."""
Outcomes = dict[TopicPartition, int | TidelogError]


class RecordCalls(AdminBase):
    """Trim."""

    @checked
    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete all records below an offset (-1: all that are committed). The answer is the first
        offset that each partition still has. The first that was refused raises, the rest is done.
        """
        found: dict[TopicPartition, int] = {}
        for partition, outcome in self.try_delete_records(records_to_delete, timeout_ms).items():
            if isinstance(outcome, TidelogError):
                raise outcome
            found[partition] = outcome
        return found

    @checked
    def try_delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
    ) -> Outcomes:
        """The same with each partition's own outcome, in order."""
        tried = "delete records"
        limit_ms = self._limit_ms(timeout_ms)
        wanted = {TopicPartition(*name): offset for name, offset in records_to_delete.items()}
        self._learn_brokers(tried, limit_ms)
        for topic in dict.fromkeys(name.topic for name in wanted):
            # A name that nobody knows is the caller's mistake: waiting would not help.
            self._calls.topic(topic, limit_ms, tried=tried)
        found: Outcomes = {}
        doubts = {name: _doubt(name, offset) for name, offset in wanted.items()}

        def attempt(left_ms: int) -> None:
            missing = {
                name: offset for name, offset in wanted.items() if _may_yet_work(found.get(name))
            }
            self._trim_round(missing, found, left_ms)
            errors = {
                name: outcome
                for name in missing
                if isinstance(outcome := found[name], TidelogError) and outcome.retriable
            }
            for name, error in errors.items():
                doubts[name].note(error)
            if errors:
                self._calls.refresh({name.topic for name in missing}, left_ms)
                raise next(iter(errors.values()))

        try:
            self._calls.until(limit_ms, attempt, doubt=Doubt(tried, may_repeat=True))
        except TidelogError as error:
            for name in wanted:
                found.setdefault(name, error)
        return {name: _ended(found[name], doubts[name]) for name in wanted}

    def _trim_round(
        self, wanted: Mapping[TopicPartition, int], found: Outcomes, timeout_ms: int
    ) -> None:
        """Ask each leader once; a leader that cannot be reached fails its partitions only."""
        by_address: dict[str, list[TopicPartition]] = {}
        for name in wanted:
            address = self._leader_address(name)
            if isinstance(address, TidelogError):
                found[name] = address
            else:
                by_address.setdefault(address, []).append(name)
        asked = [
            (address, names, request)
            for address, of_leader in by_address.items()
            for names, request in portions(
                wire_admin.DELETE_RECORDS,
                of_leader,
                lambda part: wire_admin.delete_records_request(
                    [(*self._place(name), wanted[name]) for name in part]
                ),
            )
        ]
        for address, names, request in asked:
            try:
                data = self._connections.call(
                    address, wire_admin.DELETE_RECORDS, request, timeout_ms
                )
            except TidelogError as error:
                found.update(dict.fromkeys(names, error))
                continue
            found.update(zip(names, wire_admin.read_trims(data), strict=True))

    def _leader_address(self, name: TopicPartition) -> str | TidelogError:
        tried = f"delete records of {name.topic}-{name.partition}"
        metadata = self._calls.metadata
        topic = metadata.topics.get(name.topic)
        if topic is None:
            return metadata.unknown_topic(name.topic, tried=tried)
        if not 0 <= name.partition < len(topic.partitions):
            error = metadata.unknown_partition(name.topic, name.partition, tried=tried)
            return TidelogError(
                ErrorCode.INVALID_ARGUMENT, tried=tried, happened=error.happened, hint=error.hint
            )
        leader = metadata.leader(name.topic, name.partition)
        if leader is None:
            return TidelogError(
                ErrorCode.NOT_LEADER, tried=tried, happened="it has no leader at the moment"
            )
        return leader[0].address

    def _place(self, name: TopicPartition) -> tuple[bytes, int]:
        return self._calls.metadata.topics[name.topic].topic_id, name.partition


def _doubt(name: TopicPartition, offset: int) -> Doubt:
    """All that is committed is more by the time that somebody asks again."""
    tried = f"delete records of {name.topic}-{name.partition}"
    return Doubt(tried, may_repeat=offset != ALL_COMMITTED)


def _ended(outcome: int | TidelogError, doubt: Doubt) -> int | TidelogError:
    return doubt.told(outcome) if isinstance(outcome, TidelogError) else outcome


def _may_yet_work(outcome: int | TidelogError | None) -> bool:
    """Nothing is known of it, or it failed in a way that may pass."""
    return outcome is None or (isinstance(outcome, TidelogError) and outcome.retriable)
