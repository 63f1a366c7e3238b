"""kafka-python's producer, by its names."""

from tidelog.kafka.producer.kafka import KafkaProducer

__all__ = ["KafkaProducer"]
