"""One change of one file: a flipped bit, a truncation, a sector of zeros. Pure."""

from random import Random
from typing import Final

import msgspec

from tidelog.chaos.fuzz.log_corpus import Corpus

SECTOR_BYTES: Final = 512
_FLIPS: Final = 0.6


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    kind: str
    """Of the file, or of the part of it."""
    path: str
    change: str
    """flip, truncate or zero."""
    byte_position: int
    content: bytes
    """Of the file with the damage."""

    def __str__(self) -> str:
        return f"{self.change} at byte {self.byte_position} of {self.path} ({self.kind})"


def damage(corpus: Corpus, random: Random) -> Damage:
    """Every kind is as likely as any other, whatever its files' sizes; then every byte of it."""
    kind = random.choice(list(corpus.kinds))
    ranges = corpus.kinds[kind]
    place = random.choices(ranges, weights=[each.end - each.start for each in ranges])[0]
    position = random.randrange(place.start, place.end)
    whole = corpus.files[place.path]
    change = "flip"
    if random.random() >= _FLIPS:
        change = random.choice(("truncate", "zero"))
    content = _changed(whole, change, position, random)
    if content == whole:
        change, content = "flip", _changed(whole, "flip", position, random)
    return Damage(
        kind=kind, path=place.path, change=change, byte_position=position, content=content
    )


def _changed(whole: bytes, change: str, position: int, random: Random) -> bytes:
    if change == "truncate":
        return whole[:position]
    changed = bytearray(whole)
    if change == "zero":
        start = position - position % SECTOR_BYTES
        end = min(start + SECTOR_BYTES, len(whole))
        changed[start:end] = bytes(end - start)
    else:
        changed[position] ^= 1 << random.randrange(8)
    return bytes(changed)
