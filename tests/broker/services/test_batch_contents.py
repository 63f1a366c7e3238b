"""What a topic demands of the records: times within bounds, keys where it is compacted."""

import pytest

from tidelog.broker.services.produce.batch_contents import check_contents
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import Codec, encode_batch, read_header
from tidelog.wire.errors import ErrorCode, TidelogError

NOW = 1_700_000_000_000
HOUR = 3_600_000


def check(
    *records: tuple[int, bytes | None], settings: TopicSettings, codec: Codec = Codec.NONE
) -> ErrorCode | None:
    """Time after now and key of each record; how the batch is refused."""
    batch = encode_batch([(NOW + ahead, key, b"v", ()) for ahead, key in records], codec=codec)
    return refusal_of(batch, settings)


def refusal_of(batch: bytes, settings: TopicSettings) -> ErrorCode | None:
    try:
        check_contents(batch, read_header(batch), settings, NOW, tried="produce")
    except TidelogError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("ahead_ms", "code"),
    [(HOUR, None), (HOUR + 1, ErrorCode.INVALID_TIMESTAMP), (-1_000 * HOUR, None)],
)
def test_a_record_is_at_most_an_hour_ahead_of_the_broker_by_default(
    ahead_ms: int, code: ErrorCode | None
) -> None:
    assert check((0, None), (ahead_ms, None), settings=TopicSettings()) is code


def test_how_far_behind_a_record_may_be_is_a_setting() -> None:
    settings = TopicSettings(timestamp_before_max_ms=100)
    assert check((-100, None), settings=settings) is None
    assert check((-101, None), settings=settings) is ErrorCode.INVALID_TIMESTAMP
    assert check((-NOW - 1, None), settings=settings) is None, "it has no time"


def test_times_are_not_judged_where_the_broker_sets_them() -> None:
    settings = TopicSettings(is_append_time=True, timestamp_before_max_ms=1)
    assert check((10 * HOUR, None), settings=settings) is None
    assert check((-10 * HOUR, None), settings=settings) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    settings = TopicSettings(is_compacted=True)
    assert check((0, b"k"), (0, b""), settings=settings, codec=codec) is None
    refused = check((0, b"k"), (0, None), (0, b"k"), settings=settings, codec=codec)
    assert refused is ErrorCode.INVALID_ARGUMENT
    assert check((0, b"k"), (0, None), settings=TopicSettings(), codec=codec) is None


def test_records_that_are_not_well_formed_are_refused_where_they_are_looked_at() -> None:
    batch = bytearray(encode_batch([(NOW, b"k", b"v", ())]))
    batch[61] ^= 0x40
    resealed = bytes(batch)
    assert refusal_of(resealed, TopicSettings()) is None
    validated = TopicSettings(is_every_record_validated=True)
    assert refusal_of(resealed, validated) is ErrorCode.CORRUPT_BATCH
    assert refusal_of(resealed, TopicSettings(is_compacted=True)) is ErrorCode.CORRUPT_BATCH


def test_a_header_that_claims_another_time_than_the_records_is_refused_where_it_is_looked_at() -> (
    None
):
    batch = bytearray(encode_batch([(NOW, b"k", b"v", ())]))
    batch[35:43] = (NOW - 5).to_bytes(8, "big")
    assert read_header(bytes(batch)).max_timestamp == NOW - 5
    assert refusal_of(bytes(batch), TopicSettings()) is None
    validated = TopicSettings(is_every_record_validated=True)
    assert refusal_of(bytes(batch), validated) is ErrorCode.CORRUPT_BATCH
