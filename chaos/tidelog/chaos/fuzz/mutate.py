"""Changes valid batches into doubtful ones.

Owns the kinds of damage: of single bits, of runs of bytes, of header fields, of the numbers inside
the records before they are compressed, of one batch mixed with another.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from tidelog.chaos.fuzz.generate import random_sample
from tidelog.chaos.fuzz.seal import repair
from tidelog.wire.batch import HEADER_BYTES, Codec, read_header
from tidelog.wire.batch.compression import compress
from tidelog.wire.batch.decode import decompressed_body
from tidelog.wire.batch.limits import DEFAULT_LIMITS
from tidelog.wire.batch.varint import decode_varint, encode_varint

REPAIRED_SHARE: Final = 0.6
_INSIDE_SHARE: Final = 0.4
_WHOLE_RECORDS_SHARE: Final = 0.15
_ODD_NUMBERS_SHARE: Final = 0.2
_SEED_BYTES_MAX: Final = 4_000
_RUN_BYTES_MAX: Final = 40

_FIELDS: Final = (
    (0, 8),
    (8, 4),
    (12, 4),
    (16, 1),
    (17, 4),
    (21, 2),
    (23, 4),
    (27, 8),
    (35, 8),
    (43, 8),
    (51, 2),
    (53, 4),
    (57, 4),
)
"""Byte position and size of each header field."""

_VARINTS: Final = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80\x00",
    b"\x81\x80\x00",
    b"\xff\x7f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xc0\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\xff" * 12,
)
"""Numbers at the edges: needlessly long, of 32 and 64 bits, with bits above 64, never ending."""


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    """A valid batch, and its records as they were before compression."""

    codec: Codec
    batch: bytes
    body: bytes


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """What a decoder is given."""

    codec: Codec
    data: bytes
    is_repaired: bool


def make_seeds(random: Random, count_per_codec: int) -> list[Seed]:
    """Valid batches of every codec, none of them large."""
    seeds: list[Seed] = []
    for codec in Codec:
        have = 0
        while have < count_per_codec:
            batch = random_sample(random, codec=codec).seal()
            header = read_header(batch)
            body = decompressed_body(batch, header, 0, DEFAULT_LIMITS)
            if len(body) > _SEED_BYTES_MAX or header.codec is not codec:
                continue
            seeds.append(Seed(codec=codec, batch=batch, body=body))
            have += 1
    return seeds


def mutate(random: Random, seeds: list[Seed]) -> Mutant:
    """One doubtful batch."""
    seed = random.choice(seeds)
    if random.random() < _INSIDE_SHARE:
        return _mutate_inside(random, seed, seeds)
    batch = bytearray(seed.batch)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(_ANYWHERE)(random, batch)
    if random.random() < 0.05:
        batch = _splice(random, batch, random.choice(seeds).batch)
    # The share among these that makes REPAIRED_SHARE of all, as damage inside always is repaired.
    is_repaired = random.random() < (REPAIRED_SHARE - _INSIDE_SHARE) / (1 - _INSIDE_SHARE)
    data = repair(batch) if is_repaired else bytes(batch)
    return Mutant(codec=seed.codec, data=data, is_repaired=is_repaired)


def _mutate_inside(random: Random, seed: Seed, seeds: list[Seed]) -> Mutant:
    """Damage to the records themselves, compressed and summed as if nothing had happened."""
    head = bytearray(seed.batch[:HEADER_BYTES])
    body = bytearray(seed.body)
    choice = random.random()
    if choice < _WHOLE_RECORDS_SHARE:
        body = _move_records(random, head, seed.body)
    elif choice < _WHOLE_RECORDS_SHARE + _ODD_NUMBERS_SHARE:
        body = odd_numbers(random, seed.body)
    else:
        for _ in range(random.choice((1, 1, 2, 3))):
            random.choice(_INSIDE)(random, body)
    if random.random() < 0.05:
        body = _splice(random, body, random.choice(seeds).body)
    batch = head + compress(seed.codec, bytes(body))
    if random.random() < 0.1:
        _change_field(random, batch)
    if random.random() < 0.1:
        _change_count(random, batch)
    return Mutant(codec=seed.codec, data=repair(batch), is_repaired=True)


def _move_records(random: Random, head: bytearray, body: bytes) -> bytearray:
    """Whole records are left out, repeated or exchanged, and the header's count may follow.

    What compaction leaves is among these, and what it must never leave.
    """
    records = _split(body)
    for _ in range(random.choice((1, 1, 2, 5))):
        place = random.randrange(len(records) + 1)
        other = random.randrange(len(records) + 1)
        kind = random.randrange(4)
        if kind == 0:
            records[place:place] = records[other : other + 1]
        elif kind == 1 and max(place, other) < len(records):
            records[place], records[other] = records[other], records[place]
        else:
            del records[place : place + 1]
    if random.random() < 0.8:
        head[57:61] = len(records).to_bytes(4, "big")
    if random.random() < 0.3:
        last_delta = int.from_bytes(head[23:27], "big") + random.choice((-1, 1, 7))
        head[23:27] = max(0, last_delta).to_bytes(4, "big")
    return bytearray(b"".join(records))


def _split(body: bytes) -> list[bytes]:
    records = []
    at = 0
    while at < len(body):
        length, start = decode_varint(body, at)
        records.append(body[at : start + length])
        at = start + length
    return records


def odd_numbers(random: Random, body: bytes) -> bytearray:
    """One record has a number in needlessly many bytes, or another one; its length is right."""
    records = _split(body)
    place = random.randrange(len(records))
    _, start = decode_varint(records[place], 0)
    parts = _parts(records[place][start:])
    numbers = [index for index, (is_number, _) in enumerate(parts) if is_number]
    for index in random.choices(numbers, k=random.choice((1, 1, 2))):
        parts[index] = (True, _odd(random, parts[index][1]))
    content = b"".join(part for _, part in parts)
    records[place] = encode_varint(len(content)) + content
    if random.random() < 0.1:
        records[place] = _odd(random, encode_varint(len(content))) + content
    return bytearray(b"".join(records))


def _parts(record: bytes) -> list[tuple[bool, bytes]]:
    """The record after its length, cut into numbers (True) and what they count."""
    parts: list[tuple[bool, bytes]] = []
    at = 0

    def number() -> int:
        nonlocal at
        value, end = decode_varint(record, at)
        parts.append((True, record[at:end]))
        at = end
        return value

    def content() -> None:
        nonlocal at
        size = max(0, number())
        parts.append((False, record[at : at + size]))
        at += size

    for _ in range(3):
        number()
    content()
    content()
    for _ in range(2 * number()):
        content()
    return parts


def _odd(random: Random, encoded: bytes) -> bytes:
    """The number in up to eleven bytes, with bits above 64, or one of the numbers at the edges."""
    if random.random() < 0.3:
        return random.choice(_VARINTS)
    size = random.choice((2, 3, 5, 9, 10, 10, 11, 11))
    if size <= len(encoded):
        return encoded
    last = random.choice((0, 0, 0, 0x7E)) if size == 10 else 0
    longer = bytes(byte | 0x80 for byte in encoded.ljust(size - 1, b"\x00"))
    return longer + bytes((last,))


def _flip_bit(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF))


def _delete_run(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    del data[start : start + random.randrange(1, _RUN_BYTES_MAX)]


def _insert_run(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    data[start:start] = random.randbytes(random.randrange(1, _RUN_BYTES_MAX))


def _repeat_run(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    data[start:start] = data[start : start + random.randrange(1, _RUN_BYTES_MAX)]


def _cut(random: Random, data: bytearray) -> None:
    del data[random.randrange(len(data) + 1) :]


def _append(random: Random, data: bytearray) -> None:
    data += random.randbytes(random.randrange(1, _RUN_BYTES_MAX))


def _change_field(random: Random, data: bytearray) -> None:
    position, size = random.choice(_FIELDS)
    if position + size > len(data):
        return
    value = random.choice((0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1))))
    if random.random() < 0.5:
        near = int.from_bytes(data[position : position + size], "big", signed=True)
        value = near + random.randrange(-2, 3)
    value %= 2 ** (8 * size)
    data[position : position + size] = value.to_bytes(size, "big")


def _change_count(random: Random, data: bytearray) -> None:
    """Count and last offset delta together, so that only the records contradict them."""
    if len(data) < HEADER_BYTES:
        return
    count = random.choice((1, 2, 3, 64, 65, 1_000, 262_144, 262_145, 2**31 - 1))
    if random.random() < 0.5:
        count = max(1, int.from_bytes(data[57:61], "big") + random.choice((-1, 1)))
    data[57:61] = (count % 2**32).to_bytes(4, "big")
    data[23:27] = ((count - 1) % 2**32).to_bytes(4, "big")


def _change_number(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    data[start : start + random.choice((0, 1, 1, 1, 2))] = random.choice(_VARINTS)


def _splice(random: Random, one: bytearray, other: bytes) -> bytearray:
    return one[: random.randrange(len(one) + 1)] + other[random.randrange(len(other) + 1) :]


_Damage = Callable[[Random, bytearray], None]

_ANYWHERE: Final[tuple[_Damage, ...]] = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _delete_run,
    _insert_run,
    _repeat_run,
    _cut,
    _append,
    _change_field,
    _change_field,
    _change_count,
)

_INSIDE: Final[tuple[_Damage, ...]] = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _set_byte,
    _delete_run,
    _insert_run,
    _repeat_run,
    _cut,
    _append,
    _change_number,
    _change_number,
    _change_number,
)
