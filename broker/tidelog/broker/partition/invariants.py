"""What holds of a data directory's core after every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.log.state import PartitionLog
    from tidelog.broker.partition.core import DirectoryCore


def check_step(core: DirectoryCore) -> None:
    """The cheap part: what any step could break, whatever it touched."""
    assert not (core.is_truncating and core.write is not None), (
        "nothing is written while a round is cut back"
    )
    if core.failure is not None:
        assert not core.queue, "a failed directory keeps nobody waiting for a write"
        assert not core.awaiting, "a failed directory keeps nobody waiting for a flush"


def check(core: DirectoryCore) -> None:
    """Everything, for every partition."""
    check_step(core)
    for partition in core.partitions.values():
        check_log(partition.log)
        for held in partition.held:
            assert held.key == partition.log.key, "a held batch waits at its own partition"


def check_log(log: PartitionLog) -> None:
    """The chain of offsets, and segments without gaps or overlap."""
    chain = (log.log_start_offset, log.high_watermark, log.flushed_offset, log.log_end_offset)
    assert list(chain) == sorted(chain), f"{log.key}: the offsets {chain} do not ascend"
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(dict.fromkeys(bases)), f"{log.key}: segments begin at {bases}"
    if log.segments and log.failure is None:
        assert bases[0] == log.log_start_offset, f"{log.key}: its first segment begins elsewhere"
        assert bases[-1] <= log.log_end_offset, f"{log.key}: its active segment begins too late"
    base_offset, position = log.high_watermark_position
    for segment in log.segments:
        if segment.base_offset == base_offset:
            assert position <= segment.size_bytes, f"{log.key}: the watermark lies behind the end"
