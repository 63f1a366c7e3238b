"""Committed entries → images: the metadata state machine that stands beside the Raft log. Pure.

Owns the image of this node and the records of a group that has no end yet. It must never show a
part of a group, nor an image older than one that it has shown.

Theory of operation. Records outside a group take effect as they come. A Begin record opens a
group: what follows is kept aside until its End, where it takes effect at once, or its Abort, where
it is forgotten; another Begin forgets it as well. While a group is open the version stays at the
last entry before it, so whoever waits for a version sees all that was written up to it.

    COMMAND ─→ records ─┬─ no group open ─→ image ─→ on_image
                        └─ in a group ─→ kept aside ─ End ─→ image
    MEMBERS, EMPTY ─→ the version only
"""

from collections.abc import Callable, Sequence

from tidelog.metadata.apply.draft import Draft
from tidelog.metadata.apply.entries import apply_record
from tidelog.metadata.apply.snapshot import EncodedImage, decode_image
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import (
    AbortRecord,
    BeginRecord,
    EndRecord,
    MetadataRecord,
    decode_entry,
)
from tidelog.metadata_quorum.raft.types import NO_INDEX, Entry, EntryKind, Snapshot
from tidelog.wire.ids import LogIndex


class MetadataStateMachine:
    """`StateMachine` of the quorum; `on_image` is called with each image that becomes visible."""

    def __init__(self, on_image: Callable[[Image], None] | None = None) -> None:
        self._on_image = on_image
        self._image = Image()
        self._applied_index = NO_INDEX
        self._open_group: list[MetadataRecord] | None = None

    def image(self) -> Image:
        """Everything that is applied here and visible."""
        return self._image

    def has_open_group(self) -> bool:
        """Whether the records of a group were applied, but not its end."""
        return self._open_group is not None

    @property
    def applied_index(self) -> LogIndex:
        """The last entry applied, visible or not."""
        return self._applied_index

    def apply(self, entries: Sequence[Entry]) -> None:
        """See `StateMachine`. One image for all of them."""
        draft = Draft(self._image)
        version = self._image.version
        has_news = False
        for entry in entries:
            assert entry.index == self._applied_index + 1, (
                f"entry {entry.index} comes after {self._applied_index}"
            )
            if entry.kind is EntryKind.COMMAND:
                for record in decode_entry(entry.data):
                    has_news |= self._apply(draft, record)
            self._applied_index = entry.index
            if self._open_group is None:
                version = entry.index
        if has_news or version > self._image.version:
            self._show(draft.finish(version))

    def capture(self) -> Callable[[], Sequence[bytes]]:
        """See `StateMachine`. Each piece is encoded only when the sequence is asked for it."""
        image = self._image
        open_group = None if self._open_group is None else tuple(self._open_group)
        return lambda: EncodedImage(image, open_group)

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        """See `StateMachine`. What is wrong with the state leaves everything as it was."""
        image, open_group = decode_image(state)
        assert image.version <= snapshot.last_index, "a snapshot shows what it does not hold"
        assert image.version >= self._image.version, "a snapshot leads back"
        self._open_group = None if open_group is None else list(open_group)
        self._applied_index = snapshot.last_index
        self._show(image)

    def _apply(self, draft: Draft, record: MetadataRecord) -> bool:
        """Whether something became visible."""
        match record:
            case BeginRecord():
                self._open_group = []
            case AbortRecord():
                self._open_group = None
            case EndRecord():
                group, self._open_group = self._open_group, None
                assert group is not None, "a group ends that did not begin"
                for each in group:
                    apply_record(draft, each)
                return True
            case _ if self._open_group is not None:
                self._open_group.append(record)
            case _:
                apply_record(draft, record)
                return True
        return False

    def _show(self, image: Image) -> None:
        assert image.version >= self._image.version, "an image never goes back"
        self._image = image
        if self._on_image is not None:
            self._on_image(image)
