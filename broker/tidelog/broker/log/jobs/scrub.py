"""The job that scrubs a sealed segment: reads all of it and holds it against its sidecar.

Runs in the worker, over `JobFiles`; changes nothing. It finds what no reader would for long: bytes
that went bad where nobody reads, also those that no batch's checksum covers. The first damage is
told with file and byte; a sidecar that is damaged is told apart, because it can be made again.
"""

from collections.abc import Generator
from typing import Final

import msgspec

from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import LEADER_EPOCH_MAX, SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import PRODUCERS, TRANSACTIONS, find_section
from tidelog.broker.log.sidecar.contents import DIGEST_BYTES, Summary
from tidelog.broker.log.sidecar.digests import DIGESTS, decode_digests
from tidelog.broker.log.sidecar.files import feed_segment, read_section, read_summary
from tidelog.broker.log.sidecar.index import INDEX, INDEX_TOP
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.ports.worker import JobFiles
from tidelog.wire.errors import ErrorCode, TidelogError

SCRUB_JOB: Final = "tidelog.broker.log.jobs.scrub:scrub"


class ScrubArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which segment."""

    segment: SegmentKey
    is_contiguous: bool = True
    """False: copied from a compacted log. What its sidecar says of its own compaction is known."""
    leader_epoch_max: int = LEADER_EPOCH_MAX


class Damage(msgspec.Struct, frozen=True, array_like=True):
    """What is wrong with a file."""

    path: str
    happened: str
    """Begins with the byte: `damage at byte 4711: …`."""


class Scrubbed(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; both None: all is as it was written."""

    segment_damage: Damage | None = None
    """Records are damaged here: the partition's replica stops."""
    sidecar_damage: Damage | None = None
    """The sidecar is damaged or missing: seal the segment again."""


_arguments_decoder: Final = msgspec.msgpack.Decoder(ScrubArguments)
_result_decoder: Final = msgspec.msgpack.Decoder(Scrubbed)


def encode_arguments(arguments: ScrubArguments) -> bytes:
    """For `Worker.run`."""
    return msgspec.msgpack.encode(arguments)


def decode_result(result: bytes) -> Scrubbed:
    """What `Worker.run` has returned."""
    return _result_decoder.decode(result)


class _Sidecar(msgspec.Struct, frozen=True):
    summary: Summary
    digests: list[int]


def scrub(files: JobFiles, arguments: bytes) -> Generator[int, None, bytes]:
    """`ScrubArguments` → `Scrubbed`."""
    asked = _arguments_decoder.decode(arguments)
    key = asked.segment
    sidecar: _Sidecar | None = None
    sidecar_damage: Damage | None = None
    try:
        sidecar = yield from _read_sidecar(files, key)
    except TidelogError as error:
        sidecar_damage = _damage_of(error, key.sidecar_path)
    builder = SidecarBuilder(_facts(asked, sidecar.summary if sidecar is not None else None))
    segment_damage: Damage | None = None
    made: Summary | None = None
    try:
        size_bytes = sidecar.summary.size_bytes if sidecar is not None else -1
        yield from feed_segment(files, builder, key, size_bytes)
        made, _ = builder.finish()
    except TidelogError as error:
        segment_damage = _damage_of(error, key.path)
    if sidecar is not None:
        segment_damage = _judge_digests(sidecar, builder, segment_damage)
        if made is not None and segment_damage is None and not _is_equal(made, sidecar.summary):
            sidecar_damage = Damage(
                key.sidecar_path, "damage at byte 0: it does not tell what its segment holds"
            )
    return msgspec.msgpack.encode(
        Scrubbed(segment_damage=segment_damage, sidecar_damage=sidecar_damage)
    )


def _read_sidecar(files: JobFiles, key: SegmentKey) -> Generator[int, None, _Sidecar]:
    summary = read_summary(files, key)
    if summary is None:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"read {key.sidecar_path}",
            happened="damage at byte 0: the file is not there",
        )
    sections = {}
    for section in summary.sections:
        sections[section.name] = yield from read_section(files, summary, section.name)
    ProducerState.decode(sections[PRODUCERS], where=f"the producers in {key.sidecar_path}")
    if TRANSACTIONS in sections:
        where = f"the transactions in {key.sidecar_path}"
        SegmentTransactions.decode(sections[TRANSACTIONS], where=where)
    section = find_section(summary, DIGESTS)
    digests = decode_digests(key, section, sections[DIGESTS], size_bytes=summary.size_bytes)
    return _Sidecar(summary, digests)


def _facts(asked: ScrubArguments, summary: Summary | None) -> SegmentFacts:
    if summary is None:
        return SegmentFacts(
            key=asked.segment,
            is_contiguous=asked.is_contiguous,
            leader_epoch_max=asked.leader_epoch_max,
        )
    before: tuple[EpochStart, ...] = tuple(
        start for start in summary.leader_epochs if start.start_offset < summary.base_offset
    )
    return SegmentFacts(
        key=asked.segment,
        is_contiguous=asked.is_contiguous and not summary.is_compacted,
        leader_epoch_max=asked.leader_epoch_max,
        epochs_before=() if summary.is_compacted else before,
        epochs_at_end=summary.leader_epochs if summary.is_compacted else None,
        cleaned_below=summary.cleaned_below,
        replaces=summary.replaces,
    )


def _judge_digests(
    sidecar: _Sidecar, builder: SidecarBuilder, walk_damage: Damage | None
) -> Damage | None:
    """The first damage: the walk may have seen only the effect of an earlier byte."""
    number = _first_mismatch(sidecar.digests, builder.digests)
    if number is None:
        return walk_damage
    position = number * DIGEST_BYTES
    if walk_damage is not None and position + DIGEST_BYTES > builder.verified_bytes:
        return walk_damage
    return Damage(
        sidecar.summary.key.path,
        f"damage at byte {position}: the digest of the {DIGEST_BYTES} bytes from there on is "
        f"{builder.digests[number]:#010x}, not {sidecar.digests[number]:#010x}",
    )


def _first_mismatch(stored: list[int], computed: list[int]) -> int | None:
    """Number of the first digest that differs among those that both have."""
    for number, (one, other) in enumerate(zip(stored, computed, strict=False)):
        if one != other:
            return number
    return None


def _is_equal(made: Summary, stored: Summary) -> bool:
    """But for the producers, which depend on what came before the segment."""
    bare = msgspec.structs.replace(stored, sections=())
    same = msgspec.structs.replace(made, sections=()) == bare
    return same and all(
        find_section(made, name).checksum == find_section(stored, name).checksum
        for name in (INDEX, INDEX_TOP, DIGESTS)
    )


def _damage_of(error: TidelogError, path: str) -> Damage:
    """Only damage is a finding: a disk that fails, or a newer format, is raised as it is."""
    if error.code is not ErrorCode.STORAGE_CORRUPT:
        raise error
    return Damage(path, error.happened)
