"""One Tidelog node on loopback, in a directory of its own, ended by its pid.

Owns the lifecycle of the node that is measured. It must never change a default: the node runs as
`tidelog dev` starts it.
"""

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.processes import Child

ADDRESS: Final = re.compile(r"\b(127\.0\.0\.1|localhost):(\d+)\b")


def address_in(line: str) -> str | None:
    """The first loopback address with a port that a line names."""
    found = ADDRESS.search(line)
    return f"127.0.0.1:{found.group(2)}" if found else None


class TidelogNode:
    """Listening when constructed; `started` is when its process was started."""

    def __init__(self, *, advertised: str = "") -> None:
        """`advertised`: where clients are sent instead, through a proxy."""
        self._directory = tempfile.TemporaryDirectory(prefix="bench-tidelog-")
        self.started = time.perf_counter()
        data = f"{self._directory.name}/data"
        command = ["-m", "tidelog", "dev", "--port", "0", "--data-dir", data]
        if advertised:
            file = Path(self._directory.name) / "node.toml"
            file.write_text(f'[listeners.client]\nadvertised = "{advertised}"\n')
            command += ["--config", str(file)]
        self._child = Child([sys.executable, *command])
        try:
            address = address_in(self._child.wait_match(ADDRESS))
        except BaseException:
            self.close()
            raise
        assert address is not None, "the line matched, so it names an address"
        self.bootstrap = address
        self.listening_seconds = time.perf_counter() - self.started

    @property
    def pid(self) -> int:
        return self._child.pid

    def close(self) -> None:
        self._child.stop()
        self._directory.cleanup()

    def __enter__(self) -> "TidelogNode":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
