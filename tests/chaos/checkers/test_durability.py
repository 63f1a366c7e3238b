"""What an answer promises is compared with what a crash could not take."""

from types import SimpleNamespace
from typing import cast

from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium, NameChange
from tidelog.chaos.sim.verdicts.durability import DurabilityWatch
from tidelog.chaos.workloads.log_client import FETCH, PRODUCE
from tidelog.v1 import fetch_pb2, produce_pb2
from tidelog.wire.batch import encode_batch

TOPIC_ID = bytes(range(16))
BATCH = encode_batch([(0, None, b"value", ())])


def medium_with(*, is_flushed: bool) -> Medium:
    medium = Medium("node:data")
    directory, inode = Directory(), Inode()
    medium.change_names(NameChange(added=(medium.root, f"{TOPIC_ID.hex()}-0", directory)))
    medium.change_names(NameChange(added=(directory, "0.log", inode)))
    medium.cover_names(medium.root, 1)
    medium.cover_names(directory, 1)
    inode.write(BATCH)
    if is_flushed:
        inode.cover(1)
    return medium


def answers(medium: Medium) -> list[str]:
    """The violations after one produce and one fetch."""
    watch = DurabilityWatch(medium)
    produce = cast("Exchange", SimpleNamespace(method=PRODUCE, number=1))
    batch = produce_pb2.PartitionBatch(topic_id=TOPIC_ID, partition=0, batch=BATCH)
    request = produce_pb2.ProduceRequest(batches=[batch])
    watch(produce, "request", request.SerializeToString())
    acknowledgement = produce_pb2.PartitionAcknowledgement(topic_id=TOPIC_ID, base_offset=0)
    answer = produce_pb2.ProduceResponse(acknowledgements=[acknowledgement])
    watch(produce, "reply", answer.SerializeToString())
    fetch = cast("Exchange", SimpleNamespace(method=FETCH, number=2))
    part = fetch_pb2.PartitionBatches(topic_id=TOPIC_ID, partition=0, batches=BATCH)
    watch(fetch, "reply", fetch_pb2.FetchResponse(partitions=[part]).SerializeToString())
    return watch.violations


def test_answers_about_flushed_batches_are_fine() -> None:
    assert answers(medium_with(is_flushed=True)) == []


def test_answers_about_unflushed_batches_are_violations() -> None:
    size_bytes = len(BATCH)
    assert answers(medium_with(is_flushed=False)) == [
        f"not_flushed: a batch of {size_bytes} bytes was acknowledged at 0",
        f"not_flushed: a batch of {size_bytes} bytes was served at 0",
    ]
