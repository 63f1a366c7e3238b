"""What the admin client gives about data directories: values only."""

import msgspec

from tidelog.wire.errors import TidelogError


class LogDirReplica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica in a directory."""

    topic: str
    topic_id: bytes
    partition: int
    size_bytes: int
    log_end_offset: int
    offset_lag: int
    """Records up to the leader's high watermark, as far as its broker has heard of it."""
    failure: TidelogError | None = None


class LogDir(msgspec.Struct, frozen=True, kw_only=True):
    """One data directory of a broker."""

    path: str
    directory_uuid: bytes
    free_bytes: int
    """-1: not known."""
    replicas: tuple[LogDirReplica, ...]
    failure: TidelogError | None = None
    """Why it has stopped, with all of its partitions."""

    @property
    def size_bytes(self) -> int:
        """Of all replicas in it."""
        return sum(each.size_bytes for each in self.replicas)


class BrokerLogDirs(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of one broker."""

    broker_id: int
    directories: tuple[LogDir, ...]
    failure: TidelogError | None = None
    """Why the broker could not be asked."""
