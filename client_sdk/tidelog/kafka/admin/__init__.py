"""kafka-python's admin client and what is handed to it, by its names."""

from tidelog.kafka.admin.client import KafkaAdminClient
from tidelog.kafka.admin.groups import GroupState, GroupType
from tidelog.kafka.admin.transactions import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from tidelog.kafka.admin.types import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ElectionType,
    IsolationLevel,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)

__all__ = [
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ElectionType",
    "GroupState",
    "GroupType",
    "IsolationLevel",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]
