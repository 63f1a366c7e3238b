"""Topics and settings by the admin client."""

import os

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.errors import TopicAlreadyExistsError

servers = os.environ["KAFKA_BOOTSTRAP"]

admin = KafkaAdminClient(bootstrap_servers=servers, client_id="admin-script")
settings = {"retention.ms": "86400000", "cleanup.policy": "delete"}
answer = admin.create_topics([NewTopic("admin-a", 2, 1, topic_configs=settings)])
for topic in answer["topics"]:
    print(topic["name"], topic["error_code"], topic["num_partitions"], topic["replication_factor"])
admin.create_topics(["admin-b"])
try:
    admin.create_topics(["admin-a"])
except TopicAlreadyExistsError as error:
    print(type(error).__name__, error.errno, error.message)
again = admin.create_topics(["admin-a", "admin-c"], raise_errors=False)
print([(topic["name"], topic["error_code"]) for topic in again["topics"]])
admin.wait_for_topics(["admin-a", "admin-b", "admin-c"])
print([name for name in sorted(admin.list_topics()) if name.startswith("admin-")])
(described,) = admin.describe_topics(["admin-a"])
print(described["name"], described["is_internal"])
for part in sorted(described["partitions"], key=lambda each: int(each["partition_index"])):
    print(part["partition_index"], part["leader_id"], part["replica_nodes"], part["isr_nodes"])
(missing,) = admin.describe_topics(["admin-missing"])
print(missing["name"], missing["error_code"])

topic = ConfigResource(ConfigResourceType.TOPIC, "admin-a")
found = admin.describe_configs([topic])["topic"]["admin-a"]
print({name: setting["value"] for name, setting in sorted(found.items())})
print({setting["config_source"] for setting in found.values()})
changed = {"retention.ms": "1000000", "cleanup.policy": ("DELETE", None)}
print(admin.alter_configs([ConfigResource("topic", "admin-a", changed)]))
found = admin.describe_configs([topic])["topic"]["admin-a"]
print({name: setting["value"] for name, setting in sorted(found.items())})
print(admin.reset_configs([ConfigResource("topic", "admin-a", ["retention.ms"])]))
print(admin.describe_configs([topic]))
try:
    admin.alter_configs([ConfigResource("topic", "admin-a", {"retention.msx": "1"})])
except ValueError as error:
    print(error)

admin.create_partitions({"admin-a": 3})
print(len(admin.describe_topics(["admin-a"])[0]["partitions"]))
with KafkaProducer(bootstrap_servers=servers) as producer:
    for number in range(5):
        producer.send("admin-a", b"v", partition=0, timestamp_ms=1_700_000_000_000 + number)
partition = TopicPartition("admin-a", 0)
for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, 1_700_000_000_003):
    print(admin.list_partition_offsets({partition: spec})[partition].offset)
deleted = admin.delete_records({partition: 2})
print(deleted[partition]["low_watermark"], deleted[partition]["error_code"])
print(admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset)

cluster = admin.describe_cluster()
print(len(cluster["brokers"]), sorted(cluster["brokers"][0])[:3], type(cluster["cluster_id"]))
gone = admin.delete_topics(["admin-a", "admin-b", "admin-c"])
print(sorted((topic["name"], topic["error_code"]) for topic in gone["topics"]))
admin.close()
