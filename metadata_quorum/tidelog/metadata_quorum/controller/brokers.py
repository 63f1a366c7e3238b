"""Brokers come, stop and go: registration and what follows from it.

Pure. It must never give an epoch twice: an older process of the same id would not be fenced.
"""

from collections.abc import Mapping

import msgspec

from tidelog.metadata_quorum.image import Image
from tidelog.metadata_quorum.records import BrokerRecord
from tidelog.wire.ids import BrokerEpoch, BrokerId


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself when it starts."""

    broker_id: BrokerId
    incarnation: bytes
    listeners: Mapping[str, str]
    host_name: str = ""
    rack: str = ""


def plan_registration(image: Image, registration: Registration) -> BrokerRecord:
    """A registration gets an epoch above every earlier one, so that an older process is fenced."""
    epoch = max((broker.epoch for broker in image.brokers.values()), default=0) + 1
    return BrokerRecord(
        broker_id=registration.broker_id,
        epoch=BrokerEpoch(epoch),
        incarnation=registration.incarnation,
        listeners=dict(registration.listeners),
        host_name=registration.host_name,
        rack=registration.rack,
        is_fenced=True,
    )
