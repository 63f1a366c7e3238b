"""A state machine that keeps images as the real one does, and snapshots of nothing."""

from collections.abc import Callable, Sequence

from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import (
    AbortRecord,
    BeginRecord,
    EndRecord,
    MetadataRecord,
    decode_entry,
)
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, Snapshot


class SmallMachine:
    """See `StateMachine`; a group becomes visible at its end."""

    def __init__(self) -> None:
        self._image = Image()
        self._open: list[MetadataRecord] | None = None

    def image(self) -> Image:
        """What is visible."""
        return self._image

    def has_open_group(self) -> bool:
        """Whether a group has no end yet."""
        return self._open is not None

    def apply(self, entries: Sequence[Entry]) -> None:
        """See `StateMachine`."""
        for entry in entries:
            if entry.kind is EntryKind.COMMAND:
                self._apply(entry, decode_entry(entry.data))

    def _apply(self, entry: Entry, records: Sequence[MetadataRecord]) -> None:
        if isinstance(records[0], BeginRecord):
            assert self._open is None, "groups do not overlap"
            self._open = []
        if isinstance(records[0], AbortRecord):
            self._open = None
            return
        if self._open is not None:
            self._open += records
            if not isinstance(records[-1], EndRecord):
                return
            records, self._open = self._open, None
        self._image = apply_entry(self._image, records, version=entry.index)

    def capture(self) -> Callable[[], Sequence[bytes]]:
        """See `StateMachine`."""
        return lambda: [b""]

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        """See `StateMachine`."""
        raise AssertionError("no snapshot is loaded here")
