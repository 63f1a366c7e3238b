"""Which partitions of `__transactions` this broker leads, and the coordinator of each.

Owns what coordinators of transactions are told of the image: topics, settings. It must never decide
anything about a transaction, nor show a coordinator topics that are older than its leadership.
"""

from collections.abc import Callable, Mapping

from tidelog.broker.coordination.keeper import PartitionCoordinators
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import HouseTime
from tidelog.broker.transactions.coordinator.coordinator import TransactionCoordinator
from tidelog.broker.transactions.coordinator.id_blocks import ProducerIdBlocks
from tidelog.broker.transactions.coordinator.marker_sender import MarkerSender
from tidelog.broker.transactions.coordinator.settings import settings_of
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.metadata.image.image import Image
from tidelog.ports import Clock
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey, TopicId


class TransactionCoordinators(PartitionCoordinators[TransactionCoordinator]):
    """One a broker. `run()` is its task."""

    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        *,
        time: HouseTime,
        broker_id: BrokerId,
        make_core: Callable[[], TransactionCoordinatorCore],
        producer_ids: ProducerIdBlocks,
        markers: MarkerSender,
        is_in_contact: Callable[[], bool],
        events: EventLog,
        meter: Meter,
    ) -> None:
        super().__init__(
            TRANSACTIONS,
            replicas,
            clock,
            time=time,
            broker_id=broker_id,
            is_in_contact=is_in_contact,
            events=events,
            meter=meter,
        )
        self._make_core = make_core
        self._producer_ids = producer_ids
        self._markers = markers
        self._partition_counts: Mapping[TopicId, int] = {}
        self._settings = settings_of(self._image)

    def _follow_image(self, before: Image, image: Image) -> None:
        self._follow_topics(before, image)
        self._follow_settings(before, image)

    def _follow_topics(self, before: Image, image: Image) -> None:
        is_same = image.topic_ids is before.topic_ids
        if is_same and image.partition_count == before.partition_count:
            return
        self._partition_counts = {
            topic_id: len(topic.partitions) for topic_id, topic in image.topics.items()
        }
        for coordinator in self._coordinators.values():
            coordinator.show(self._partition_counts)

    def _follow_settings(self, before: Image, image: Image) -> None:
        if image.cluster_configuration is before.cluster_configuration:
            return
        self._settings = settings_of(image)
        for coordinator in self._coordinators.values():
            coordinator.configure(self._settings)

    def _make(self, key: PartitionKey) -> TransactionCoordinator:
        made = TransactionCoordinator(
            key,
            self._around,
            make_core=self._make_core,
            producer_ids=self._producer_ids,
            markers=self._markers,
        )
        made.show(self._partition_counts)
        made.configure(self._settings)
        return made

    def _log_resigned(self, partitions: str, reason: TidelogError | None) -> None:
        self._events.info("transaction_coordinator_resigned", partitions=partitions, reason=reason)
