"""A log of the directory, as housekeeping is given it."""

from collections.abc import Mapping
from typing import Protocol

from tidelog.broker.log.state.log import PartitionLog
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.ids import PartitionKey


class HeldLog(Protocol):
    """A partition that the directory holds, and its topic's settings as they are now."""

    @property
    def log(self) -> PartitionLog:
        """Read here, changed by the directory's owner."""
        ...

    @property
    def settings(self) -> TopicSettings:
        """What counts from now on."""
        ...


Held = Mapping[PartitionKey, HeldLog]
"""Of one directory; it changes under whoever looks at it as partitions come and go."""
