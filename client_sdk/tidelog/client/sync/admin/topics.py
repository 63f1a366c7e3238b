"""Changes to topics that exist, as the admin client calls them."""

from collections.abc import Iterable, Mapping

from tidelog.client.shared.checked import checked
from tidelog.client.sync.admin.base import AdminBase, all_or_raise
from tidelog.client.types.admin import DeletedTopic, NewPartitions
from tidelog.client.wire import admin as wire_admin
from tidelog.wire.errors import TidelogError


class TopicCalls(AdminBase):
    """Delete and grow."""

    @checked
    def delete_topics(
        self,
        topics: Iterable[str | bytes],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[DeletedTopic]:
        """Delete topics with all their records, by name or by id; the first that could not be
        deleted raises, the others are deleted.
        """
        return all_or_raise(self.try_delete_topics(topics, timeout_ms, validate_only))

    @checked
    def try_delete_topics(
        self,
        topics: Iterable[str | bytes],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[DeletedTopic | TidelogError]:
        """The same with each topic's own outcome, in order."""
        answers = self._ask_in_portions(
            "delete topics",
            wire_admin.DELETE_TOPICS,
            list(topics),
            lambda part: wire_admin.delete_topics_request(part, validate_only=validate_only),
            self._limit_ms(timeout_ms),
            may_repeat=False,
            validate_only=validate_only,
        )
        return [each for _, data in answers for each in wire_admin.read_deleted_topics(data)]

    @checked
    def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions | int],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> dict[str, int]:
        """Raise numbers of partitions to these in all; topic → its number now."""
        wanted = {
            name: NewPartitions(count) if isinstance(count, int) else count
            for name, count in topic_partitions.items()
        }
        answers = self._ask_in_portions(
            "create partitions",
            wire_admin.CREATE_PARTITIONS,
            list(wanted.items()),
            lambda part: wire_admin.create_partitions_request(
                dict(part), validate_only=validate_only
            ),
            self._limit_ms(timeout_ms),
            validate_only=validate_only,
        )
        found = [each for _, data in answers for each in wire_admin.read_partition_counts(data)]
        return dict(all_or_raise(found))
