"""Which answers and which markers wait for which append. Pure.

Owns the tokens. An answer that could show something of an id leaves once the last append of that id
is committed; without any in flight it leaves at once. Answers under one token leave in their order.
"""

from typing import Final

from tidelog.broker.transactions.state.messages import Answer
from tidelog.wire.errors import TidelogError


class PendingAppends:
    """Knows the tokens that are not committed, what waits for them, and whom they concern."""

    def __init__(self) -> None:
        self._last_token = 0
        self._committed_token = 0
        self._waiting: Final[dict[int, list[Answer]]] = {}
        self._id_of: Final[dict[int, str]] = {}
        self._last_of: Final[dict[str, int]] = {}

    @property
    def append_count(self) -> int:
        """Returns how many appends are in flight."""
        return len(self._id_of)

    @property
    def answer_count(self) -> int:
        """Returns how many answers wait."""
        return sum(len(answers) for answers in self._waiting.values())

    def begin(self, transactional_id: str) -> int:
        """Returns the token of an append for the id."""
        self._last_token += 1
        self._id_of[self._last_token] = transactional_id
        self._last_of[transactional_id] = self._last_token
        return self._last_token

    def last_of(self, transactional_id: str | None) -> int:
        """Returns the append after which an answer about the id may leave; None means any id.

        0: none is in flight.
        """
        if transactional_id is not None:
            return self._last_of.get(transactional_id, 0)
        return self._last_token if self._id_of else 0

    def wait(self, token: int, answer: Answer) -> None:
        """Keeps the answer until the append is committed."""
        assert token in self._id_of, f"append {token} is not in flight"
        self._waiting.setdefault(token, []).append(answer)

    def on_committed(self, token: int) -> tuple[list[Answer], list[str]]:
        """Returns what may leave now, and the ids of which everything is committed now."""
        assert token <= self._last_token, f"append {token} was never begun"
        released: list[Answer] = []
        settled: list[str] = []
        for each in range(self._committed_token + 1, token + 1):
            transactional_id = self._id_of.pop(each)
            if self._last_of[transactional_id] == each:
                del self._last_of[transactional_id]
                settled.append(transactional_id)
            released += self._waiting.pop(each, ())
        self._committed_token = max(self._committed_token, token)
        return released, settled

    def refuse_all(self, error: TidelogError) -> list[Answer]:
        """Returns everything that waits, answered with the error."""
        refused = [
            Answer(request_id=answer.request_id, result=error)
            for answers in self._waiting.values()
            for answer in answers
        ]
        self._waiting.clear()
        self._id_of.clear()
        self._last_of.clear()
        return refused
