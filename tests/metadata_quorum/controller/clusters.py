"""Images for the tests of the controller: brokers that live, topics with replicas."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from tidelog.metadata import invariants
from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.broker_reports import Registration
from tidelog.metadata.features import SUPPORTED, bootstrap_records
from tidelog.metadata.image.image import Image, PartitionImage
from tidelog.metadata.new_topic import NewTopic, TopicDefaults
from tidelog.metadata.records.entries import BrokerDirectory, MetadataRecord
from tidelog.metadata_quorum.controller.brokers.changes import Heartbeat, beat
from tidelog.metadata_quorum.controller.brokers.registration import register
from tidelog.metadata_quorum.controller.decision import AnswerT, Decision
from tidelog.metadata_quorum.controller.topics.creation import plan_topic
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, TopicId

REPLICATED = TopicDefaults(replication_factor_max=50)


def applied(image: Image, records: Sequence[MetadataRecord]) -> Image:
    """The image after the records, with every invariant checked."""
    if not records:
        return image
    after = apply_entry(image, records)
    invariants.check_step(image, after)
    invariants.check(after)
    return after


def after(image: Image, decision: Decision[AnswerT]) -> Image:
    """The image after the decision."""
    return applied(image, decision.records)


def directory(broker: int, number: int = 0) -> bytes:
    """The uuid of one of the broker's directories."""
    return broker.to_bytes(8, "big") + number.to_bytes(8, "big")


def registration(
    broker: int,
    start: int = 0,
    *,
    rack: str = "",
    host: str = "",
    boot: str = "boot",
    clean: int = -1,
    directories: tuple[BrokerDirectory, ...] | None = None,
    stored: int | Mapping[bytes, int] | None = None,
) -> Registration:
    """What the broker says at its `start`-th start. `stored`: the epoch in its directories; of each
    one, if they differ; None: it is a release that stores none."""
    held = (BrokerDirectory(directory(broker)),) if directories is None else directories
    if isinstance(stored, int):
        stored = {each.uuid: stored for each in held if each.is_online}
    return Registration(
        broker_id=BrokerId(broker),
        incarnation=broker.to_bytes(8, "big") + start.to_bytes(8, "big"),
        listeners={"client": f"h{broker}:1", "cluster": f"h{broker}:2"},
        rack=rack,
        host_name=host,
        directories=held,
        features=SUPPORTED,
        clean_shutdown_epoch=BrokerEpoch(clean),
        boot_id=boot,
        stored_epochs={uuid: BrokerEpoch(epoch) for uuid, epoch in (stored or {}).items()},
    )


def unfenced(image: Image, broker: int) -> Image:
    """The broker serves."""
    return after(
        image,
        beat(
            image,
            Heartbeat(
                broker_id=BrokerId(broker),
                broker_epoch=image.brokers[BrokerId(broker)].epoch,
                applied_index=image.version,
                wants_unfence=True,
            ),
            required_index=image.version,
        ),
    )


def empty() -> Image:
    """A cluster that was formatted, without brokers."""
    records = bootstrap_records(
        "c",
        default_replication_factor=1,
        internal_replication_factor=1,
        internal_partition_counts={},
    )
    return apply_entry(Image(), records)


def cluster(brokers: int, *, racks: Sequence[str] = (), hosts: Sequence[str] = ()) -> Image:
    """Live brokers 1…n."""
    image = empty()
    for number in range(1, brokers + 1):
        wanted = registration(
            number,
            rack=racks[number - 1] if racks else "",
            host=hosts[number - 1] if hosts else "",
        )
        image = unfenced(after(image, register(image, wanted, is_living=False)), number)
    return image


def topic_id(number: int) -> TopicId:
    """Topic ids in order."""
    return TopicId(number.to_bytes(16, "big"))


def with_topic(
    image: Image,
    *replicas: tuple[int, ...],
    name: str = "t",
    number: int = 1,
    flush: str = "sync",
    in_sync_min: int = 0,
) -> Image:
    """A topic with these replicas. `flush` goes past the refusal of what is not served yet."""
    wanted = NewTopic(
        name=name,
        assignments=tuple(tuple(BrokerId(each) for each in members) for members in replicas),
        configuration={"min.insync.replicas": str(in_sync_min)} if in_sync_min else {},
    )
    plan = plan_topic(image, wanted, topic_id(number), REPLICATED)
    topic, *partitions = plan.records
    if flush != "sync":
        configuration = {**getattr(topic, "configuration", {}), "flush": flush}
        topic = msgspec.structs.replace(topic, configuration=configuration)
    return applied(image, (topic, *partitions))


def partition(image: Image, number: int = 0, topic: int = 1) -> PartitionImage:
    """A partition of the topic."""
    return image.topics[topic_id(topic)].partitions[number]


def refusal(code: ErrorCode, error: TidelogError | None) -> TidelogError:
    """The error is there, of this code, and says what was tried, what happened and what to do."""
    assert error is not None, f"{code.name} was expected"
    assert error.code is code, str(error)
    assert error.tried, "what was tried"
    assert error.happened, "what happened"
    assert error.hint, "what to do"
    return error


def raised(code: ErrorCode, caught: pytest.ExceptionInfo[TidelogError]) -> TidelogError:
    """The same for an error that was raised."""
    return refusal(code, caught.value)


def three(flush: str = "sync", in_sync_min: int = 2) -> Image:
    """One partition on brokers 1, 2, 3."""
    return with_topic(cluster(3), (1, 2, 3), flush=flush, in_sync_min=in_sync_min)
