"""Records → the entries that carry them: one, or a group that becomes visible at its end.

Pure. It must never let a part of a write be seen: whatever does not fit into one entry stands
between a Begin and an End record.
"""

from collections.abc import Sequence

from tidelog.metadata_quorum.records import MetadataRecord, encode_entry


def encode_entries(records: Sequence[MetadataRecord], *, bytes_max: int) -> tuple[bytes, ...]:
    """The entries for records that take effect together, in order."""
    assert records, "an entry holds at least one record"
    whole = encode_entry(tuple(records))
    assert len(whole) <= bytes_max, "a write of this size needs a group"
    return (whole,)
