"""The checks of the log suite can fail: each is shown a history that is bad in its way."""

from collections.abc import Callable

import pytest

from tidelog.chaos.checkers.log.model import Bounds, LogModel, Policy
from tidelog.chaos.checkers.log.records import Found, Record, Sent, read_records, seal

DAY_MS = 86_400_000


def kinds(model: LogModel) -> list[str]:
    """The first words of what it found."""
    return [text.split()[0] for text in model.violations]


def record(
    name: str, *, key: str | None = None, is_tombstone: bool = False, timestamp_ms: int = 0
) -> Record:
    """One record."""
    return Record(name.encode(), key.encode() if key else None, is_tombstone, timestamp_ms)


class Play:
    """A model, and short words for what happens to it."""

    def __init__(self, **policy: bool) -> None:
        self.model = LogModel("p", Policy(**policy))

    def send(self, *records: Record) -> Sent:
        """A batch on its way, its flush awaited."""
        return self.model.send(records, seal(records, 0), is_flush_awaited=True)

    def acknowledge(self, base_offset: int, *records: Record) -> Sent:
        """A batch that was stored there."""
        sent = self.send(*records)
        self.model.acknowledge(sent, base_offset)
        return sent

    def read(self, offset: int, next_offset: int, *found: tuple[int, Record], end: int = 0) -> None:
        """An answer of a log that begins at 0 and is committed up to `end`."""
        answer = [Found(at, each.identity, each.key, each.timestamp_ms) for at, each in found]
        high = end or next_offset
        reading = self.model.begin_read(offset)
        self.model.read(
            reading, answer, next_offset, Bounds(log_start=0, high_watermark=high, log_end=high)
        )

    def see(self, log_start: int, log_end: int) -> None:
        """What the log says of itself."""
        self.model.see(Bounds(log_start=log_start, high_watermark=log_end, log_end=log_end))


A, B, C = record("a"), record("b"), record("c")


def test_a_log_that_does_as_it_should_shows_nothing() -> None:
    play = Play()
    play.acknowledge(0, A, B)
    play.acknowledge(2, C)
    play.read(0, 3, (0, A), (1, B), (2, C))
    play.see(0, 3)
    play.model.start(Bounds(log_start=0, high_watermark=3, log_end=3))
    play.model.drained(
        [Found(0, b"a", None, 0), Found(1, b"b", None, 0), Found(2, b"c", None, 0)],
        Bounds(log_start=0, high_watermark=3, log_end=3),
    )
    assert play.model.violations == []


def _reused(play: Play) -> None:
    play.acknowledge(0, A)
    play.acknowledge(0, B)


def _reordered(play: Play) -> None:
    first, second = play.send(A), play.send(B)
    play.model.acknowledge(second, 0)
    play.model.acknowledge(first, 1)


def _lost_at_a_start(play: Play) -> None:
    play.acknowledge(0, A)
    play.see(0, 0)


def _lost_in_a_read(play: Play) -> None:
    play.acknowledge(0, A)
    play.read(0, 0, end=1)


def _missing_in_the_drain(play: Play) -> None:
    play.acknowledge(0, A)
    play.model.drained([], Bounds(log_start=0, high_watermark=1, log_end=1))


def _refused_and_read(play: Play) -> None:
    play.model.refuse(play.send(A), "full")
    play.read(0, 1, (0, A))


def _never_sent(play: Play) -> None:
    play.read(0, 1, (0, A))


def _beyond(play: Play) -> None:
    play.send(A, B)
    play.read(0, 2, (0, A), (1, B), end=1)


def _two_values(play: Play) -> None:
    play.acknowledge(0, A)
    play.send(B)
    play.read(0, 1, (0, B))


def _twice(play: Play) -> None:
    play.acknowledge(0, A)
    play.read(0, 2, (0, A), (1, A))


def _gap(play: Play) -> None:
    play.acknowledge(0, A)
    play.acknowledge(1, B)
    play.acknowledge(2, C)
    play.read(0, 3, (0, A), (2, C))


def _back_after_a_cut(play: Play) -> None:
    play.acknowledge(0, A)
    play.acknowledge(1, B)
    play.model.truncate(1)
    play.model.truncated(1)
    play.read(0, 2, (0, A), (1, B))


def _back_after_a_crash(play: Play) -> None:
    sent = play.model.send([A], seal([A], 0), is_flush_awaited=False)
    play.model.acknowledge(sent, 0)
    play.model.start(Bounds(log_start=0, high_watermark=0, log_end=0))
    play.read(0, 1, (0, A))


def _falling(play: Play) -> None:
    play.acknowledge(0, A)
    play.acknowledge(1, B)
    play.model.trim(1)
    play.model.trimmed(1, 1)
    play.see(0, 2)


def _too_short_a_trim(play: Play) -> None:
    play.acknowledge(0, A)
    play.model.trim(1)
    play.model.trimmed(1, 0)


def _too_long_a_cut(play: Play) -> None:
    for offset in range(10):
        play.acknowledge(offset, record(f"r{offset}"))
    play.model.truncate(9)
    play.model.truncated(2)


def _too_short_a_cut(play: Play) -> None:
    play.acknowledge(0, A)
    play.acknowledge(1, B)
    play.acknowledge(2, C)
    play.model.truncate(1)
    play.model.truncated(3, 2)


def _too_early(play: Play) -> None:
    play.acknowledge(0, A)
    play.acknowledge(1, B)
    play.model.retention_ms = DAY_MS
    play.see(1, 2)


def _wrong_time(play: Play) -> None:
    play.acknowledge(0, record("x", timestamp_ms=5))
    play.acknowledge(1, record("y", timestamp_ms=9))
    bounds = Bounds(log_start=0, high_watermark=2, log_end=2)
    play.model.find_time(play.model.begin_read(0), 4, (1, 9), bounds)


def _wrong_newest(play: Play) -> None:
    play.acknowledge(0, record("x", timestamp_ms=5))
    bounds = Bounds(log_start=0, high_watermark=1, log_end=1)
    play.model.find_newest(play.model.begin_read(0), None, bounds)


def _other_key(play: Play) -> None:
    play.acknowledge(0, record("x", key="k"))
    play.read(0, 1, (0, record("x", key="other")))


@pytest.mark.parametrize(
    ("kind", "history"),
    [
        ("reused_offset", _reused),
        ("reordered", _reordered),
        ("lost_write", _lost_at_a_start),
        ("lost_write", _lost_in_a_read),
        ("lost_write", _missing_in_the_drain),
        ("lost_write", _too_long_a_cut),
        ("failed_read", _refused_and_read),
        ("from_nowhere", _never_sent),
        ("beyond_watermark", _beyond),
        ("inconsistent_offsets", _two_values),
        ("duplicate", _twice),
        ("poll_skip", _gap),
        ("resurrected", _back_after_a_cut),
        ("resurrected", _too_short_a_cut),
        ("resurrected", _back_after_a_crash),
        ("falling_start", _falling),
        ("falling_start", _too_short_a_trim),
        ("lost_head", _too_early),
        ("time_lookup", _wrong_time),
        ("max_timestamp", _wrong_newest),
        ("wrong_bytes", _other_key),
    ],
)
def test_a_bad_history_is_told(kind: str, history: Callable[[Play], None]) -> None:
    play = Play()
    history(play)
    assert kind in kinds(play.model), play.model.violations


def compacted() -> Play:
    """A log of one key: a value, a tombstone, and a value of another key behind them."""
    play = Play(is_compacted=True, is_deleted=False)
    play.model.delete_retention_ms = 100
    play.acknowledge(0, record("a1", key="a"))
    play.acknowledge(1, record("a2", key="a", is_tombstone=True))
    play.acknowledge(2, record("b1", key="b"))
    return play


B1 = (2, record("b1", key="b"))
A1 = (0, record("a1", key="a"))
A2 = (1, record("a2", key="a", is_tombstone=True))


def test_what_is_superseded_may_be_missing_from_a_compacted_log() -> None:
    play = compacted()
    play.read(0, 3, A2, B1)
    assert play.model.violations == []


def test_the_last_value_of_a_key_must_not_be_missing() -> None:
    play = compacted()
    play.read(0, 3, A2)
    assert kinds(play.model) == ["compacted"]


def test_a_tombstone_must_not_be_missing_before_its_time() -> None:
    play = compacted()
    play.read(0, 3, B1)
    assert kinds(play.model) == ["lost_tombstone"]


def test_what_a_tombstone_has_deleted_does_not_come_back_when_it_is_gone() -> None:
    play = compacted()
    play.model.wall_high_ms = 1_000
    play.read(0, 3, B1)
    assert play.model.violations == []
    play.read(0, 3, A1, B1)
    assert kinds(play.model) == ["resurrected"]


def test_a_cut_leaves_nothing_of_a_log_that_was_trimmed_beyond_it_meanwhile() -> None:
    play = Play()
    play.acknowledge(0, A)
    play.acknowledge(1, B)
    play.model.truncate(1)
    play.model.trim(2)
    play.model.truncated(2, 2)
    play.see(2, 2)
    assert play.model.violations == []


def test_an_answer_that_another_has_overtaken_is_held_to_what_was_known_when_it_was_asked() -> None:
    play = Play()
    play.acknowledge(0, A)
    reading = play.model.begin_read(0)
    play.acknowledge(1, B)
    play.model.trim(1)
    play.model.trimmed(1, 1)
    overtaken = Bounds(log_start=0, high_watermark=1, log_end=1)
    play.model.see(overtaken, reading)
    assert play.model.violations == []
    play.model.see(overtaken, play.model.begin_read(1))
    assert kinds(play.model) == ["falling_start", "lost_write"]


def aged(**second: bool) -> Play:
    """A compacted log whose segments may go when they are a day old: two records, both young."""
    play = Play(is_compacted=True)
    play.model.retention_ms = DAY_MS
    play.model.delete_retention_ms = 100
    play.acknowledge(0, record("a1", key="a"))
    play.acknowledge(1, record("a2", key="a", **second))
    return play


def test_retention_may_take_what_a_compaction_had_dropped_before() -> None:
    play = aged()
    play.see(1, 2)
    assert play.model.violations == []
    play.see(2, 2)
    assert kinds(play.model) == ["lost_head"], "the last value of a key"


def test_retention_may_take_a_tombstone_that_a_compaction_may_have_dropped() -> None:
    play = aged(is_tombstone=True)
    play.model.wall_high_ms = 100
    play.see(2, 2)
    assert play.model.violations == []
    play = aged(is_tombstone=True)
    play.model.wall_high_ms = 99
    play.see(2, 2)
    assert kinds(play.model) == ["lost_head"]


def test_a_batch_of_unknown_outcome_may_have_superseded_what_came_before_it() -> None:
    play = compacted()
    play.model.lose_track(play.send(record("b2", key="b")))
    play.read(0, 3, A2)
    assert play.model.violations == []


def test_a_sealed_batch_tells_its_records_and_tombstones_apart() -> None:
    records = [record("x", key="k", timestamp_ms=3), record("y", key="k", is_tombstone=True)]
    found = read_records(seal(records, 40, producer_id=1, producer_epoch=0, base_sequence=0))
    assert [(each.offset, each.identity, each.key) for each in found] == [
        (0, b"x", b"k"),
        (1, b"y", b"k"),
    ]
