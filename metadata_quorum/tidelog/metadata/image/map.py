"""A sorted map that is never changed: changing it gives another one, which shares what it can.

Keys lie in ascending order in leaves of at most `LEAF_ENTRIES_MAX`. A change copies the leaves that
it touches and the short list of leaves, so one change of 100,000 entries costs some microseconds,
and two maps of which one came from the other are compared without looking at what they share.
Iteration follows the keys, so it depends on the content only and not on how it came about: a
node that read a snapshot decides as one that applied every entry.
"""

from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

K = TypeVar("K", bound="SupportsRichComparison")
V = TypeVar("V")
D = TypeVar("D")

LEAF_ENTRIES_MAX: Final = 512
"""A leaf with more is split in halves."""


class Removed:
    """In place of a value: the key goes."""


REMOVED: Final = Removed()


class _Leaf(Generic[K, V]):
    """Neighbouring keys with their values."""

    __slots__ = ("keys", "values")

    def __init__(self, keys: tuple[K, ...], values: tuple[V, ...]) -> None:
        self.keys = keys
        self.values = values


class ImageMap(Mapping[K, V]):
    """See the module. Made by `updated` from an empty one."""

    __slots__ = ("_firsts", "_leaves", "_length")

    def __init__(self) -> None:
        self._leaves: tuple[_Leaf[K, V], ...] = ()
        self._firsts: tuple[K, ...] = ()
        """The first key of each leaf."""
        self._length = 0

    @classmethod
    def of(cls, entries: Mapping[K, V]) -> "ImageMap[K, V]":
        """A map of these entries."""
        return cls().updated(entries)

    def updated(self, changes: Mapping[K, V | Removed]) -> "ImageMap[K, V]":
        """This map with the changes made; keys removed need not be there."""
        if not changes:
            return self
        leaves = list(self._leaves)
        firsts = list(self._firsts)
        length = self._length
        for place, part in reversed(self._by_leaf(changes)):
            before = leaves[place] if leaves else None
            after = _changed(before, part)
            length += sum(len(leaf.keys) for leaf in after)
            length -= len(before.keys) if before is not None else 0
            leaves[place : place + 1] = after
            firsts[place : place + 1] = [leaf.keys[0] for leaf in after]
        made: ImageMap[K, V] = ImageMap()
        made._leaves = tuple(leaves)
        made._firsts = tuple(firsts)
        made._length = length
        return made

    def _by_leaf(
        self, changes: Mapping[K, V | Removed]
    ) -> list[tuple[int, list[tuple[K, V | Removed]]]]:
        """The changes in ascending order, by the place of the leaf that they belong to."""
        parts: list[tuple[int, list[tuple[K, V | Removed]]]] = []
        keys = sorted(changes)
        start = 0
        while start < len(keys):
            place = self._place(keys[start])
            end = len(keys)
            if place + 1 < len(self._firsts):
                end = bisect_left(keys, self._firsts[place + 1], start)
            parts.append((place, [(key, changes[key]) for key in keys[start:end]]))
            start = end
        return parts

    def _place(self, key: K) -> int:
        return max(bisect_right(self._firsts, key) - 1, 0)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: D | None = None) -> V | D | None:
        """The value, or `default`."""
        place = bisect_right(self._firsts, key) - 1
        if place < 0:
            return default
        leaf = self._leaves[place]
        found = bisect_left(leaf.keys, key)
        if found < len(leaf.keys) and leaf.keys[found] == key:
            return leaf.values[found]
        return default

    def __getitem__(self, key: K, /) -> V:
        found = self.get(key, REMOVED)
        if isinstance(found, Removed):
            raise KeyError(key)
        return found

    def __contains__(self, key: object, /) -> bool:
        return self.get(key, REMOVED) is not REMOVED  # type: ignore[call-overload]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        for leaf in self._leaves:
            yield from leaf.keys

    def keys(self) -> KeysView[K]:
        """In ascending order."""
        return KeysView(self)

    def values(self) -> ValuesView[V]:
        """In ascending order of their keys."""
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        """In ascending order of their keys."""
        return _Items(self)

    def keys_from(self, first: K) -> Iterator[K]:
        """The keys that are not below `first`, in ascending order: for pages and prefixes."""
        for place in range(self._place(first), len(self._leaves)):
            keys = self._leaves[place].keys
            yield from keys[bisect_left(keys, first) :]

    def changed_keys(self, before: "ImageMap[K, V]") -> list[K]:
        """Keys that came, went, or have another value object than `before`, in ascending order."""
        if before is self:
            return []
        shared = self._shared(before)
        earlier = before._own_entries(shared)
        later = self._own_entries(shared)
        changed = [key for key, value in later.items() if earlier.get(key, REMOVED) is not value]
        changed += [key for key in earlier if key not in later]
        return sorted(changed)

    def __eq__(self, other: object) -> bool:
        """Equal entries; what is shared is not looked at."""
        if self is other:
            return True
        if not isinstance(other, ImageMap) or len(self) != len(other):
            return NotImplemented if not isinstance(other, Mapping) else dict(self) == dict(other)
        shared = self._shared(other)
        return self._own_entries(shared) == other._own_entries(shared)

    __hash__ = None  # type: ignore[assignment]

    def _shared(self, other: "ImageMap[K, V]") -> set[int]:
        """The ids of the leaves that both have."""
        return set(map(id, self._leaves)).intersection(map(id, other._leaves))

    def _own_entries(self, shared: set[int]) -> dict[K, V]:
        own: dict[K, V] = {}
        for leaf in self._leaves:
            if id(leaf) not in shared:
                own.update(zip(leaf.keys, leaf.values, strict=True))
        return own

    def leaf_values(self) -> Iterator[tuple[V, ...]]:
        """All values, a leaf's at a time."""
        for leaf in self._leaves:
            yield leaf.values

    def __repr__(self) -> str:
        return f"ImageMap({dict(self.items())!r})"


class _Values(ValuesView[V]):
    """Walks the leaves instead of looking every key up."""

    _mapping: ImageMap[object, V]  # type: ignore[type-var]

    def __iter__(self) -> Iterator[V]:
        for values in self._mapping.leaf_values():
            yield from values


class _Items(ItemsView[K, V]):
    """Walks the leaves instead of looking every key up."""

    _mapping: ImageMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for leaf in self._mapping._leaves:
            yield from zip(leaf.keys, leaf.values, strict=True)


def _changed(leaf: _Leaf[K, V] | None, changes: list[tuple[K, V | Removed]]) -> list[_Leaf[K, V]]:
    """What the leaf becomes: no leaf, one, or several."""
    if leaf is None:
        new = [(key, value) for key, value in changes if not isinstance(value, Removed)]
        return _split([key for key, _ in new], [value for _, value in new])
    keys, values = list(leaf.keys), list(leaf.values)
    if len(changes) > len(keys) // 8:
        return _merged(keys, values, changes)
    for key, value in changes:
        place = bisect_left(keys, key)
        is_there = place < len(keys) and keys[place] == key
        if isinstance(value, Removed):
            if is_there:
                del keys[place]
                del values[place]
        elif is_there:
            values[place] = value
        else:
            keys.insert(place, key)
            values.insert(place, value)
    return _split(keys, values)


def _merged(
    keys: list[K], values: list[V], changes: list[tuple[K, V | Removed]]
) -> list[_Leaf[K, V]]:
    """As `_changed`, for many changes at once."""
    entries: dict[K, V] = dict(zip(keys, values, strict=True))
    for key, value in changes:
        if isinstance(value, Removed):
            entries.pop(key, None)
        else:
            entries[key] = value
    ordered = sorted(entries)
    return _split(ordered, [entries[key] for key in ordered])


def _split(keys: list[K], values: list[V]) -> list[_Leaf[K, V]]:
    assert len(keys) == len(values), "each key has a value"
    if not keys:
        return []
    if len(keys) <= LEAF_ENTRIES_MAX:
        return [_Leaf(tuple(keys), tuple(values))]
    step = LEAF_ENTRIES_MAX // 2
    return [
        _Leaf(tuple(keys[start : start + step]), tuple(values[start : start + step]))
        for start in range(0, len(keys), step)
    ]
