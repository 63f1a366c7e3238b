"""What becomes of a position whose broker answered something else than records.

Owns the way out of errors, of a truncated log, and the choice between the leader and a nearer
replica. It must never give up a position while another broker may still serve it, nor move one
over records that the user has not had.

Theory of operation. The leader is read unless it names a nearer replica; that choice holds for one
lease. It ends early when that replica fails in any way or the leader epoch is over; after a failure
the leader is asked to serve by itself for the next lease.

    leader ──"X is nearer"──► X ──lease over, new leader epoch──► leader
      ▲                       └──any error──► leader, wanted for a lease ──lease over──┐
      └────────────────────────────────────────────────────────────────────────────────┘
"""

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.metadata import BrokerView, MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk
from tidelog.client.engine.fetch.answer import recreated, truncated
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.engine.produce.outcomes import STALE_METADATA
from tidelog.client.errors import PeerError
from tidelog.wire.calls.fetch import Divergence
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError


class Recovery:
    """Changes states of partitions; streams are left by the caller."""

    def __init__(
        self,
        settings: ConsumerSettings,
        metadata: MetadataCache,
        topics: TopicDesk,
        backoff: Backoff,
    ) -> None:
        self.truncations = 0
        """How often a log was found cut below what the user had."""
        self._settings = settings
        self._metadata = metadata
        self._topics = topics
        self._backoff = backoff

    def broker_for(
        self, state: PartitionState, leader: BrokerView, leader_epoch: int, now_ns: int
    ) -> BrokerView:
        """Who is to be read: the replica that was preferred, or the leader."""
        if state.replica_until_ns and now_ns >= state.replica_until_ns:
            state.preferred_id, state.replica_until_ns = None, 0
            state.must_move = True
        if state.preferred_id is None:
            return leader
        preferred = self._metadata.brokers.get(state.preferred_id)
        if preferred is None or preferred.is_fenced or leader_epoch != state.sent_epoch:
            state.preferred_id, state.replica_until_ns = None, 0
            return leader
        return preferred

    def on_preferred(self, state: PartitionState, replica_id: int, now_ns: int) -> None:
        """The leader names a replica that is nearer, and reads no more for this position."""
        lease_ns = self._settings.replica_lease_ms * NS_PER_MS
        broker = self._metadata.brokers.get(replica_id)
        is_known = broker is not None and not broker.is_fenced
        if not is_known:
            self._topics.refresh(now_ns)
        state.preferred_id = replica_id if is_known and not state.is_leader_wanted else None
        state.replica_until_ns = now_ns + lease_ns

    def go_to_leader(self, state: PartitionState, now_ns: int) -> bool:
        """The preferred replica failed; False: it is the leader that did."""
        if state.preferred_id is None:
            return False
        state.preferred_id = None
        state.replica_until_ns = now_ns + self._settings.replica_lease_ms * NS_PER_MS
        return True

    def on_error(self, state: PartitionState, error: TidelogError, now_ns: int) -> None:
        """The broker does not serve the position, or does not tell an offset."""
        if error.code in STALE_METADATA:
            name = state.topic_partition
            leader = self._metadata.leader(name.topic, name.partition)
            if leader is None or leader[1] <= state.sent_epoch:
                self._topics.refresh(now_ns)
            elif state.fetch_offset is not None:
                # Somebody knew more than the request that was refused: nothing to wait for.
                self.go_to_leader(state, now_ns)
                return
        if self.go_to_leader(state, now_ns):
            return
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(state, error)
        elif error.retriable:
            # Whatever it says, a leader that does not serve may have died, and only metadata tell
            # who leads instead: without them a dead address would be asked for ever.
            self._topics.refresh(now_ns)
            state.failures += 1
            state.failure = error
            wanted_ms = error.retry_after_ms if isinstance(error, PeerError) else 0
            delay_ns = max(self._backoff.delay_ns(state.failures), wanted_ms * NS_PER_MS)
            state.retry_at_ns = now_ns + delay_ns
        else:
            state.error = error

    def _on_out_of_range(self, state: PartitionState, error: TidelogError) -> None:
        if not state.is_drained:
            # What came before the error is the user's: the position is asked for again behind it.
            state.is_draining = True
        elif self._settings.reset is None:
            state.error = error
        else:
            state.need_reset(self._settings.reset)

    def reset_of(self, is_added: bool) -> OffsetSpec | None:
        """Where a partition without a position begins.

        Those that were added while their topic was read have nothing that the reader could have
        meant to skip: the latest offset would be behind what was written before he saw them.
        """
        reset = self._settings.reset
        return OffsetSpec.EARLIEST if is_added and reset is OffsetSpec.LATEST else reset

    def on_recreated(self, state: PartitionState) -> None:
        """All of the new topic was written since; without a policy the user decides."""
        is_none, is_held = self._settings.reset is None, state.is_held
        state.need_reset(None if is_none else OffsetSpec.EARLIEST)
        state.is_held = is_held  # Its group has yet to tell where to begin, or takes it away.
        if is_none:
            state.error = recreated(state.topic_partition)

    def on_divergence(self, state: PartitionState, found: Divergence, now_ns: int) -> None:
        """The log was cut behind this reader's back: go on where both agree, or tell.

        With a reset policy the reader goes back there, as Kafka's does; without one the user
        decides, and is told again until he has. A follower may only lag: the leader is asked.
        """
        if self.go_to_leader(state, now_ns):
            return
        position, fetch_offset = state.position, state.fetch_offset
        assert position is not None, f"{state!r} diverged without a position"
        assert fetch_offset is not None, f"{state!r} diverged without a position"
        epoch = state.epochs.latest
        agreed = min(found.end_offset, state.epochs.end_of(found.leader_epoch, fetch_offset))
        if agreed >= fetch_offset:
            # It contradicts itself. Ask without the epoch rather than again and again with it.
            state.step_back(position)
            state.epochs.begin(position, -1)
            state.failures += 1
            state.retry_at_ns = now_ns + self._backoff.delay_ns(state.failures)
            return
        if agreed >= position:
            # Only what the user has not had yet is gone.
            state.step_back(position)
            return
        self.truncations += 1
        if self._settings.reset is None:
            state.step_back(position)
            state.error = truncated(state.topic_partition, position, epoch, max(0, agreed))
        else:
            state.step_back(max(0, agreed))
