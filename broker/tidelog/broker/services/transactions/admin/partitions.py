"""What an operator may ask the leader of a partition about its producers: the port to it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidelog.wire.ids import PartitionKey


class ProducerView(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition remembers of a producer."""

    producer_id: int
    producer_epoch: int
    """The highest of a batch or marker."""
    last_sequence: int
    """-1: its last batch was a marker."""
    last_timestamp_ms: int
    transaction_start_offset: int
    """-1: no transaction of it is open here."""
    coordinator_epoch: int
    """Of its last marker; -1: there is none."""


class OwnProducers(Protocol):
    """The partitions that this broker leads."""

    async def describe_producers(self, key: PartitionKey) -> Sequence[ProducerView]:
        """Returns every producer that the partition remembers, in ascending order of id.

        Raises NOT_LEADER where another broker has to be asked.
        """
        ...

    async def abort_hanging(
        self,
        key: PartitionKey,
        producer_id: int,
        transaction_start_offset: int,
        *,
        validate_only: bool,
    ) -> None:
        """Ends the producer's transaction that is open here by an abort marker of one epoch more,
        and returns when that is committed.

        The caller has asked every coordinator: none has a transaction of the producer in progress.
        Nothing is written for a producer without an open transaction. Raises
        INVALID_TRANSACTION_STATE if the open one begins at another offset, and NOT_LEADER.
        """
        ...
