"""BrokerSessionService, the serving end: bytes to the controller's Structs and back.

Owns the check of the cluster's id. It must never let a broker of another cluster be heard.
"""

from collections.abc import Iterable

from tidelog.contract.errors import fill_error
from tidelog.metadata.broker_reports import Registration
from tidelog.metadata.records.entries import BrokerDirectory, FeatureRange
from tidelog.metadata_quorum.active.broker_sessions import Answer, BrokerSessions
from tidelog.metadata_quorum.controller.brokers.changes import Heartbeat
from tidelog.ports import RequestContext, Stream
from tidelog.v1 import broker_admin_pb2, broker_session_pb2
from tidelog.wire.ids import BrokerEpoch, BrokerId
from tidelog.wire.refusals import validate_cluster


class SessionService:
    """Served on the cluster listener by every voter; one that does not lead refuses."""

    def __init__(self, sessions: BrokerSessions, *, cluster_id: str) -> None:
        self._sessions = sessions
        self._cluster_id = cluster_id

    async def register_broker(self, context: RequestContext, message: bytes) -> bytes:
        """`RegisterBroker`."""
        del context
        asked = broker_session_pb2.RegisterBrokerRequest.FromString(message)
        validate_cluster(asked.cluster_id, self._cluster_id, tried="register a broker")
        epoch = await self._sessions.register(_read_registration(asked))
        return broker_session_pb2.RegisterBrokerResponse(
            broker_epoch=epoch, session_timeout_ms=self._sessions.times.session_timeout_ms
        ).SerializeToString()

    async def broker_session(self, context: RequestContext, stream: Stream) -> None:
        """`BrokerSession`: one answer for each heartbeat, in order."""
        del context
        who: tuple[BrokerId, BrokerEpoch] | None = None
        try:
            while (data := await stream.receive()) is not None:
                asked = broker_session_pb2.BrokerSessionRequest.FromString(data)
                validate_cluster(asked.cluster_id, self._cluster_id, tried="keep a broker session")
                heartbeat = _read_heartbeat(asked)
                who = heartbeat.broker_id, heartbeat.broker_epoch
                answer = await self._sessions.beat(heartbeat)
                message = _answer_message(answer, asked.sequence)
                message.session_timeout_ms = self._sessions.times.session_timeout_ms
                await stream.send(message.SerializeToString())
                if answer.error is not None:
                    return
        finally:
            if who is not None:
                self._sessions.on_stream_end(*who)


def _read_registration(message: broker_session_pb2.RegisterBrokerRequest) -> Registration:
    return Registration(
        broker_id=BrokerId(message.broker_id),
        incarnation=message.incarnation,
        listeners={each.listener: each.address for each in message.listeners},
        host_name=message.host,
        rack=message.rack,
        directories=_read_directories(message.directories),
        features={
            each.name: FeatureRange(each.level_min, each.level_max) for each in message.features
        },
        clean_shutdown_epoch=BrokerEpoch(message.clean_shutdown_epoch),
        boot_id=message.boot_id,
        release=message.release,
        stored_epochs={
            each.directory_uuid: BrokerEpoch(each.broker_epoch) for each in message.stored_epochs
        },
    )


def _read_heartbeat(message: broker_session_pb2.BrokerSessionRequest) -> Heartbeat:
    return Heartbeat(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        applied_index=message.applied_index,
        wants_unfence=message.wants_unfence,
        wants_shut_down=message.wants_shut_down,
        directories=_read_directories(message.directories),
        wall_ms=message.wall_ms if message.HasField("wall_ms") else None,
        clock_off_own_ms=message.clock_off_own_ms if message.HasField("clock_off_own_ms") else None,
    )


def _read_directories(
    messages: Iterable[broker_session_pb2.BrokerDirectory],
) -> tuple[BrokerDirectory, ...]:
    return tuple(BrokerDirectory(each.directory_uuid, each.is_online) for each in messages)


def _answer_message(answer: Answer, sequence: int) -> broker_session_pb2.BrokerSessionResponse:
    response = broker_session_pb2.BrokerSessionResponse(
        sequence=sequence,
        is_fenced=answer.state.is_fenced,
        may_shut_down=answer.state.may_shut_down,
        remaining_leaders=answer.state.remaining_leaders,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        clock_state=broker_admin_pb2.ClockState.ValueType(answer.clock.state),
        clock_skew_ms=answer.clock.skew_ms,
        clock_skew_max_ms=answer.clock.skew_max_ms,
    )
    if answer.error is not None:
        fill_error(response.error, answer.error)
    return response
