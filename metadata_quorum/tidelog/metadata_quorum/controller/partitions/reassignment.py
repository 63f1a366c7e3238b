"""Moves of replicas to other brokers: begun, completed, called off.

Pure. While a move is under way a partition's replicas are those that it is to have, then those that
go. New replicas copy; when all of them are in sync (`in_sync.alter_partitions`) the others go.
Where one alone is to stay, they go once its leader says that it has flushed what is committed. So
late go those that came by a move that is called off or replaced, too, where one alone is to stay or
fewer are in sync without them than a commit counts on. It must never drop the last replica in sync.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from tidelog.metadata.eligibility import in_sync_min, may_take_replicas
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage
from tidelog.metadata.records.entries import ClusterConfigurationRecord, MetadataRecord
from tidelog.metadata.refusals.common import find_partition, refuse_duplicates, refuse_too_many
from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.kinds import canonical, is_true
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView
from tidelog.metadata_quorum.controller.placement.load import candidate_of, choose_directory
from tidelog.metadata_quorum.controller.placement.placement import validate_assignments
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionId, TopicId

REASSIGNMENTS_MAX: Final = 10_000


class Reassignment(msgspec.Struct, frozen=True, kw_only=True):
    """Where a partition's replicas are to stand; no replicas: call the move off."""

    topic_id: TopicId
    partition: PartitionId
    replicas: tuple[BrokerId, ...] = ()


def alter_reassignments(
    image: Image,
    wanted: Sequence[Reassignment],
    *,
    throttle_bytes_per_second: int = 0,
) -> Decision[tuple[TidelogError | None, ...]]:
    """Each on its own: None where the move has begun, is called off, or nothing was to be done."""
    tried = "move replicas"
    refuse_too_many(len(wanted), REASSIGNMENTS_MAX, tried=tried, what="partitions")
    keys = [f"{each.topic_id.hex()}-{each.partition}" for each in wanted]
    refuse_duplicates(keys, tried=tried, what="partition")
    records: list[MetadataRecord] = list(_throttle(image, throttle_bytes_per_second))
    errors: list[TidelogError | None] = []
    warnings: dict[str, None] = {}
    for each in wanted:
        try:
            record, found = _alter(image, each)
        except TidelogError as error:
            errors.append(error)
            continue
        errors.append(None)
        warnings.update(dict.fromkeys(found))
        if record is not None:
            records.append(record)
    return Decision(records=tuple(records), answer=tuple(errors), warnings=tuple(warnings))


def list_reassignments(
    image: Image, topic_ids: Collection[TopicId] = ()
) -> tuple[tuple[TopicId, PartitionImage], ...]:
    """Moves under way, by topic id, then partition."""
    return tuple(
        (topic.topic_id, partition)
        for topic, partition in image.partitions_in(image.index.reassigning)
        if not topic_ids or topic.topic_id in topic_ids
    )


def _alter(image: Image, wanted: Reassignment) -> tuple[MetadataRecord | None, tuple[str, ...]]:
    what = "move" if wanted.replicas else "call off the move of"
    tried = f"{what} {wanted.topic_id.hex()}-{wanted.partition}"
    topic, partition = find_partition(image, wanted.topic_id, wanted.partition, tried=tried)
    tried = f"{what} {topic.name}-{wanted.partition}"
    held = [each for each in partition.replicas if each not in partition.adding_replicas]
    # Who came by a move that was called off goes: to call it off again changes nothing.
    present = [each for each in held if each not in partition.called_off_replicas]
    warnings: tuple[str, ...] = ()
    target = wanted.replicas
    if not target:
        if not partition.is_reassigning:
            return None, ()
        target = tuple(present)
    else:
        warnings = _validate_target(image, partition, target, tried)
    _check_staying(partition, (*held, *target), tried)
    state = PartitionState.of(topic.topic_id, partition)
    minimum = in_sync_min(topic)
    _retarget(image, state, present, target, minimum)
    in_sync = [each for each in state.in_sync if each in state.replicas]
    state.eligible = tuple(each for each in state.eligible if each in state.replicas)
    state.last_known = tuple(each for each in state.last_known if each in state.replicas)
    if len(in_sync) < len(state.in_sync):
        state.set_in_sync(in_sync, minimum)
        state.eligible = tuple(each for each in state.eligible if each in state.replicas)
    view = ReplicaView(
        image.brokers,
        msgspec.structs.replace(partition, replicas=state.replicas, directories=state.directories),
    )
    if state.leader_id not in state.in_sync and state.leader_id != NO_LEADER:
        state.leader_id = NO_LEADER
        state.settle(view, minimum)
    state.finish_reassignment(view, minimum, is_flushed=False)
    return state.record(), warnings


def _check_staying(partition: PartitionImage, staying: Sequence[BrokerId], tried: str) -> None:
    """NO_ELIGIBLE_LEADER where nobody would stay that is, or where nobody is, may be, complete."""
    complete = partition.in_sync_replicas or partition.last_known_eligible
    if not any(each in staying for each in complete):
        raise TidelogError(
            ErrorCode.NO_ELIGIBLE_LEADER,
            tried=tried,
            happened="of the replicas that would stay none is in sync: "
            f"{', '.join(map(str, complete))} are, or were last",
            hint="Wait until one of them has caught up, or let the move end.",
        )


def _retarget(
    image: Image,
    state: PartitionState,
    present: Sequence[BrokerId],
    target: Sequence[BrokerId],
    minimum: int,
) -> None:
    """Replicas, those that come and those that go. Who came by an earlier move is dropped, unless
    it is needed until this one ends (rule 6 of `partitions.state`): a crash of one machine would
    else take what several acknowledged."""
    known = dict(zip(state.replicas, state.directories, strict=False))
    going = [each for each in present if each not in target]
    came = [each for each in state.replicas if each not in (*present, *target)]
    is_needed = len(target) == 1 or not state.are_enough((*target, *going), minimum)
    counted_on = (*state.in_sync, *state.eligible, *state.last_known)
    # Who never came into sync was counted on by no leader. Who may be complete is waited for where
    # nobody is known to be.
    state.called_off = tuple(each for each in came if is_needed and each in counted_on)
    removing = (*going, *state.called_off)
    state.adding = tuple(each for each in target if each not in present)
    state.removing = removing
    state.replicas = (*target, *removing)
    if state.directories:
        state.directories = tuple(
            known.get(each) or choose_directory(image, each, state.before.partition)
            for each in state.replicas
        )


def _validate_target(
    image: Image, partition: PartitionImage, target: Sequence[BrokerId], tried: str
) -> tuple[str, ...]:
    brokers = [
        candidate_of(image, broker)
        for broker in image.brokers.values()
        if may_take_replicas(broker) or broker.broker_id in partition.replicas
    ]
    return validate_assignments(
        brokers,
        [target],
        tried=tried,
        is_strict=is_true(image.cluster_configuration.get(catalogue.PLACEMENT_STRICT, "false")),
        kept=partition.replicas,
    ).warnings


def _throttle(image: Image, bytes_per_second: int) -> tuple[MetadataRecord, ...]:
    """0: the setting stays as it is."""
    if not bytes_per_second:
        return ()
    name = catalogue.REASSIGNMENT_THROTTLE
    setting = catalogue.CATALOGUE[name]
    value = canonical(setting, str(bytes_per_second), tried=f"set `{name}` of the cluster")
    if image.cluster_configuration.get(name) == value:
        return ()
    return (ClusterConfigurationRecord(changes={name: value}),)
