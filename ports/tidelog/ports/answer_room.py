"""Room for the answers of one call: taken before an answer is made, so that many calls at once do
not make more than their callers read.
"""

from typing import Final, Protocol


class AnswerRoom(Protocol):
    """Of one call. The network port gives back what was taken: a call's once the caller has the
    answer or is gone, a stream's once the next message has left.
    """

    async def take(self, wanted_bytes: int) -> int:
        """Wait for room; how many bytes the answer may have, at most what is wanted.

        An answer that cannot be that small may be larger: whole batches are.
        """
        ...

    def give_back(self) -> None:
        """There is no answer after all."""
        ...


class _Unbounded:
    """Nobody counts: in the simulator, whose callers always read, and in tests."""

    async def take(self, wanted_bytes: int) -> int:
        return wanted_bytes

    def give_back(self) -> None:
        return


UNBOUNDED: Final[AnswerRoom] = _Unbounded()
