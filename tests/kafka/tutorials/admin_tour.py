"""Topics made, found, grown, set and deleted."""

import os

from kafka import KafkaConsumer
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

servers = os.environ["KAFKA_BOOTSTRAP"]
admin = KafkaAdminClient(bootstrap_servers=servers, client_id="tour")
topics = [
    NewTopic(name="tour-a", num_partitions=2, replication_factor=1),
    NewTopic("tour-b", 1, 1, topic_configs={"retention.ms": "3600000"}),
    NewTopic("tour-c", 1, 1, topic_configs={"retention.ms": 7200000}),
]
admin.create_topics(new_topics=topics, validate_only=False)
try:
    admin.create_topics(new_topics=topics[:1])
except TopicAlreadyExistsError as error:
    print("exists", type(error).__name__, error.errno, error.message)
consumer = KafkaConsumer(bootstrap_servers=servers)
print(sorted(name for name in consumer.topics() if name.startswith("tour-")))
print(sorted(name for name in admin.list_topics() if name.startswith("tour-")))
admin.create_partitions({"tour-a": NewPartitions(total_count=4)})
(described,) = admin.describe_topics(["tour-a"])
print(described["name"], len(described["partitions"]))
resource = ConfigResource(ConfigResourceType.TOPIC, "tour-b")
print(admin.describe_configs([resource])["topic"]["tour-b"]["retention.ms"]["value"])
admin.alter_configs([ConfigResource("topic", "tour-b", {"retention.ms": "60000"})])
print(admin.describe_configs([resource])["topic"]["tour-b"]["retention.ms"]["value"])
resource = ConfigResource(ConfigResourceType.TOPIC, "tour-c", ["retention.ms"])
found = admin.describe_configs(config_resources=[resource])["topic"]["tour-c"]
print({name: setting["value"] for name, setting in found.items()})
admin.delete_topics(topics=["tour-a", "tour-b", "tour-c"])
try:
    admin.delete_topics(["tour-a"])
except UnknownTopicOrPartitionError as error:
    print("gone", type(error).__name__, error.errno)
print(admin.describe_cluster()["controller_id"] > 0)
consumer.close()
admin.close()
