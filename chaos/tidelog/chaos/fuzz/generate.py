"""Makes valid batches of every kind from a seed: the start of mutations and of comparisons.

Owns what "every kind" means: nulls, empties, headers, all codecs and flags, numbers of all widths,
timestamps that go back, equal and unequal lengths.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from tidelog.wire.batch import Codec, Header, RecordTuple, encode_batch
from tidelog.wire.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

_NAMES: Final = ("", "h", "trace-id", "schlüssel", "見出し", "n" * 70, "🙂")
_TODAY_MS: Final = 1_790_000_000_000
_DELTA_MAX: Final = 2**61
"""Between any two timestamps of a batch, so that no reader's 64 bits overflow."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch is sealed from."""

    records: tuple[RecordTuple, ...]
    codec: Codec
    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool

    def seal(self) -> bytes:
        """The batch."""
        return encode_batch(
            self.records,
            codec=self.codec,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            is_transactional=self.is_transactional,
            is_control=self.is_control,
            base_offset=self.base_offset,
            leader_epoch=self.leader_epoch,
        )


def random_sample(random: Random, *, codec: Codec | None = None) -> Sample:
    """A batch's worth of records with everything that the header needs."""
    is_control = random.random() < 0.03
    records = (_marker(random),) if is_control else _records(random)
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    has_producer = is_control or random.random() < 0.5
    if has_producer:
        producer_id = random.choice((0, 1, 4711, 2**40, 2**63 - 1))
        producer_epoch = random.choice((0, 1, 32_766, 32_767))
        base_sequence = -1 if is_control else random.choice((0, 1, 10_000, 2**31 - 1))
    return Sample(
        records=records,
        codec=Codec(random.randrange(5)) if codec is None else codec,
        base_offset=random.choice((0, 1, 1_000_000, 2**31, 2**62)),
        leader_epoch=random.choice((-1, 0, 1, 2**31 - 1)),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_control or (has_producer and random.random() < 0.5),
        is_control=is_control,
    )


def _marker(random: Random) -> RecordTuple:
    """A transaction marker: version and kind as two 16-bit numbers in the key."""
    kind = random.randrange(2)
    return _TODAY_MS, bytes((0, 0, 0, kind)), bytes(6), ()


def _records(random: Random) -> tuple[RecordTuple, ...]:
    shape = random.choice((_mixed, _mixed, _equal, _equal_in_runs))
    count = random.choice((1, 2, 3, 10, random.randrange(1, 64), random.randrange(1, 400)))
    times = _times(random, count)
    return tuple(shape(random, times))


def _times(random: Random, count: int) -> list[int]:
    base = random.choice((_TODAY_MS, _TODAY_MS, 0, -1, -(2**40), 2**61))
    steps: Callable[[], int] = random.choice(
        (
            lambda: 0,
            lambda: random.randrange(3),
            lambda: random.randrange(-100, 100),
            lambda: random.randrange(-100_000, 100_000),
            lambda: random.choice((0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, 2**31, -(2**33))),
            lambda: random.choice((0, _DELTA_MAX // 400, -_DELTA_MAX // 400)),
        )
    )
    times = [base]
    for _ in range(count - 1):
        times.append(times[-1] + steps())
    return times


def _content(random: Random) -> bytes | None:
    size = random.choice(
        (-1, 0, 1, 5, 20, 62, 63, 64, 65, random.randrange(200), random.randrange(1_000))
    )
    if random.random() < 0.002:
        size = random.choice((8_190, 8_191, 8_192, 20_000))
    if size < 0:
        return None
    return random.randbytes(size) if random.random() < 0.5 else b"tide" * (size // 4)


def _headers(random: Random) -> tuple[Header, ...]:
    if random.random() < 0.7:
        return ()
    count = random.choice((1, 1, 2, 3, 70))
    return tuple(
        (random.choice(_NAMES), random.choice((None, b"", b"v", random.randbytes(80))))
        for _ in range(count)
    )


def _mixed(random: Random, times: list[int]) -> list[RecordTuple]:
    return [(time, _content(random), _content(random), _headers(random)) for time in times]


def _equal(random: Random, times: list[int]) -> list[RecordTuple]:
    key_bytes = random.choice((None, None, 0, 4, 16, 80))
    value_bytes = random.choice((None, 0, 10, 100, 100))
    return [
        (
            time,
            None if key_bytes is None else random.randbytes(key_bytes),
            None if value_bytes is None else random.randbytes(value_bytes),
            (),
        )
        for time in times
    ]


def _equal_in_runs(random: Random, times: list[int]) -> list[RecordTuple]:
    """Long runs of equal records with another one in between, or a change of shape."""
    records = _equal(random, times)
    for _ in range(random.randrange(4)):
        index = random.randrange(len(records))
        records[index] = (times[index], _content(random), _content(random), _headers(random))
    if random.random() < 0.5:
        half = len(times) // 2
        records[half:] = _equal(random, times[half:])
    return records
