"""What a topic's settings demand of a batch's records, checked before it is stored. Pure.

Owns the bounds of timestamps, which the header tells, and what only the records tell: that each has
a key where the topic is compacted, that they are well formed where the topic wants that looked at.
The records are decoded for these two only.
"""

from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import BatchHeader, CorruptBatch, DecodedRecord, decode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.moments import moment
from tidelog.wire.refusals import invalid

_NO_TIMESTAMP = -1


def check_contents(
    batch: bytes, header: BatchHeader, settings: TopicSettings, now_ms: int, *, tried: str
) -> None:
    """Raise what is wrong; `header` and checksum were checked, `now_ms` is the wall's time."""
    if not settings.is_append_time:
        _check_times(header, settings, now_ms, tried)
    if not (settings.is_compacted or settings.is_every_record_validated):
        return
    records = decode_batch(batch, verify=False)
    if settings.is_compacted:
        _check_keys(records, tried)
    if settings.is_every_record_validated:
        _check_claims(records, header, tried)


def _check_times(header: BatchHeader, settings: TopicSettings, now_ms: int, tried: str) -> None:
    newest_ms, oldest_ms = header.max_timestamp, header.base_timestamp
    if newest_ms - now_ms > settings.timestamp_after_max_ms:
        raise _invalid_time(
            tried,
            f"a record's time is {newest_ms - now_ms} ms ahead of the broker's clock, which shows "
            f"{moment(now_ms)}; the topic's message.timestamp.after.max.ms is "
            f"{settings.timestamp_after_max_ms}",
        )
    if oldest_ms != _NO_TIMESTAMP and now_ms - oldest_ms > settings.timestamp_before_max_ms:
        raise _invalid_time(
            tried,
            f"a record's time is {now_ms - oldest_ms} ms behind the broker's clock, which shows "
            f"{moment(now_ms)}; the topic's message.timestamp.before.max.ms is "
            f"{settings.timestamp_before_max_ms}",
        )


def _check_keys(records: list[DecodedRecord], tried: str) -> None:
    """A record without a key would be no key's last value, and be dropped."""
    for place, (_, _, _, key, *_) in enumerate(records):
        if key is None:
            raise invalid(
                tried,
                f"record {place} of the batch has no key, and the topic is compacted",
                "Give each record a key, or take compact out of the topic's cleanup.policy.",
            )


def _check_claims(records: list[DecodedRecord], header: BatchHeader, tried: str) -> None:
    """Retention and searches by time go by the header: it may claim no other time."""
    newest_ms = max(record[1] for record in records)
    if newest_ms != header.max_timestamp:
        raise CorruptBatch(
            tried=tried,
            happened=f"the header claims {header.max_timestamp} as the highest timestamp, "
            f"the records' is {newest_ms}",
        )


def _invalid_time(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_TIMESTAMP, tried=tried, happened=happened)
