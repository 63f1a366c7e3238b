"""The Host port of a simulated machine: its boot id changes with each start of the machine."""


class SimulatedHost:
    """Facts of one boot."""

    def __init__(self, name: str, boot_id: str) -> None:
        self._name = name
        self._boot_id = boot_id

    def boot_id(self) -> str:
        """Of this boot."""
        return self._boot_id

    def host_name(self) -> str:
        """The machine's name in the simulation."""
        return self._name
