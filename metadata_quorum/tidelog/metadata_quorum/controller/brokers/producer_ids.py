"""Blocks of producer ids: each id is given to one broker, once, ever.

Pure. A block whose answer was lost is never given again: ids are plenty (2^63), doubt is not.
"""

from typing import Final

import msgspec

from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import ProducerIdsRecord
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.in_sync import check_broker_epoch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, ProducerId

BLOCK_SIZE: Final = 1_000
PRODUCER_ID_MAX: Final = (1 << 63) - 1


class ProducerIdBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Ids that are one broker's own."""

    first_producer_id: ProducerId
    count: int


def allocate_block(
    image: Image, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Decision[ProducerIdBlock]:
    """The next block."""
    tried = f"allocate producer ids for broker {broker_id}"
    check_broker_epoch(image, broker_id, broker_epoch, tried=tried)
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - BLOCK_SIZE:
        raise TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=tried,
            happened=f"{first} ids were given; there are no more of 63 bits",
            hint="Start a new cluster; ids are never given twice.",
        )
    record = ProducerIdsRecord(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        next_producer_id=ProducerId(first + BLOCK_SIZE),
    )
    block = ProducerIdBlock(first_producer_id=first, count=BLOCK_SIZE)
    return Decision(records=(record,), answer=block)
