"""Records → the entries that carry them: one, or a group that becomes visible at its end.

Pure. It must never let a part of a decision be seen: what does not fit into one entry stands
between a Begin and an End record, and whoever reads the log shows nothing in between.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.metadata.records.entries import BeginRecord, EndRecord, MetadataRecord, encode_entry
from tidelog.wire.errors import ErrorCode, TidelogError

ENTRY_BYTES_MAX: Final = 1024 * 1024
ARRAY_HEADER_BYTES_MAX: Final = 5
"""Of the list that an entry is."""
GROUP_NAME_LENGTH_MAX: Final = 200


def encode_group(
    records: Sequence[MetadataRecord], *, name: str, bytes_max: int = ENTRY_BYTES_MAX
) -> tuple[bytes, ...]:
    """The entries, in order, none larger than `bytes_max`; `name` says what is done, for people."""
    assert records, "an entry holds at least one record"
    whole = encode_entry(tuple(records))
    if len(whole) <= bytes_max:
        return (whole,)
    begin = BeginRecord(name=name[:GROUP_NAME_LENGTH_MAX])
    framed = (begin, *records, EndRecord())
    entries: list[bytes] = []
    open_records: list[MetadataRecord] = []
    open_bytes = ARRAY_HEADER_BYTES_MAX
    for record in framed:
        size_bytes = len(encode_entry((record,)))
        if ARRAY_HEADER_BYTES_MAX + size_bytes > bytes_max:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=name[:GROUP_NAME_LENGTH_MAX] or "write to the metadata log",
                happened=f"one record of {size_bytes} bytes does not fit into an entry "
                f"of {bytes_max}",
                hint="Ask for less in one object: shorter settings, fewer replicas.",
            )
        if open_records and open_bytes + size_bytes > bytes_max:
            entries.append(encode_entry(tuple(open_records)))
            open_records, open_bytes = [], ARRAY_HEADER_BYTES_MAX
        open_records.append(record)
        open_bytes += size_bytes
    entries.append(encode_entry(tuple(open_records)))
    assert len(entries) > 1, "what fits into one entry was not split"
    return tuple(entries)
