"""Which leader epochs wrote what a consumer has read of one partition.

Owns the few last steps of that history. With it a reader finds the offset up to which its past and
the log agree, where the broker alone can only say that they do not: the records of a lost epoch may
have been written again by an older one, and lie below the end that the broker names.
"""

from bisect import bisect_right
from typing import Final

NO_EPOCH: Final = -1
STEPS_MAX: Final = 32
"""Leaders change rarely: what is older was read long before."""

_Step = tuple[int, int]


def _epoch_of(step: _Step) -> int:
    return step[0]


def _start_of(step: _Step) -> int:
    return step[1]


class ReadEpochs:
    """Pairs (epoch, first offset read of it), ascending in both."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[_Step] = []

    def __repr__(self) -> str:
        return " ".join(f"{epoch}@{start}" for epoch, start in self._steps) or "none"

    def begin(self, offset: int, epoch: int) -> None:
        """Reading begins here, behind a record of this epoch if it is known."""
        known = epoch != NO_EPOCH and offset > 0
        self._steps = [(epoch, offset - 1)] if known else []

    def move(self, offset: int, epoch: int, read_to: int) -> None:
        """Reading goes on here; within what was read before, and of the same epoch, it stays."""
        found = bisect_right(self._steps, offset - 1, key=_start_of)
        is_read = found > 0 and offset <= read_to
        if is_read and epoch in (NO_EPOCH, self._steps[found - 1][0]):
            self.cut(offset)
        else:
            self.begin(offset, epoch)

    def note(self, epoch: int, base_offset: int) -> None:
        """A batch of this epoch was read."""
        if self._steps and self._steps[-1][0] == epoch:
            return
        assert not self._steps or epoch > self._steps[-1][0], (
            f"epoch {epoch} was read behind {self!r}"
        )
        self._steps.append((epoch, base_offset))
        del self._steps[:-STEPS_MAX]

    @property
    def latest(self) -> int:
        """Of the last record that was read."""
        return self._steps[-1][0] if self._steps else NO_EPOCH

    def before(self, offset: int) -> int:
        """Of the record before this offset; NO_EPOCH: not known."""
        found = bisect_right(self._steps, offset - 1, key=_start_of)
        return self._steps[found - 1][0] if found else NO_EPOCH

    def end_of(self, epoch: int, next_offset: int) -> int:
        """Where the reading of this epoch and those before it ends.

        Before the first step nothing is known: there it ends where that step begins.
        """
        found = bisect_right(self._steps, epoch, key=_epoch_of)
        return self._steps[found][1] if found < len(self._steps) else next_offset

    def cut(self, offset: int) -> None:
        """What is at or behind the offset was not read after all."""
        del self._steps[bisect_right(self._steps, offset - 1, key=_start_of) :]
