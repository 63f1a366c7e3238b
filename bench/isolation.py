"""`python -m bench.isolation`: what reading committed records costs a consumer.

Owns the comparison of both isolation levels over the same answers, from the bytes that came to the
records that the user is given, in one process and taking turns. Figures are the best of the rounds,
in CPU time of the thread. It prints, and judges nothing.

A log full of committed transactions lists no aborted ones, so the committed reader does what the
other does and a test of a flag; a log of which every fifth transaction was aborted shows what the
filter costs, beside the decoding that it saves.
"""

import argparse
import time
from typing import Final

import msgspec

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import (
    BrokerView,
    ClusterView,
    MetadataCache,
    PartitionView,
    TopicView,
)
from tidelog.client.engine.cluster.topics import TopicDesk, TopicSettings
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import (
    FetchAnswered,
    MetadataArrived,
    PartitionBatches,
    StreamOpened,
)
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.reading.chunk import Chunk, decode
from tidelog.client.types.records import TopicPartition
from tidelog.wire.batch import AbortedStretch, checksum, encode_batch, fetch_sum, stamp
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, ProducerId, TopicId

ANSWER_BYTES: Final = 1024 * 1024
PRODUCERS: Final = 8
BATCHES_A_TRANSACTION: Final = 3
RECORDS_A_BATCH: Final = (1, 10, 100)
_TOPIC: Final = TopicId(bytes(range(16)))
_NAME: Final = TopicPartition("t", 0)
_WINDOW_BYTES: Final = 64 * 1024 * 1024


class Answer(msgspec.Struct, frozen=True):
    """What a broker sends, and the records that it holds for a reader of everything."""

    part: PartitionBatches
    records: int


def answer_of(records_a_batch: int, *, aborts_every: int) -> Answer:
    """Transactions of several producers among each other, each with its marker."""
    data, aborted = bytearray(), list[AbortedStretch]()
    offset = transactions = records = 0
    while len(data) < ANSWER_BYTES:
        began: dict[int, int] = {}
        for number in range(PRODUCERS * BATCHES_A_TRANSACTION):
            producer = number % PRODUCERS
            began.setdefault(producer, offset)
            values = [(0, None, b"%0100d" % each, ()) for each in range(records_a_batch)]
            made = encode_batch(
                values,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            offset = _add(data, made, offset, records_a_batch)
            records += records_a_batch
        for producer, first_offset in began.items():
            transactions += 1
            is_aborted = bool(aborts_every) and transactions % aborts_every == 0
            if is_aborted:
                aborted.append(AbortedStretch(ProducerId(producer), Offset(first_offset)))
            kind = MarkerType.ABORT if is_aborted else MarkerType.COMMIT
            marker = encode_marker(
                Marker(kind, 0), producer_id=producer, producer_epoch=1, timestamp_ms=0
            )
            offset = _add(data, marker, offset, 1)
    whole = bytes(data)
    part = PartitionBatches(
        topic_id=_TOPIC,
        partition=PartitionId(0),
        batches=whole,
        fetch_sum=fetch_sum(_TOPIC, 0, 0, checksum(whole)),
        high_watermark=Offset(offset),
        last_stable_offset=Offset(offset),
        aborted=tuple(aborted),
    )
    return Answer(part, records)


def _add(data: bytearray, made: bytes, offset: int, count: int) -> int:
    start = len(data)
    data += made
    stamp(data, start, base_offset=offset, leader_epoch=0)
    return offset + count


def core_of(isolation: IsolationLevel) -> ConsumerCore:
    """A consumer whose stream is open."""
    metadata, backoff = MetadataCache(), Backoff(initial_ms=100, max_ms=1_000)
    topics = TopicDesk(
        TopicSettings(max_age_ms=300_000, bootstrap_timeout_ms=5_000), metadata, backoff
    )
    settings = ConsumerSettings(
        reset=OffsetSpec.EARLIEST,
        window_bytes=_WINDOW_BYTES,
        grant_bytes=1,
        partition_bytes_max=0,
        verify=True,
        isolation=isolation,
    )
    core = ConsumerCore(settings, metadata, topics, backoff)
    core.assign([_NAME], 0)
    core.seek(_NAME, 0)
    partition = PartitionView(partition=PartitionId(0), leader_id=1, leader_epoch=LeaderEpoch(0))
    view = ClusterView(
        cluster_id="c",
        controller_id=1,
        brokers=(BrokerView(broker_id=1, address="b"),),
        topics=(TopicView(name="t", topic_id=_TOPIC, partitions=(partition,)),),
        version=1,
    )
    core.step(MetadataArrived(view=view), 0)
    core.step(StreamOpened(broker_id=1, stream=1), 0)
    return core


def read(core: ConsumerCore, answer: Answer) -> tuple[int, int]:
    """One answer from its beginning: the records that the user gets, and the time in ns."""
    core.seek(_NAME, 0)
    core.tick(0)
    session_epoch = core.partitions[_NAME].session_epoch
    start = time.thread_time_ns()
    core.step(
        FetchAnswered(
            broker_id=1,
            stream=1,
            session_epoch=session_epoch,
            size_bytes=len(answer.part.batches),
            partitions=(answer.part,),
        ),
        0,
    )
    count = 0
    while (fetched := core.take()) is not None:
        decoded = decode(fetched, verify=True, key_deserializer=None, value_deserializer=None)
        chunk = Chunk(fetched, decoded)
        count += len(chunk.take(chunk.count_left))
        core.partitions[_NAME].hand_over(chunk.position)
    return count, time.thread_time_ns() - start


def compare(records_a_batch: int, rounds: int, *, aborts_every: int) -> str:
    """Both levels in turns."""
    answer = answer_of(records_a_batch, aborts_every=aborts_every)
    cores = {level: core_of(level) for level in IsolationLevel}
    best = dict.fromkeys(cores, 0)
    counts = dict.fromkeys(cores, 0)
    for _ in range(rounds):
        for level, core in cores.items():
            counts[level], taken_ns = read(core, answer)
            best[level] = min(best[level] or taken_ns, taken_ns)
    everything, committed = (
        best[IsolationLevel.READ_UNCOMMITTED],
        best[IsolationLevel.READ_COMMITTED],
    )
    assert counts[IsolationLevel.READ_UNCOMMITTED] == answer.records, "everything is read"
    share = counts[IsolationLevel.READ_COMMITTED] / answer.records
    return (
        f"{records_a_batch:>5} records a batch, {share:>4.0%} committed:"
        f" read_uncommitted {everything / answer.records:>6.0f} ns a stored record,"
        f" read_committed {committed / answer.records:>6.0f},"
        f" speed ratio {everything / committed:.3f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=60)
    rounds: int = parser.parse_args().rounds
    for aborts_every in (0, 5):
        for records_a_batch in RECORDS_A_BATCH:
            print(compare(records_a_batch, rounds, aborts_every=aborts_every))


if __name__ == "__main__":
    main()
