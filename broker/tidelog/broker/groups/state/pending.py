"""Which answers wait for which append. Pure.

Owns the tokens. An answer that could show something of a group leaves once the last append of that
group is committed; without any in flight at once. Answers under one token leave in their order.
"""

from typing import Final

from tidelog.broker.groups.state.messages import Answer
from tidelog.wire.errors import TidelogError


class Pending:
    """Tokens that are not committed, what waits for them, and whom they concern."""

    def __init__(self) -> None:
        self._last_token = 0
        self._committed_token = 0
        self._waiting: Final[dict[int, list[Answer]]] = {}
        self._groups_of: Final[dict[int, str]] = {}
        self._last_of: Final[dict[str, int]] = {}
        self._refused: Final[set[int]] = set()
        """Not in the log, and something before them is not committed yet."""

    @property
    def append_count(self) -> int:
        """Appends in flight."""
        return len(self._groups_of)

    @property
    def answer_count(self) -> int:
        """Answers that wait."""
        return sum(len(answers) for answers in self._waiting.values())

    def begin(self, group: str) -> int:
        """The token of an append for the group."""
        self._last_token += 1
        self._groups_of[self._last_token] = group
        self._last_of[group] = self._last_token
        return self._last_token

    def last_of(self, group: str | None) -> int:
        """The append after which an answer about the group may leave; None: about any of them.

        0: none is in flight.
        """
        if group is not None:
            return self._last_of.get(group, 0)
        return self._last_token if self._groups_of else 0

    def wait(self, token: int, answer: Answer) -> None:
        """Keep it until the append is committed."""
        assert token in self._groups_of, f"append {token} is not in flight"
        self._waiting.setdefault(token, []).append(answer)

    def on_committed(self, token: int) -> list[Answer]:
        """All up to this one are: what may leave now."""
        assert token <= self._last_token, f"append {token} was never begun"
        released: list[Answer] = []
        while self._committed_token < token or self._committed_token + 1 in self._refused:
            self._committed_token += 1
            released += self._settled(self._committed_token)
        return released

    def on_refused(self, token: int, request_id: int, error: TidelogError) -> list[Answer]:
        """This one is not in the log: what may leave now. Its own request is answered with the
        error; what waits under it as the last append of its group waits for those before it."""
        assert token in self._groups_of, f"append {token} is not in flight"
        self._waiting[token] = [
            Answer(request_id=request_id, result=error) if each.request_id == request_id else each
            for each in self._waiting.get(token, ())
        ]
        self._refused.add(token)
        return self.on_committed(self._committed_token)

    def _settled(self, token: int) -> list[Answer]:
        group = self._groups_of.pop(token)
        if self._last_of[group] == token:
            del self._last_of[group]
        self._refused.discard(token)
        return self._waiting.pop(token, [])

    def refuse_all(self, error: TidelogError) -> list[Answer]:
        """Everything that waits, answered with the error."""
        refused = [
            Answer(request_id=answer.request_id, result=error)
            for answers in self._waiting.values()
            for answer in answers
        ]
        self._waiting.clear()
        self._groups_of.clear()
        self._last_of.clear()
        self._refused.clear()
        return refused
