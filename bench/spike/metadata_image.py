"""What an image of 100,000 partitions costs: apply, one change, fencing, snapshot, load, memory.

    python -m bench.spike.metadata_image

Prints figures, judges nothing. Each shape runs in a process of its own, so that memory is its own.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence

from tidelog.metadata import invariants
from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.apply.snapshot import decode_image
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import (
    BrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    encode_entry,
)
from tidelog.metadata_quorum.quorum.state_machine import MetadataStateMachine
from tidelog.metadata_quorum.raft.types import Entry, EntryKind
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    LogIndex,
    PartitionEpoch,
    PartitionId,
    Term,
    TopicId,
)

BROKERS = 9
REPLICAS = 3
PARTITIONS = 100_000
SHAPES = ((1_000, 100), (100_000, 1))
RECORDS_PER_ENTRY = 1_000
ENTRIES_PER_APPLY = 16
CHANGES = 2_000


def entries(topic_count: int, partitions_each: int) -> list[Entry]:
    """The log of a cluster in which everything was created."""
    records: list[MetadataRecord] = [
        BrokerRecord(
            broker_id=BrokerId(number),
            epoch=BrokerEpoch(number),
            incarnation=bytes(16),
            listeners={"client": f"10.0.0.{number}:9092", "cluster": f"10.0.0.{number}:9093"},
        )
        for number in range(1, BROKERS + 1)
    ]
    for topic in range(topic_count):
        topic_id = TopicId((topic * 2_654_435_761 % 2**32).to_bytes(4, "big") * 4)
        records.append(TopicRecord(topic_id=topic_id, name=f"topic-{topic}"))
        records += [partition(topic_id, topic, number) for number in range(partitions_each)]
    return [
        Entry(
            index=LogIndex(place + 1),
            term=Term(1),
            kind=EntryKind.COMMAND,
            data=encode_entry(records[start : start + RECORDS_PER_ENTRY]),
        )
        for place, start in enumerate(range(0, len(records), RECORDS_PER_ENTRY))
    ]


def partition(topic_id: TopicId, topic: int, number: int) -> PartitionRecord:
    """Three replicas in known directories."""
    first = topic * 7 + number
    replicas = tuple(BrokerId(1 + (first + place) % BROKERS) for place in range(REPLICAS))
    return PartitionRecord(
        topic_id=topic_id,
        partition=PartitionId(number),
        leader_id=replicas[0],
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        replicas=replicas,
        in_sync_replicas=replicas,
        directories=tuple(bytes([each]) * 16 for each in replicas),
    )


def resident_mib() -> float:
    """Of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def seconds(work: Callable[[], object]) -> float:
    """How long it took."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def leave(image: Image, broker_id: BrokerId) -> list[PartitionChangeRecord]:
    """What fencing the broker changes: leaders move, in-sync sets shrink."""
    changes = []
    for topic, each in image.partitions_in(image.held_by(broker_id)):
        rest = tuple(member for member in each.in_sync_replicas if member != broker_id)
        moves = each.leader_id == broker_id
        changes.append(
            PartitionChangeRecord(
                topic_id=topic.topic_id,
                partition=each.partition,
                partition_epoch=PartitionEpoch(each.partition_epoch + 1),
                in_sync_replicas=rest,
                leader_id=rest[0] if moves else None,
                leader_epoch=LeaderEpoch(each.leader_epoch + 1) if moves else None,
            )
        )
    return changes


def one_change_us(image: Image, *, with_check: bool) -> list[float]:
    """Each changes one partition of another topic; in ascending order of time."""
    topics = list(image.topics.values())
    times = []
    for place in range(CHANGES):
        topic = topics[place * 7_919 % len(topics)]
        each = image.topics[topic.topic_id].partitions[0]
        record = PartitionChangeRecord(
            topic_id=topic.topic_id,
            partition=each.partition,
            partition_epoch=PartitionEpoch(each.partition_epoch + 1),
            leader_id=each.replicas[(place + 1) % REPLICAS],
            leader_epoch=LeaderEpoch(each.leader_epoch + 1),
        )
        start = time.perf_counter()
        after = apply_entry(image, (record,))
        if with_check:
            invariants.check_step(image, after)
        times.append((time.perf_counter() - start) * 1e6)
        image = after
    return sorted(times)


def show_shape(topic_count: int, partitions_each: int) -> None:
    """Print one shape's figures."""
    log = entries(topic_count, partitions_each)
    record_count = BROKERS + topic_count * (1 + partitions_each)
    print(f"{topic_count:,} topics x {partitions_each}: {record_count:,} records", flush=True)
    machine = MetadataStateMachine()

    def apply_all() -> None:
        for start in range(0, len(log), ENTRIES_PER_APPLY):
            machine.apply(log[start : start + ENTRIES_PER_APPLY])

    took = seconds(apply_all)
    print(f"  apply     {took:.2f} s, {record_count / took:,.0f} records/s")
    pieces: Sequence[bytes] = machine.capture()()
    plan = seconds(lambda: len(pieces))
    state: list[bytes] = []
    took = seconds(lambda: state.extend(pieces))
    size_mib = sum(len(piece) for piece in state) / 2**20
    largest = max(len(piece) for piece in state)
    print(f"  snapshot  {size_mib:.1f} MiB, {len(state)} pieces, largest {largest:,} bytes")
    print(f"  encode    plan {plan * 1e3:.0f} ms, pieces {took:.2f} s")
    for with_check in (False, True):
        times = one_change_us(machine.image(), with_check=with_check)
        name = "change+check_step" if with_check else "one change"
        print(
            f"  {name}: p50 {times[len(times) // 2]:.1f} us, "
            f"p99 {times[len(times) * 99 // 100]:.1f} us"
        )
    image = machine.image()
    found: list[PartitionChangeRecord] = []
    collect = seconds(lambda: found.extend(leave(image, BrokerId(1))))
    took = seconds(lambda: apply_entry(image, found))
    print(f"  fencing   {len(found):,} partitions: collect {collect:.2f} s, apply {took:.2f} s")
    print(f"  check     {seconds(lambda: invariants.check(image)):.2f} s (full)", flush=True)
    load = multiprocessing.get_context("spawn").Process(target=show_load, args=(state,))
    load.start()
    load.join(120)


def show_load(state: list[bytes]) -> None:
    """Load in a process that holds nothing else than the pieces."""
    before = resident_mib()
    start = time.perf_counter()
    image, _ = decode_image(state)
    took = time.perf_counter() - start
    grown = resident_mib() - before
    print(f"  load      {took:.2f} s, {image.partition_count:,} partitions, RSS +{grown:.0f} MiB")


def main() -> None:
    """Both shapes, one after the other."""
    for shape in SHAPES:
        process = multiprocessing.get_context("spawn").Process(target=show_shape, args=shape)
        process.start()
        process.join(300)


if __name__ == "__main__":
    main()
