"""Judges what a damaged directory serves: told, exact, or wrong.

Owns the verdict. A partition that has not told of damage serves every acknowledged record and no
other byte, whatever was damaged elsewhere; one that has told serves nothing wrong. It must never
excuse a missing record by damage that nobody was told of.
"""

import functools
from random import Random
from typing import Final

from tidelog.broker.log.names import SIDECAR_SUFFIX, directory_name, parse_directory_name
from tidelog.chaos.fuzz.log_corpus import COMPACTED, KEYS, Corpus
from tidelog.chaos.fuzz.log_damage import Damage
from tidelog.chaos.fuzz.log_house import Batch, Life
from tidelog.wire.batch import decode_batch, encode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

NOTHING: Final = (-1, -1)
POINT_READS: Final = 4
POINT_TIMES: Final = 3
TELLING: Final = (
    ErrorCode.STORAGE_CORRUPT,
    ErrorCode.STORAGE_FAILED,
    ErrorCode.STORAGE_NOT_FORMATTED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.WRONG_CLUSTER,
)

Record = tuple[int, int, bytes | None, bytes | None]
"""Offset, time, key, value."""


class Judge:
    """Of one case, over all lives of its directory."""

    def __init__(self, corpus: Corpus, damage: Damage, random: Random) -> None:
        self._corpus = corpus
        self._damage = damage
        self._random = random
        self._contents = {key: list(batches) for key, batches in corpus.contents.items()}
        self._ends = dict(corpus.ends)
        self._told_of: set[PartitionKey] = set()
        self.told: list[str] = []
        self.wrong: list[str] = []

    @property
    def verdict(self) -> str:
        """The case's line in the table."""
        if self.wrong:
            return "WRONG"
        return "detected" if self.told else "harmless"

    # -- what a life tells -----------------------------------------------------------------------

    def tell(self, error: TidelogError, key: PartitionKey | None = None) -> None:
        """Somebody was told; of one partition, or of the directory."""
        text = str(error)
        self.told.append(text)
        if error.code not in TELLING:
            self.wrong.append(f"untyped damage: {error.code.name}: {text}")
        if not self._is_named(text):
            self.wrong.append(f"an error that names no file of it: {text}")
        if key is None:
            self._told_of.update(KEYS)
            return
        self._told_of.add(key)
        damaged = parse_directory_name(self._damage.path.partition("/")[0])
        if damaged is not None and damaged != key:
            self.wrong.append(f"{key} is held up by damage of another: {text}")

    def take_events(self, life: Life) -> None:
        """What was written into the node's log."""
        for failure in life.summary.failures:
            self.told.append(str(failure))
        for key, log in life.logs.items():
            if log.failure is not None and key not in self._told_of:
                self.tell(log.failure, key)
        self.told += [f"{event} {text}" for event, text in life.events.told]
        life.events.told.clear()

    def _is_named(self, text: str) -> bool:
        *directory, name = self._damage.path.split("/")
        if name in text or any(each in text for each in directory):
            return True
        if name == "node.json" and "data directory" in text:
            return True
        # Marks tell of partitions, and are held against their files.
        return name == "marks" and any(directory_name(key) in text for key in KEYS)

    @property
    def _may_compact_again(self) -> bool:
        """A sidecar of a compacted segment that is made again does not tell up to where it was
        cleaned: a round that nothing else had made due begins."""
        directory, _, name = self._damage.path.partition("/")
        return directory == directory_name(COMPACTED) and name.endswith(SIDECAR_SUFFIX)

    # -- what a life serves ----------------------------------------------------------------------

    async def look(self, life: Life, *, is_compacting: bool) -> None:
        """Everything from the start, some offsets, some times; of every partition."""
        for key in KEYS:
            is_exact = key != COMPACTED or not (is_compacting or self._may_compact_again)
            try:
                await self._look_at(life, key, is_exact=is_exact)
            except TidelogError as error:
                self.tell(error, key)
        self.take_events(life)

    async def append(self, life: Life, number: int) -> None:
        """One more record in each partition that has not stopped."""
        for key in KEYS:
            if life.logs[key].failure is not None:
                continue
            batch = encode_batch([(life.clock.wall_ms(), b"more", b"%d" % number, ())])
            try:
                appended = await life.append(key, batch)
            except TidelogError as error:
                self.tell(error, key)
                continue
            base = appended.base_offset
            if base != self._ends[key]:
                self.wrong.append(f"{key}: appended at {base}, not {self._ends[key]}")
            stored = base.to_bytes(8, "big") + batch[8:12] + b"\0\0\0\3" + batch[16:]
            self._contents[key].append(Batch(base, base + 1, stored))
            self._ends[key] = base + 1

    async def _look_at(self, life: Life, key: PartitionKey, *, is_exact: bool) -> None:
        log, served = life.logs[key], list[Batch]()
        try:
            await life.read_all(key, served)
        finally:
            self._compare_bytes(key, served, is_exact=is_exact)
        if self._is_short(life, key):
            return
        wanted = self._contents[key]
        if is_exact and served != wanted:
            missing = [each.base_offset for each in wanted if each not in served]
            extra = [each.base_offset for each in served if each not in wanted]
            self.wrong.append(f"{key}: missing {missing[:5]}, not to be served {extra[:5]}")
        if not is_exact:
            self._compare_keys(key, served)
        records = [each for each in _records(served) if each[0] >= log.log_start_offset]
        await self._look_at_places(life, key, served)
        if is_exact:
            # A compaction may take records between the read and the search.
            await self._look_at_times(life, key, records)

    def _is_short(self, life: Life, key: PartitionKey) -> bool:
        log = life.logs[key]
        found = (log.log_start_offset, log.high_watermark)
        wanted = (self._corpus.log_starts[key], self._ends[key])
        if found != wanted:
            self.wrong.append(
                f"{key}: from {found[0]} to {found[1]}, not {wanted[0]} to {wanted[1]}"
            )
        return found != wanted

    def _compare_bytes(self, key: PartitionKey, served: list[Batch], *, is_exact: bool) -> None:
        """Every byte that was served, also by a read that ended in an error."""
        known = {each.base_offset: each.data for each in self._contents[key]}
        for batch in served:
            is_same = known.get(batch.base_offset) == batch.data
            if not is_same and (is_exact or not self._is_part(key, batch)):
                self.wrong.append(f"{key}: wrong bytes served at offset {batch.base_offset}")
                return

    def _is_part(self, key: PartitionKey, batch: Batch) -> bool:
        """Whether a compaction may have left this batch."""
        known = set(_records(self._contents[key]))
        return all(each in known for each in _records([batch]))

    def _compare_keys(self, key: PartitionKey, served: list[Batch]) -> None:
        latest = {each[2]: each for each in _records(self._contents[key])}
        found = {each[2]: each for each in _records(served)}
        for record_key, record in latest.items():
            if found.get(record_key) != record:
                self.wrong.append(f"{key}: the last value of {record_key!r} is not served")
                return

    async def _look_at_places(self, life: Life, key: PartitionKey, served: list[Batch]) -> None:
        for _ in range(POINT_READS):
            wanted = self._random.choice(served)
            offset = max(
                self._random.randrange(wanted.base_offset, wanted.next_offset),
                life.logs[key].log_start_offset,
            )
            found = await life.read(key, offset, self._random.choice((1, 3_000, 70_000)))
            if not found or found[0].next_offset <= offset:
                self.wrong.append(f"{key}: nothing is read at offset {offset}")
            self._compare_bytes(key, found, is_exact=key != COMPACTED)

    async def _look_at_times(self, life: Life, key: PartitionKey, records: list[Record]) -> None:
        for _ in range(POINT_TIMES):
            time_ms = self._random.choice(records)[1] + self._random.randrange(-1_000, 1_000)
            wanted = next(((each[0], each[1]) for each in records if each[1] >= time_ms), NOTHING)
            found = await life.first_at(key, time_ms)
            if found != wanted:
                self.wrong.append(f"{key}: at {time_ms} is {wanted}, found {found}")
        highest = max(each[1] for each in records)
        wanted = next((each[0], each[1]) for each in records if each[1] == highest)
        found = await life.newest(key)
        if found != wanted:
            self.wrong.append(f"{key}: the newest is {wanted}, found {found}")


def _records(batches: list[Batch]) -> list[Record]:
    return [each for batch in batches for each in _records_of(batch)]


@functools.lru_cache(maxsize=4_096)
def _records_of(batch: Batch) -> tuple[Record, ...]:
    """Decoded once for all cases: nearly every batch that is served is one of the corpus."""
    return tuple(
        (each[0], each[1], each[3], each[4]) for each in decode_batch(batch.data, is_compacted=True)
    )
