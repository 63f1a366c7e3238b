"""BrokerSessionService and Forward, the calling ends: the broker's Structs to protobuf and back."""

from tidelog.contract.errors import read_error
from tidelog.metadata.broker_reports import ClockState, ClockVerdict, Registration
from tidelog.metadata.records.entries import BrokerDirectory
from tidelog.metadata_quorum.port import Executed
from tidelog.metadata_quorum.stream.session_messages import (
    ForwardedCall,
    Heartbeat,
    Registered,
    SessionState,
)
from tidelog.v1 import broker_session_pb2, controller_pb2
from tidelog.wire.ids import BrokerEpoch, LogIndex


def encode_registration(cluster_id: str, registration: Registration) -> bytes:
    """`RegisterBrokerRequest`."""
    message = broker_session_pb2.RegisterBrokerRequest(
        cluster_id=cluster_id,
        broker_id=registration.broker_id,
        incarnation=registration.incarnation,
        rack=registration.rack,
        host=registration.host_name,
        clean_shutdown_epoch=registration.clean_shutdown_epoch,
        boot_id=registration.boot_id,
        release=registration.release,
    )
    for name, address in sorted(registration.listeners.items()):
        message.listeners.add(listener=name, address=address)
    for directory in registration.directories:
        _fill_directory(message.directories.add(), directory)
    for uuid, epoch in sorted(registration.stored_epochs.items()):
        message.stored_epochs.add(directory_uuid=uuid, broker_epoch=epoch)
    for name, levels in sorted(registration.features.items()):
        message.features.add(name=name, level_min=levels.level_min, level_max=levels.level_max)
    return message.SerializeToString()


def decode_registered(data: bytes) -> Registered:
    """`RegisterBrokerResponse`."""
    message = broker_session_pb2.RegisterBrokerResponse.FromString(data)
    return Registered(
        epoch=BrokerEpoch(message.broker_epoch), session_timeout_ms=message.session_timeout_ms
    )


def encode_heartbeat(cluster_id: str, heartbeat: Heartbeat) -> bytes:
    """`BrokerSessionRequest`."""
    message = broker_session_pb2.BrokerSessionRequest(
        cluster_id=cluster_id,
        broker_id=heartbeat.broker_id,
        broker_epoch=heartbeat.epoch,
        applied_index=heartbeat.applied_index,
        wants_unfence=heartbeat.wants_unfence,
        wants_shut_down=heartbeat.wants_shut_down,
        sequence=heartbeat.sequence,
        wall_ms=heartbeat.wall_ms,
        clock_off_own_ms=heartbeat.clock_off_own_ms,
    )
    for directory in heartbeat.directories:
        _fill_directory(message.directories.add(), directory)
    return message.SerializeToString()


def decode_session_state(data: bytes) -> SessionState:
    """`BrokerSessionResponse`."""
    message = broker_session_pb2.BrokerSessionResponse.FromString(data)
    return SessionState(
        sequence=message.sequence,
        is_fenced=message.is_fenced,
        may_shut_down=message.may_shut_down,
        remaining_leaders=message.remaining_leaders,
        heartbeat_interval_ms=message.heartbeat_interval_ms,
        session_timeout_ms=message.session_timeout_ms,
        error=read_error(message.error) if message.HasField("error") else None,
        clock=_read_clock(message),
    )


def _read_clock(message: broker_session_pb2.BrokerSessionResponse) -> ClockVerdict:
    """A state of a later release is none that this one may delete by."""
    known = int(message.clock_state) in {int(each) for each in ClockState}
    return ClockVerdict(
        state=ClockState(message.clock_state) if known else ClockState.UNKNOWN,
        skew_ms=message.clock_skew_ms,
        skew_max_ms=message.clock_skew_max_ms,
    )


def encode_forward(call: ForwardedCall) -> bytes:
    """`ForwardRequest`."""
    return controller_pb2.ForwardRequest(
        cluster_id=call.cluster_id,
        broker_id=call.broker_id,
        method=call.method,
        request=call.request,
        principal=call.principal,
        client_id=call.client_id,
        client_address=call.client_address,
        timeout_ms=call.timeout_ms,
    ).SerializeToString()


def decode_forward_answer(data: bytes) -> Executed:
    """`ForwardResponse`; raises the error with which the call failed."""
    message = controller_pb2.ForwardResponse.FromString(data)
    if message.HasField("error"):
        raise read_error(message.error)
    return Executed(response=message.response, applied_index=LogIndex(message.applied_index))


def _fill_directory(
    message: broker_session_pb2.BrokerDirectory, directory: BrokerDirectory
) -> None:
    message.directory_uuid = directory.uuid
    message.is_online = directory.is_online
