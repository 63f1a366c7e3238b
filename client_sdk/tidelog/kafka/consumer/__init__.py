"""kafka-python's consumer, by its names."""

from tidelog.kafka.consumer.group import KafkaConsumer

__all__ = ["KafkaConsumer"]
