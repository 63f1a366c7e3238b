"""Groups by the admin client."""

import os

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import OffsetSpec

servers = os.environ["KAFKA_BOOTSTRAP"]
partition = TopicPartition("looked-at", 0)

with KafkaProducer(bootstrap_servers=servers) as producer:
    for number in range(5):
        producer.send("looked-at", b"%d" % number)

consumer = KafkaConsumer(
    "looked-at",
    bootstrap_servers=servers,
    client_id="looked-at-client",
    group_id="looked-at-group",
    auto_offset_reset="earliest",
    consumer_timeout_ms=300_000,
)
for _ in range(3):
    next(consumer)
consumer.commit()

admin = KafkaAdminClient(bootstrap_servers=servers)
listed = [each for each in admin.list_groups() if each["group_id"] == "looked-at-group"]
print([(each["group_id"], each["group_state"], each["protocol_type"]) for each in listed])
print(
    "looked-at-group" in [each["group_id"] for each in admin.list_groups(states_filter=["Stable"])]
)
(described,) = admin.describe_groups(["looked-at-group"]).values()
print(described["group_id"], described["group_state"], described["error"])
(member,) = described["members"]
print(member["client_id"], member["group_instance_id"])
assigned = member["member_assignment"]["assigned_partitions"]
print([(each["topic"], each["partitions"]) for each in assigned])
offsets = admin.list_group_offsets({"looked-at-group": [partition]})
print({name: at.offset for name, at in offsets["looked-at-group"].items()})
altered = admin.alter_group_offsets("looked-at-group", {partition: OffsetAndMetadata(1, "", -1)})
print(altered[partition].__name__ != "NoError")
consumer.close()

(described,) = admin.describe_groups(["looked-at-group"]).values()
print(described["group_state"], described["members"])
altered = admin.alter_group_offsets("looked-at-group", {partition: OffsetAndMetadata(1, "", -1)})
print(altered[partition].__name__)
for spec in (OffsetSpec.LATEST, OffsetSpec.EARLIEST, 2, 100):
    reset = admin.reset_group_offsets("looked-at-group", {partition: spec})
    print(reset[partition]["offset"], reset[partition]["error"].__name__)
offsets = admin.list_group_offsets("looked-at-group")
print({name: at.offset for name, at in offsets["looked-at-group"].items()})
deleted = admin.delete_group_offsets("looked-at-group", [partition])
print(deleted[partition].__name__)
print(admin.delete_groups(["looked-at-group", "no-such-group"]))
(missing,) = admin.describe_groups(["no-such-group"]).values()
print(missing["group_state"], missing["error"] is not None)
admin.close()
