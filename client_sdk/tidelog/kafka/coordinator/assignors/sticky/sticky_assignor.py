"""Equal numbers for all; moves as few partitions as possible."""

from typing import ClassVar

from tidelog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Stands for the coordinator's `uniform`."""

    name: ClassVar[str] = "sticky"
    strategy: ClassVar[str] = "uniform"
