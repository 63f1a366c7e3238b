"""The latest value of each key, and how far each partition has been read.

Owns what a record does to a table: a value replaces the one before it, a null removes the key, a
record without a key says nothing. Pure: the driver reads the topic. It must never apply a record
twice, nor one at or above the limit of a table that shows the past.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from tidelog.client.types.records import ConsumerRecord

Loads = Callable[[bytes], Any]


class TableState:
    """`positions` are next offsets by partition; all moves forward only."""

    def __init__(
        self,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        limits: Mapping[int, int],
        key_deserializer: Loads | None,
        value_deserializer: Loads | None,
    ) -> None:
        assert starts.keys() == ends.keys(), "each partition has a start and an end"
        self.entries: dict[Hashable, Any] = {}
        self.positions = dict(starts)
        self.records_applied = 0
        self._starts = dict(starts)
        self._limits = dict(limits)
        """Of a table that shows the past: the first offset that does not count; else empty."""
        self._goals = {
            partition: max(starts[partition], min(end, limits.get(partition, end)))
            for partition, end in ends.items()
        }
        self._load_key = key_deserializer
        self._load_value = value_deserializer

    @property
    def is_loaded(self) -> bool:
        """Whether everything counts that was in the topic when reading began."""
        return all(self.positions[each] >= goal for each, goal in self._goals.items())

    @property
    def is_past(self) -> bool:
        """Whether it shows the past, and so never changes once it is loaded."""
        return bool(self._limits)

    def progress(self) -> tuple[int, int]:
        """Offsets that are behind, and all that have to be."""
        done = sum(
            min(self.positions[each], goal) - self._starts[each]
            for each, goal in self._goals.items()
        )
        return done, sum(goal - self._starts[each] for each, goal in self._goals.items())

    def apply(self, partition: int, records: Iterable[ConsumerRecord]) -> None:
        """Records of one partition in the order of the log."""
        limit = self._limits.get(partition)
        position = self.positions[partition]
        entries = self.entries
        for record in records:
            assert record.offset >= position, (
                f"{record.topic}-{partition}: offset {record.offset} after {position - 1}"
            )
            if limit is not None and record.offset >= limit:
                break
            if record.key is not None:
                key = record.key if self._load_key is None else self._load(record, "key")
                if record.value is None:
                    entries.pop(key, None)
                elif self._load_value is None:
                    entries[key] = record.value
                else:
                    entries[key] = self._load(record, "value")
            position = record.offset + 1
            self.positions[partition] = position
            self.records_applied += 1

    def pass_to(self, partition: int, position: int) -> None:
        """Nothing more is stored below this offset that counts: compaction leaves gaps."""
        position = min(position, self._limits.get(partition, position))
        self.positions[partition] = max(self.positions[partition], position)

    def has(self, offsets: Mapping[int, int]) -> bool:
        """Whether the records at these offsets count, each with all before it."""
        return all(self.positions.get(each, -1) > offset for each, offset in offsets.items())

    def _load(self, record: ConsumerRecord, what: str) -> Any:
        load = self._load_key if what == "key" else self._load_value
        assert load is not None, f"there is no deserializer of the {what}"
        try:
            return load(record.key if what == "key" else record.value)
        except Exception as error:
            error.add_note(
                f"raised by the {what}_deserializer for {record.topic}-{record.partition} at "
                f"offset {record.offset}"
            )
            raise
