"""What the journal's blocks say after a start, and what damage in them means. Pure.

Theory of operation. Blocks are written one at a time, and each is flushed before the next one is
begun. So every block but the newest is known to have been durable: a later block, the name of a
later segment (it holds the sequence of the block before it) and the mark each prove it. Damage in
such a block is corruption. The newest block, unless the mark covers it, may be torn:

    | proven by what lies behind, or by the mark | newest: whole, or torn, never acknowledged |

If the machine has not been started again since the last writer, everything that was written is
there, and a write that was broken off left a front of its block: only a block that the file ends
within is torn then. One of full length is damaged, and so are bytes that would hold a head.

Blocks are followed backwards by `previous_sequence`; one that no later block follows is what a
start has judged torn, and does not count however it looks. Forwards they give the log as cells:
an entry, or None where one was acknowledged and is damaged. A later block that cuts the log below
such a cell removes it, which is how a repair ends the damage without touching a byte of it.
"""

from collections.abc import Sequence

import msgspec

from tidelog.metadata_quorum.raft.types import NO_INDEX, NO_TERM, Entry, HardState
from tidelog.metadata_quorum.storage.blocks import HEAD_BYTES, Block, Head
from tidelog.metadata_quorum.storage.errors import corrupt
from tidelog.metadata_quorum.storage.journal import segment_name
from tidelog.metadata_quorum.storage.marks import Mark
from tidelog.metadata_quorum.storage.scan import SegmentScan
from tidelog.metadata_quorum.storage.state_layout import with_vote_of
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LogIndex, Term


class FoundSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment as it was found."""

    sequence: int
    """Of its first block, by its name."""
    previous_sequence: int
    """Of the block before that, by its name."""
    scan: SegmentScan

    @property
    def name(self) -> str:
        """Of its file."""
        return segment_name(self.sequence, self.previous_sequence)


class Replayed(msgspec.Struct, kw_only=True):
    """The log and the state that the journal and the mark tell."""

    base_index: LogIndex = NO_INDEX
    base_term: Term = NO_TERM
    cells: list[Entry | None] = msgspec.field(default_factory=list)
    """From the entry behind `base_index` on; None: acknowledged once, and damaged."""
    end_index: LogIndex = NO_INDEX
    end_term: Term = NO_TERM
    """Of the last entry, damaged or not."""
    hard_state: HardState = msgspec.field(default_factory=HardState)
    sequence: int = 0
    """Of the newest block that counts."""
    sequence_max: int = 0
    """No block and no name has a higher one."""
    from_index: LogIndex = NO_INDEX
    """Of the newest block that counts."""
    is_reset: bool = False
    """So is this."""
    is_clean: bool = True
    """The newest segment can be appended to, and its newest block says all there is to know."""
    is_marked: bool = True
    """A mark says that the newest block that counts was flushed."""
    endless: TidelogError | None = None
    """Why nothing tells how much followed, where that is tolerated; None: it is known."""

    def cut(self, from_index: LogIndex) -> None:
        """Entries from here on are gone; below the log's start: the log starts here now."""
        if from_index <= self.base_index:
            self.restart(LogIndex(from_index - 1), NO_TERM)
        del self.cells[from_index - 1 - self.base_index :]

    def restart(self, base_index: LogIndex, base_term: Term) -> None:
        """An empty log behind an entry."""
        self.base_index, self.base_term, self.cells = base_index, base_term, []

    def lose(self, from_index: LogIndex, end_index: LogIndex) -> None:
        """These entries were acknowledged and nothing tells what they were."""
        self.cut(max(from_index, LogIndex(self.base_index + 1)))
        missing = end_index - self.base_index - len(self.cells)
        self.cells += [None] * max(0, missing)


def replay(
    segments: Sequence[FoundSegment],
    mark: Mark,
    *,
    where: str,
    is_same_boot: bool = False,
    is_look: bool = False,
) -> Replayed:
    """What counts; STORAGE_CORRUPT if not even the end of what is lost is known.

    Whoever only looks is told of that in `endless`: what is left is there all the same.
    """
    replayed = Replayed(hard_state=mark.hard_state)
    if is_same_boot:
        _note_endless(replayed, _tail_error(segments, mark, where), is_look=is_look)
    blocks = _ascending(segments)
    names = [segment.sequence for segment in segments]
    replayed.sequence_max = max([mark.sequence, *names, *(each.head.sequence for each in blocks)])
    torn = _torn(segments, blocks, mark, is_same_boot=is_same_boot)
    proven = None
    if torn is not None:
        blocks.pop()
        proven = torn.head.previous_sequence
    elif segments and not segments[-1].scan.blocks:
        proven = segments[-1].previous_sequence
    for block in _followed_back(blocks, proven):
        _take(replayed, block, replayed.sequence)
    replayed.is_clean = torn is None and all(each.scan.is_clean for each in segments[-1:])
    if mark.sequence > replayed.sequence:
        _take_mark(replayed, mark)
    elif proven is not None and proven > replayed.sequence:
        if torn is None:
            lost = f"block {proven} and perhaps others before it"
            _note_endless(replayed, _endless(where, lost), is_look=is_look)
            replayed.is_clean = False
        else:
            only_one = proven == replayed.sequence + 1
            _take_loss_before(replayed, torn.head, only_one=only_one)
    _take_votes(replayed, mark, torn)
    replayed.is_marked = mark.sequence >= replayed.sequence
    return replayed


def _take_votes(replayed: Replayed, mark: Mark, torn: Block | None) -> None:
    for other in (mark.hard_state, *([torn.head.hard_state] if torn is not None else [])):
        merged = with_vote_of(replayed.hard_state, other)
        if merged != replayed.hard_state:
            replayed.hard_state, replayed.is_clean = merged, False


def _note_endless(replayed: Replayed, error: TidelogError | None, *, is_look: bool) -> None:
    if error is not None and not is_look:
        raise error
    replayed.endless = replayed.endless or error


def _tail_error(segments: Sequence[FoundSegment], mark: Mark, where: str) -> TidelogError | None:
    """In the boot in which it was written: a block of which neither head nor foot is left, and
    which no mark covers. What a broken-off write leaves begins with a whole head, or is shorter.
    """
    for newest in segments[-1:]:
        covered = mark.segment_bytes if mark.sequence >= newest.sequence else 0
        uncovered = newest.scan.size_bytes - covered
        if min(newest.scan.tail_bytes, uncovered) >= HEAD_BYTES:
            return _endless(
                f"{where}/{newest.name}",
                f"the blocks from byte {newest.scan.size_bytes - newest.scan.tail_bytes} on",
            )
    return None


def _endless(where: str, lost: str) -> TidelogError:
    return corrupt(where, f"damaged: {lost}; nothing tells where the log ended")


def _ascending(segments: Sequence[FoundSegment]) -> list[Block]:
    blocks: list[Block] = []
    for segment in segments:
        for block in segment.scan.blocks:
            if not blocks or block.head.sequence > blocks[-1].head.sequence:
                blocks.append(block)
    return blocks


def _torn(
    segments: Sequence[FoundSegment], blocks: Sequence[Block], mark: Mark, *, is_same_boot: bool
) -> Block | None:
    """The newest block, if it is damaged and nothing proves that it was durable."""
    if not segments or not segments[-1].scan.blocks:
        return None
    newest = blocks[-1]
    is_proven = newest.head.sequence <= mark.sequence or (is_same_boot and not newest.is_cut_off)
    return None if newest.is_whole or is_proven else newest


def _followed_back(blocks: Sequence[Block], newest: int | None) -> list[Block]:
    """The blocks that count, oldest first; `newest`: where to begin, if that is known."""
    chain: list[Block] = []
    wanted = newest
    for block in reversed(blocks):
        if wanted is None or block.head.sequence <= wanted:
            chain.append(block)
            wanted = block.head.previous_sequence
    chain.reverse()
    return chain


def _take(replayed: Replayed, block: Block, previous_sequence: int) -> None:
    head = block.head
    if previous_sequence == 0:
        replayed.restart(LogIndex(head.from_index - 1), head.previous_term)
    elif head.previous_sequence != previous_sequence:
        _take_loss_before(replayed, head, only_one=head.previous_sequence == previous_sequence + 1)
    if head.is_reset:
        replayed.restart(LogIndex(head.from_index - 1), head.previous_term)
    elif head.from_index - 1 > replayed.base_index + len(replayed.cells):
        replayed.lose(LogIndex(replayed.base_index + 1), LogIndex(head.from_index - 1))
    replayed.cut(head.from_index)
    if head.from_index == replayed.base_index + 1:
        replayed.base_term = head.previous_term
    replayed.cells += block.entries
    replayed.end_index, replayed.end_term = head.end_index, head.end_term
    replayed.hard_state = head.hard_state
    replayed.sequence = head.sequence
    replayed.from_index, replayed.is_reset = head.from_index, head.is_reset


def _take_loss_before(replayed: Replayed, head: Head, *, only_one: bool = False) -> None:
    """Blocks before this one are lost. It tells what the last of them had cut; if there were more,
    every entry is in doubt.
    """
    lost_from = head.previous_from_index if only_one else LogIndex(replayed.base_index + 1)
    if head.is_after_reset:
        replayed.restart(LogIndex(head.previous_from_index - 1), NO_TERM)
        lost_from = head.previous_from_index
    replayed.lose(lost_from, LogIndex(head.from_index - 1))
    replayed.end_index, replayed.end_term = LogIndex(head.from_index - 1), head.previous_term
    replayed.is_clean = False


def _take_mark(replayed: Replayed, mark: Mark) -> None:
    """The blocks that it proves are lost; it tells where the log ended."""
    lost_from = LogIndex(replayed.base_index + 1)
    if mark.since_sequence <= replayed.sequence and replayed.sequence:
        lost_from = mark.lowest_from
    if mark.base_index > replayed.base_index or not replayed.sequence:
        replayed.restart(mark.base_index, mark.base_term)
    replayed.lose(lost_from, mark.end_index)
    replayed.end_index, replayed.end_term = mark.end_index, mark.end_term
    replayed.hard_state = mark.hard_state
    replayed.is_clean = False
