"""The highest timestamp of a segment is that of its records, whoever finds it out."""

from tidelog.broker.log.compaction.rewrite import empty_batch
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.state.log import PartitionLog
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

KEY = SegmentKey(PartitionKey(TopicId(bytes(16)), PartitionId(0)), Offset(0), 1)


def test_a_batch_without_records_has_no_time_for_a_scan_nor_for_a_sidecar() -> None:
    first = encode_batch([(5, b"k", b"v", ())], leader_epoch=0)
    later = encode_batch([(9, b"k", b"v", ())], base_offset=1, leader_epoch=0)
    emptied = empty_batch(read_header(later))
    log = PartitionLog(KEY.partition, LeaderEpoch(0))
    log.begin_segment(KEY)
    builder = SidecarBuilder(SegmentFacts(key=KEY, is_contiguous=False))
    for batch in (first, emptied):
        log.take_in(read_header(batch, is_compacted=True))
        builder.feed(batch)
    summary, _ = builder.finish()
    assert log.segments[-1].max_timestamp == summary.max_timestamp == 5
    assert log.segments[-1].next_offset == summary.next_offset == 2
