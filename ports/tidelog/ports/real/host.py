"""What this machine says about itself: the boot id, which tells a dead process from a dead machine.

Where the system names no boot, every process gets an id of its own: then each restart looks like
a restart of the machine, which costs eligibility and recovery work, and never data.
"""

import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

LINUX_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
MACOS_BOOT_ID: Final = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
SYSCTL_TIMEOUT_S: Final = 5.0
UNKNOWN_PREFIX: Final = "process-"
"""Begins the boot id of a machine that tells none."""


class RealHost:
    """Reads the facts once: they do not change while the process lives."""

    def __init__(self, boot_id_file: Path = LINUX_BOOT_ID) -> None:
        self._boot_id = _read_boot_id(boot_id_file)
        self._host_name = socket.gethostname()

    def boot_id(self) -> str:
        """Changes with each start of the machine; with each process where none is told."""
        return self._boot_id

    def host_name(self) -> str:
        """For placement and messages only; never an address."""
        return self._host_name


def _read_boot_id(boot_id_file: Path) -> str:
    told = _read_macos() if sys.platform == "darwin" else _read_linux(boot_id_file)
    return told or UNKNOWN_PREFIX + secrets.token_hex(16)


def _read_linux(boot_id_file: Path) -> str:
    try:
        return boot_id_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _read_macos() -> str:
    try:
        answer = subprocess.run(
            MACOS_BOOT_ID, capture_output=True, text=True, timeout=SYSCTL_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
