"""What a simulated data directory holds: as processes see it, and as a crash would leave it.

A copy of it can be made while nothing runs on it, and put in its place later: it went back in time.

Every file has its bytes as seen through the page cache and the list of changes that no flush has
covered; every directory likewise with its names. `crash` rolls the uncovered changes like dice:
kept, dropped, torn, or kept with holes, byte by byte. It must never lose what a flush covered.
"""

import functools
from collections.abc import Callable

import msgspec

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom


class Write(msgspec.Struct, frozen=True):
    """Bytes appended at a place."""

    byte_position: int
    data: bytes


class Truncation(msgspec.Struct, frozen=True):
    """A tail cut off."""

    size_bytes: int


class Inode:
    """One file."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.pending: list[Write | Truncation] = []
        """Not covered by a flush, in the order of their effect."""
        self.made = 0
        """Changes ever made; the pending ones are the last of them."""
        self.certain_bytes = 0
        """What flushes have covered; bytes behind survived a crash by luck, if at all."""
        self.is_locked = False
        """Another program lets nobody write to it, nor open it."""
        self.is_lost = False
        """A flush of it failed: its pages count as clean, and no later flush writes them."""

    def write(self, data: bytes) -> None:
        """Append to what is seen."""
        self._add(Write(len(self.seen), data))
        self.seen += data

    def truncate(self, size_bytes: int) -> None:
        """Cut what is seen."""
        self._add(Truncation(size_bytes))
        del self.seen[size_bytes:]

    def cover(self, until: int) -> None:
        """Make the changes up to the `until`-th durable."""
        if self.is_lost:
            return
        count = max(0, until - (self.made - len(self.pending)))
        for change in self.pending[:count]:
            _apply(self.durable, change)
        del self.pending[:count]
        self.certain_bytes = len(self.durable)

    def cut_uncertain(self) -> int:
        """Drop what no flush covered, as a less lucky crash would have; returns the bytes."""
        cut = len(self.seen) - self.certain_bytes
        if cut > 0:
            del self.seen[self.certain_bytes :]
            self.durable = bytearray(self.seen)
            self.pending.clear()
        return max(0, cut)

    def leave(self, content: bytes) -> None:
        """Another program leaves these bytes, on the disk to the last one. What is seen and neither
        durable nor pending would be zeros after a crash, whatever was flushed since."""
        self.seen[:] = self.durable[:] = content
        self.pending.clear()
        self.certain_bytes = min(self.certain_bytes, len(content))

    def replace_byte(self, byte_position: int, before: int, after: int) -> bool:
        """Damage a byte, or undo that, wherever it still has the value before."""
        is_done = False
        for content in (self.durable, self.seen):
            if byte_position < len(content) and content[byte_position] == before:
                content[byte_position] = after
                is_done = True
        return is_done

    def _add(self, change: Write | Truncation) -> None:
        self.pending.append(change)
        self.made += 1


class Directory:
    """One directory: names to inodes and directories."""

    def __init__(self) -> None:
        self.seen: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.pending: list[NameChange] = []
        self.made = 0


class NameChange:
    """A change of names in one or, for a rename, two directories: it happened or it did not."""

    def __init__(
        self,
        *,
        added: tuple[Directory, str, Inode | Directory] | None = None,
        removed: tuple[Directory, str] | None = None,
    ) -> None:
        self.added = added
        self.removed = removed
        self.waits_for: list[Directory] = []
        """The directories whose flush is still missing."""
        for directory in (added and added[0], removed and removed[0]):
            if directory is not None and directory not in self.waits_for:
                self.waits_for.append(directory)

    def apply(self, names_of: Callable[[Directory], dict[str, Inode | Directory]]) -> None:
        """To the names as seen, or to the durable ones."""
        if self.removed is not None:
            names_of(self.removed[0]).pop(self.removed[1], None)
        if self.added is not None:
            names_of(self.added[0])[self.added[1]] = self.added[2]


def _seen(directory: Directory) -> dict[str, Inode | Directory]:
    return directory.seen


def _durable(directory: Directory) -> dict[str, Inode | Directory]:
    return directory.durable


CopiedTree = dict[str, "bytes | CopiedTree"]
"""Names to the bytes of files and to directories."""


class Medium:
    """One data directory of one machine; it outlives processes and boots."""

    def __init__(self, name: str, *, capacity_bytes: int = 1 << 40) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.root = Directory()
        self.is_away = False
        """Its name leads to nothing, or to something else: it was unmounted or renamed."""
        self.is_failed = False
        """A flush failed: nothing is written any more until the machine starts again."""
        self.owes_failure = False
        """The flush of a job's file failed, and the next flush of the file system hears of it."""
        self.is_read_only = False
        self.holder: object | None = None
        """Who holds the lock."""
        self.watchers: list[Callable[[bool], None]] = []
        """Called once, at the next change; told whether it is one of names."""
        self._put_back: list[Callable[[], None]] = []
        """How to undo what another program has taken away."""
        self.flips: list[tuple[Inode, int, int, int]] = []
        """Damage done to bytes at rest: inode, byte position, value before and after."""

    def take_away(self, path: str, faults: Faults) -> None:
        """Another program removes a file or a directory; a crash does not bring it back."""
        parent, _, name = path.rpartition("/")
        directory = self.find(parent)
        assert isinstance(directory, Directory), f"{path} lies in a directory"
        child = directory.seen.pop(name)
        directory.durable.pop(name, None)
        self._put_back.append(functools.partial(self._give_back, parent, name, child))
        faults.took_effect(FaultKind.GONE_FILE, f"{self.name}/{path}")

    def cut_short(self, path: str, inode: Inode, size_bytes: int, faults: Faults) -> None:
        """Another program cuts the tail of a file off that nobody has open."""
        whole = bytes(inode.seen)
        inode.leave(whole[:size_bytes])
        self._put_back.append(functools.partial(inode.leave, whole))
        faults.took_effect(FaultKind.GONE_FILE, f"{self.name}/{path}", f"{size_bytes} are left")

    def lose(self, name: str, faults: Faults) -> None:
        """Another program removes a file of the data directory for good; nobody has it open."""
        for names in (self.root.seen, self.root.durable):
            names.pop(name, None)
        faults.took_effect(FaultKind.GONE_FILE, f"{self.name}/{name}")

    def lose_bytes(self, path: str, size_bytes: int, faults: Faults) -> None:
        """Another program cuts the tail of a file off for good; nobody has it open."""
        inode = self.find(path)
        assert isinstance(inode, Inode), f"{path} is a file"
        inode.leave(bytes(inode.seen[:size_bytes]))
        faults.took_effect(FaultKind.GONE_FILE, f"{self.name}/{path}", f"{size_bytes} are left")

    @property
    def has_lost_files(self) -> bool:
        """Whether another program has taken anything away that nobody has put back."""
        return bool(self._put_back)

    def give_back(self) -> None:
        """What another program took away is there again, as it was."""
        for each in self._put_back:
            each()
        self._put_back.clear()

    def _give_back(self, parent: str, name: str, child: Inode | Directory) -> None:
        directory = self.find(parent)
        if isinstance(directory, Directory):
            directory.seen[name] = directory.durable[name] = child

    def find(self, path: str) -> Inode | Directory | None:
        """What a path names; "" is the data directory itself."""
        place: Inode | Directory | None = self.root
        for part in path.split("/") if path else ():
            if not isinstance(place, Directory):
                return None
            place = place.seen.get(part)
        return place

    def change_names(self, change: NameChange) -> None:
        """Seen at once, durable when every directory involved is flushed."""
        change.apply(_seen)
        for directory in change.waits_for:
            directory.pending.append(change)
            directory.made += 1
        self.changed(is_name=True)

    def changed(self, *, is_name: bool) -> None:
        """Tell whoever watches that there is something now which no flush has covered."""
        watchers, self.watchers = self.watchers, []
        for watcher in watchers:
            watcher(is_name)

    def cover_names(self, directory: Directory, until: int) -> None:
        """Make the changes of a directory up to the `until`-th durable."""
        count = max(0, until - (directory.made - len(directory.pending)))
        covered = directory.pending[:count]
        del directory.pending[:count]
        for change in covered:
            change.waits_for.remove(directory)
            if not change.waits_for:
                change.apply(_durable)

    def used_bytes(self) -> int:
        """Bytes of all files as seen."""
        return sum(len(inode.seen) for _, inode in self.files())

    def files(self) -> list[tuple[str, Inode]]:
        """Every file that is seen, by path."""
        return _files(self.root, "", _seen)

    def durable_files(self) -> list[tuple[str, Inode]]:
        """Every file that a crash of the machine could not take."""
        return _files(self.root, "", _durable)

    def has_later_sibling(self, path: str) -> bool:
        """Whether its directory has a file behind it by name."""
        parent, _, name = path.rpartition("/")
        directory = self.find(parent)
        return isinstance(directory, Directory) and any(
            other > name for other, child in directory.durable.items() if isinstance(child, Inode)
        )

    def durable_in(self, directory: str) -> list[Inode]:
        """The files of a top directory that a crash of the machine could not take, last first."""
        place = self.root.durable.get(directory)
        if not isinstance(place, Directory):
            return []
        files = [child for _, child in sorted(place.durable.items(), reverse=True)]
        return [child for child in files if isinstance(child, Inode)]

    def crash(self, random: SeededRandom, faults: Faults) -> None:
        """The machine dies: what no flush covered is kept, dropped or torn."""
        self._crash_names(self.root, random, faults)
        for path, inode in self.files():
            _crash_file(inode, f"{self.name}/{path}", random, faults)
        self.is_failed = False
        self.owes_failure = False
        self.is_read_only = False
        self.holder = None

    def _crash_names(self, directory: Directory, random: SeededRandom, faults: Faults) -> None:
        for change in list(directory.pending):
            if faults.fires(FaultKind.LOST_NAME):
                detail = (
                    change.added[1] if change.added else f"-{change.removed and change.removed[1]}"
                )
                faults.took_effect(FaultKind.LOST_NAME, self.name, detail)
            else:
                change.apply(_durable)
            for other in change.waits_for:
                other.pending.remove(change)
        directory.seen = dict(directory.durable)
        for name in sorted(directory.seen):
            child = directory.seen[name]
            if isinstance(child, Directory):
                self._crash_names(child, random, faults)

    def flip_bit(self, path: str, inode: Inode, random: SeededRandom, faults: Faults) -> int:
        """Damage one durable bit of a file at rest; returns the byte's position."""
        assert inode.durable, "only a durable byte can rot"
        byte_position = random.below(len(inode.durable))
        before = inode.durable[byte_position]
        after = before ^ 1 << random.below(8)
        inode.replace_byte(byte_position, before, after)
        self.flips.append((inode, byte_position, before, after))
        faults.took_effect(FaultKind.BIT_FLIP, f"{self.name}/{path}", f"byte {byte_position}")
        return byte_position

    def copy(self) -> CopiedTree:
        """Everything as processes see it; nothing may run on it."""
        assert self.holder is None, f"{self.name} is at work"
        return _copied(self.root)

    def put_back(self, copied: CopiedTree) -> None:
        """The copy takes its place, durable to the last byte."""
        assert self.holder is None, f"{self.name} is at work"
        self.root = _made_of(copied)
        self.flips.clear()
        self.watchers.clear()

    @property
    def is_rotten(self) -> bool:
        """Whether a damaged byte is still there: what held it may have been cut off since."""
        return any(
            byte_position < len(content) and content[byte_position] == after
            for inode, byte_position, _, after in self.flips
            for content in (inode.durable, inode.seen)
        )

    def unflip(self) -> int:
        """Undo all damage at rest, as a restore from a copy would; returns how many bits."""
        undone = [
            inode.replace_byte(byte_position, after, before)
            for inode, byte_position, before, after in reversed(self.flips)
        ]
        self.flips.clear()
        return sum(undone)


def _copied(directory: Directory) -> CopiedTree:
    return {
        name: bytes(child.seen) if isinstance(child, Inode) else _copied(child)
        for name, child in sorted(directory.seen.items())
    }


def _made_of(copied: CopiedTree) -> Directory:
    directory = Directory()
    for name, child in copied.items():
        if isinstance(child, bytes):
            inode = Inode()
            inode.seen, inode.durable = bytearray(child), bytearray(child)
            inode.certain_bytes = len(child)
            directory.seen[name] = directory.durable[name] = inode
        else:
            directory.seen[name] = directory.durable[name] = _made_of(child)
    return directory


def _files(
    directory: Directory,
    prefix: str,
    names_of: Callable[[Directory], dict[str, Inode | Directory]],
) -> list[tuple[str, Inode]]:
    found: list[tuple[str, Inode]] = []
    for name, child in sorted(names_of(directory).items()):
        if isinstance(child, Inode):
            found.append((prefix + name, child))
        else:
            found += _files(child, f"{prefix}{name}/", names_of)
    return found


def _apply(content: bytearray, change: Write | Truncation) -> None:
    if isinstance(change, Truncation):
        del content[change.size_bytes :]
        return
    if len(content) < change.byte_position:
        content.extend(bytes(change.byte_position - len(content)))
    content[change.byte_position : change.byte_position + len(change.data)] = change.data


def _crash_file(inode: Inode, subject: str, random: SeededRandom, faults: Faults) -> None:
    left = bytearray(inode.durable)
    for change in inode.pending:
        if inode.is_lost and random.chance(0.5):
            continue
        for kept in _survivors(change, subject, random, faults):
            _apply(left, kept)
    inode.seen = left
    inode.durable = bytearray(left)
    inode.is_lost = False
    inode.pending.clear()


def _survivors(
    change: Write | Truncation, subject: str, random: SeededRandom, faults: Faults
) -> list[Write | Truncation]:
    """What a crash leaves of one change that no flush covered."""
    if faults.fires(FaultKind.LOST_WRITE):
        faults.took_effect(FaultKind.LOST_WRITE, subject)
        return []
    if isinstance(change, Truncation) or len(change.data) < 2:
        return [change]
    if faults.fires(FaultKind.TORN_WRITE):
        kept_bytes = random.between(1, len(change.data) - 1)
        faults.took_effect(FaultKind.TORN_WRITE, subject, f"{kept_bytes} of {len(change.data)}")
        return [Write(change.byte_position, change.data[:kept_bytes])]
    if faults.fires(FaultKind.HOLE):
        faults.took_effect(FaultKind.HOLE, subject)
        return _around_hole(change, random)
    return [change]


def _around_hole(write: Write, random: SeededRandom) -> list[Write | Truncation]:
    """Later bytes arrived, earlier ones did not: a part of the middle or front is missing."""
    size_bytes = len(write.data)
    begin = 0 if random.chance(0.4) else random.below(size_bytes - 1)
    end = random.between(begin + 1, size_bytes - 1)
    return [
        Write(write.byte_position, write.data[:begin]),
        Write(write.byte_position + end, write.data[end:]),
    ]
