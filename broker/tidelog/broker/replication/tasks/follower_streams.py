"""Which stream of each follower and lane is in force, and what followers have said on them.

Owns that there is one: a newer session takes the place of an older one, and what comes late on that
is not heard. A message of a superseded stream would promise what the follower has lost since. Stop
7 of a record's walk.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.leader.session import LeaderSession
from tidelog.broker.replication.shared.messages import FollowerPosition, Lane
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionKey

_NO_STREAM: Final = (BrokerEpoch(-1), -1)


class StreamInForce(Protocol):
    """What is asked of a stream."""

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """Of the process that began it."""

    @property
    def session(self) -> LeaderSession:
        """What it holds."""

    def supersede(self) -> None:
        """A newer stream counts from now on."""

    def follower_at(self, told: FollowerPosition) -> FollowerAt:
        """What counts of a position that was said on it."""


class FollowerStreams:
    """One a broker: told of each stream's begin and end, asked by whoever goes by what followers
    say."""

    def __init__(self) -> None:
        self._streams: dict[tuple[BrokerId, Lane], StreamInForce] = {}
        self._newest: dict[tuple[BrokerId, Lane], tuple[BrokerEpoch, int]] = {}
        """Epoch and session of the stream in force, also after its end."""

    @property
    def sessions(self) -> Iterator[LeaderSession]:
        """The leader's end of every stream, for whoever checks them."""
        return (stream.session for stream in self._streams.values())

    def sizes(self) -> list[tuple[BrokerId, Lane, int]]:
        """Streams in force: follower, lane, partitions."""
        return [
            (broker_id, lane, len(stream.session.partitions))
            for (broker_id, lane), stream in self._streams.items()
        ]

    def left(self, keys: Iterable[PartitionKey], broker_id: BrokerId) -> list[PartitionKey]:
        """Those of the partitions that no stream of the follower holds any more."""
        sessions = [
            stream.session for (each, _), stream in self._streams.items() if each == broker_id
        ]
        return [key for key in keys if not any(key in each.partitions for each in sessions)]

    def told_by(self, log: PartitionLog, broker_id: BrokerId) -> FollowerAt | None:
        """Where a follower stands in the log, as it said last on a stream that holds it."""
        newest: FollowerAt | None = None
        for lane in Lane:
            stream = self._streams.get((broker_id, lane))
            held = None if stream is None else stream.session.partitions.get(log.key)
            if stream is not None and held is not None and held.log is log:
                told = stream.follower_at(held.position)
                if newest is None or newest.is_behind(told):
                    newest = told
        return newest

    def comes_late(self, broker_id: BrokerId, position: FollowerPosition) -> bool:
        """Whether the follower has said more since, on its other lane."""
        for lane in Lane:
            stream = self._streams.get((broker_id, lane))
            held = None if stream is None else stream.session.partitions.get(position.key)
            if held is not None and held.position.partition_epoch > position.partition_epoch:
                return True
        return False

    def begin(
        self, broker_id: BrokerId, lane: Lane, session_id: int, stream: StreamInForce
    ) -> None:
        """The newer stream counts. Sessions of one broker epoch ascend: what comes late is told."""
        which, epoch = (broker_id, lane), stream.broker_epoch
        if (epoch, session_id) <= self._newest.get(which, _NO_STREAM):
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=f"pull copies as broker {broker_id}",
                happened="a newer stream of this broker and lane has begun",
            )
        for each_lane in Lane:
            each = (broker_id, each_lane)
            older = self._streams.get(each)
            if older is not None and (each == which or older.broker_epoch < epoch):
                del self._streams[each]
                older.supersede()
            # What an earlier life of the broker says on the other lane comes late as well.
            self._newest[each] = max(self._newest.get(each, _NO_STREAM), (epoch, 0))
        self._newest[which] = (epoch, session_id)
        self._streams[which] = stream

    def end(self, broker_id: BrokerId, lane: Lane, stream: StreamInForce) -> None:
        """It is over; another one may be in its place already."""
        if self._streams.get((broker_id, lane)) is stream:
            del self._streams[broker_id, lane]
