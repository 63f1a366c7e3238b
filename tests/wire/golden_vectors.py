"""Makes the golden vectors of `proto/golden`: bytes that every implementation must agree on.

    python -m tests.wire.golden_vectors --write

Owns which cases there are. Vectors are written once and kept: a compressor of another version may
pack the same records otherwise, so what a reader finds in them is checked, and byte equality only
where nothing is compressed. Without --write it says which files differ from what it makes.
"""

import argparse
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import cramjam
import msgspec

from tidelog.chaos.fuzz.seal import repair, seal_body
from tidelog.wire.batch import (
    BatchHeader,
    Codec,
    DecodedRecord,
    Header,
    RecordTuple,
    checksum,
    decode_batch,
    encode_batch,
    fetch_sum,
    read_header,
    route_sum,
    stamp,
    stamp_append_time,
)
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.batch.varint import encode_varint
from tidelog.wire.ids import TopicId
from tidelog.wire.partitioner import coordinator_partition, murmur2, partition_for_key

FOLDER: Final = Path(__file__).parents[2] / "proto" / "golden"

_NOW_MS: Final = 1_790_000_000_000
_TOPIC_ID: Final = TopicId(bytes(range(16)))

_MANY: Final[tuple[RecordTuple, ...]] = tuple(
    (_NOW_MS + index // 10, None, b"tide %03d" % index, ()) for index in range(70)
)
_HEADERS: Final[tuple[Header, ...]] = (
    ("trace", b"\x01\x02"),
    ("leer", b""),
    ("ohne", None),
    ("größe", b"9"),
    ("trace", b"again"),
    ("", b"no name"),
)


def _bytes(content: bytes | None) -> str | None:
    return None if content is None else content.hex()


def header_fields(header: BatchHeader) -> dict[str, int]:
    """The header as a vector holds it."""
    return {name: int(getattr(header, name)) for name in header.__struct_fields__}


def record_fields(records: Sequence[DecodedRecord]) -> list[dict[str, Any]]:
    """The records as a vector holds them."""
    return [
        {
            "offset": offset,
            "timestamp_ms": timestamp_ms,
            "timestamp_type": timestamp_type,
            "key": _bytes(key),
            "value": _bytes(value),
            "headers": [[name, _bytes(content)] for name, content in headers],
        }
        for offset, timestamp_ms, timestamp_type, key, value, headers in records
    ]


def _batch(name: str, shows: str, data: bytes, *, is_compacted: bool = False) -> dict[str, Any]:
    header = read_header(data, is_compacted=is_compacted)
    return {
        "name": name,
        "shows": shows,
        "codec": header.codec.name.lower(),
        "is_compacted": is_compacted,
        "header": header_fields(header),
        "records": record_fields(decode_batch(data, is_compacted=is_compacted)),
        "bytes": data.hex(),
    }


def batches() -> list[dict[str, Any]]:
    """Batches that every reader reads."""
    return [
        _batch(
            "one_record",
            "the smallest useful batch: one key, one value, no producer, not stamped",
            encode_batch([(_NOW_MS, b"key", b"value", ())]),
        ),
        _batch(
            "nulls_and_empties",
            "null and empty keys and values are four different things",
            encode_batch(
                [
                    (_NOW_MS, None, None, ()),
                    (_NOW_MS, b"", b"", ()),
                    (_NOW_MS, None, b"value", ()),
                    (_NOW_MS, b"tombstone", None, ()),
                ]
            ),
        ),
        _batch(
            "headers",
            "order is kept, names repeat, a name is UTF-8 and may be empty, a value may be null",
            encode_batch([(_NOW_MS, b"k", b"v", _HEADERS), (_NOW_MS, b"k", None, _HEADERS[:1])]),
        ),
        _batch(
            "timestamps_of_all_widths",
            "deltas are signed and count from the first record, which need not be the lowest",
            encode_batch(
                [
                    (_NOW_MS + delta, None, b"x", ())
                    for delta in (0, 63, 64, -64, -65, 8_191, 8_192, -(2**31), 2**40, -(2**50))
                ]
            ),
        ),
        _batch(
            "seventy_records",
            "offset deltas from 64 on take two bytes, and so the records are of two sizes",
            encode_batch(_MANY),
        ),
        _batch(
            "long_value",
            "lengths of two and three bytes",
            encode_batch([(_NOW_MS, b"k" * 100, bytes(9_000), ())]),
        ),
        *_with_producers(),
        *_stamped(),
        *_compressed(),
        _batch(
            "compacted",
            "compaction removed offsets 100, 102 and 103 of 100 to 104: read only as compacted",
            _compacted(),
            is_compacted=True,
        ),
    ]


def _with_producers() -> list[dict[str, Any]]:
    return [
        _batch(
            "idempotent_and_transactional",
            "producer id, epoch, sequence, and the transactional bit",
            encode_batch(
                [(_NOW_MS, b"a", b"1", ()), (_NOW_MS + 1, b"b", b"2", ())],
                producer_id=4_711,
                producer_epoch=3,
                base_sequence=2**31 - 1,
                is_transactional=True,
            ),
        ),
        _batch(
            "commit_marker",
            "a control batch: key is version 0 and kind 1, value version 0 and coordinator epoch 7",
            encode_batch(
                [(_NOW_MS, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7), ())],
                producer_id=4_711,
                producer_epoch=3,
                is_transactional=True,
                is_control=True,
                base_offset=99,
                leader_epoch=5,
            ),
        ),
        _batch(
            "abort_marker",
            "as its coordinator's leader writes it, before it is stamped",
            encode_marker(
                Marker(MarkerType.ABORT, 2**31 - 1),
                producer_id=2**63 - 1,
                producer_epoch=2**15 - 1,
                timestamp_ms=_NOW_MS,
            ),
        ),
    ]


def _stamped() -> list[dict[str, Any]]:
    stamped = bytearray(encode_batch([(_NOW_MS, b"key", b"value", ())]))
    stamp(stamped, 0, base_offset=2**40, leader_epoch=12)
    appended = bytearray(encode_batch(_MANY[:3]))
    stamp(appended, 0, base_offset=1_000, leader_epoch=1)
    stamp_append_time(appended, 0, _NOW_MS + 86_400_000)
    return [
        _batch(
            "stamped",
            "one_record after its leader stamped it: the checksum is the same",
            bytes(stamped),
        ),
        _batch(
            "append_time",
            "all records have the maximum timestamp; the leader computed the checksum again",
            bytes(appended),
        ),
    ]


def _compressed() -> list[dict[str, Any]]:
    shown = {
        Codec.GZIP: "one gzip member",
        Codec.SNAPPY: "the xerial stream",
        Codec.LZ4: "one lz4 frame of independent blocks",
        Codec.ZSTD: "one zstd frame that declares its content's size",
    }
    found = [
        _batch(f"codec_{codec.name.lower()}", shows, encode_batch(_MANY, codec=codec))
        for codec, shows in shown.items()
    ]
    plain = encode_batch(_MANY)[61:]
    raw = seal_body(bytes(cramjam.snappy.compress_raw(plain)), codec=Codec.SNAPPY, record_count=70)
    found.append(_batch("codec_snappy_raw", "one raw block without the xerial stream", raw))
    return found


def _compacted() -> bytes:
    """Records at offset deltas 1 and 4, as a cleaner leaves them."""
    full = encode_batch([(_NOW_MS + delta, b"k%d" % delta, b"v", ()) for delta in range(5)])
    size = (len(full) - 61) // 5
    body = full[61:]
    kept = bytearray(full[:61] + body[size : 2 * size] + body[4 * size :])
    struct.pack_into(">i", kept, 57, 2)
    struct.pack_into(">q", kept, 0, 100)
    return repair(kept)


def refused() -> list[dict[str, str]]:
    """Batches that every reader refuses, with the error's code."""
    good = encode_batch([(_NOW_MS, b"key", b"value", ()), (_NOW_MS, b"key", b"value", ())])

    def damaged(damage: Callable[[bytearray], object]) -> bytes:
        data = bytearray(good)
        damage(data)
        return repair(data)

    flipped = bytearray(good)
    flipped[-3] ^= 1
    size = (len(good) - 61) // 2
    cases = [
        ("wrong_checksum", "CORRUPT_BATCH", bytes(flipped)),
        ("cut_off_header", "CORRUPT_BATCH", good[:60]),
        ("cut_off_records", "CORRUPT_BATCH", good[:-1]),
        ("magic_1", "CORRUPT_BATCH", damaged(lambda d: d.__setitem__(16, 1))),
        ("codec_5", "UNSUPPORTED_CODEC", damaged(lambda d: d.__setitem__(22, 5))),
        ("unknown_attribute", "CORRUPT_BATCH", damaged(lambda d: d.__setitem__(21, 1))),
        ("count_and_delta_differ", "CORRUPT_BATCH", damaged(lambda d: d.__setitem__(60, 1))),
        ("no_records", "CORRUPT_BATCH", seal_body(b"", codec=Codec.NONE, record_count=0)),
        ("too_many_records", "BATCH_TOO_LARGE", _claims_many(good)),
        (
            "sequence_without_producer",
            "CORRUPT_BATCH",
            damaged(lambda d: struct.pack_into(">i", d, 53, 0)),
        ),
        ("record_too_long", "CORRUPT_BATCH", damaged(lambda d: d.__setitem__(61, d[61] + 2))),
        ("byte_after_the_records", "CORRUPT_BATCH", damaged(lambda d: d.append(0))),
        (
            "offset_delta_repeats",
            "CORRUPT_BATCH",
            damaged(lambda d: d.__setitem__(61 + size + 3, 0)),
        ),
        (
            "endless_number",
            "CORRUPT_BATCH",
            seal_body(b"\xff" * 20, codec=Codec.NONE, record_count=1),
        ),
        (
            "not_gzip",
            "CORRUPT_BATCH",
            seal_body(b"these are not compressed bytes", codec=Codec.GZIP, record_count=1),
        ),
        (
            "gzip_bomb",
            "BATCH_TOO_LARGE",
            seal_body(_gzip_of_zeros(), codec=Codec.GZIP, record_count=1),
        ),
    ]
    return [{"name": name, "code": code, "bytes": data.hex()} for name, code, data in cases]


def _claims_many(good: bytes) -> bytes:
    data = bytearray(good)
    struct.pack_into(">i", data, 57, 262_145)
    struct.pack_into(">i", data, 23, 262_144)
    return repair(data)


def _gzip_of_zeros() -> bytes:
    return bytes(cramjam.gzip.compress(bytes(2 * 1024 * 1024), level=9))


def sums() -> dict[str, Any]:
    """Checksums, route sums, fetch sums."""
    one = encode_batch([(_NOW_MS, b"key", b"value", ())])
    crc = read_header(one).crc
    topics = (bytes(16), bytes(_TOPIC_ID), b"\xff" * 16)
    return {
        "checksum": [
            {"bytes": data.hex(), "sum": checksum(data)}
            for data in (b"", b"123456789", bytes(32), b"\xff" * 32, one[21:])
        ],
        "route_sum": [
            {
                "topic_id": topic.hex(),
                "partition": partition,
                "batch_crc": batch_crc,
                "sum": route_sum(TopicId(topic), partition, batch_crc),
            }
            for topic in topics
            for partition, batch_crc in ((0, crc), (1, crc), (2**31 - 1, 2**32 - 1))
        ],
        "fetch_sum": [
            {
                "topic_id": topic.hex(),
                "partition": partition,
                "first_base_offset": offset,
                "bytes": data.hex(),
                "sum": fetch_sum(TopicId(topic), partition, offset, checksum(data)),
            }
            for topic in topics
            for partition, offset, data in ((0, 0, one), (1, 2**40, one + one))
        ],
    }


def numbers() -> list[dict[str, Any]]:
    """Numbers and their variable-length form; as text, since not every JSON holds 64 bits."""
    values = (0, -1, 1, -2, 63, -64, 64, -65, 8_191, -8_192, 8_192, 2**31 - 1, -(2**31), 2**63 - 1)
    return [
        {"number": str(value), "bytes": encode_varint(value).hex()} for value in (*values, -(2**63))
    ]


def partitions() -> dict[str, Any]:
    """Hashes of keys, and what follows from them."""
    keys = [b"", b"1", b"21", b"abc", b"1234", b"12345", b"foobar", b"kafka", b"giberish123456789"]
    keys += [
        b"a-little-bit-long-string",
        b"a-little-bit-longer-string",
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
        "größe".encode(),
        bytes(range(128, 145)),
    ]
    return {
        "keys": [
            {
                "key": key.hex(),
                "murmur2": murmur2(key),
                "partition_of_6": partition_for_key(key, 6),
                "partition_of_1000": partition_for_key(key, 1_000),
            }
            for key in keys
        ],
        "coordinators": [
            {"name": name, "partition_of_16": coordinator_partition(name, 16)}
            for name in ("", "billing", "größe", "a-little-bit-long-string")
        ],
    }


def files() -> dict[str, Any]:
    """Content of each file."""
    return {
        "batches.json": batches(),
        "refused.json": refused(),
        "sums.json": sums(),
        "numbers.json": numbers(),
        "partitions.json": partitions(),
    }


def main() -> int:
    """Writes the files, or names those that would change."""
    parser = argparse.ArgumentParser(description="Makes the golden vectors of proto/golden.")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    different = []
    for name, content in files().items():
        text = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
        path = FOLDER / name
        if path.exists() and path.read_bytes() == text:
            continue
        different.append(name)
        if arguments.write:
            path.write_bytes(text)
    print(f"{'written' if arguments.write else 'different'}: {', '.join(different) or 'none'}")
    return 1 if different and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main())
