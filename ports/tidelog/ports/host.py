"""What a node may know about the machine that it runs on."""

from typing import Protocol


class Host(Protocol):
    """Facts that do not change while the process lives."""

    def boot_id(self) -> str:
        """Changes with each start of the machine, not of the process.

        Tells a process that died (the page cache survived) from a machine that died.
        """
        ...

    def host_name(self) -> str:
        """For placement and messages only; never an address."""
        ...
