"""Tells the marker in a batch that is stored or about to be. Pure.

Whether a transaction was committed, and by which coordinator, is in a marker's record and not in
its header: whoever hands a header to a log reads the marker here first, before anything is written
or taken for whole.
"""

from tidelog.wire.batch import BatchHeader
from tidelog.wire.batch.layout import Buffer
from tidelog.wire.batch.marker import Marker, read_marker


def marker_of(buffer: Buffer, header: BatchHeader, position: int = 0) -> Marker | None:
    """The marker that the batch at the position is; None: it is a batch of records.

    The caller has verified the checksum. CORRUPT_BATCH for a control batch that is no marker:
    nobody but a leader makes any.
    """
    return read_marker(buffer, header, position) if header.is_control else None
