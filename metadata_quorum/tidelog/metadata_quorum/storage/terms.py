"""Which term each entry of the log has, without the entries: one number a run. Pure."""

from bisect import bisect_right

from tidelog.wire.ids import LogIndex, Term


class Terms:
    """From the entry before the log's first one to its last."""

    def __init__(self, base_index: LogIndex, base_term: Term) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self.end_index = base_index
        self._firsts: list[int] = []
        self._terms: list[Term] = []

    @property
    def end_term(self) -> Term:
        """Of the last entry; of the one before the log if there is none."""
        return self._terms[-1] if self._terms else self.base_term

    def append(self, index: LogIndex, term: Term) -> None:
        """The next entry."""
        assert index == self.end_index + 1, f"entry {index} does not follow {self.end_index}"
        assert term >= self.end_term, f"entry {index} of term {term} follows {self.end_term}"
        if not self._terms or self._terms[-1] != term:
            self._firsts.append(index)
            self._terms.append(term)
        self.end_index = index

    def cut(self, from_index: LogIndex) -> None:
        """Entries from here on are gone."""
        assert from_index > self.base_index, f"entry {from_index} is before the log"
        if from_index > self.end_index:
            return
        while self._firsts and self._firsts[-1] >= from_index:
            self._firsts.pop()
            self._terms.pop()
        self.end_index = LogIndex(from_index - 1)

    def term_at(self, index: LogIndex) -> Term:
        """Of an entry of the log or the one before it."""
        assert self.base_index <= index <= self.end_index, f"entry {index} is not in the log"
        place = bisect_right(self._firsts, index)
        return self._terms[place - 1] if place else self.base_term
