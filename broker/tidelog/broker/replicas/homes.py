"""In which data directory a partition lies, or is to be made.

The controller decides it and the image tells it; where it does not, the directory that the
partition is found in counts, and a new one goes to the emptiest. It must never name a directory for
a partition that lies in another one, one that cannot be looked at included: a log made anew beside
its records would serve none of them.
"""

from collections.abc import Sequence

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.metadata.image.image import PartitionImage
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey


class Homes:
    """`survey` once, before the first `choose`."""

    def __init__(self, directories: Sequence[LogDirectory], broker_id: BrokerId) -> None:
        self._directories = tuple(directories)
        self._broker_id = broker_id
        self._found: dict[PartitionKey, list[LogDirectory]] = {}

    async def survey(self) -> None:
        """Look what lies where."""
        for directory in self._directories:
            for key in await directory.survey():
                self._found.setdefault(key, []).append(directory)

    def choose(
        self, key: PartitionKey, partition: PartitionImage, *, was_here: bool
    ) -> LogDirectory | TidelogError:
        """Where it is, or is to be made; else why it cannot be served.

        `was_here`: it was placed here before this process looked, so that it may have records. Of
        one that was not, files may be left of an earlier assignment: they are opened.
        """
        uuid = partition.directory_of(self._broker_id)
        found = self._found.get(key, [])
        working = [each for each in found if each.failure is None]
        named = self.named(uuid)
        if uuid and named is None:
            return self._missing(key, uuid)
        if named is not None and named.failure is not None:
            return named.failure
        if named is not None:
            # Found elsewhere only: an operator gave it up there, and it has come back.
            return working[0] if working and named not in working else named
        if found:
            return working[0] if working else _failure_of(found[0])
        return self._emptiest(was_here=was_here)

    def note_removed(self, key: PartitionKey, directory: LogDirectory, *, are_gone: bool) -> None:
        """Its files have gone from there; or they have not, and must not be taken for new ones."""
        found = [each for each in self._found.pop(key, []) if each is not directory]
        if not are_gone:
            found.append(directory)
        if found:
            self._found[key] = found

    def is_found(self, key: PartitionKey, directory: LogDirectory) -> bool:
        """Whether files of it lie there, or marks say that they should."""
        return directory in self._found.get(key, ())

    def named(self, uuid: bytes) -> LogDirectory | None:
        """The directory of that id, if it is one of these."""
        same = [each for each in self._directories if uuid and each.directory_uuid == uuid]
        return same[0] if same else None

    def _emptiest(self, *, was_here: bool) -> LogDirectory | TidelogError:
        failed = [each for each in self._directories if each.failure is not None]
        working = [each for each in self._directories if each.failure is None]
        if not working or (was_here and failed):
            return _failure_of(failed[0])
        return min(working, key=lambda each: each.partition_count)

    def _missing(self, key: PartitionKey, uuid: bytes) -> TidelogError:
        """It lies in a directory that nobody has named, or whose id could not be read."""
        unread = [each for each in self._directories if not each.directory_uuid]
        if unread and unread[0].failure is not None:
            return unread[0].failure
        return TidelogError(
            ErrorCode.STORAGE_FAILED,
            tried=f"open {key}",
            happened=f"it lies in the directory of id {uuid.hex()}, "
            "which is neither data_dir nor one of log_dirs",
            hint="Add it to log_dirs again and restart. If it is lost, `tidelog partition "
            "elect-leaders --unclean` lets the partition begin anew.",
        )


def _failure_of(directory: LogDirectory) -> TidelogError:
    assert directory.failure is not None, f"{directory.name} has not failed"
    return directory.failure
