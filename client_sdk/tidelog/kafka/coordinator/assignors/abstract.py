"""What partition_assignment_strategy takes: classes that stand for one of the coordinator's ways.

Owns which way that is. Nothing is assigned here: there is no leader among the members.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from tidelog.client.arguments.kinds import shown
from tidelog.kafka.errors import KafkaConfigurationError


class AbstractPartitionAssignor:
    """`strategy` is the coordinator's name of it."""

    name: ClassVar[str]
    strategy: ClassVar[str]


_BY_NAME: Final = {
    "range": "range",
    "uniform": "uniform",
    "roundrobin": "uniform",
    "sticky": "uniform",
    "cooperative-sticky": "uniform",
}


def strategy_of(wanted: Any) -> str | None:
    """The coordinator's name of the first assignor; it may be a class, an object or that name."""
    is_several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    listed = list(wanted) if is_several else [wanted]
    first = listed[0] if listed else None
    if first is None:
        return None
    strategy = _BY_NAME.get(first) if isinstance(first, str) else getattr(first, "strategy", None)
    if not isinstance(strategy, str):
        raise KafkaConfigurationError(
            f"make a KafkaConsumer: partition_assignment_strategy={shown(wanted)} cannot be "
            "honoured: the coordinator assigns (hint: RangePartitionAssignor, or leave it out)"
        )
    return strategy
