"""Equal numbers for all; moves as few partitions as possible."""

from typing import ClassVar

from tidelog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """Stands for the coordinator's `uniform`."""

    name: ClassVar[str] = "roundrobin"
    strategy: ClassVar[str] = "uniform"
