"""What of a broker's answer counts: judged, noted, and kept for the user.

Owns the judgement of each part: is it of this position, is it whole, what does it say of the log.
It must never hand over bytes whose sum does not fit, or that were asked for before a seek.
"""

from collections.abc import Callable, Mapping

from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.fetch.answer import check_epochs, verified_pieces
from tidelog.client.engine.fetch.link import FetchLink
from tidelog.client.engine.fetch.messages import FetchAnswered, Fetched, PartitionBatches
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.engine.fetch.ready import ReadyQueue
from tidelog.client.engine.fetch.recovery import Recovery
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.wire.batch import NONE_LEFT_OUT, BatchHeader, aborted_batches
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset


class Intake:
    """One per consumer; `leave` takes a partition from its stream."""

    def __init__(
        self,
        settings: ConsumerSettings,
        metadata: MetadataCache,
        recovery: Recovery,
        ready: ReadyQueue,
        leave: Callable[[PartitionState], None],
    ) -> None:
        self.bytes_received = 0
        self.batches_dropped = 0
        self._settings = settings
        self._metadata = metadata
        self._recovery = recovery
        self._ready = ready
        self._leave = leave

    def take(
        self,
        message: FetchAnswered,
        link: FetchLink,
        by_id: Mapping[tuple[bytes, int], PartitionState],
        now_ns: int,
    ) -> None:
        """An answer of the present stream; `by_id`: what is assigned."""
        link.failures = 0
        for part in message.partitions:
            size_bytes = len(part.batches)
            link.receive(size_bytes)
            self.bytes_received += size_bytes
            state = by_id.get((part.topic_id, part.partition))
            if (
                state is None
                or state.broker_id != message.broker_id
                or message.session_epoch < state.session_epoch
            ):
                self.batches_dropped += 1
                link.consume(size_bytes)
                continue
            if not self._on_part(state, part, message.broker_id, now_ns):
                link.consume(size_bytes)

    def _on_part(
        self, state: PartitionState, part: PartitionBatches, broker_id: int, now_ns: int
    ) -> bool:
        """Whether the bytes now wait for the user."""
        name = state.topic_partition
        if part.leader_id is not None:
            self._metadata.follow_hint(
                name.topic, part.topic_id, part.partition, part.leader_id, part.leader_epoch
            )
        if part.error is not None:
            state.leave_stream()
            self._recovery.on_error(state, part.error, now_ns)
            self._ready.drop_void()
            return False
        if part.high_watermark >= 0:
            state.high_watermark = part.high_watermark
        if part.last_stable_offset >= 0:
            state.last_stable_offset = part.last_stable_offset
        if part.log_start_offset >= 0:
            state.log_start_offset = part.log_start_offset
        if part.divergence is not None:
            self._leave(state)
            self._recovery.on_divergence(state, part.divergence, now_ns)
            self._ready.drop_void()
            return False
        is_taken = False
        if part.batches:
            try:
                is_taken = self._on_batches(state, part, broker_id)
            except TidelogError as error:
                # The bytes are not what the broker read: ask again, and tell.
                self._leave(state)
                if not self._recovery.go_to_leader(state, now_ns):
                    state.error = error
                return False
        if part.preferred_replica >= 0:
            self._leave(state)
            self._recovery.on_preferred(state, part.preferred_replica, now_ns)
        return is_taken

    def _on_batches(self, state: PartitionState, part: PartitionBatches, broker_id: int) -> bool:
        name, first_offset = state.topic_partition, state.fetch_offset
        assert first_offset is not None, f"{state!r} is read without a position"
        pieces = verified_pieces(part, name, first_offset, verify=self._settings.verify)
        headers = [header for piece in pieces for header in piece.headers]
        check_epochs(headers, name, state.epochs.latest)
        if headers[-1].next_offset <= first_offset:
            return False
        for header in headers:
            state.epochs.note(header.leader_epoch, header.base_offset)
        state.read_to(headers[-1].next_offset)
        left_out = self._left_out(part, headers)
        for piece in pieces:
            self._ready.add(
                Fetched(
                    topic_partition=name,
                    data=piece.data,
                    first_offset=Offset(first_offset),
                    next_offset=Offset(piece.next_offset),
                    high_watermark=part.high_watermark,
                    leader_epoch=piece.headers[-1].leader_epoch,
                    broker_id=broker_id,
                    generation=state.generation,
                    left_out=left_out,
                )
            )
            first_offset = piece.next_offset
        return True

    def _left_out(self, part: PartitionBatches, headers: list[BatchHeader]) -> frozenset[int]:
        """The batches that this reader is not given: without aborted transactions no work at all.

        Where the pieces of an answer part means nothing here: a transaction may reach over it.
        """
        if not part.aborted or self._settings.isolation is not IsolationLevel.READ_COMMITTED:
            return NONE_LEFT_OUT
        return aborted_batches(headers, part.aborted)
