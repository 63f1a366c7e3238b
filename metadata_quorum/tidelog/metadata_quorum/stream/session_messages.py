"""What a broker says to the active controller, and what it hears. Values only."""

import msgspec

from tidelog.metadata.broker_reports import ClockVerdict
from tidelog.metadata.records.entries import BrokerDirectory
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LogIndex


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The broker is known."""

    epoch: BrokerEpoch
    session_timeout_ms: int


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The broker lives."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    applied_index: LogIndex
    wants_unfence: bool
    wants_shut_down: bool
    directories: tuple[BrokerDirectory, ...]
    sequence: int
    wall_ms: int
    clock_off_own_ms: int | None


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller thinks of the broker."""

    sequence: int
    is_fenced: bool
    may_shut_down: bool
    remaining_leaders: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    """0: a controller that does not say it here."""
    error: TidelogError | None
    clock: ClockVerdict


class ForwardedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A client's call, handed on."""

    cluster_id: str
    broker_id: BrokerId
    method: str
    request: bytes
    principal: str
    client_id: str
    client_address: str
    timeout_ms: int
