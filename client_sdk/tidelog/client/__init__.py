"""Produce, consume and administer: the public surface of the SDK.

Owns the names, and the switch that turns the C decoder off (`TIDELOG_NO_ACCELERATOR=1`). Importing
it starts no gRPC; the first call of a client does.
"""

import os

from tidelog.client import errors
from tidelog.client.bulk.sent import SentBatch, SentPart
from tidelog.client.patterns.retry import RecordHandler
from tidelog.client.patterns.table import Table
from tidelog.client.shared.retry_parts import HandlerCounts, RetryPolicy
from tidelog.client.shared.table_parts import TableSnapshot
from tidelog.client.sync.admin.client import AdminClient
from tidelog.client.sync.batch_future import PartlySentError, SendBatchFuture
from tidelog.client.sync.consumer import Consumer
from tidelog.client.sync.future import SendFuture
from tidelog.client.sync.producer import Producer
from tidelog.client.sync.transaction import Transaction
from tidelog.client.types.admin import (
    ClientQuota,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewPartitions,
)
from tidelog.client.types.groups import GroupState, GroupType, MemberToRemove, OffsetTimestamp
from tidelog.client.types.rebalance_listener import ConsumerRebalanceListener
from tidelog.client.types.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawBatch,
    RecordMetadata,
    TopicPartition,
)
from tidelog.client.types.transaction_token import TransactionToken
from tidelog.client.types.transactions import HangingTransaction, TransactionState
from tidelog.wire.batch import NO_ACCELERATOR, use_accelerator

__all__ = [
    "AdminClient",
    "ClientQuota",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ElectionType",
    "GroupState",
    "GroupType",
    "HandlerCounts",
    "HangingTransaction",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetTimestamp",
    "PartlySentError",
    "Producer",
    "RawBatch",
    "RecordHandler",
    "RecordMetadata",
    "RetryPolicy",
    "SendBatchFuture",
    "SendFuture",
    "SentBatch",
    "SentPart",
    "Table",
    "TableSnapshot",
    "TopicPartition",
    "Transaction",
    "TransactionState",
    "TransactionToken",
    "errors",
]

use_accelerator(os.environ.get(NO_ACCELERATOR) != "1")
