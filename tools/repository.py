"""What the repository consists of: its source roots, its files, and how to run Python on them.

Every tool here asks this module, so that a new room is added in one place (and in
pyproject.toml, which `tests/tidy` compares).
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parent.parent

ROOTS: Final = (
    "proto",
    "ports",
    "metadata_quorum",
    "broker",
    "client_sdk",
    "test_kit",
    "cli",
    "spark_source",
    "chaos",
)
"""Source roots of the namespace package `tidelog`, in the order of the layers."""

TOP_LEVEL_PACKAGES: Final = frozenset({"tidelog", "pyspark_tidelog"})
"""All that an installation may add to site-packages."""


def tracked_files(top: Path = TOP) -> list[Path]:
    """Files that git has or would add, relative to `top`, sorted; a copy without git is walked."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not (top / ".git").exists():
        return _walked_files(top)
    listed = subprocess.run(command, cwd=top, capture_output=True, check=True).stdout
    names = sorted({os.fsdecode(name) for name in listed.split(b"\0") if name})
    return [Path(name) for name in names if (top / name).is_file()]


def is_generated(path: Path) -> bool:
    """Whether the code generator wrote the file."""
    return path.name.endswith(("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi"))


def python_files(top: Path = TOP) -> list[Path]:
    """Python sources that people write."""
    return [path for path in tracked_files(top) if path.suffix == ".py" and not is_generated(path)]


def room_paths(top: Path = TOP) -> list[str]:
    """The source roots as entries for `sys.path`."""
    return [str(top / root) for root in ROOTS]


def run_isolated(code: str, top: Path = TOP) -> subprocess.CompletedProcess[str]:
    """Runs code that sees the rooms below `top` and the environment's packages, nothing else.

    Without `-S` the editable installation's path file would mix the rooms of another checkout
    into the namespace package.
    """
    site_packages = sysconfig.get_path("purelib")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    lines = f"import sys; sys.path[:0] = {[*room_paths(top), site_packages]!r}\n{code}"
    return subprocess.run(
        [sys.executable, "-S", "-c", lines],
        cwd=top,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )


def _walked_files(top: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(
            name for name in folders if name != "__pycache__" and not name.startswith(".")
        )
        found += [Path(folder, name).relative_to(top) for name in names]
    return sorted(path for path in found if path.suffix not in {".pyc"})
