"""Builds data directories that have every kind of file, and knows what is in them.

Owns what the fuzzer damages: three partitions of a node that wrote in two lives (several sealed
segments, compacted ones, an active one; a trimmed head), and what lies beside them. It must never
hold a directory in which something is not flushed: whatever is missing later was acknowledged.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.log.names import SegmentKey, directory_name, parse_segment_name
from tidelog.broker.log.sidecar.codec import decode_summary
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.replicas.directory import Placed
from tidelog.chaos.fuzz.log_house import Batch, LogHouse, files_of
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.server.storage.format import (
    CLEAN_MARKER,
    FILE_NAME,
    FORMAT_VERSION,
    CleanShutdown,
    NodeIdentity,
    encode_identity,
)
from tidelog.wire.batch import Codec, encode_batch
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

TOPIC: Final = TopicId(bytes(range(40, 56)))
PLAIN: Final = PartitionKey(TOPIC, PartitionId(0))
COMPACTED: Final = PartitionKey(TOPIC, PartitionId(1))
TRIMMED: Final = PartitionKey(TOPIC, PartitionId(2))
KEYS: Final = (PLAIN, COMPACTED, TRIMMED)
NODE_ID: Final = 7
IDENTITY: Final = NodeIdentity(
    format_version=FORMAT_VERSION,
    cluster_id="7f3a52c09be14d6f8ce0b1d2a3948576",
    node_id=NODE_ID,
    directory_id="c4d5e6f708192a3b4c5d6e7f80911223",
)
MARKER: Final = CleanShutdown(broker_epoch=41, boot_id="3b9c5f0e-6a77-4d0c-8a51-0d2f4c6e8a90")
LIMITS: Final = HousekeepingLimits(
    check_interval_ms=500,
    bytes_per_second=0,
    scrub_interval_ms=0,
    free_bytes_min=0,
    free_bytes_margin=0,
    free_check_interval_ms=1_000,
)
_SETTLE_MS: Final = 60_000
_NEVER: Final = 1.0


class Range(msgspec.Struct, frozen=True):
    """A part of a file."""

    path: str
    start: int
    end: int


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """One directory."""

    name: str
    files: dict[str, bytes]
    contents: dict[PartitionKey, list[Batch]]
    log_starts: dict[PartitionKey, int]
    ends: dict[PartitionKey, int]
    kinds: dict[str, list[Range]]
    """What may be damaged, by kind of file."""


def settings_of(key: PartitionKey, *, dirty_ratio: float) -> TopicSettings:
    """Small segments; nothing goes by age or size, tombstones stay."""
    return TopicSettings(
        delete_retention_ms=1 << 50,
        segment_bytes=6_000 if key == COMPACTED else 90_000,
        retention_ms=-1,
        is_compacted=key == COMPACTED,
        is_deleted=key != COMPACTED,
        min_cleanable_dirty_ratio=dirty_ratio,
    )


def placed(*, epoch: int, dirty_ratio: float) -> dict[PartitionKey, Placed]:
    """What the metadata would say."""
    return {
        key: Placed(
            leader_epoch=LeaderEpoch(epoch), settings=settings_of(key, dirty_ratio=dirty_ratio)
        )
        for key in KEYS
    }


def build_corpora(seed: int) -> tuple[Corpus, ...]:
    """A directory after a kill, and one after a clean stop."""
    return (_build(seed, is_clean=False), _build(seed, is_clean=True))


def _build(seed: int, *, is_clean: bool) -> Corpus:
    house = LogHouse(seed, limits=LIMITS)
    writer = _Writer(house, Random(f"corpus:{seed}"))
    try:
        house.placed = placed(epoch=1, dirty_ratio=0.3)
        house.begin()
        writer.fill(batches=60)
        _settle(house, lambda: _compacted_count(house) >= 2)
        house.kill()
        house.placed = placed(epoch=2, dirty_ratio=_NEVER)
        house.begin()
        writer.fill(batches=40)
        for key in KEYS:
            house.life.directory.owner.roll(key)
        house.pass_ms(1_000)
        writer.fill(batches=12)
        _settle(house, lambda: all(each.summary for each in _sealed(house)))
        writer.trim()
        # Marks are written by themselves only once all is quiet.
        house.pass_ms(5_000)
        return _taken(house, is_clean=is_clean)
    finally:
        house.close()


class _Writer:
    """Appends to all partitions, each batch awaited."""

    def __init__(self, house: LogHouse, random: Random) -> None:
        self._house = house
        self._random = random
        self._sequences: Counter[tuple[PartitionKey, int]] = Counter()
        self._number = 0

    def fill(self, *, batches: int) -> None:
        """So many batches in each partition."""
        for _ in range(batches):
            for key in KEYS:
                self._append(key)

    def trim(self) -> None:
        """Two heads go: with a segment, and inside the first one, of which no file tells."""
        self._trim(TRIMMED, self._house.life.logs[TRIMMED].segments[1].base_offset + 1)
        self._trim(PLAIN, 3)

    def _trim(self, key: PartitionKey, offset: int) -> None:
        life = self._house.life
        self._house.call(lambda: life.directory.owner.trim(life.logs[key], Offset(offset)))

    def _append(self, key: PartitionKey) -> None:
        random, house = self._random, self._house
        count = random.choice((1, 1, 2, 5))
        now_ms = house.life.clock.wall_ms()
        records = [self._record(now_ms, key) for _ in range(count)]
        producer_id = random.choice((-1, 50, 51, 52))
        codec = random.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD))
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self._sequences[key, producer_id] if producer_id >= 0 else -1,
        )
        self._sequences[key, producer_id] += count
        house.call(lambda: house.life.append(key, batch))

    def _record(
        self, now_ms: int, key: PartitionKey
    ) -> tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        random = self._random
        self._number += 1
        size = random.choice((5, 60, 300)) if key == COMPACTED else random.choice((20, 700, 5_000))
        value: bytes | None = b"%d:" % self._number + random.randbytes(size)
        if key == COMPACTED and random.random() < 0.1:
            value = None
        record_key = b"key-%d" % random.randrange(12)
        return (now_ms - random.randrange(60_000), record_key, value, ())


def _settle(house: LogHouse, holds: Callable[[], bool]) -> None:
    assert house.wait_until(holds, within_ms=_SETTLE_MS), "the directory does not come to rest"


def _compacted_count(house: LogHouse) -> int:
    return sum(each.is_compacted for each in house.life.logs[COMPACTED].segments)


def _sealed(house: LogHouse) -> list[Segment]:
    return [each for log in house.life.logs.values() for each in log.segments if each.is_sealed]


def _taken(house: LogHouse, *, is_clean: bool) -> Corpus:
    """The directory as it lies there once its life has ended."""
    life = house.life
    contents = {key: _read(house, key) for key in KEYS}
    log_starts: dict[PartitionKey, int] = {
        key: log.log_start_offset for key, log in life.logs.items()
    }
    ends: dict[PartitionKey, int] = {key: log.high_watermark for key, log in life.logs.items()}
    active = {log.segments[-1].key.path for log in life.logs.values()}
    house.stop() if is_clean else house.kill()
    files = files_of(house.medium)
    files[FILE_NAME] = encode_identity(IDENTITY)
    if is_clean:
        files[CLEAN_MARKER] = msgspec.json.encode(MARKER)
    else:
        _leave_unfinished(files)
    return Corpus(
        name="after a clean stop" if is_clean else "after a kill",
        files=files,
        contents=contents,
        log_starts=log_starts,
        ends=ends,
        kinds=_kinds(files, active),
    )


def _read(house: LogHouse, key: PartitionKey) -> list[Batch]:
    return house.call(lambda: house.life.read_all(key))


def _leave_unfinished(files: dict[str, bytes]) -> None:
    """What jobs and hand-overs leave when a process dies in them."""
    directory = directory_name(PLAIN)
    sidecars = sorted(path for path in files if path.startswith(directory) and "sidecar" in path)
    # One segment is sealed, and its sidecar was not finished.
    whole = files.pop(sidecars[-1])
    files[f"{sidecars[-1]}.new"] = whole[: len(whole) // 2]
    compacted = sorted(path for path in files if path.startswith(directory_name(COMPACTED)))
    newest = next(path for path in compacted if path.endswith(".log") and "-" in path.split("/")[1])
    files[f"{newest.removesuffix('.log')[:-1]}9.log.new"] = files[newest][:-7]
    files["marks.new"] = files["marks"][:90]
    files["log_checkpoint.new"] = files["marks"][:70]


def _kinds(files: dict[str, bytes], active: set[str]) -> dict[str, list[Range]]:
    kinds: dict[str, list[Range]] = {}
    for path, content in sorted(files.items()):
        for kind, start, end in _parts(path, content, active):
            if start < end:
                kinds.setdefault(kind, []).append(Range(path, start, end))
    return kinds


def _parts(path: str, content: bytes, active: set[str]) -> list[tuple[str, int, int]]:
    if path.endswith(".new"):
        return [("unfinished", 0, len(content))]
    if path.endswith(".sidecar"):
        return _sidecar_parts(path, content)
    if path.endswith(".log"):
        parsed = parse_segment_name(path.split("/")[1])
        assert parsed is not None, f"{path} is a segment"
        kind = "compacted" if parsed[1] else "active" if path in active else "sealed"
        return [(f"segment, {kind}", 0, len(content))]
    return [(path, 0, len(content))]


def _sidecar_parts(path: str, content: bytes) -> list[tuple[str, int, int]]:
    directory, name = path.split("/")
    parsed = parse_segment_name(name.replace(".sidecar", ".log"))
    assert parsed is not None, f"{path} is a sidecar"
    key = next(each for each in KEYS if directory_name(each) == directory)
    summary = decode_summary(content, SegmentKey(key, *parsed), file_bytes=len(content))
    parts = [
        (f"sidecar, {each.name}", each.byte_position, each.byte_position + each.length_bytes)
        for each in summary.sections
    ]
    return [("sidecar, summary", 0, min(part[1] for part in parts)), *parts]
