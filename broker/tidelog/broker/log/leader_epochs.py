"""Which leader epoch wrote which offsets: the leader-epoch cache of one log. Pure.

Owns the pairs (epoch, first offset of it), ascending in both. Rebuilt from the batches' headers it
equals the live one. It must never hold an epoch that wrote nothing that the log still holds, except
the one that the log's first record belongs to. Replication resolves divergence by it.
"""

from bisect import bisect_right
from typing import Self

import msgspec


class EpochStart(msgspec.Struct, frozen=True, array_like=True):
    """From this offset on the epoch wrote, up to the next one's start."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Changed by the owner of the log only."""

    __slots__ = ("_starts",)

    def __init__(self, starts: tuple[EpochStart, ...] = ()) -> None:
        self._starts = list(starts)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        """All of them, ascending."""
        return tuple(self._starts)

    @property
    def latest(self) -> int:
        """The last epoch that wrote; -1: none did."""
        return self._starts[-1].epoch if self._starts else -1

    def note(self, epoch: int, offset: int) -> None:
        """A batch of this epoch begins at the offset."""
        assert epoch >= self.latest, f"epoch {epoch} writes after epoch {self.latest}"
        if epoch > self.latest:
            if self._starts and self._starts[-1].start_offset == offset:
                # All that it wrote was trimmed away.
                self._starts.pop()
            assert not self._starts or offset > self._starts[-1].start_offset, (
                f"epoch {epoch} begins at {offset}, where an earlier one does"
            )
            self._starts.append(EpochStart(epoch, offset))

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote the offset; -1: it lies before all that is known."""
        found = bisect_right(self._starts, offset, key=lambda start: start.start_offset)
        return self._starts[found - 1].epoch if found else -1

    def end_offset_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The last epoch at or below the one given, and where it ends; (-1, -1): there is none."""
        found = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        if not found:
            return (-1, -1)
        end = self._starts[found].start_offset if found < len(self._starts) else log_end_offset
        return (self._starts[found - 1].epoch, end)

    def truncate(self, log_end_offset: int) -> None:
        """The log ends here now."""
        while self._starts and self._starts[-1].start_offset >= log_end_offset:
            self._starts.pop()

    def trim(self, log_start_offset: int) -> None:
        """The log begins here now; the epoch that this offset belongs to begins here as well."""
        found = bisect_right(self._starts, log_start_offset, key=lambda start: start.start_offset)
        if found:
            first = self._starts[found - 1]
            self._starts[:found] = [
                EpochStart(first.epoch, max(first.start_offset, log_start_offset))
            ]

    def copy(self) -> Self:
        """One that may change by itself."""
        return type(self)(self.starts)
