"""What a broker says to the active controller, and what it hears. Values only."""

from collections.abc import Mapping

import msgspec

from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LogIndex

NOT_CLEAN = BrokerEpoch(-1)
"""The last life of the broker did not end in order, or there was none."""


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """A data directory."""

    uuid: bytes
    is_online: bool
    free_bytes: int


class FeatureRange(msgspec.Struct, frozen=True, kw_only=True):
    """Levels of a feature that the broker can speak."""

    name: str
    level_min: int
    level_max: int


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself when it starts."""

    broker_id: BrokerId
    incarnation: bytes
    """Sixteen random bytes, drawn at each start of the process."""
    listeners: Mapping[str, str]
    """Name → advertised `host:port`."""
    host_name: str = ""
    rack: str = ""
    directories: tuple[Directory, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    clean_shutdown_epoch: BrokerEpoch = NOT_CLEAN
    boot_id: str = ""
    release: str = ""


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
    directories: tuple[Directory, ...]
    sequence: int


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller thinks of the broker."""

    sequence: int
    is_fenced: bool
    may_shut_down: bool
    remaining_leaders: int
    heartbeat_interval_ms: int
    error: TidelogError | None


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


class ForwardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller made of it."""

    response: bytes
    applied_index: LogIndex
    error: TidelogError | None
