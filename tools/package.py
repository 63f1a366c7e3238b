"""Builds what users install, installs it into clean environments, and says what it weighs.

Shows that the wheel built from the checkout and the one built from the sdist hold the same
modules, that an installation adds nothing but `tidelog` and `pyspark_tidelog`, that every package
imports with only the base dependencies there, with their newest and their oldest supported
versions, and how large the base installation is.
"""

import argparse
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tools.repository import ROOTS, TOP, TOP_LEVEL_PACKAGES, tracked_files

BASE_MEBIBYTES_MAX: Final = 60
DIRECT_DEPENDENCIES_MAX: Final = 12
TIMEOUT_SECONDS: Final = 600
NEEDS_EXTRA: Final = ("tidelog.spark", "pyspark_tidelog")
"""Packages that are of no use, and need not import, without their extra."""

PREINSTALLED: Final = ("pip", "setuptools", "_distutils_hack", "distutils-precedence")

IMPORT_ALL: Final = """
import importlib
for name in {names!r}:
    importlib.import_module(name)
"""


class PackageError(RuntimeError):
    """Something that users would install is wrong."""


def run(*command: str | Path, folder: Path = TOP) -> str:
    """Runs a command; its output matters only when it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode:
        name = " ".join(map(str, command[:4]))
        raise PackageError(f"{name} ... failed:\n{done.stdout}{done.stderr}".strip())
    return done.stdout


def only(paths: Iterable[Path]) -> Path:
    """The one path that there has to be."""
    found = list(paths)
    if len(found) != 1:
        raise PackageError(f"one file was expected, not {[path.name for path in found]}")
    return found[0]


def build(source: Path, target: Path, kind: str) -> Path:
    """A wheel or an sdist of a source tree, with the build backend of this environment."""
    run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "-o", target, source)
    return only(target.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


def unpack(archive: Path, folder: Path) -> Path:
    """The source tree inside an sdist."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return only(folder.iterdir())


def contents(wheel: Path) -> dict[str, int]:
    """Files of a wheel and their checksums, its own description left out."""
    with zipfile.ZipFile(wheel) as opened:
        return {
            entry.filename: entry.CRC
            for entry in opened.infolist()
            if ".dist-info/" not in entry.filename
        }


def expected() -> set[str]:
    """Every file below the rooms' two packages, as a wheel should name it."""
    return {
        str(Path(*path.parts[1:]))
        for path in tracked_files()
        if path.parts[0] in ROOTS and path.parts[1] in TOP_LEVEL_PACKAGES
    }


def modules(names: Iterable[str]) -> list[str]:
    """Module names of the files of a wheel; the command behind `python -m` is left out."""
    dotted = [name.removesuffix(".py").replace("/", ".") for name in names if name.endswith(".py")]
    return sorted(
        name.removesuffix(".__init__") for name in dotted if not name.endswith(".__main__")
    )


def check_wheels(wheel: Path, again: Path) -> Iterator[str]:
    """Compares the two wheels with each other and with the checkout."""
    first, second = contents(wheel), contents(again)
    if first != second:
        odd = sorted(dict(first.items() ^ second.items()))
        raise PackageError(f"wheel and wheel from the sdist differ: {odd}")
    if set(first) != expected():
        raise PackageError(f"wheel and checkout differ: {sorted(set(first) ^ expected())}")
    top_level = {name.split("/")[0] for name in first}
    if top_level != TOP_LEVEL_PACKAGES:
        raise PackageError(f"the wheel installs {sorted(top_level)}")
    yield f"wheel = wheel from the sdist: {len(first)} files, {len(modules(first))} modules"
    yield f"top-level names: {', '.join(sorted(top_level))}"


def install(folder: Path, wheel: Path, lock: str) -> Path:
    """A clean environment with the wheel and the packages of a lock; its `python`."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input", "install")
    run(*pip, "--require-hashes", "-r", TOP / "requirements" / lock)
    run(*pip, "--no-deps", wheel)
    return python


def mebibytes(folder: Path) -> float:
    """Size of all files below a folder, byte code left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sum(path.stat().st_size for path in files) / 2**20


def check_installed(python: Path, wheel: Path, lock: str, folder: Path) -> Iterator[str]:
    """Imports every module outside the checkout."""
    names = modules(contents(wheel))
    base = [name for name in names if not name.startswith(NEEDS_EXTRA)]
    run(python, "-W", "error", "-c", IMPORT_ALL.format(names=base), folder=folder)
    yield (
        f"{lock}: {len(base)} modules import with warnings as errors "
        f"({len(names) - len(base)} need an extra)"
    )
    run(python, "-m", "pip", "check", folder=folder)


def base_size(python: Path, folder: Path) -> float:
    """What an installation adds to an environment that has pip already."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", code, folder=folder).strip())
    ours = [path for path in site.iterdir() if not path.name.startswith(PREINSTALLED)]
    return sum(mebibytes(path) if path.is_dir() else path.stat().st_size / 2**20 for path in ours)


def check_all(folder: Path) -> Iterator[str]:
    """Builds, compares, installs and measures, one line for each thing shown."""
    sdist = build(TOP, folder / "sdist", "sdist")
    wheel = build(TOP, folder / "wheel", "wheel")
    again = build(unpack(sdist, folder / "unpacked"), folder / "again", "wheel")
    yield f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB"
    yield f"{sdist.name}: {sdist.stat().st_size / 1024:.0f} KiB"
    yield from check_wheels(wheel, again)
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    direct = len(project["dependencies"])
    yield f"direct dependencies: {direct} (limit {DIRECT_DEPENDENCIES_MAX})"
    if direct > DIRECT_DEPENDENCIES_MAX:
        raise PackageError("too many direct dependencies")
    for lock in ("base.lock", "oldest.lock"):
        python = install(folder / lock, wheel, lock)
        if lock == "base.lock":
            size = base_size(python, folder)
            yield f"{lock}: the installation takes {size:.1f} MiB (limit {BASE_MEBIBYTES_MAX})"
            if size > BASE_MEBIBYTES_MAX:
                raise PackageError("the base installation is too large")
        yield from check_installed(python, wheel, lock, folder)


def main() -> int:
    """Prints what was shown, or the first thing that is wrong."""
    argparse.ArgumentParser(prog="python -m tools.package", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for line in check_all(Path(folder)):
                print(line, flush=True)
        except PackageError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
