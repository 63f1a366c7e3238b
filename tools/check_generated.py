"""Generates the protocol's code once more, elsewhere, and compares it with what is committed."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tools.repository import TOP, is_generated

PACKAGE = Path("tidelog/v1")


def generated_below(folder: Path) -> dict[str, bytes]:
    """Generated files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if is_generated(path)}


def differences(committed: dict[str, bytes], fresh: dict[str, bytes]) -> list[str]:
    """A line for each file that is missing, stale or left over."""
    found = [f"proto/{PACKAGE}/{name}: missing" for name in sorted(fresh.keys() - committed.keys())]
    found += [
        f"proto/{PACKAGE}/{name}: has no .proto any more"
        for name in sorted(committed.keys() - fresh.keys())
    ]
    found += [
        f"proto/{PACKAGE}/{name}: differs from what its .proto generates"
        for name in sorted(committed.keys() & fresh.keys())
        if committed[name] != fresh[name]
    ]
    return found


def main() -> int:
    """Compares; never writes into the sources."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(TOP / "tools/generate_proto.sh"), folder]
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=120)
        if done.returncode:
            print(done.stdout + done.stderr)
            return done.returncode
        fresh = generated_below(Path(folder) / PACKAGE)
    found = differences(generated_below(TOP / "proto" / PACKAGE), fresh)
    print("\n".join(found) if found else f"{len(fresh)} generated files are current")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
