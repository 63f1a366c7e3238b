"""The image as bytes: a head, then the records that would make it, in pieces.

Owns the snapshot's form. The pieces are entries of the log in form, so a snapshot follows the
records' rules of evolution; the bytes depend on the image's content only. It must never hold up
its caller for the whole of a large image: each piece is encoded when it is asked for.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

import msgspec

from tidelog.metadata.apply.draft import Draft
from tidelog.metadata.apply.entries import apply_record
from tidelog.metadata.image.image import BrokerImage, ClusterImage, Image, TopicImage
from tidelog.metadata.records.entries import (
    BeginRecord,
    BrokerChangeRecord,
    BrokerConfigurationRecord,
    BrokerRecord,
    ClusterConfigurationRecord,
    ClusterRecord,
    DirectoryEpochsRecord,
    FeatureRecord,
    FormatRecord,
    GroupConfigurationRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaRecord,
    TopicConfigurationChangeRecord,
    TopicRecord,
    decode_entry,
    encode_entry,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId

if TYPE_CHECKING:
    _Slice = slice[int | None, int | None, int | None]

SNAPSHOT_VERSION: Final = 1
PIECE_BYTES: Final = 64 * 1024
"""What a piece is planned for; a single topic's settings may make one larger."""
_OTHER_RECORDS_PER_PIECE: Final = 200
_TOPIC_BYTES: Final = 150
_PARTITION_BYTES: Final = 160
_REPLICA_BYTES: Final = 24


class SnapshotHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first piece: what no record says, and what must be found in the rest."""

    snapshot_version: int = SNAPSHOT_VERSION
    image_version: int
    last_broker_epoch: BrokerEpoch
    broker_count: int
    topic_count: int
    partition_count: int
    open_group_records: int = -1
    """Of a group that has no end yet: they stand last, behind its Begin record; -1: none is."""


_HEAD_ENCODER: Final = msgspec.msgpack.Encoder()
_HEAD_DECODER: Final = msgspec.msgpack.Decoder(SnapshotHead)

OpenGroup = tuple[MetadataRecord, ...]
_Part = tuple[TopicImage, int, int]
"""A topic with its partitions from the first number up to the second; from 0: with its record."""


class EncodedImage(Sequence[bytes]):
    """The pieces; the plan is made at the first use, each piece each time it is asked for."""

    def __init__(self, image: Image, open_group: OpenGroup | None) -> None:
        self._image = image
        self._open_group = open_group
        self._pieces: list[tuple[Sequence[MetadataRecord], list[_Part]]] | None = None

    def __len__(self) -> int:
        return 1 + len(self._planned())

    @overload
    def __getitem__(self, place: int, /) -> bytes: ...
    @overload
    def __getitem__(self, place: "_Slice", /) -> Sequence[bytes]: ...
    def __getitem__(self, place: "int | _Slice", /) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        number = range(len(self))[place]
        if number == 0:
            return self._head()
        records, parts = self._planned()[number - 1]
        return encode_entry([*records, *_records_of(parts)])

    def _head(self) -> bytes:
        image = self._image
        return _HEAD_ENCODER.encode(
            SnapshotHead(
                image_version=image.version,
                last_broker_epoch=image.last_broker_epoch,
                broker_count=len(image.brokers),
                topic_count=len(image.topics),
                partition_count=image.partition_count,
                open_group_records=-1 if self._open_group is None else len(self._open_group),
            )
        )

    def _planned(self) -> list[tuple[Sequence[MetadataRecord], list[_Part]]]:
        if self._pieces is None:
            pieces: list[tuple[Sequence[MetadataRecord], list[_Part]]] = []
            pieces += [(records, []) for records in _runs(_other_records(self._image))]
            pieces += [((), parts) for parts in _topic_parts(self._image)]
            if self._open_group is not None:
                pieces += [(each, []) for each in _runs([BeginRecord(), *self._open_group])]
            self._pieces = pieces
        return self._pieces


def decode_image(state: Sequence[bytes]) -> tuple[Image, OpenGroup | None]:
    """What `EncodedImage` was made of; STORAGE_CORRUPT if it is not one, or not whole."""
    pieces = iter(state)
    head = _decode_head(next(pieces, b""))
    draft = Draft(Image())
    draft.last_broker_epoch = head.last_broker_epoch
    open_group: list[MetadataRecord] | None = None
    for piece in pieces:
        for record in decode_entry(piece):
            if isinstance(record, BeginRecord):
                open_group = []
            elif open_group is not None:
                open_group.append(record)
            else:
                apply_record(draft, record)
    image = draft.finish(head.image_version)
    found = (
        len(image.brokers),
        len(image.topics),
        image.partition_count,
        -1 if open_group is None else len(open_group),
    )
    told = (head.broker_count, head.topic_count, head.partition_count, head.open_group_records)
    if found != told:
        raise _corrupt(
            "brokers, topics, partitions and records of an open group should number "
            f"{told}, {found} were found"
        )
    return image, None if open_group is None else tuple(open_group)


def _decode_head(piece: bytes) -> SnapshotHead:
    try:
        head = _HEAD_DECODER.decode(piece)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(f"it begins with something else than a head: {error}") from error
    if head.snapshot_version > SNAPSHOT_VERSION:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried="read a snapshot of the metadata",
            happened=f"it has version {head.snapshot_version}, "
            f"this release reads up to {SNAPSHOT_VERSION}",
        )
    return head


def _corrupt(happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT, tried="read a snapshot of the metadata", happened=happened
    )


def _runs(records: Sequence[MetadataRecord]) -> Iterator[Sequence[MetadataRecord]]:
    for start in range(0, len(records), _OTHER_RECORDS_PER_PIECE):
        yield records[start : start + _OTHER_RECORDS_PER_PIECE]


def _other_records(image: Image) -> list[MetadataRecord]:
    """Of everything but topics."""
    records: list[MetadataRecord] = []
    if image.cluster_id:
        records.append(FormatRecord(cluster_id=image.cluster_id))
    records += [FeatureRecord(name=name, level=level) for name, level in image.features.items()]
    if image.cluster != ClusterImage():
        records.append(
            ClusterRecord(
                default_replication_factor=image.cluster.default_replication_factor,
                internal_replication_factor=image.cluster.internal_replication_factor,
                internal_partition_counts=dict(
                    sorted(image.cluster.internal_partition_counts.items())
                ),
            )
        )
    for broker in image.brokers.values():
        records += _broker_records(broker)
    if image.cluster_configuration:
        records.append(ClusterConfigurationRecord(changes=dict(image.cluster_configuration)))
    for broker_id, settings in image.broker_configurations.items():
        records.append(BrokerConfigurationRecord(broker_id=broker_id, changes=dict(settings)))
    for group, settings in image.group_configurations.items():
        records.append(GroupConfigurationRecord(group=group, changes=dict(settings)))
    for client_id, quota in image.quotas.items():
        records.append(
            QuotaRecord(
                client_id=client_id,
                produce_bytes_per_second=quota.produce_bytes_per_second,
                fetch_bytes_per_second=quota.fetch_bytes_per_second,
                requests_per_second=quota.requests_per_second,
            )
        )
    if image.next_producer_id:
        records.append(
            ProducerIdsRecord(
                broker_id=BrokerId(-1),
                broker_epoch=BrokerEpoch(-1),
                next_producer_id=image.next_producer_id,
            )
        )
    return records


def _broker_records(broker: BrokerImage) -> Iterator[MetadataRecord]:
    yield BrokerRecord(
        broker_id=broker.broker_id,
        epoch=broker.epoch,
        incarnation=broker.incarnation,
        listeners=dict(sorted(broker.listeners.items())),
        host_name=broker.host_name,
        rack=broker.rack,
        is_fenced=broker.is_fenced,
        directories=broker.directories,
        features=dict(sorted(broker.features.items())),
        boot_id=broker.boot_id,
        release=broker.release,
        unflushed_since=broker.unflushed_since,
    )
    if broker.is_shutting_down or broker.is_draining:
        yield BrokerChangeRecord(
            broker_id=broker.broker_id,
            epoch=broker.epoch,
            is_shutting_down=broker.is_shutting_down,
            is_draining=broker.is_draining,
        )
    if broker.directory_epochs:
        yield DirectoryEpochsRecord(
            is_optional=True,
            broker_id=broker.broker_id,
            epoch=broker.epoch,
            directories=broker.directory_epochs,
        )


def _topic_parts(image: Image) -> Iterator[list[_Part]]:
    """Topics and runs of partitions, together about a piece's bytes."""
    parts: list[_Part] = []
    room_bytes = PIECE_BYTES
    for topic in image.topics.values():
        settings_bytes = sum(len(name) + len(text) for name, text in topic.configuration.items())
        topic_bytes = _TOPIC_BYTES + len(topic.name) + settings_bytes
        each_bytes = _PARTITION_BYTES
        if topic.partitions:
            each_bytes += _REPLICA_BYTES * len(topic.partitions[0].replicas)
        start, count = 0, len(topic.partitions)
        while True:
            if parts and room_bytes < topic_bytes + each_bytes:
                yield parts
                parts, room_bytes = [], PIECE_BYTES
            room_bytes -= topic_bytes if start == 0 else 0
            end = min(count, start + max(room_bytes // each_bytes, 1))
            parts.append((topic, start, end))
            room_bytes -= (end - start) * each_bytes
            start = end
            if start >= count:
                break
    if parts:
        yield parts


def _records_of(parts: list[_Part]) -> Iterator[MetadataRecord]:
    for topic, start, end in parts:
        if start == 0:
            yield TopicRecord(
                topic_id=topic.topic_id,
                name=topic.name,
                configuration=dict(sorted(topic.configuration.items())),
                is_internal=topic.is_internal,
            )
            if topic.flushed_since is not None:
                yield TopicConfigurationChangeRecord(
                    topic_id=topic.topic_id, changes={}, flushed_since=topic.flushed_since
                )
        for partition in topic.partitions[start:end]:
            yield PartitionRecord(
                topic_id=topic.topic_id,
                partition=partition.partition,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                in_sync_replicas=partition.in_sync_replicas,
                directories=partition.directories,
                eligible_replicas=partition.eligible_replicas,
                last_known_eligible=partition.last_known_eligible,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
                is_recovered_unclean=partition.is_recovered_unclean,
                called_off_replicas=partition.called_off_replicas,
                unclean_epoch=partition.unclean_epoch,
            )
