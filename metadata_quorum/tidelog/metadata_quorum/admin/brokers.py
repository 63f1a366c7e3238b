"""Brokers emptied and removed, and feature levels finalised, on the active controller."""

from collections.abc import Callable

from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.image.image import Image
from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.kinds import Scope
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.admin.execution import Execute, write
from tidelog.metadata_quorum.controller.brokers.changes import DrainState, drain, remove
from tidelog.metadata_quorum.controller.brokers.clock import ClockShown
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.features import (
    FeatureState,
    describe_features,
    finalise_features,
)
from tidelog.metadata_quorum.controller.settings.configuration import (
    Alteration,
    Change,
    Target,
    alter_configurations,
)
from tidelog.metadata_quorum.port import Executed
from tidelog.ports import RequestContext
from tidelog.ports.request_context import CLUSTER_LISTENER
from tidelog.v1 import broker_admin_pb2, metadata_admin_pb2
from tidelog.wire.ids import BrokerId, LogIndex

LastContact = Callable[[BrokerId], int]
"""How long ago a broker was heard of, in milliseconds; -1: not known here."""
ClockOf = Callable[[BrokerId], ClockShown]
"""What is known of a broker's wall clock."""


class BrokerExecution:
    """The calls that change brokers and features, and the list that only the controller knows."""

    def __init__(
        self, controller: ActiveController, last_contact_ms: LastContact, clock_of: ClockOf
    ) -> None:
        self._controller = controller
        self._last_contact_ms = last_contact_ms
        self._clock_of = clock_of

    def table(self) -> dict[str, Execute]:
        """By full method name."""
        return {
            "/tidelog.v1.BrokerAdminService/ListBrokers": self.list_brokers,
            "/tidelog.v1.BrokerAdminService/DrainBroker": self.drain_broker,
            "/tidelog.v1.BrokerAdminService/RemoveBroker": self.remove_broker,
            "/tidelog.v1.MetadataAdminService/FinaliseFeatures": self.finalise_features,
        }

    async def list_brokers(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`ListBrokers`, with when each was heard of; linearizable: a majority is asked first."""
        if self._controller.active_term is not None:
            await self._controller.quorum.read_index(timeout_ms=timeout_ms)
        if self._controller.active_term is None:
            raise self._controller.not_controller("list brokers")
        image = self._controller.image()
        response = list_brokers(image, message, context, self._last_contact_ms, self._clock_of)
        return Executed(response=response, applied_index=LogIndex(image.version))

    async def drain_broker(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`DrainBroker`."""
        del context
        asked = broker_admin_pb2.DrainBrokerRequest.FromString(message)
        broker_id = BrokerId(asked.broker_id)

        def decide(image: Image) -> Decision[DrainState]:
            decision = drain(image, broker_id, is_cancelled=asked.is_cancelled)
            if not asked.throttle_bytes_per_second:
                return decision
            throttle = Alteration(
                target=Target(scope=Scope.CLUSTER),
                changes=(
                    Change(
                        name=catalogue.REASSIGNMENT_THROTTLE,
                        value=str(asked.throttle_bytes_per_second),
                    ),
                ),
            )
            set_throttle = alter_configurations(image, [throttle])
            if set_throttle.answer[0] is not None:
                raise set_throttle.answer[0]
            return Decision(
                records=(*set_throttle.records, *decision.records),
                answer=decision.answer,
                warnings=decision.warnings,
            )

        written = await write(
            self._controller,
            decide,
            validate_only=asked.validate_only,
            tried=f"empty broker {broker_id}",
            timeout_ms=timeout_ms,
        )
        response = broker_admin_pb2.DrainBrokerResponse(
            remaining_replicas=written.answer.remaining_replicas, warnings=written.warnings
        )
        return Executed(response=response.SerializeToString(), applied_index=written.index)

    async def remove_broker(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`RemoveBroker`."""
        del context
        asked = broker_admin_pb2.RemoveBrokerRequest.FromString(message)
        written = await write(
            self._controller,
            lambda image: remove(image, BrokerId(asked.broker_id)),
            validate_only=asked.validate_only,
            tried=f"remove broker {asked.broker_id}",
            timeout_ms=timeout_ms,
        )
        response = broker_admin_pb2.RemoveBrokerResponse()
        return Executed(response=response.SerializeToString(), applied_index=written.index)

    async def finalise_features(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`FinaliseFeatures`."""
        del context
        asked = metadata_admin_pb2.FinaliseFeaturesRequest.FromString(message)
        levels = [(each.name, each.level) for each in asked.levels]

        def decide(image: Image) -> Decision[tuple[FeatureState, ...]]:
            decision = finalise_features(image, levels, allow_downgrade=asked.allow_downgrade)
            after = apply_entry(image, decision.records)
            return Decision(records=decision.records, answer=describe_features(after))

        written = await write(
            self._controller,
            decide,
            validate_only=asked.validate_only,
            tried="finalise feature levels",
            timeout_ms=timeout_ms,
        )
        response = metadata_admin_pb2.FinaliseFeaturesResponse()
        for each in written.answer:
            fill_feature(response.features.add(), each)
        return Executed(response=response.SerializeToString(), applied_index=written.index)


def list_brokers(
    image: Image,
    message: bytes,
    context: RequestContext,
    last_contact_ms: LastContact,
    clock_of: ClockOf,
) -> bytes:
    """`ListBrokers`, from an image; addresses are those of the listener that was asked."""
    broker_admin_pb2.ListBrokersRequest.FromString(message)
    response = broker_admin_pb2.ListBrokersResponse()
    for broker in image.brokers.values():
        listeners = broker.listeners
        clock = clock_of(broker.broker_id)
        response.brokers.add(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            address=listeners.get(context.listener) or listeners.get(CLUSTER_LISTENER, ""),
            rack=broker.rack,
            host=broker.host_name,
            is_fenced=broker.is_fenced,
            is_draining=broker.is_draining,
            is_shutting_down=broker.is_shutting_down,
            leader_count=image.led_by(broker.broker_id).count,
            replica_count=image.held_by(broker.broker_id).count,
            last_contact_ms=last_contact_ms(broker.broker_id),
            release=broker.release,
            clock_state=broker_admin_pb2.ClockState.ValueType(clock.state),
            clock_skew_ms=clock.skew_ms,
            clock_wall_ms=clock.wall_ms,
        )
    return response.SerializeToString()


def fill_feature(message: metadata_admin_pb2.FeatureDescription, state: FeatureState) -> None:
    """Write one feature into an answer."""
    message.name = state.name
    message.finalised_level = state.finalised_level
    message.level_min = state.level_min
    message.level_max = max(state.level_max, 0)
