"""The data directory itself: whether it is still found under its name.

A disk may be unmounted, and a directory be renamed or replaced, while its files are open: they go
on working, and whatever is made by its path is made somewhere else, below the mount point. Owns one
descriptor, opened at the start, which stands for the directory that was meant. It must never make
or change anything. Any thread may ask.
"""

import os

from tidelog.ports.disk import DirectoryGone, directory_gone
from tidelog.ports.real.disk import io as disk_io


class Root:
    """Made with the directory's lock, closed with its files."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def check(self, tried: str) -> None:
        """DirectoryGone unless its path leads to it; OSError where that cannot be seen."""
        gone = self.find_gone(tried)
        if gone is not None:
            raise gone

    def find_gone(self, tried: str) -> DirectoryGone | None:
        """Two looks, and nothing is remembered: some file systems number a directory anew."""
        own = os.fstat(self._descriptor)
        try:
            found = os.stat(self._path)
        except OSError as error:
            if not disk_io.is_of_the_path(error):
                raise
        else:
            if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
                return None
        return directory_gone(tried, self._path)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
