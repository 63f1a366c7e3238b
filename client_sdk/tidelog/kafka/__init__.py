"""kafka-python's names over Tidelog's client, for scripts that move over by their import line.

`from kafka import KafkaProducer` becomes `from tidelog.kafka import KafkaProducer`, and submodules
have the names that they have there. Owns names, argument checks and error classes; everything else
is `tidelog.client`'s. docs/migrating-from-kafka.md says what differs.
"""

from tidelog.kafka.admin import IsolationLevel, KafkaAdminClient, OffsetSpec
from tidelog.kafka.consumer import KafkaConsumer
from tidelog.kafka.consumer.subscription_state import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
)
from tidelog.kafka.producer import KafkaProducer
from tidelog.kafka.serializer import (
    DefaultSerializer,
    Deserializer,
    JsonSerializer,
    Serializer,
)
from tidelog.kafka.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    TopicPartitionReplica,
)

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Serializer",
    "TopicPartition",
    "TopicPartitionReplica",
]
