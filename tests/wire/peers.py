"""The record batch as aiokafka and kafka-python build and read it, for comparison with ours.

Owns the translation between their calls and our tuples. kafka-python brings no codecs: those whose
packages (python-snappy, lz4, zstandard) are missing are left out for it.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final

from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder

from tidelog.chaos.fuzz.generate import Sample
from tidelog.wire.batch import Codec

with warnings.catch_warnings():
    # kafka-python reads its own files by a deprecated call when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

_BATCH_BYTES: Final = 64 * 1024 * 1024
"""So that their builders refuse no record."""

_HAS_CODEC: Final[dict[Codec, Callable[[], bool]]] = {
    Codec.SNAPPY: kafka.codec.has_snappy,
    Codec.LZ4: kafka.codec.has_lz4,
    Codec.ZSTD: kafka.codec.has_zstd,
}


def kafka_python_has(codec: Codec) -> bool:
    """Whether kafka-python can read and write the codec here."""
    return codec not in _HAS_CODEC or _HAS_CODEC[codec]()


def kafka_python_lacks() -> list[str]:
    """Names of the codecs that kafka-python cannot do here."""
    return [codec.name for codec in Codec if not kafka_python_has(codec)]


def expected(sample: Sample, timestamp_type: int = 0) -> list[tuple[object, ...]]:
    """What any reader must find in the sample's batch."""
    return [
        (sample.base_offset + delta, time, timestamp_type, key, value, tuple(headers))
        for delta, (time, key, value, headers) in enumerate(sample.records)
    ]


def read_with_aiokafka(batch: bytes) -> list[tuple[object, ...]]:
    """Every record, after a check of the checksum by aiokafka."""
    reader = AiokafkaBatch(batch)
    assert reader.validate_crc(), "aiokafka finds the checksum wrong"
    return _fields(reader)


def read_with_kafka_python(batch: bytes) -> list[tuple[object, ...]]:
    """Every record, after a check of the checksum by kafka-python."""
    reader = KafkaPythonBatch(batch)
    assert reader.validate_crc(), "kafka-python finds the checksum wrong"
    return _fields(reader)


def _fields(reader: Any) -> list[tuple[object, ...]]:
    return [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers)) for r in reader
    ]


def build_with_aiokafka(sample: Sample) -> bytes:
    """The batch as aiokafka seals it; base offset and leader epoch are for a broker to set."""
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=int(sample.codec),
        is_transactional=int(sample.is_transactional),
        producer_id=sample.producer_id,
        producer_epoch=sample.producer_epoch,
        base_sequence=sample.base_sequence,
        batch_size=_BATCH_BYTES,
    )
    for offset, (time, key, value, headers) in enumerate(sample.records):
        done = builder.append(offset, timestamp=time, key=key, value=value, headers=list(headers))
        assert done is not None, "aiokafka's builder took the record"
    return bytes(builder.build())


def build_with_kafka_python(sample: Sample) -> bytes:
    """The batch as kafka-python seals it."""
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=int(sample.codec),
        is_transactional=sample.is_transactional,
        producer_id=sample.producer_id,
        producer_epoch=sample.producer_epoch,
        base_sequence=sample.base_sequence,
        batch_size=_BATCH_BYTES,
    )
    for offset, (time, key, value, headers) in enumerate(sample.records):
        done = builder.append(offset, time, key, value, list(headers))
        assert done is not None, "kafka-python's builder took the record"
    return bytes(builder.build())
