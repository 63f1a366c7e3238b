"""What the appender of a partition sends: batches with records that can be told apart.

Draws sizes, keys, tombstones, times and producers by seed. A producer is idempotent, as far as
headers go: sequences ascend without a gap; after an outcome that nobody knows it takes a new epoch.
"""

from typing import Final

from tidelog.chaos.checkers.log.records import RECORDS_MAX, Record, seal
from tidelog.chaos.sim.base.seeds import SeededRandom

_PADDING_BYTES: Final = (0, 10, 40, 150, 400)
_KEYS: Final = (4, 12, 40)
_LATE_MS_MAX: Final = 3_000


class BatchMaker:
    """Of one partition."""

    def __init__(self, number: int, random: SeededRandom, *, is_keyed: bool) -> None:
        self._number = number
        self._random = random
        self._is_keyed = is_keyed
        self._key_count = _KEYS[random.below(len(_KEYS))]
        self._made = 0
        self._producers = [(number * 10 + each, 0, 0) for each in range(random.between(1, 3))]

    def make(self, now_ms: int) -> tuple[list[Record], bytes]:
        """Records, and the batch of them."""
        random = self._random
        records = [self._record(now_ms) for _ in range(random.between(1, RECORDS_MAX))]
        padding = _PADDING_BYTES[random.below(len(_PADDING_BYTES))]
        if random.chance(0.3):
            return records, seal(records, padding)
        each = random.below(len(self._producers))
        producer_id, epoch, sequence = self._producers[each]
        self._producers[each] = (producer_id, epoch, sequence + len(records))
        batch = seal(
            records,
            padding,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return records, batch

    def begin_again(self) -> None:
        """Nobody knows what became of a batch: sequences begin anew."""
        self._producers = [(each, epoch + 1, 0) for each, epoch, _ in self._producers]

    def _record(self, now_ms: int) -> Record:
        random = self._random
        self._made += 1
        key = b"k%d" % random.below(self._key_count) if self._is_keyed else None
        timestamp_ms = now_ms
        if random.chance(0.1):
            timestamp_ms -= random.below(_LATE_MS_MAX)
        return Record(
            identity=b"%d.%d" % (self._number, self._made),
            key=key,
            is_tombstone=self._is_keyed and random.chance(0.2),
            timestamp_ms=timestamp_ms,
        )
