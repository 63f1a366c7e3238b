"""A log in memory: what sessions may look at, and the bytes that a test compares."""

from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.leader.tail import Piece
from tidelog.wire.batch import BatchHeader, checksum, encode_batch, read_header, stamp
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

TOPIC = TopicId(b"t" * 16)


def key_of(partition: int = 0) -> PartitionKey:
    return PartitionKey(TOPIC, PartitionId(partition))


def sealed_batch(value: bytes, base_offset: int, leader_epoch: int, count: int = 1) -> bytes:
    """A batch as a leader stores it."""
    data = bytearray(encode_batch([(1, None, value, ())] * count))
    stamp(data, 0, base_offset=base_offset, leader_epoch=leader_epoch)
    return bytes(data)


class CopyLog:
    """Batches behind one another. Everything written is flushed only by `flush`."""

    def __init__(self, partition: int = 0) -> None:
        self.log = PartitionLog(key_of(partition), LeaderEpoch(0))
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.is_led = False
        self._generation = 0
        self._begin(0)

    def _begin(self, offset: int) -> None:
        self.log.segments = []
        self.log.log_end_offset = Offset(offset)
        self.log.begin_segment(SegmentKey(self.log.key, Offset(offset)))

    def lead(self, leader_epoch: int) -> None:
        self.log.lead(LeaderEpoch(leader_epoch))
        self.is_led = True

    def follow(self, leader_epoch: int) -> None:
        self.log.lead(LeaderEpoch(leader_epoch))
        self.is_led = False

    def write(self, value: bytes, count: int = 1) -> None:
        """As a leader."""
        log = self.log
        self.store(sealed_batch(value, log.log_end_offset, log.leader_epoch, count))

    def store(self, batch: bytes) -> None:
        header = read_header(batch, is_compacted=True)
        self.batches.append((header, batch))
        self.log.take_in(header)

    def copy(self, batches: bytes, behind: int) -> bool:
        """As a follower; False: they do not go on where the log ends."""
        if self.log.log_end_offset != behind:
            return False
        position = 0
        while position < len(batches):
            size = read_header(batches, position, is_compacted=True).size_bytes
            self.store(batches[position : position + size])
            position += size
        return True

    def flush(self) -> None:
        self.log.flushed_offset = self.log.log_end_offset

    def commit(self, offset: int) -> None:
        log = self.log
        log.high_watermark = Offset(max(log.high_watermark, min(offset, log.log_end_offset)))

    def cut(self, offset: int) -> None:
        """The log ends there, or where the batch begins that holds it."""
        log = self.log
        kept = [each for each in self.batches if each[0].next_offset <= offset]
        self._read_again(kept, log.log_start_offset)

    def become(self, batches: list[tuple[BatchHeader, bytes]]) -> None:
        """Another replica's log stands for this one; both have all that is committed."""
        self._read_again(batches, self.log.log_start_offset)

    def trim(self, offset: int, start_epoch: int | None = None) -> None:
        """By its own word, or by that of another epoch's leader; -1: as an earlier version did,
        which tells nobody's."""
        log = self.log
        assert offset <= log.high_watermark, "what is not committed is not trimmed"
        if offset > log.log_start_offset:
            log.log_start_offset = Offset(offset)
            log.leader_epochs.trim(offset)
            self.batches = [each for each in self.batches if each[0].next_offset > offset]
        if offset == log.log_start_offset:
            log.log_start_epoch = LeaderEpoch(
                log.leader_epoch if start_epoch is None else start_epoch
            )

    def restart(self, offset: int, start_epoch: int | None = None) -> None:
        log = self.log
        log.log_start_epoch = LeaderEpoch(log.leader_epoch if start_epoch is None else start_epoch)
        self.batches = []
        self.log.leader_epochs = LeaderEpochs()
        self._begin(offset)
        self.log.log_start_offset = self.log.high_watermark = Offset(offset)
        self.log.flushed_offset = Offset(offset)

    def _read_again(self, kept: list[tuple[BatchHeader, bytes]], start: int) -> None:
        log = self.log
        self.batches = []
        log.leader_epochs = LeaderEpochs()
        self._begin(kept[0][0].base_offset if kept else start)
        for _, batch in kept:
            self.store(batch)
        log.leader_epochs.trim(start)
        log.flushed_offset = log.log_end_offset
        log.high_watermark = Offset(min(log.high_watermark, log.log_end_offset))

    def read(self, offset: int, max_bytes: int, bound: int) -> tuple[bytes, int]:
        """As the log's reader: whole batches from the one that holds the offset."""
        found, next_offset = b"", offset
        for header, batch in self.batches:
            if header.next_offset <= offset:
                continue
            if header.next_offset > bound or (found and len(found) + len(batch) > max_bytes):
                break
            found += batch
            next_offset = header.next_offset
        return found, next_offset

    def piece(self, offset: int, max_bytes: int, bound: int) -> Piece | None:
        """The same with its sum."""
        data, next_offset = self.read(offset, max_bytes, bound)
        return Piece(data, next_offset, checksum(data)) if data else None

    def content(self, below: int) -> dict[int, bytes]:
        """Batches by base offset, up to an offset."""
        return {
            header.base_offset: batch
            for header, batch in self.batches
            if header.base_offset < below
        }
