"""Records of one group that are about to be appended; each takes effect as it is written. Pure.

Owns the order: what is put first is seen by whatever is decided next. It must never be left after
something was put without being appended: state and log would part.
"""

from typing import Final

from tidelog.broker.groups.state import limits, replay
from tidelog.broker.groups.state.group import Group
from tidelog.broker.groups.state.messages import StoredRecord
from tidelog.broker.groups.state.records import AnyValue, Key, encode_record


class Draft:
    """What one request, or one look at the time, writes about one group."""

    def __init__(self, groups: dict[str, Group], name: str) -> None:
        self.name: Final = name
        self._groups: Final = groups
        self._records: Final[list[StoredRecord]] = []
        self.is_atomic = True
        """False: what is written may be torn apart, as each record stands for itself."""

    def put(self, key: Key, value: AnyValue | None) -> None:
        """A tombstone with None."""
        assert key.group == self.name, f"a record of `{key.group}` in a draft of `{self.name}`"
        replay.apply(self._groups, key, value)
        self._records.append(encode_record(key, value))

    def group(self) -> Group:
        """As it is now. One of which nothing is stored is made, and forgotten if that stays so."""
        group = self._groups.get(self.name)
        if group is None:
            group = self._groups[self.name] = Group(name=self.name)
        return group

    def appends(self) -> list[tuple[StoredRecord, ...]]:
        """What is to be appended: one batch, or several where that does no harm."""
        batches: list[list[StoredRecord]] = []
        room = 0
        for record in self._records:
            size = len(record.key) + len(record.value or b"")
            if size > room:
                batches.append([])
                room = limits.APPEND_BYTES_MAX
            batches[-1].append(record)
            room -= size
        assert len(batches) <= 1 or not self.is_atomic, f"a change of `{self.name}` is too large"
        return [tuple(batch) for batch in batches]

    def forget_if_nothing(self) -> None:
        """After a refusal."""
        group = self._groups.get(self.name)
        if group is not None and group.is_nothing:
            assert not self._records, f"`{self.name}` is nothing, and records were written"
            del self._groups[self.name]
