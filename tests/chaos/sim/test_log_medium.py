"""What lies on a medium for good."""

from tidelog.broker.log.names import directory_name
from tidelog.chaos.checkers.log.medium import durable_end
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium
from tidelog.wire.batch import encode_batch
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

KEY = PartitionKey(TopicId(bytes(range(16))), PartitionId(0))


def test_a_log_ends_for_good_behind_its_last_whole_batch_that_is_flushed() -> None:
    medium = Medium("m")
    assert durable_end(medium, KEY) == 0
    segment, place = Inode(), Directory()
    medium.root.durable[directory_name(KEY)] = place
    place.durable["00000000000000000000.log"] = segment
    segment.write(encode_batch([(0, None, b"a", ()), (0, None, b"b", ())]))
    assert durable_end(medium, KEY) == 0, "no flush has covered it"
    segment.cover(segment.made)
    segment.write(b"half a batch")
    segment.cover(segment.made)
    assert durable_end(medium, KEY) == 2
