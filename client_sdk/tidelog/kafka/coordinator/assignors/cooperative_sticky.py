"""Equal numbers for all; partitions that stay are read on."""

from typing import ClassVar

from tidelog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class CooperativeStickyAssignor(AbstractPartitionAssignor):
    """Stands for the coordinator's `uniform`."""

    name: ClassVar[str] = "cooperative-sticky"
    strategy: ClassVar[str] = "uniform"
