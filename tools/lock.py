"""Resolves requirements/*.lock, and checks without a network that they fit pyproject.toml.

A lock pins every package by version and hash and names no registry: packages come from wherever
pip is configured to find them. Its first line carries the digest of what it was resolved from, so
that a changed dependency without a new lock is seen at once.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.repository import TOP

PYTHON_VERSION: Final = "3.11"


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """One lock: what it is resolved from."""

    name: str
    extras: tuple[str, ...] = ()
    is_project: bool = False
    inputs: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    resolution: str = "highest"

    @property
    def path(self) -> str:
        """Where the lock lies."""
        return f"requirements/{self.name}.lock"


LOCKS: Final = (
    Lock(name="dev", is_project=True, extras=("dev",), inputs=("requirements/build.in",)),
    Lock(
        name="run",
        is_project=True,
        inputs=("requirements/build.in",),
        constraints=("requirements/dev.lock",),
    ),
    Lock(name="base", is_project=True, constraints=("requirements/dev.lock",)),
    Lock(
        name="oldest",
        is_project=True,
        inputs=("requirements/build.in", "requirements/test.in"),
        resolution="lowest-direct",
    ),
    Lock(name="proto", inputs=("requirements/proto.in",)),
    Lock(name="java", inputs=("requirements/java.in",)),
)


def read_project(top: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Dependencies and extras of pyproject.toml."""
    project = tomllib.loads((top / "pyproject.toml").read_text())["project"]
    return project["dependencies"], project["optional-dependencies"]


def direct_requirements(lock: Lock, top: Path) -> list[str]:
    """Every requirement that the lock is resolved from, extras of the project itself unfolded."""
    wanted: list[str] = []
    if lock.is_project:
        base, extras = read_project(top)
        wanted += base
        queue = list(lock.extras)
        while queue:
            for text in extras[queue.pop(0)]:
                requirement = Requirement(text)
                if requirement.name == "tidelog":
                    queue += sorted(requirement.extras)
                else:
                    wanted.append(text)
    for name in lock.inputs:
        lines = (top / name).read_text().splitlines()
        wanted += [line for line in lines if line and not line.startswith("#")]
    return sorted(wanted)


def digest(lock: Lock, top: Path) -> str:
    """Changes whenever the lock has to be resolved again."""
    text = json.dumps([direct_requirements(lock, top), lock.resolution, PYTHON_VERSION])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def first_line(lock: Lock, top: Path) -> str:
    """The line that ties a lock to its inputs."""
    return f"# Resolved by `make lock` from inputs with digest {digest(lock, top)}; do not edit."


def write(lock: Lock, top: Path, *, upgrade: bool) -> None:
    """Resolves the lock with uv, keeping the pins that still fit unless `upgrade`."""
    path = top / lock.path
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("pip", "compile", "--universal", "--generate-hashes", "--no-emit-index-url"),
        *("--no-header", "--quiet", "--python-version", PYTHON_VERSION),
        *("--resolution", lock.resolution, "--output-file", lock.path),
    ]
    command += ["--upgrade"] if upgrade else []
    command += ["pyproject.toml"] if lock.is_project else []
    command += [f"--extra={extra}" for extra in lock.extras]
    command += [f"--constraints={name}" for name in lock.constraints]
    subprocess.run([*command, *lock.inputs], cwd=top, check=True)
    path.write_text(f"{first_line(lock, top)}\n{path.read_text()}")
    print(f"{lock.path}: {len(pins(path.read_text()))} packages")


def entries(text: str) -> list[str]:
    """The lock's entries: the line of the requirement and the indented ones that belong to it."""
    return re.findall(r"^[^\s#].*\n(?:[ ].*\n)*", text, flags=re.MULTILINE)


def pins(text: str) -> dict[str, list[str]]:
    """Pinned versions by package: a universal lock may pin several, told apart by markers."""
    found: dict[str, list[str]] = {}
    for entry in entries(text):
        requirement = Requirement(entry.splitlines()[0].removesuffix("\\").strip())
        version = next(iter(requirement.specifier)).version
        found.setdefault(canonicalize_name(requirement.name), []).append(version)
    return found


def faults(lock: Lock, top: Path) -> list[str]:
    """What is wrong with one lock, a line each."""
    path = top / lock.path
    if not path.is_file():
        return [f"{lock.path}: missing; run `make lock`"]
    text = path.read_text()
    found = []
    if text.splitlines()[0] != first_line(lock, top):
        found.append(f"{lock.path}: its inputs changed since; run `make lock`")
    if re.search(r"://|--(extra-)?index-url|--find-links", text):
        found.append(f"{lock.path}: names a registry or an address")
    pinned = pins(text)
    found += [
        f"{lock.path}: {entry.split()[0]} has no hash"
        for entry in entries(text)
        if "--hash=sha256:" not in entry
    ]
    for wanted in map(Requirement, direct_requirements(lock, top)):
        versions = pinned.get(canonicalize_name(wanted.name), [])
        if not versions:
            found.append(f"{lock.path}: {wanted.name} is not pinned")
        found += [
            f"{lock.path}: {wanted.name} {version} does not satisfy {wanted.specifier}"
            for version in versions
            if not wanted.specifier.contains(version, prereleases=True)
        ]
    return found


def main() -> int:
    """Checks the locks, or writes them."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description=__doc__)
    parser.add_argument("--write", action="store_true", help="resolve the locks again")
    parser.add_argument("--upgrade", action="store_true", help="move every pin to the newest")
    arguments = parser.parse_args()
    if arguments.write:
        for lock in LOCKS:
            write(lock, TOP, upgrade=arguments.upgrade)
    found = [line for lock in LOCKS for line in faults(lock, TOP)]
    print("\n".join(found) if found else f"{len(LOCKS)} locks fit their inputs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
