"""Where a bulk call stands: which of its records are in batches, and in which.

Owns the way from pieces to batches, a stretch at a time, so that a driver holds its lock briefly
and waits for room outside. It must never take a record twice, nor leave one out.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tidelog.client.bulk.pieces import Piece
from tidelog.client.engine.produce.accumulator import Accumulator, Route
from tidelog.client.engine.produce.batch import Batch


class Part(msgspec.Struct, frozen=True):
    """Records that follow each other in one batch."""

    batch: Batch
    first_index: int
    base: int
    positions: Sequence[int]
    """Which of the caller's records they are, in their order, counted from `base`."""

    @property
    def next_index(self) -> int:
        """Behind the last of them."""
        return self.first_index + len(self.positions)


class Appending:
    """One call; `has_more`, then `step` under the driver's lock, until there is no more."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self.parts: list[Part] = []
        self.count = 0
        """Records that were taken."""
        self._pieces = pieces
        self._piece: Piece | None = None
        self._taken = 0

    def has_more(self) -> bool:
        """Whether records are left; prepares the next ones, which needs no lock."""
        if self._piece is None:
            self._piece, self._taken = next(self._pieces, None), 0
        return self._piece is not None

    @property
    def is_piece_done(self) -> bool:
        """Whether the next step begins with other records than the last one saw."""
        return self._piece is None

    def step(self, accumulator: Accumulator, route: Route) -> Batch | None:
        """Append as much as one batch takes without asking: that batch; None: there is no room."""
        piece, start = self._piece, self._taken
        assert piece is not None, "a bulk call goes on behind its end"
        found = accumulator.extend(route, piece.partition, piece.run, start)
        if found is None:
            return None
        batch, end = found
        first_index = len(batch.columns) - (end - start)
        self._note(Part(batch, first_index, piece.base, piece.positions[start:end]))
        self.count += end - start
        self._taken = end
        if end == piece.run.count:
            self._piece = None
        return batch

    def _note(self, part: Part) -> None:
        """Neighbours become one part, so that a part is a batch wherever it can be."""
        last = self.parts[-1] if self.parts else None
        if last is None or last.batch is not part.batch or last.next_index != part.first_index:
            self.parts.append(part)
            return
        before, added = last.positions, part.positions
        if isinstance(before, range) and isinstance(added, range) and before.stop == added.start:
            joined = range(before.start, added.stop)
            self.parts[-1] = Part(part.batch, last.first_index, part.base, joined)
        else:
            self.parts.append(part)
