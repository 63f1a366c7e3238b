"""Who leads: elections when brokers come and go, the balance of preferred leaders, unclean ones.

Pure. It must never elect a replica that may lack acknowledged records unless an operator asks for
it, or it is the only replica there ever was. A stop of the walk "a broker dies".

An empty eligible set at a replication factor above 1 waits: for all last-known eligible replicas,
of which the longest log is taken (`elect_longest`), or for an operator (`elect_unclean`).
"""

from collections.abc import Collection, Mapping

import msgspec

from tidelog.metadata.eligibility import has_directory, has_room, in_sync_min, is_able
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata.refusals.common import find_partition
from tidelog.metadata_quorum.controller.partitions.append_time import is_stamped
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId
from tidelog.wire.refusals import invalid

LogEnd = tuple[LeaderEpoch, Offset]
"""The last epoch of a log, and its end in it: the larger one is the longer log."""


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one partition."""

    topic_id: TopicId
    partition: int
    leader_id: BrokerId
    """After it; -1: none."""
    error: TidelogError | None = None
    record: MetadataRecord | None = None
    """None: nothing changes."""


def settle_broker(
    image: Image, broker_id: BrokerId, *, lost: Collection[tuple[TopicId, int]] = ()
) -> tuple[MetadataRecord, ...]:
    """What follows from a change of the broker, which `image` shows already.

    Fenced, stopping or with a directory gone: leaders move, the in-sync set shrinks. Back again:
    partitions without a leader get one. `lost`: partitions of which its replica may lack records.
    """
    records: list[MetadataRecord] = []
    brokers = dict(image.brokers.items())
    for topic, partition in image.partitions_in(image.held_by(broker_id)):
        state = PartitionState.of(topic.topic_id, partition)
        if (topic.topic_id, partition.partition) in lost:
            state.lose((broker_id,))
        state.settle(ReplicaView(brokers, partition), in_sync_min(topic))
        record = state.record()
        if record is not None:
            records.append(record)
    return tuple(records)


def elect_preferred(image: Image, topic_id: TopicId, partition_number: int) -> Election:
    """Give the first replica the lead, if it is in sync and usable."""
    tried = f"elect the preferred leader of {topic_id.hex()}-{partition_number}"
    try:
        topic, partition = find_partition(image, topic_id, partition_number, tried=tried)
    except TidelogError as error:
        return _failed(topic_id, partition_number, error, NO_LEADER)
    state = PartitionState.of(topic_id, partition)
    preferred = state.preference()[0]
    if partition.leader_id == preferred:
        return _elected(state)
    view = ReplicaView(image.brokers, partition)
    if preferred not in partition.in_sync_replicas or not view.is_usable(preferred):
        refusal = TidelogError(
            ErrorCode.NO_ELIGIBLE_LEADER,
            tried=f"elect the preferred leader of {topic.name}-{partition_number}",
            happened=f"broker {preferred} is not in sync, fenced or stopping",
            hint="Wait until it has caught up; `tidelog topic describe` shows the in-sync set.",
        )
        return _failed(topic_id, partition_number, refusal, partition.leader_id)
    state.leader_id = preferred
    return _elected(state)


def plan_balance(
    image: Image, *, limit: int, clocks_off: Collection[int] = ()
) -> tuple[MetadataRecord, ...]:
    """One round: leaders that can go back to their preferred replica, at most `limit`.

    `clocks_off`: brokers that are not given back what they would stamp with a wrong clock.
    """
    assert limit > 0, "a round moves something"
    records: list[MetadataRecord] = []
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred = partition.replicas[0]
            if partition.leader_id in (preferred, NO_LEADER) or _is_draining(image, preferred):
                continue
            if preferred in clocks_off and is_stamped(image, topic, preferred):
                continue
            election = elect_preferred(image, topic.topic_id, partition.partition)
            if election.record is not None:
                records.append(election.record)
            if len(records) == limit:
                return tuple(records)
    return tuple(records)


def elect_longest(
    image: Image, topic_id: TopicId, partition_number: int, ends: Mapping[BrokerId, LogEnd]
) -> Election:
    """The longest log of all last-known eligible replicas, once every one of them has told its end.

    Which of them had acknowledged what is not known, so one that is missing may be the one.
    """
    tried = f"elect the longest log of {topic_id.hex()}-{partition_number}"
    topic, partition = find_partition(image, topic_id, partition_number, tried=tried)
    waited_for = partition.last_known_eligible
    if partition.leader_id != NO_LEADER or not waited_for:
        return _elected(PartitionState.of(topic_id, partition))
    view = ReplicaView(image.brokers, partition)
    missing = [each for each in waited_for if each not in ends or not view.is_usable(each)]
    # One that certainly holds everything is worth waiting for.
    missing += (*partition.in_sync_replicas, *partition.eligible_replicas)
    if missing:
        error = TidelogError(
            ErrorCode.NO_ELIGIBLE_LEADER,
            tried=f"elect a leader of {topic.name}-{partition_number}",
            happened="of the replicas that may hold every acknowledged record "
            f"these are missing: {', '.join(str(each) for each in missing)}",
        )
        return _failed(topic_id, partition_number, error, NO_LEADER)
    known = [ends[each] for each in waited_for]
    longest = max(
        waited_for, key=lambda each: (_length(ends[each], known), -waited_for.index(each))
    )
    return _elect_lossy(image, topic, partition, longest)


def elect_unclean(
    image: Image,
    topic_id: TopicId,
    partition_number: int,
    *,
    broker_id: BrokerId = NO_LEADER,
    ends: Mapping[BrokerId, LogEnd] | None = None,
) -> Election:
    """On an operator's explicit wish: a replica that may lack acknowledged records, which are lost.

    `broker_id` -1: the longest log among those alive, as far as `ends` tells; unknown ones come
    last, the last-known eligible first among them.
    """
    tried = f"elect a leader of {topic_id.hex()}-{partition_number} at the risk of loss"
    try:
        topic, partition = find_partition(image, topic_id, partition_number, tried=tried)
        if partition.leader_id != NO_LEADER:
            if broker_id in (NO_LEADER, partition.leader_id):
                return _elected(PartitionState.of(topic_id, partition))
            raise invalid(
                tried,
                f"{topic.name}-{partition_number} is led by broker {partition.leader_id}",
                "An unclean election is for partitions without a leader.",
            )
        if broker_id not in (NO_LEADER, *partition.replicas):
            raise invalid(tried, f"broker {broker_id} holds no replica of it")
        wanted = partition.replicas if broker_id == NO_LEADER else (broker_id,)
        alive = [each for each in wanted if _may_begin(image, each)]
        if not alive:
            raise TidelogError(
                ErrorCode.NO_ELIGIBLE_LEADER,
                tried=tried,
                happened=f"of the brokers {', '.join(map(str, wanted))} none is alive",
                hint="Start one of them.",
            )
    except TidelogError as error:
        present = _leader(image, topic_id, partition_number)
        return _failed(topic_id, partition_number, error, present)
    known = ends or {}
    chosen = max(
        alive,
        key=lambda each: (
            each in known,
            known.get(each, (LeaderEpoch(-1), Offset(-1))),
            each in partition.last_known_eligible,
            -partition.replicas.index(each),
        ),
    )
    return _elect_lossy(image, topic, partition, chosen)


def _elect_lossy(
    image: Image, topic: TopicImage, partition: PartitionImage, chosen: BrokerId
) -> Election:
    assert chosen in partition.replicas, "only a replica is elected"
    state = PartitionState.of(topic.topic_id, partition)
    state.leader_id = chosen
    state.in_sync, state.eligible, state.last_known = (chosen,), (), ()
    state.recover_unclean()
    broker = image.brokers[chosen]
    if not has_directory(broker, partition.directory_of(chosen)):
        # Its disk is gone and with it the log: it begins with an empty one elsewhere.
        online = [each.uuid for each in broker.directories if each.is_online]
        state.move_directory(chosen, online[0])
    return _elected(state)


def _length(end: LogEnd, ends: Collection[LogEnd]) -> tuple[bool, LogEnd]:
    """Of logs that all held everything the longest one's is the largest. One without an epoch is
    empty: all below its end was committed and trimmed, so one that ends below that is shorter at
    any epoch."""
    emptied = max((offset for epoch, offset in ends if epoch == NO_LEADER_EPOCH), default=0)
    return end[1] >= emptied, end


def _may_begin(image: Image, broker_id: BrokerId) -> bool:
    """Whether it can lead, be it with an empty log."""
    broker = image.brokers.get(broker_id)
    return broker is not None and is_able(broker) and has_room(broker)


def _elected(state: PartitionState) -> Election:
    return Election(
        topic_id=state.topic_id,
        partition=state.before.partition,
        leader_id=state.leader_id,
        record=state.record(),
    )


def _failed(
    topic_id: TopicId, partition: int, error: TidelogError, leader_id: BrokerId
) -> Election:
    return Election(topic_id=topic_id, partition=partition, leader_id=leader_id, error=error)


def _leader(image: Image, topic_id: TopicId, partition: int) -> BrokerId:
    topic = image.topics.get(topic_id)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return NO_LEADER
    return topic.partitions[partition].leader_id


def _is_draining(image: Image, broker_id: BrokerId) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_draining
