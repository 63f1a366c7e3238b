"""Produce, consume and administer: the public surface of the SDK.

Owns nothing but the names. Importing it starts no gRPC; the first call of a client does.
"""

from tidelog.client import errors
from tidelog.client.sync.admin import AdminClient
from tidelog.client.sync.consumer import Consumer
from tidelog.client.sync.future import SendFuture
from tidelog.client.sync.producer import Producer
from tidelog.client.types import (
    ConsumerRecord,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawBatch,
    RecordMetadata,
    TopicPartition,
)

__all__ = [
    "AdminClient",
    "Consumer",
    "ConsumerRecord",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RawBatch",
    "RecordMetadata",
    "SendFuture",
    "TopicPartition",
    "errors",
]
