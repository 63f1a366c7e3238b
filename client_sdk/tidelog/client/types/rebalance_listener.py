"""What a consumer's user is told when the group moves partitions.

Owns the names of the three calls. They run inside poll(), on the thread or task that polls.
"""

from collections.abc import Awaitable

from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError


class ConsumerRebalanceListener:
    """Override what is of interest; with AsyncConsumer the methods may be coroutines.

    Any object with these methods will do.
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """These go to another member: the last chance to commit, and to close what belongs to them.

        Auto-commit has committed them already. Records of the other partitions go on.
        """

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """These came; nothing of them was delivered yet. The place to seek. Empty: there are more
        members than partitions.
        """

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """These are somebody else's already: nothing can be committed. By default as revoked."""
        return self.on_partitions_revoked(lost)


def check_listener(listener: object) -> None:
    """Refuses what could not be called later."""
    for name in ("on_partitions_revoked", "on_partitions_assigned"):
        if listener is not None and not callable(getattr(listener, name, None)):
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried="subscribe with a listener",
                happened=f"{type(listener).__name__} has no method {name}",
                hint="derive it from tidelog.client.ConsumerRebalanceListener",
            )
