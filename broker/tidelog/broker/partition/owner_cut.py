"""Cuts the tail of a log on the disk and reads again what is left of its last segment.

Thin I/O: the core has seen to it that nothing else is written to the partition, and that the
marks no longer promise what goes. It must never leave a log with a hole in it, whenever it is
interrupted.
"""

from tidelog.broker.partition.messages import CutTail, TailCut
from tidelog.broker.partition.owner_files import SegmentFiles
from tidelog.ports import Disk


async def cut_tail(disk: Disk, files: SegmentFiles, effect: CutTail) -> TailCut:
    """What is left of the last segment, once the cut is durable."""
    raise NotImplementedError
