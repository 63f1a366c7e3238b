"""Partition n of every topic goes to the same member."""

from typing import ClassVar

from tidelog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Stands for the coordinator's `range`."""

    name: ClassVar[str] = "range"
    strategy: ClassVar[str] = "range"
