"""Producer ids at hand. Pure.

Owns those that were granted and are not given out. It must never give one out twice; those left
over when a core is thrown away are lost, which costs nothing: there are 2^63.
"""

from collections import deque
from typing import Final

from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.refusals import no_producer_id
from tidelog.wire.ids import ProducerId


class ProducerIdReserve:
    """Keeps a few ids at hand, so that no decision has to wait for the controller."""

    def __init__(self) -> None:
        self._ids: Final[deque[ProducerId]] = deque()
        self._is_requested = False

    def __len__(self) -> int:
        return len(self._ids)

    def take(self) -> ProducerId:
        """Returns one that nobody has had; raises COORDINATOR_NOT_AVAILABLE when there is none."""
        if not self._ids:
            raise no_producer_id()
        return self._ids.popleft()

    def grant(self, first: ProducerId, count: int) -> None:
        """More are there."""
        assert count > 0, "a grant holds something"
        assert not self._ids or first > self._ids[-1], f"{first} was granted before"
        self._is_requested = False
        self._ids.extend(ProducerId(first + each) for each in range(count))

    def take_request(self) -> bool:
        """Returns whether to ask for more now."""
        if self._is_requested or len(self._ids) >= limits.PRODUCER_IDS_LOW:
            return False
        self._is_requested = True
        return True
