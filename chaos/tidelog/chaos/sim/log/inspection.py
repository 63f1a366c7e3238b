"""Looks into a living node and its media: is what is derived right, is what is promised durable.

Runs between two steps of the loop, so nothing moves meanwhile. It must never change anything, and
leaves a log alone whose tail is being cut at the moment.
"""

import functools
from collections.abc import Sequence

import msgspec

from tidelog.broker.log.jobs import seal as sealing
from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.sidecar.codec import PRODUCERS, decode_summary
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.log import NO_GAPS, PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.chaos.checkers.log.derived import Derived, check_derived
from tidelog.chaos.checkers.log.medium import check_marks, seen_bytes
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.log.node import LogNode
from tidelog.chaos.sim.log.partition_client import PartitionClient
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.wire.errors import ErrorCode, TidelogError


class SnapshotFiles:
    """JobFiles over what is seen of a medium; what a job makes stays in memory."""

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self.made: dict[str, bytearray] = {}

    def size_bytes(self, path: str) -> int:
        """Its length; -1: there is no such file."""
        data = self._bytes(path)
        return -1 if data is None else len(data)

    def read(self, path: str, byte_position: int, length_bytes: int) -> bytes:
        """As at the port."""
        data = self._bytes(path)
        if data is None:
            raise TidelogError(
                ErrorCode.STORAGE_FAILED, tried=f"read {path}", happened="there is no such file"
            )
        return data[byte_position : byte_position + length_bytes]

    def create(self, path: str) -> None:
        """In memory."""
        self.made[path] = bytearray()

    def append(self, path: str, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """In memory."""
        for piece in pieces:
            self.made[path] += piece

    def flush(self, path: str) -> None:
        """Nothing to do."""
        assert path in self.made, f"a job flushes what it has created, not {path}"

    def remove(self, path: str) -> None:
        """In memory."""
        del self.made[path]

    def _bytes(self, path: str) -> bytes | None:
        if path in self.made:
            return bytes(self.made[path])
        return seen_bytes(self._medium, path)


def inspect(
    node: LogNode, clients: Sequence[PartitionClient], random: SeededRandom, *, was_damaged: bool
) -> list[str]:
    """What is wrong of every log that stands still; `was_damaged`: in this run a compacted
    segment's sidecar was made again, and what the old one told of producers could not be read."""
    violations: list[str] = []
    for client in clients:
        if client.model.truncating_to is not None:
            continue
        log = node.log_of(client.key)
        if log.failure is not None:
            continue
        medium = client.stage.medium_of(client.planned)
        client.model.see(node.bounds_of(client.key))
        violations += check_derived(
            log, functools.partial(seen_bytes, medium), was_cut=client.model.truncations > 0
        )
        violations += check_a_sidecar(log, medium, random, was_damaged=was_damaged)
    return violations


def inspect_media(media: Sequence[Medium]) -> list[str]:
    """What a crash at this moment would show."""
    return [violation for medium in media for violation in check_marks(medium)]


def compare_lives(before: LogNode, after: LogNode, clients: Sequence[PartitionClient]) -> list[str]:
    """What a log had derived when the node died, and what the next life derived of its files."""
    violations: list[str] = []
    for client in clients:
        old, new = before.log_of(client.key), after.log_of(client.key)
        if old.failure is not None or new.failure is not None:
            continue
        if client.model.truncating_to is not None:
            continue
        violations += Derived(old).compare(Derived(new), str(client.key))
    return violations


def check_a_sidecar(
    log: PartitionLog, medium: Medium, random: SeededRandom, *, was_damaged: bool
) -> list[str]:
    """One sealed segment, drawn by seed: its sidecar made again equals the one on the disk."""
    places = [place for place, each in enumerate(log.segments) if _is_remakable(log, place, each)]
    if not places:
        return []
    place = places[random.below(len(places))]
    segment = log.segments[place]
    stored = seen_bytes(medium, segment.key.sidecar_path)
    if stored is None:
        return [f"lost_file: {segment.key.sidecar_path} is not there"]
    files = SnapshotFiles(medium)
    try:
        for _ in sealing.seal(files, sealing.encode_arguments(_arguments(log, place))):
            pass
    except TidelogError as error:
        return [f"sidecar_differs: {segment.key.sidecar_path} cannot be made again: {error}"]
    made = files.made.get(sealing.unfinished_path(segment.key))
    if made is None:
        return [f"sidecar_differs: {segment.key.sidecar_path} cannot be made again"]
    if bytes(made) == stored:
        return []
    # What a trimmed segment had handed on is gone if the sidecar behind it had to be made again.
    is_headless = log.segments[0].base_offset > 0
    # So is what a compacted segment before it knew of producers, and of leader epochs below the
    # log's start, if its sidecar was lost.
    is_behind_remade = was_damaged and any(each.is_compacted for each in log.segments[:place])
    epochs_from = log.log_start_offset if is_behind_remade else 0
    if is_headless:
        epochs_from = segment.next_offset
    if (segment.is_compacted or is_headless or is_behind_remade) and (
        _rebuildable(segment, stored, epochs_from) == _rebuildable(segment, made, epochs_from)
    ):
        return []
    return [f"sidecar_differs: {segment.key.sidecar_path} made again is another"]


def _rebuildable(
    segment: Segment, data: bytes | bytearray, epochs_from: int
) -> tuple[Summary, dict[str, int]]:
    """What a sidecar says but for leader epochs below an offset, and for producers: a compaction
    drops batches that they are made of."""
    summary = decode_summary(bytes(data), segment.key, file_bytes=len(data))
    epochs = LeaderEpochs(summary.leader_epochs)
    epochs.trim(epochs_from)
    summary = msgspec.structs.replace(summary, leader_epochs=epochs.starts)
    sums = {each.name: each.checksum for each in summary.sections if each.name != PRODUCERS}
    return msgspec.structs.replace(summary, sections=()), sums


def _is_remakable(log: PartitionLog, place: int, segment: Segment) -> bool:
    """What comes before it is there as it was when the sidecar was made."""
    if segment.summary is None or segment.summary.sections == ():
        return False
    if segment.base_offset == 0:
        return True
    return place > 0 and log.segments[place - 1].summary is not None


def _arguments(log: PartitionLog, place: int) -> sealing.SealArguments:
    segment = log.segments[place]
    summary = segment.summary
    assert summary is not None, "only sealed segments with a sidecar are made again"
    is_contiguous = not segment.is_compacted and log.gaps_from == NO_GAPS
    return sealing.SealArguments(
        segment=segment.key,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        previous=log.segments[place - 1].key if place else None,
        is_contiguous=is_contiguous,
        leader_epoch_max=log.leader_epoch,
        cleaned_below=summary.cleaned_below,
        leader_epochs=summary.leader_epochs if segment.is_compacted else None,
        replaces=summary.replaces,
    )
